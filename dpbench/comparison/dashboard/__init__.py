"""Writes one self-contained HTML page that compares the runs of a results folder."""
