"""`dpbench publish [results_dir=] [record=] [out=]`: records without what no epsilon covers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dpbench.learning.metrics.registry import NOISY_ACCURACY
from dpbench.runs.config.commands import PublishCommand
from dpbench.runs.records.collect import readable_records
from dpbench.runs.records.epsilon import is_trial, released
from dpbench.runs.records.other_seeds import left_out
from dpbench.runs.records.record import Record
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, warn
from dpbench.system.files import check_replaceable, write_atomically

UNCOVERED = ("seconds", "peak_memory_mib", "physical_batch_size", "resumed", "graph")
"""Fields of the provenance that depend on the sizes of private batches."""

CHECKSUMS = ("checksum", "labels_checksum", "test_checksum")
"""Settings of a data set that are checksums of the user's own files."""

SHOWN = "test/accuracy"
"""The metric that runs with other seeds are compared by."""


def publish(arguments: list[str]) -> Path:
    """Write the records of a results folder as one file, a line each, and return its path: that of
    `record`, else all but the trials of private searches, whose epsilon covers the chosen one
    alone. UserError where there is no such record, or where the file cannot be written."""
    given = read("publish", PublishCommand, arguments)
    if sum(argument.startswith("record=") for argument in arguments) > 1:
        raise UserError("publish takes one record: publish each to an out= of its own.")
    folder, out = given.results_dir, given.out
    check_replaceable(out)
    known = readable_records(folder)
    records = _chosen(folder, known, given.record)
    for remark in _remarks(records, known):
        warn(remark)
    # Sorted by their text, so that the order says nothing about the seeds.
    lines = sorted(without_uncovered(record).json() for record in records)
    write_atomically(out, "".join(f"{line}\n" for line in lines).encode(), setting="out")
    return out


def _chosen(folder: Path, records: list[Record], digest: str) -> list[Record]:
    if digest:
        chosen = [record for record in records if record.digest == digest]
        if not chosen:
            raise UserError(f"record={digest}: there is no record of that digest in {folder}.")
        return chosen
    chosen = [record for record in records if not is_trial(record)]
    if not chosen:
        raise UserError(
            "All records are trials of a private search, whose epsilon covers the chosen one "
            "alone: give record=DIGEST, as in the command that the search prints."
        )
    return chosen


def without_uncovered(record: Record) -> Record:
    """The record without its seed, and without what was read from private data outside the account,
    such as the checksums of data files, which whoever has all of one but one example could compare.
    Test metrics stay, as no epsilon covers test examples; of a validation split, which is training
    examples, only the noisy one."""
    provenance = {k: v for k, v in record.provenance.items() if k not in UNCOVERED}
    return replace(
        record,
        config=without_seed_and_checksum(record.config),
        metrics={
            name: value
            for name, value in record.metrics.items()
            if name == NOISY_ACCURACY or not name.startswith(("train_set/", "validation/"))
        },
        privacy=released(record, record.privacy),
        provenance=provenance,
        status=_covered_status(record),
        history={},
        diagnostics={},
        calibration={},
        signed=True,
    )


def _covered_status(record: Record) -> str:
    """The status, without whether outputs for a validation split, training examples, are finite. A
    run whose parameters are not finite ends after that epoch; only after the last one is such a run
    not told from others."""
    made = len(record.history.get("train/loss", ()))
    ended_early = made < record.config.get("epochs", 0)
    of_training = record.is_tested or ended_early
    return record.status if of_training else "complete"


def without_seed_and_checksum(config: dict) -> dict:
    """A configuration of a run without its seed and the checksums of private data files."""
    dataset = config.get("dataset", {})
    known = dict.fromkeys(dataset.keys() & {*CHECKSUMS})
    return config | {"seed": None, "dataset": dataset | known}


def _remarks(records: list[Record], known: list[Record]) -> Iterator[str]:
    private = [record for record in records if record.privacy["guarantee"] != "none"]
    if guessable := sum(record.statement["arithmetic"] != "secure" for record in private):
        yield (
            f"the noise of {guessable} of {len(private)} private runs follows from a seed: "
            "whoever guesses the seed can subtract the noise. Use noise=secure for runs to be "
            "published."
        )
    if unbounded := len(records) - len(private):
        yield (
            f"{unbounded} of {len(records)} records are of runs without an epsilon: what they "
            "release of their training data is not bounded."
        )
    by_data = Counter(record.config["choices"]["dataset"] for record in records)
    if repeated := [f"{count} on {name}" for name, count in by_data.items() if count > 1]:
        yield (
            f"several runs are of the same data set ({', '.join(repeated)}): whoever has them all "
            "has more than the epsilon of each; their privacy losses compose."
        )
    for reason in left_out(records, known, SHOWN):
        yield f"not all runs of these settings are published: {reason}"
