"""Benchmarks the cost of private steps, ours and other libraries', against a plain step."""
