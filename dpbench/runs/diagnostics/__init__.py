"""Optional diagnostics of a run, which read private data outside of any accounting."""

from dpbench.runs.diagnostics.observer import Diagnostics, Observer

__all__ = ["Diagnostics", "Observer"]
