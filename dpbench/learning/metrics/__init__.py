"""Pure functions from a model's outputs to metrics."""
