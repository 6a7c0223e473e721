"""Runs carried out: one, many in parallel, here or on a cluster."""
