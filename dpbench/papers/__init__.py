"""Computations specific to one paper, which a table or figure names as its `_target_`."""
