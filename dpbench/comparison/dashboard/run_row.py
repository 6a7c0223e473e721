"""A run on the page: its row, and what the statistics need beside it."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpbench.comparison.compare.side import ELSEWHERE, GIVEN
from dpbench.comparison.compare.tuning import Setting
from dpbench.comparison.dashboard.values import (
    DASH,
    SHOWN,
    audit_bound,
    bound_text,
    delta_text,
    epsilons,
)
from dpbench.comparison.tables.data import RowData
from dpbench.comparison.tables.grid import epsilon_text, number
from dpbench.runs.config.chosen_options import option_node
from dpbench.runs.config.search_path import method_name, with_variant
from dpbench.runs.config.settings import variant_of
from dpbench.runs.records.data_name import data_name
from dpbench.runs.records.divergence import NOT_FINITE, nonfinite_gradients
from dpbench.runs.records.epsilon import NOT_PRIVATE
from dpbench.runs.records.record import CANARIES, OLDER_TERMS, Record

SHOWN_NAMES = ("group", "series", "protocol")
"""The names of runs by which the page groups them."""


class TableRow(NamedTuple):
    """A row of a table of the results folder, by the name of its files, and how many searches it
    has."""

    table: str
    row: RowData
    searches: int = 1


TABLE = re.compile(r"tables/([\w-]+)\.records\.jsonl")
"""The records of a table, whose name has a mark if it is not at the paper's scale."""


def places_of(record: Record) -> list[TableRow]:
    """The place of a run in a table that says nothing of its rows, such as published runs."""
    if not (match := TABLE.match(record.source)):
        return []
    return [TableRow(match[1], RowData("", record.config["choices"]["method"], "", [], GIVEN))]


@dataclass(frozen=True)
class ReportedRun:
    """A run and its row.

    row: the page's JSON except the metrics; data set and model are None for an audit. metrics: by
    name, NaN if not finite. tried: the setting, for any seed and split. changes: the number of the
    method's settings that are not its file's. validated: whether a validation split was evaluated.
    budget: the target epsilon or the noise multiplier. intervals: of metrics over the test
    examples. shared: what compared runs must share.
    """

    row: dict
    metrics: dict[str, float]
    tried: Setting
    changes: int
    validated: bool
    delta: float | None
    budget: str
    intervals: dict[str, tuple[float, float]]
    shared: Mapping[str, object]
    places: Sequence[TableRow]

    @property
    def setting(self) -> str:
        """A common name of runs with these settings, for any seed, split and budget."""
        return self.tried.name

    @property
    def curve(self) -> str:
        """What the runs of one curve over budgets have in common: the row of a table, where each
        budget has its own search; else all settings but seed and budget."""
        searched = [p for p in self.places if p.row.tuning.trials and not p.row.again]
        if not searched:
            return self.row["series"]
        place = min(searched, key=lambda p: ("_fig" in p.table, p.table))
        return f"{place.table} {place.row.method} {self.row['protocol']} {self.delta}"

    @property
    def is_of_another_condition(self) -> bool:
        """Whether all that is known of its setting is that it was tuned for another budget or data;
        training without privacy has no budget."""
        flaws = {place.row.tuning.flaw for place in self.places}
        return flaws == {ELSEWHERE} and self.row["axis"]["pld"] != NOT_PRIVATE


def reported_run(
    record: Record, names: Mapping[str, Any], command: dict, places: Sequence[TableRow]
) -> ReportedRun:
    """The run of a record. names: its group, series, protocol and budget, and its setting and what
    it must share. command: the one that reruns it, or why there is none."""
    tables = " ".join(dict.fromkeys(place.table for place in places))
    return ReportedRun(
        row=_row(record) | {key: names[key] for key in SHOWN_NAMES} | command | {"tables": tables},
        metrics=record.measured,
        tried=names["tried"],
        changes=_changes(record.config),
        validated=not record.is_tested,
        delta=record.statement["delta"],
        budget=names["budget"],
        intervals=record.calibration.get("interval", {}),
        shared=names["shared"],
        places=places,
    )


def _changes(config: dict) -> int:
    own, default = config["method"], option_node("method", config["choices"]["method"]) or {}
    return sum(value != default.get(name, value) for name, value in own.items())


def _row(record: Record) -> dict:
    config, statement = record.config, record.statement
    choices = config["choices"]
    axis, cost = epsilons(record), _cost(record)
    texts = {name: epsilon_text(value, statement["guarantee"]) for name, value in axis.items()}
    on_canaries = choices["dataset"] == CANARIES
    return {
        "id": record.digest,
        **{name: None if on_canaries else choices[name] for name in ("dataset", "model")},
        "method": with_variant(choices["method"], variant_of(config)),
        "seed": str(record.seed),
        "status": record.status,
        "facet": _facet(config, statement["adjacency"]),
        "axis": axis,
        "epsilon": texts,
        "guarantee": statement["guarantee"],
        "delta": delta_text(statement["delta"]),
        "audit": audit_bound(statement),
        **{name: cost[name] for name in ("ms", "device", "machine")},
        "bins": _bins(record.calibration),
        "losses": _losses(record.history.get("train/loss", [])),
        "facts": _facts(record, texts, cost),
    }


def _facts(record: Record, epsilons: Mapping[str, str], cost: dict) -> dict[str, str]:
    statement = record.statement
    audit, count = audit_bound(statement), nonfinite_gradients(record)
    return {
        "epsilon": "; ".join(f"{SHOWN[name]}: {text}" for name, text in epsilons.items()),
        "guarantee": ". ".join(filter(None, (statement["guarantee"], statement["why"]))),
        "on the data": " ".join(statement["notes"]) or DASH,
        "δ": delta_text(statement["delta"]),
        "adjacency": statement["adjacency"],
        "holds in arithmetic": str(statement["arithmetic"]),
        "status": f"{record.status}; {count} {NOT_FINITE}" if count else record.status,
        "time": _time(cost, statement["steps"]),
        "audit": f"at least {bound_text(audit)}" if audit else "none",
        "file": record.source,
    }


def _time(cost: dict, steps: int) -> str:
    if cost["ms"] is None:
        return DASH
    settings = ", ".join((cost["machine"], *cost["execution"]))
    return f"{number(cost['ms'], None)} ms per step of {steps:g} steps; {settings}"


def display_name(config: dict) -> str:
    """The display name of a configuration's method and variant."""
    return with_variant(method_name(config["choices"]["method"]), variant_of(config))


def _facet(config: dict, adjacency: str) -> str:
    """The name of the plot for a run: the runs of one plot have the same data and model, and their
    epsilons are for the same adjacency."""
    names = [data_name(config), config["choices"]["model"]]
    if adjacency != OLDER_TERMS["adjacency"]:
        names.append(adjacency)
    return " · ".join(names)


def _cost(record: Record) -> dict:
    provenance, batch = record.provenance, record.config.get("batch_size")
    seconds, steps = provenance.get("seconds"), record.statement["steps"]
    has_time = seconds is not None and math.isfinite(seconds) and record.status == "complete"
    at_once = provenance.get("physical_batch_size", "?") or "all"
    settings = {
        "engine {}": provenance.get("engine"),
        "{} examples of a batch at once": at_once,
        "{}": provenance.get("precision", "float32"),
        "{} thread(s)": provenance.get("threads"),
        "diagnostics: {}": record.config["choices"].get("diagnostics", "none"),
    }
    return {
        "ms": 1000 * float(seconds or 0) / steps if has_time and steps else None,
        "device": f"{provenance.get('device')}, {provenance.get('threads', '?')} thread(s)",
        "machine": f"{provenance.get('device')} · batches of {batch}",
        "execution": tuple(
            text.format("?" if value is None else value) for text, value in settings.items()
        ),
    }


def _bins(calibration: dict) -> tuple[tuple[float, ...], ...] | None:
    """Sums of examples, confidences and correct answers by bin, which add up over runs."""
    if not calibration:
        return None
    columns = (calibration["bins"][name] for name in ("count", "confidence", "accuracy"))
    return tuple(
        (count, seven_digits(count * confidence), seven_digits(count * accuracy))
        if count
        else (0, 0, 0)
        for count, confidence, accuracy in zip(*columns, strict=True)
    )


MAX_LOSSES = 100


def _losses(losses: list[float]) -> tuple[int, tuple[float | None, ...]]:
    """The training loss after every k-th epoch, to four digits, and k; null where not finite."""
    every = max(1, math.ceil(len(losses) / MAX_LOSSES))
    kept = losses[every - 1 :: every]
    return every, tuple(float(f"{loss:.4g}") if math.isfinite(loss) else None for loss in kept)


def seven_digits(value: float) -> float:
    """The value rounded to seven digits, the precision of float32 and more than a plot shows."""
    return float(f"{value:.7g}")
