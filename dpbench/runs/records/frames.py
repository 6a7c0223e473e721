"""Records as a data frame, one row for each: `from dpbench import frame`."""

import json
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench.runs.config.settings import NAMED_GROUPS, leaves, variant_of, varying_keys
from dpbench.runs.records.collect import readable
from dpbench.runs.records.epsilon import released
from dpbench.runs.records.reading import Unreadable, read
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

ALREADY = (
    *(f"choices.{group}" for group in NAMED_GROUPS),
    *("method.variant", "privacy.delta", "seed"),
)
"""Settings that have a column anyway."""

OF_EXECUTION = ("choices.tracker", "choices.launcher")
"""What a run's numbers do not depend on."""

NESTED = ("ledger", "notes", "audit", "refused", "attacks", "covered")
"""Parts of a privacy statement that are no single value."""

RecordSource = Record | Unreadable | Path | str


def frame(
    source: str | Path | Iterable[RecordSource] = "results",
    settings: Collection[str] | None = None,
    audits: bool = False,
) -> "pd.DataFrame":
    """One row for each record: data set, model, method, variant, seed, metrics, privacy, digest.

    source: a results folder, or records and paths of records. settings: those that become columns,
    such as `privacy.epsilon`; None for all in which the records differ, so that runs that are not
    alike can be told apart. audits: whether to include the records of audits, which have `audit` in
    the column status and no metrics. Unreadable records are left out, each with a warning. Raises
    UserError for a folder that does not exist or has no readable record.
    """
    import pandas as pd  # takes half a second

    if isinstance(source, str | Path):
        records, unreadable = readable(Path(source))
        source = [*records, *unreadable]
    if not isinstance(source, Iterable):
        raise _no_source()
    records = [record for record in _readable(source) if audits or not record.is_audit]
    configs = [dict(leaves(record.config)) for record in records]
    if settings is None:
        settings = [key for key in varying_keys(configs) if key not in (*ALREADY, *OF_EXECUTION)]
    chosen = [{key: _plain(config.get(key)) for key in settings} for config in configs]
    rows = [flat(record) | own for record, own in zip(records, chosen, strict=True)]
    return pd.DataFrame(rows)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _readable(entries: Iterable[RecordSource]) -> Iterator[Record]:
    for entry in entries:
        found = read(Path(entry)) if isinstance(entry, str | Path) else entry
        if isinstance(found, Record):
            yield found
        elif isinstance(found, Unreadable):
            warnings.warn(f"{found.source} {found.reason}: it is left out.", stacklevel=3)
        else:
            raise _no_source()


def _no_source() -> UserError:
    return UserError(
        "frame takes a results folder, or a list of records and their paths, such as "
        "frame([record]); dpbench.records.reading.load returns None for a file that is not a "
        "record."
    )


def flat(record: Record) -> dict[str, Any]:
    """A record as one flat row; privacy under `privacy/`, metrics under their own names."""
    config, statement = record.config, released(record, record.statement)
    return {
        **{name: config["choices"][name] for name in NAMED_GROUPS},
        "variant": variant_of(config),
        "seed": config["seed"],
        "status": "audit" if record.is_audit else record.status,
        **record.measured,
        **{f"privacy/{k}": v for k, v in statement.items() if k not in NESTED},
        "digest": record.digest,
    }
