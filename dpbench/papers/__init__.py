"""What one paper alone computes, by a table or figure that names it as its `_target_`."""
