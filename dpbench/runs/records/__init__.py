"""Records of finished runs, the digests that name them, and trackers that log running ones."""
