"""Progress of runs: a bar on a terminal, and elsewhere a line a minute."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dpbench.privacy.accountants import rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.guarantee import CLAIMED
from dpbench.records.epsilon import rounded_up
from dpbench.training.progress_display import Bar, Display, Lines, Steps
from dpbench.training.steps_file import StepsFile

FIRST_SECONDS = 2.0
"""Nothing is shown for anything that ends earlier."""

REDRAWN_EVERY = 2.0
"""Seconds between two looks at the runs of a sweep, which may train in this very process."""

MAX_SHOWN = 8
"""The most running runs that are shown one by one."""


class Progress:
    """Shows steps, loss, epsilon so far and time left of a run on standard error.

    plan: the run's Plan. The loss is that of the last whole epoch of this process; it is computed
    from private data, and meant only for the data holder. Nothing is shown for runs that end within
    a few seconds. done: steps taken before the run was resumed. steps_file: where a quiet run keeps
    its steps for the sweep that it is part of.
    """

    def __init__(
        self, plan, delta: float, quiet: bool, done: int = 0, steps_file: Path | None = None
    ):
        self._plan, self._delta, self._done = plan, delta, done
        self._loss: float | None = None
        self._display: Display | StepsFile | None = None
        if not quiet:
            self._display = _display("training", plan.steps, done)
        elif steps_file:
            self._display = StepsFile(steps_file, plan.steps)
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
            self._show(self._display)
            self._shown_at = time.monotonic() + self._display.interval

    def _show(self, display: Display | StepsFile) -> None:
        if isinstance(display, StepsFile):
            display.show(self._done)
        else:
            loss = "" if self._loss is None else f"loss {self._loss:.3f}  "
            display.show(self._done, f"{loss}epsilon {self._epsilon()}")

    def show_loss(self, loss: float) -> None:
        self._loss = loss

    def _epsilon(self) -> str:
        method = self._plan.method
        if not method.private or method.guarantee.level == "none":
            return "inf"
        known = "RDP, claimed" if method.guarantee.level == CLAIMED else "RDP"
        try:
            return f"{rounded_up(rdp(self._plan.spent(self._done), self._delta))} ({known})"
        except Unaccountable:
            return "not computed"


def _none() -> Sequence[Steps]:
    return ()


@contextmanager
def counting(
    what: str, total: int, running: Callable[[], Sequence[Steps]] = _none
) -> Iterator[Callable[[], None]]:
    """Shows the progress of several runs on standard error; yields a function to call after each.

    running: the steps of the runs under way, which are then shown too.
    """
    watched = running is not _none
    if total <= 1 and not watched:
        yield lambda: None
        return
    counter, ended = _Counter(what, total, running), threading.Event()
    watch = threading.Thread(target=counter.watch, args=(ended,), daemon=True)
    if watched:
        watch.start()
    try:
        yield counter.count
    finally:
        ended.set()
        if watched:
            watch.join()
        counter.stop()


class _Counter:
    """Shows how many runs have ended, and the steps of those under way."""

    def __init__(self, what: str, total: int, running: Callable[[], Sequence[Steps]]):
        self._what, self._running, self._display = what, running, _display(what, total, 0)
        self._done, self._lock = 0, threading.Lock()
        self._shown_at = time.monotonic()
        if self._shows_each and total > 1:
            self._show(())

    @property
    def _shows_each(self) -> bool:
        return isinstance(self._display, Bar)

    def count(self) -> None:
        with self._lock:
            self._done += 1
            if self._shows_each or self._is_due():
                self._show(self._running())

    def watch(self, ended: threading.Event) -> None:
        """Show what is under way from time to time, until the event is set."""
        while not ended.wait(REDRAWN_EVERY):
            with self._lock:
                if self._is_due() and (running := self._running()):
                    self._show(running)

    def stop(self) -> None:
        self._display.stop()

    def _is_due(self) -> bool:
        return time.monotonic() - self._shown_at > self._display.interval

    def _show(self, running: Sequence[Steps]) -> None:
        many = f"{len(running)} {self._what} under way" if len(running) > MAX_SHOWN else ""
        self._display.show(self._done, many, running[:MAX_SHOWN])
        self._shown_at = time.monotonic()


def _display(what: str, total: int, done: int) -> Display:
    from rich.console import Console

    console = Console(stderr=True)
    return Bar(console, what, total, done) if console.is_terminal else Lines(what, total, done)
