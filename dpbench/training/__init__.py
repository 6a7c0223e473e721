"""One run, from what was asked for to its record: plan, train, put away, take up, say where."""
