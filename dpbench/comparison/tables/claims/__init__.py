"""A paper's claims as comparisons of rows, and whether our runs bear them out."""
