"""Reliability diagrams, and the formats, names and files of all pictures."""
