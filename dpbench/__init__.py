"""Reruns the tables of papers on private SGD, and says of every epsilon whether it holds."""

__version__ = "0.1.0"
