"""What a run leaves: its record, its digest, and the trackers that watch it being made."""
