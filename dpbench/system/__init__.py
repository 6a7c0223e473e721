"""Errors, checks of values, paths and seeds; files, locks, memory, signals and the terminal."""
