"""What a reader must know of how runs ended: that they diverged, and what of them was left out."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dpbench.records.reading import load
from dpbench.records.record import Record

DIVERGED = "diverged"

LEFT_OUT = "gradients were not finite and counted as zero"


def dropped(record: Record) -> int:
    """Gradients, of examples or users, that were not finite in any step of the run."""
    return sum(record.history.get("train/not_finite", ()))


def remarks(path: Path) -> Iterator[str]:
    """Sentences on the run of a record, if it did not go well."""
    record = load(path)
    if record is None:
        return
    if record.status == DIVERGED:
        epochs = len(record.history.get("train/loss", ()))
        yield (
            f"the run of {path} diverged (it ended after epoch {epochs} of "
            f"{record.config['epochs']}): its metrics are NaN."
        )
    if count := dropped(record):
        yield f"{count} {LEFT_OUT} in the run of {path}."


def summary(runs: Sequence[tuple[str, Record]]) -> str:
    """The closing lines of a sweep: which of its runs, each by its command, did not go well.

    Empty where all went well.
    """
    ended = [(name, r) for name, r in runs if r.status == DIVERGED]
    thinned = [(name, r) for name, r in runs if r.status != DIVERGED and dropped(r)]
    return "\n".join(
        [
            *_listed(f"{len(ended)} of {len(runs)} runs diverged: their metrics are NaN", ended),
            *_listed(f"in {len(thinned)} of {len(runs)} runs {LEFT_OUT}", thinned),
        ]
    )


def _listed(head: str, runs: Sequence[tuple[str, Record]]) -> list[str]:
    return [f"{head}:", *(f"  {name}" for name, _ in runs)] if runs else []


def note(row: str, counts: Iterable[tuple[int, int]]) -> str | None:
    """The sentence under a table on a row with so many gradients left out, by seed, if any were."""
    said = [f"{count} with seed {seed}" for seed, count in sorted(counts) if count]
    return f"{row}: {LEFT_OUT}, {', '.join(said)}." if said else None
