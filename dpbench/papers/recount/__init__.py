"""Printed epsilons, recomputed from their settings by the accountants of the suite."""
