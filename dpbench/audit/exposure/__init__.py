"""What realistic attackers learn from a real run: by inserted canaries, and by its final losses."""
