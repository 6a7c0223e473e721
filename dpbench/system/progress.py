"""Progress of anything that is counted: a bar on a terminal, and elsewhere a line a minute."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from dpbench.system.errors import print_message

REDRAWN_EVERY = 2.0
"""Seconds between two looks at the runs of a sweep, which may train in this very process."""

MAX_SHOWN = 8
"""The most running runs that are shown one by one."""


class StepCount(NamedTuple):
    """The steps that one of several runs has taken."""

    name: str
    done: int
    total: int


class Bar:
    """A bar on a terminal, and one below it for each part; invisible until the first `show`."""

    interval = 0.5

    def __init__(self, console, what: str, total: int, done: int):
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            # A thread that redraws ten times a second would take time from training.
            auto_refresh=False,
            # Only redirect results that are shown on the same terminal.
            redirect_stdout=bool(sys.stdout) and sys.stdout.isatty(),
        )
        self._what = what
        self._task = self._bar.add_task(what, total=total, completed=done, visible=False)
        self._parts: dict[str, progress.TaskID] = {}

    def show(self, done: int, text: str, parts: Sequence[StepCount] = ()) -> None:
        self._bar.start()  # only now, as the only run of a sweep has its own bar
        self._show_parts(parts)
        self._bar.update(
            self._task, completed=done, description=text or self._what, visible=True, refresh=True
        )

    def _show_parts(self, parts: Sequence[StepCount]) -> None:
        for name in self._parts.keys() - {part.name for part in parts}:
            self._bar.remove_task(self._parts.pop(name))
        for part in parts:
            if part.name not in self._parts:
                self._parts[part.name] = self._bar.add_task(f"  {part.name}", total=part.total)
            self._bar.update(self._parts[part.name], completed=part.done)

    def stop(self) -> None:
        self._show_parts(())
        if self._bar.live.is_started:
            self._bar.stop()


class LogLines:
    """One line per minute, with the rate and the time left."""

    interval = 60.0

    def __init__(self, what: str, total: int, done: int):
        self._what, self._total, self._first = what, total, done
        self._start = time.monotonic()

    def show(self, done: int, text: str, parts: Sequence[StepCount] = ()) -> None:
        count = f"{self._what}: {done:,} of {self._total:,}"
        each = [f"{part.name}: step {part.done:,} of {part.total:,}" for part in parts]
        print_message("; ".join([", ".join(filter(None, [count, text, *self._pace(done)])), *each]))

    def _pace(self, done: int) -> list[str]:
        """The rate and the time left; empty until something is done."""
        if done == self._first:
            return []
        rate = (done - self._first) / (time.monotonic() - self._start)
        left = timedelta(seconds=round((self._total - done) / rate))
        pace = f"{rate:.1f} a second" if rate >= 1 else f"{60 * rate:.1f} a minute"
        return [pace, f"{left} left"]

    def stop(self) -> None:
        """Does nothing: printed lines stay."""


Display = Bar | LogLines
"""Shows the progress of a whole and its parts, at most every `interval` seconds."""


def display(what: str, total: int, done: int) -> Display:
    from rich.console import Console

    console = Console(stderr=True)
    return Bar(console, what, total, done) if console.is_terminal else LogLines(what, total, done)


@contextmanager
def counting(
    what: str, total: int, running: Callable[[], Sequence[StepCount]] | None = None
) -> Iterator[Callable[[], None]]:
    """Shows the progress of several runs on standard error; yields a function to call after each.

    running: the steps of the runs under way, which are then shown too.
    """
    if total <= 1 and not running:
        yield lambda: None
        return
    counter, ended = _Counter(what, total, running or tuple), threading.Event()
    watch = threading.Thread(target=counter.watch, args=(ended,), daemon=True)
    if running:
        watch.start()
    try:
        yield counter.count
    finally:
        ended.set()
        if running:
            watch.join()
        counter.stop()


class _Counter:
    def __init__(self, what: str, total: int, running: Callable[[], Sequence[StepCount]]):
        self._what, self._running, self._display = what, running, display(what, total, 0)
        self._done, self._lock = 0, threading.Lock()
        self._shown_at = time.monotonic()
        self._shows_each = isinstance(self._display, Bar)
        if self._shows_each and total > 1:
            self._show(())

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

    def _show(self, running: Sequence[StepCount]) -> None:
        many = f"{len(running)} {self._what} under way" if len(running) > MAX_SHOWN else ""
        self._display.show(self._done, many, running[:MAX_SHOWN])
        self._shown_at = time.monotonic()
