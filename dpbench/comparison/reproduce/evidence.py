"""The runs, and searches of a table or a folder that a checklist is answered from."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dpbench.comparison.compare.side import TaskKey, Tuning, trials_by_task
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config.table_file import USUAL_BASELINE
from dpbench.runs.config.table_rules import trials_of
from dpbench.runs.records.collect import RECORDS, readable_records, readable_records_in
from dpbench.runs.records.data_name import data_name
from dpbench.runs.records.epsilon import Terms, is_trial
from dpbench.runs.records.folder import SEARCH, TABLES
from dpbench.runs.records.reading import Unreadable, text_of
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.files import files_in


class MethodRun(NamedTuple):
    """A run, the name of its method (or arm), and the condition that it is compared under."""

    record: Record
    method: str
    condition: str


class SearchSize(NamedTuple):
    """How many trials chose a method's settings, and whether they did so privately."""

    trials: int
    is_private: bool


class Evidence(NamedTuple):
    """The runs to answer from, the searches by method, and the method that others are compared
    with.

    tuning: of a table, by row; second_search: by method, the row that is it after another search;
    trials: of a folder, the number by task, None for a table.
    """

    entries: Sequence[MethodRun]
    searches: Mapping[str, SearchSize]
    baseline: str
    tuning: Mapping[str, Tuning] = {}
    second_search: Mapping[str, str] = {}
    trials: Mapping[TaskKey, int] | None = None


def evidence_of_table(stem: str, folder: Path) -> Evidence:
    """The runs of a table in its file of records, and the trials of its searches.

    stem: the table's name, with the scale, `-part` or `-changed` that its files have.
    """
    name, *kinds = stem.split("-")
    scales = target_of(name, []).table.scales
    target = target_of(name, [f"scale={kind}" for kind in kinds if kind in scales])
    path = folder / TABLES / f"{stem}.{RECORDS}"
    records = readable_records_in(path)
    if not records:
        raise UserError(f"{path} has no readable record: `{target.command}` makes it.")
    return evidence_of_records(target, records, folder)


def evidence_of_records(target: Target, records: Iterable[Record], folder: Path) -> Evidence:
    """The runs of a table in their main variant, and the trials of the searches that it takes
    settings from, or that are in the results folder under its name."""
    entries = [
        MethodRun(r, target.method_of(r.config), target.condition_of(r.config))
        for r in records
        if target.variant_of(r.config) == CORRECTED
    ]
    order = {method: place for place, method in enumerate(target.table.methods)}
    entries.sort(key=lambda entry: order.get(entry.method, len(order)))
    trials: Counter[str] = Counter()
    named = {(arm, name) for (_, arm), names in target.searches.items() for name in names}
    for arm, name in named:
        trials[arm] += len(trials_of(name))
    for file in [] if target.searches else files_in(folder / SEARCH, f"{target.name}-*.csv"):
        trials[file.stem.rpartition("-")[2]] += len(_text_of(file).splitlines()) - 1
    searches = {method: SearchSize(number, False) for method, number in trials.items()}
    table = target.table
    return Evidence(entries, searches, table.checklist, target.tuning, table.again)


def _text_of(file: Path) -> str:
    text = text_of(file)
    if isinstance(text, Unreadable):
        raise UserError(f"{file} {text.reason}: restore or delete it, as its trials are counted.")
    return text


def evidence_of_folder(folder: Path) -> Evidence:
    """The runs of a results folder without validation split; the others are trials of searches."""
    records = [record for record in readable_records(folder) if not record.is_audit]
    by_method: dict[str, list[Record]] = {}
    for trial in (record for record in records if record.config.get("validation") is not None):
        by_method.setdefault(trial.config["choices"]["method"], []).append(trial)
    tested = [record for record in records if record.config.get("validation") is None]
    if records and not tested:
        raise UserError(
            f"{folder} has only trials of searches, on validation splits: add runs that are tested."
        )
    entries = [MethodRun(r, r.config["choices"]["method"], _condition(r)) for r in tested]
    searches = {
        method: SearchSize(len(trials), all(map(is_trial, trials)))
        for method, trials in by_method.items()
    }
    return Evidence(entries, searches, USUAL_BASELINE, trials=trials_by_task(records))


def _condition(record: Record) -> str:
    """What runs must share to be compared: data, model, budget, and what the epsilon is for."""
    terms = Terms.of(record.statement).text(("delta", "unit", "zero_out"))
    model = record.config["choices"]["model"]
    return f"{data_name(record.config)}, {model}, {budget_of(record)}, {terms}"


def budget_of(record: Record) -> str:
    privacy = record.config.get("privacy") or {}
    epsilon, sigma = privacy.get("epsilon"), privacy.get("noise_multiplier")
    return f"epsilon {epsilon}" if epsilon is not None else f"noise multiplier {sigma}"
