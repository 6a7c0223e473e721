"""Records as a data frame, one row for each: `from dpbench import frame`."""

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.errors import UserError
from dpbench.records.collect import StoredRecord, collect
from dpbench.records.reading import Unreadable, read
from dpbench.records.record import Record, frame_of

if TYPE_CHECKING:
    import pandas as pd

Source = Record | StoredRecord | Unreadable | Path | str


def frame(source: str | Path | Iterable[Source] = "results") -> "pd.DataFrame":
    """One row for each record: data set, model, method, variant, seed, metrics and privacy.

    source: a results folder, or records and paths of records. Unreadable ones are left out, each
    with a warning. Raises UserError for a folder that does not exist.
    """
    entries = collect(Path(source)) if isinstance(source, str | Path) else source
    return frame_of(_readable(entries))


def _readable(entries: Iterable[Source]) -> Iterator[Record]:
    for entry in entries:
        found = read(Path(entry)) if isinstance(entry, str | Path) else entry
        if isinstance(found, StoredRecord):
            yield found.record
        elif isinstance(found, Record):
            yield found
        elif isinstance(found, Unreadable):
            warnings.warn(f"{found.source} {found.reason}: it is left out.", stacklevel=4)
        else:
            raise UserError(
                "frame takes a results folder, or records and their paths; dpbench.records.reading"
                ".load returns None for a file that is not a record."
            )
