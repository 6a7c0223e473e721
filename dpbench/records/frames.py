"""Records as a data frame, one row for each: `from dpbench import frame`."""

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.config.settings import variant_of
from dpbench.errors import UserError
from dpbench.records.collect import StoredRecord, readable
from dpbench.records.reading import Unreadable, read
from dpbench.records.record import Record

if TYPE_CHECKING:
    import pandas as pd

Source = Record | StoredRecord | Unreadable | Path | str


def frame(source: str | Path | Iterable[Source] = "results") -> "pd.DataFrame":
    """One row for each record: data set, model, method, variant, seed, metrics and privacy.

    source: a results folder, or records and paths of records. Unreadable ones are left out, each
    with a warning. Raises UserError for a folder that does not exist or has no readable record.
    """
    import pandas as pd  # takes half a second

    if isinstance(source, str | Path):
        records, unreadable = readable(Path(source))
        source = [*records, *unreadable]
    return pd.DataFrame([*map(_row, _readable(source))])


def _readable(entries: Iterable[Source]) -> Iterator[Record]:
    for entry in entries:
        found = read(Path(entry)) if isinstance(entry, str | Path) else entry
        if isinstance(found, StoredRecord):
            yield found.record
        elif isinstance(found, Record):
            yield found
        elif isinstance(found, Unreadable):
            warnings.warn(f"{found.source} {found.reason}: it is left out.", stacklevel=3)
        else:
            raise UserError(
                "frame takes a results folder, or records and their paths; dpbench.records.reading"
                ".load returns None for a file that is not a record."
            )


def _row(record: Record) -> dict:
    """A record as one flat row; privacy under `privacy/`, metrics under their own names."""
    config = record.config
    return {
        **{name: config["choices"][name] for name in ("dataset", "model", "method")},
        "variant": variant_of(config),
        "seed": config["seed"],
        "status": record.status,
        **record.measured,
        "privacy/arithmetic": "real",  # older records lack the field
        **{f"privacy/{k}": v for k, v in record.privacy.items() if k != "ledger"},
    }
