"""Reproduces tables and figures of papers: executes their runs, and renders the files."""
