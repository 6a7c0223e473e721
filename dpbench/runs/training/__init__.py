"""One run, from its settings to its record: plan, training, checkpoints, provenance, tracking."""
