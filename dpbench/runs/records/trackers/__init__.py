"""Trackers log the numbers of a run while it trains, without affecting it."""
