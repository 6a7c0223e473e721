"""Downloads that are checked before they are read, and pickles that can run nothing."""
