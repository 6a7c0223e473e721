"""Trackers log the numbers of a run while it trains, without affecting it."""

from dpbench.runs.records.trackers.tracker import Log, RunInfo, Tracker, group_names, run_info

__all__ = ["Log", "RunInfo", "Tracker", "group_names", "run_info"]
