"""Whether records follow from their settings, and tables and pages from their records."""
