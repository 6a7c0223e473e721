"""Downloads that are verified before they are read, and pickles that cannot execute code."""
