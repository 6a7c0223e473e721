"""Remarks on runs that diverged, and on gradients that were not finite."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dpbench.runs.records.epsilon import EXACT
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record

DIVERGED = "diverged"

NOT_FINITE = f"gradients were not finite and counted as zero ({EXACT})"


def nonfinite_gradients(record: Record) -> int:
    """How many gradients, of examples or users, were not finite, over all steps of the run."""
    return sum(record.history.get("train/not_finite", ()))


def remarks(path: Path) -> Iterator[str]:
    """Sentences on the run at a path, if it diverged or had gradients that were not finite."""
    record = load(path)
    if record is None:
        return
    if record.status == DIVERGED:
        epochs = len(record.history.get("train/loss", ()))
        yield (
            f"the run of {path} diverged (it ended after epoch {epochs} of "
            f"{record.config['epochs']}): its metrics are NaN."
        )
    if count := nonfinite_gradients(record):
        yield f"{count} {NOT_FINITE} in the run of {path}."


def summary(runs: Sequence[tuple[str, Record]]) -> str:
    """The last lines of a sweep, which list the commands of such runs; "" if there are none."""
    diverged = [name for name, r in runs if r.status == DIVERGED]
    affected = [name for name, r in runs if r.status != DIVERGED and nonfinite_gradients(r)]
    total = len(runs)
    return "\n".join(
        [
            *_list(f"{len(diverged)} of {total} runs diverged: their metrics are NaN", diverged),
            *_list(f"in {len(affected)} of {total} runs {NOT_FINITE}", affected),
        ]
    )


def _list(head: str, names: Sequence[str]) -> list[str]:
    return [f"{head}:", *(f"  {name}" for name in names)] if names else []


def note(row: str, counts: Iterable[tuple[int, int]]) -> str | None:
    """The note under a table on gradients of a row that were not finite; None if all were. counts:
    pairs of seed and number."""
    by_seed = [f"{count} with seed {seed}" for seed, count in sorted(counts) if count]
    return f"{row}: {NOT_FINITE}, {', '.join(by_seed)}." if by_seed else None
