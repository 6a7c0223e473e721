"""Executes runs: one, or many in parallel, on this machine or on a cluster."""
