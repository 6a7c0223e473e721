"""`dpbench publish [results_dir=...] [out=...]`: records without what no epsilon covers."""

import warnings
from dataclasses import replace
from pathlib import Path

from dpbench.errors import UserError, nearest
from dpbench.files import write_atomically
from dpbench.records.collect import StoredRecord, collect, no_records
from dpbench.records.reading import Unreadable
from dpbench.records.record import Record

UNCOVERED = ("seconds", "peak_memory_mib", "resumed")
"""Of the provenance: what depends on the sizes of batches."""

DEFAULTS = {"results_dir": "results", "out": "published.records.jsonl"}


def publish(arguments: list[str]) -> Path:
    """Write all records of a results folder as one file, a line each, and return its path.

    Raises UserError for an unknown argument, where there is no record, or nowhere to write.
    """
    given = dict(_parsed(argument) for argument in arguments)
    asked = {name: Path(given.get(name, usual)) for name, usual in DEFAULTS.items()}
    read = list(collect(asked["results_dir"]))
    records = [one.record for one in read if isinstance(one, StoredRecord)]
    if not records:
        raise no_records(asked["results_dir"], [one for one in read if isinstance(one, Unreadable)])
    _warn(records)
    # In no order that the seeds would give.
    lines = sorted(covered(record).json() for record in records)
    write_atomically(asked["out"], "".join(f"{line}\n" for line in lines).encode())
    return asked["out"]


def covered(record: Record) -> Record:
    """The record without what reads private data outside its account, and without its seed.

    What was measured on the test set stays: it is about test examples, which no epsilon covers.
    """
    where = {k: v for k, v in record.provenance.items() if k not in UNCOVERED}
    return replace(
        record,
        config=record.config | {"seed": None},
        metrics={k: v for k, v in record.metrics.items() if not k.startswith("train_set/")},
        provenance=where,
        history={},
        diagnostics={},
        calibration={},
        signed=True,
    )


def _parsed(argument: str) -> tuple[str, str]:
    key, _, value = argument.partition("=")
    if key not in DEFAULTS:
        raise UserError(f"publish takes no {key}: {nearest(key, DEFAULTS)}")
    if not value:
        raise UserError(f"{key} must name a file or folder: write {key}=NAME.")
    return key, value


def _warn(records: list[Record]) -> None:
    private = [record for record in records if record.privacy["guarantee"] != "none"]
    guessable = [r for r in private if r.privacy.get("arithmetic") != "secure"]
    if guessable:
        warnings.warn(
            f"the noise of {len(guessable)} of {len(private)} private runs follows from a seed, "
            "which can be guessed, and then be taken off again; make what is to be published with "
            "noise=secure.",
            stacklevel=3,
        )
