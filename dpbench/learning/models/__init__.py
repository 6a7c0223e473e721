"""Architectures, one module each, and their predictions."""
