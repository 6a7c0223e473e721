"""`dpbench publish [results_dir=...] [out=...]`: records without what no epsilon covers."""

import warnings
from dataclasses import replace
from pathlib import Path

from dpbench.files import write_atomically
from dpbench.records.collect import readable
from dpbench.records.record import Record
from dpbench.validate import key_values

UNCOVERED = ("seconds", "peak_memory_mib", "resumed")
"""Fields of the provenance that depend on the sizes of private batches."""

DEFAULTS = {"results_dir": "results", "out": "published.records.jsonl"}


def publish(arguments: list[str]) -> Path:
    """Write all records of a results folder as one file, a line each, and return its path.

    Raises UserError for an unknown argument, where there is no record, or where the file cannot be
    written.
    """
    paths = key_values("publish", DEFAULTS, arguments)
    records, _ = readable(Path(paths["results_dir"]))
    _warn_of_guessable_noise(records)
    # Sorted by their text, so that the order says nothing about the seeds.
    lines = sorted(without_uncovered(record).json() for record in records)
    out = Path(paths["out"])
    write_atomically(out, "".join(f"{line}\n" for line in lines).encode())
    return out


def without_uncovered(record: Record) -> Record:
    """The record without its seed and without what was read from private data outside the account.

    Test metrics stay: they are about test examples, which no epsilon covers.
    """
    provenance = {k: v for k, v in record.provenance.items() if k not in UNCOVERED}
    return replace(
        record,
        config=record.config | {"seed": None},
        metrics={k: v for k, v in record.metrics.items() if not k.startswith("train_set/")},
        provenance=provenance,
        history={},
        diagnostics={},
        calibration={},
        signed=True,
    )


def _warn_of_guessable_noise(records: list[Record]) -> None:
    private = [record for record in records if record.privacy["guarantee"] != "none"]
    guessable = [r for r in private if r.privacy.get("arithmetic") != "secure"]
    if guessable:
        warnings.warn(
            f"the noise of {len(guessable)} of {len(private)} private runs follows from a seed: "
            "whoever guesses the seed can subtract the noise. Use noise=secure for runs to be "
            "published.",
            stacklevel=3,
        )
