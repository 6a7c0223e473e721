"""Optional diagnostics of a run, which read private data outside of any accounting."""
