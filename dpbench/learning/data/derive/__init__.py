"""Data sets derived from others: unbalanced, split, assigned to users, augmented, normalised."""
