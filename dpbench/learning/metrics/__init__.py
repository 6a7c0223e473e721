"""Measures of a result: from the outputs of a model to metrics, with margins and intervals."""
