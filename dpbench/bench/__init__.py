"""What a private step costs: ours and other people's, against a step without privacy."""
