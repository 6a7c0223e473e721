"""The progress of a run: its steps, loss and epsilon so far."""

import time
from pathlib import Path

from dpbench.privacy.accountants import rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.guarantee import VOUCHED
from dpbench.runs.records.epsilon import EXACT, rounded_up
from dpbench.runs.training.steps_file import StepsFile
from dpbench.system import progress

FIRST_SECONDS = 2.0
"""Nothing is shown for anything that ends earlier."""


class Progress:
    """Shows steps, loss, epsilon so far and time left of a run on standard error.

    plan: the run's Plan. The loss is that of the last whole epoch of this process, and is meant
    only for the data holder. Nothing is shown for runs that end within a few seconds. done: steps
    taken before the run was resumed. folder: where a quiet run keeps its steps for the sweep
    that it is part of.
    """

    def __init__(self, plan, delta: float, quiet: bool, done: int = 0, folder: Path | None = None):
        self._plan, self._delta, self._quiet, self._done = plan, delta, quiet, done
        self._loss: float | None = None
        self._display: progress.Display | None = None
        if not quiet:
            self._display = progress.display("training", plan.steps, done)
        elif folder:
            self._display = StepsFile(folder, plan.steps)
        if self._display:
            self._shown_at = time.monotonic() + max(FIRST_SECONDS, self._display.interval)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *exception) -> None:
        if self._display:
            self._display.stop()

    def advance(self) -> None:
        self._done += 1
        if self._display and time.monotonic() > self._shown_at:
            self._display.show(self._done, self._text())
            self._shown_at = time.monotonic() + self._display.interval

    def _text(self) -> str:
        if self._quiet:  # a sweep shows steps only, and an epsilon may take a while
            return ""
        loss = "" if self._loss is None else f"loss {self._loss:.3f} ({EXACT})  "
        return f"{loss}epsilon {self._epsilon()}"

    def show_loss(self, loss: float) -> None:
        self._loss = loss

    def _epsilon(self) -> str:
        method = self._plan.method
        if not method.private or method.guarantee.level == "none":
            return "inf"
        known = "RDP, claimed" if method.guarantee.level == VOUCHED else "RDP"
        try:
            return f"{rounded_up(rdp(self._plan.spent(self._done), self._delta))} ({known})"
        except Unaccountable:
            return "not computed"
