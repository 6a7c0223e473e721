"""The progress of a run: steps, loss and epsilon so far, and a file with its number of steps."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.guarantee import VOUCHED
from dpbench.runs.records.epsilon import EXACT, rounded_up
from dpbench.runs.records.folder import CHECKPOINTS
from dpbench.system import progress
from dpbench.system.progress import StepCount

FIRST_SECONDS = 2.0
"""Nothing is shown for anything that ends earlier."""

STEPS_FILE = "steps"
"""The file's name in the folder of the run's checkpoints."""

CHARACTERS = 40
"""The file's constant length: a shorter text would leave the end of the previous one."""


class Progress:
    """Shows steps, loss, epsilon so far and time left of a run on standard error.

    loss: of the last whole epoch of this process, for the data holder alone. done: steps taken
    before the run was resumed. folder: where a quiet run keeps its steps for its sweep.
    """

    def __init__(self, plan, delta: float, quiet: bool, done: int = 0, folder: Path | None = None):
        self._plan, self._delta, self._quiet, self._done = plan, delta, quiet, done
        self.loss: float | None = None
        self._display: progress.Display | StepsFile | None = None
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
        loss = "" if self.loss is None else f"loss {self.loss:.3f} ({EXACT})  "
        return f"{loss}epsilon {self._epsilon()}"

    def _epsilon(self) -> str:
        method = self._plan.method
        if not method.private or method.guarantee.level == "none":
            return "inf"
        # By PLD only of all planned steps, which covers these and has been computed.
        bounds = []
        for by, ledger in ((rdp, self._plan.spent(self._done)), (pld, self._plan.ledger)):
            with suppress(Unaccountable):
                bounds.append((by(ledger, self._delta), by.__name__.upper()))
        if not bounds:
            return "not computed"
        epsilon, by_name = min(bounds)
        claimed = ", claimed" if method.guarantee.level == VOUCHED else ""
        return f"{rounded_up(epsilon)} ({by_name}{claimed})"


class StepsFile:
    """A display that keeps the number of steps in a file while the run trains. The number of steps
    is public, unlike losses. Failures to write are ignored."""

    interval = 2.0

    def __init__(self, folder: Path, total: int):
        self._path, self._total = folder / STEPS_FILE, total

    def show(self, done: int, text: str, parts: Sequence[StepCount] = ()) -> None:
        # Overwritten in place: emptying or replacing a file waits for the disk.
        in_place = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # no link, no pipe
        with suppress(OSError), os.fdopen(os.open(self._path, in_place, 0o666), "w") as file:
            file.write(f"{done} {self._total}".ljust(CHARACTERS))

    def stop(self) -> None:
        with suppress(OSError):
            self._path.unlink()


def running_steps(
    results: Path, names: Mapping[str, str], since: float | None = None
) -> Callable[[], list[StepCount]]:
    """A function that reads the steps of the runs under way in a results folder. names: of the runs
    to show, by digest. since: older files, by default than now, are those of killed runs."""
    begun = time.time() if since is None else since

    def steps() -> Iterator[StepCount]:
        for path in (results / CHECKPOINTS).glob(f"*/{STEPS_FILE}"):
            with suppress(OSError, ValueError, KeyError):
                if path.is_file() and path.stat().st_mtime >= begun:
                    done, total = map(int, path.read_text().split())
                    yield StepCount(names[path.parent.name], done, total)

    return lambda: sorted(steps())
