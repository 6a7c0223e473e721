"""Reruns the tables of papers on differentially private SGD, and says whether each epsilon holds."""

__version__ = "0.1.0"
