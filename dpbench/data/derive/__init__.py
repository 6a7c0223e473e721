"""Data sets made of others: thinned, split, shared out among users, augmented, normalised."""
