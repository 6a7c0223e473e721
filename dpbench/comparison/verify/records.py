"""Whether a record follows from its settings, and whether retraining reproduces it."""

import functools
import json
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpbench.learning.metrics.calibration import Bins, expected, maximum
from dpbench.learning.metrics.classification import spread
from dpbench.learning.metrics.evaluation import packages_of_metrics
from dpbench.learning.metrics.registry import NOISY_ACCURACY
from dpbench.privacy.accountants import SPENT
from dpbench.privacy.ledger import from_plain, to_plain
from dpbench.privacy.profiles import attack_bounds
from dpbench.privacy.statement import ACCOUNTANTS, UPPER_BOUNDS, Statement
from dpbench.privacy.toeplitz import encoded
from dpbench.runs.config.buildable import TARGET
from dpbench.runs.config.compose import compose
from dpbench.runs.config.settings import NAMED_GROUPS
from dpbench.runs.execution.attempt import attempt, record_of
from dpbench.runs.execution.prepare import build
from dpbench.runs.execution.rerun import PROVENANCE, overrides_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.code import PLUGIN_PARTS_KEY, built_by_plugins
from dpbench.runs.records.digest import with_current_names
from dpbench.runs.records.divergence import DIVERGED
from dpbench.runs.records.record import CANARIES, COVERED, Record
from dpbench.runs.training.plan import Plan, plan, privacy_statement
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError

ROUNDING = 1e-6
"""By how much a metric may differ from what the rest of a record gives."""


def wrong_metrics(record: Record) -> Iterator[str]:
    """The metrics that the rest of a record contradicts, as predicates of a sentence.

    A change of the accuracy alone is found. Losses and scores follow from nothing in a record.
    """
    split = "validation" if record.config.get("validation") else "test"
    metrics = {
        name.removeprefix(f"{split}/"): value
        for name, value in record.metrics.items()
        if name.startswith(f"{split}/")
    }
    accuracy, groups = metrics.get("accuracy", math.nan), _of_groups(metrics)
    gap = {"accuracy_gap": spread(groups)} if groups else {}
    for name, value in (gap | _by_bins(record)).items():
        if name in metrics and not _near(metrics[name], value):
            yield f"has {split}/{name}={metrics[name]}, but the rest of it gives {value}."
    if groups and (accuracy < min(groups) - ROUNDING or accuracy > max(groups) + ROUNDING):
        yield f"has {split}/accuracy={accuracy}, which no mean of its groups can be."


def _of_groups(metrics: dict[str, float]) -> list[float]:
    groups = [value for name, value in metrics.items() if name.startswith("accuracy/")]
    return [] if any(map(math.isnan, groups)) else groups


@np.errstate(all="ignore")  # a record may say that a confidence is infinite
def _by_bins(record: Record) -> dict[str, float]:
    """The metrics that the counts behind the reliability diagram give; empty without these."""
    columns = record.calibration.get("bins", {"count": []})
    counts = np.array(columns["count"])
    if not counts.any():
        return {}
    means = (np.nan_to_num(columns[name]) for name in ("confidence", "accuracy"))
    bins = Bins(counts, *(counts * mean for mean in means))
    return {
        "accuracy": float(bins.correct.sum() / counts.sum()),
        "ece": expected(bins),
        "mce": maximum(bins),
        "mce_min20": maximum(bins, least=20),
    }


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= ROUNDING or (math.isnan(one) and math.isnan(other))


EPSILONS = (*ACCOUNTANTS, "claimed")

TERMS = ("delta", "guarantee", "adjacency", "noise_multiplier", "sample_rate", "steps")
ADDED_TERMS = ("arithmetic", "unit", "claimed_by", "covered")
"""What a statement says besides its epsilons, and what the first records do not say. Its `why` is
left out, as versions word it differently."""

TOLERANCE = 1e-3
"""The relative error allowed in an epsilon: versions of an accountant have different grids."""

BUFFERS, SEARCHED = "decays", 0.01
"""A field of noise correlated by a matrix that is searched for, and the relative error allowed in
the matrix and in the multiplier that is calibrated for it: processors find different ones."""

LAGS = 1000
"""How many entries of a column of such a matrix are compared."""

ENVIRONMENT = ("code", "device", "torch", "numpy", *PROVENANCE)
"""The provenance that the bits of a run on a CPU depend on."""


def contradictions(record: Record) -> Iterator[str]:
    """What in a record does not follow from its settings, as predicates of a sentence: the privacy
    statement must be the planned one, except in audits, and the epsilons the accountants'."""
    if str(record.provenance.get("commit")).endswith("+"):
        yield "was made with uncommitted changes."
    try:
        ledger = to_plain(from_plain(record.privacy["ledger"]))
    except UserError as error:
        yield f"cannot be verified: {error}"
        return
    if record.config["choices"]["dataset"] == CANARIES:
        if record.metrics or not record.is_audit:
            yield "names canaries as its data, but is not a record of an audit."
        yield from _wrong_epsilons(record.privacy, _epsilons_of_ledger(record.privacy))
        return
    if lacking := _lacking(record):
        yield f"has no settings of its {' and '.join(lacking)}, so it cannot be verified."
        return
    if record.is_audit:
        yield "has the bound of an audit, but its data are not canaries."
    diverged = record.status == DIVERGED
    exact = [value for name, value in record.metrics.items() if name != NOISY_ACCURACY]
    if diverged and not all(map(math.isnan, exact)):
        yield "diverged, but has metrics that are numbers."
    if extended := [part for part in record.covered if record.covered[part] > COVERED.get(part, 0)]:
        yield f"says that its epsilon covers {', '.join(extended)}."
    yield from wrong_metrics(record)
    yield from _wrong_options(record.config)
    config = json.dumps(record.config | {"seed": 0}, sort_keys=True)
    recorded: dict[str, Any] = {**record.privacy}
    accountant = str(record.statement["claimed_by"])
    try:
        planned = _planned(config, accountant)[1]
        expected: dict[str, Any] = {**_statement(config, accountant)}
    except (UserError, KeyError, TypeError) as error:
        now = {PLUGIN_PARTS_KEY: built_by_plugins(record.config), "metrics": packages_of_metrics()}
        others = _other_packages(record.provenance, now)
        yield f"has settings that this version cannot run{_in_brackets(others)}: {error}"
        return
    epochs = planned.steps // planned.sampler.steps_per_epoch
    made = len(record.history.get("train/loss", range(epochs)))
    if not (1 if diverged else epochs) <= made <= epochs:
        yield f"has a history of {made} epochs, and its settings are of {epochs}."
    yield from _wrong_terms(recorded, ledger, expected)
    same_claim = accountant == expected["claimed_by"]
    compared = EPSILONS if same_claim else EPSILONS[:-1]
    yield from _wrong_epsilons(recorded, {name: expected[name] for name in compared})
    if attacks := recorded.get("attacks"):
        bounds = attack_bounds(_statement(config, accountant), planned.ledger)
        yield from _wrong_epsilons(attacks, bounds or dict.fromkeys(attacks))


def _wrong_terms(
    recorded: Mapping[str, Any], ledger: Any, expected: Mapping[str, Any]
) -> Iterator[str]:
    if not _same_ledger(ledger, to_plain(from_plain(expected["ledger"]))):
        yield f"has another ledger than its settings: {json.dumps(recorded['ledger'])}"
    searched = f'"{BUFFERS}"' in json.dumps(ledger)
    for name in (*TERMS, *(term for term in ADDED_TERMS if term in recorded)):
        allowed = SEARCHED if searched and name == "noise_multiplier" else 0.0
        if not equal(recorded.get(name), expected[name], allowed):
            yield f"has {name}={recorded.get(name)}, but its settings give {expected[name]}."


def _lacking(record: Record) -> list[str]:
    return [group for group in NAMED_GROUPS if not record.config.get(group)]


def _same_ledger(one: Any, other: Any) -> bool:
    """Whether two plain ledgers are equal, but for the last digits of a matrix."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return False
        if BUFFERS in one:
            return _same_matrix(one, other)
        return all(_same_ledger(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_ledger, one, other))
    return bool(one == other)


def _same_matrix(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two mechanisms have nearly one matrix, whichever buffers make it, and multiplier."""
    if len(one[BUFFERS]) != len(other[BUFFERS]):
        return False
    first = np.eye(1, LAGS)[0]
    ours, theirs = (encoded(m[BUFFERS], m["weights"], first) for m in (one, other))
    near = np.linalg.norm(ours - theirs) <= SEARCHED * np.linalg.norm(theirs)
    return bool(near) and equal(one["noise_multiplier"], other["noise_multiplier"], SEARCHED)


def _wrong_options(config: Mapping[str, Any]) -> Iterator[str]:
    """The options that a record names and does not have the settings of: tables name them."""
    for group in NAMED_GROUPS:
        option, target = config["choices"][group], with_current_names(config)[group].get(TARGET)
        if option != target and _target(group, option.partition(":")[0]) not in (None, target):
            yield f"names {group}={option}, but its settings are of {target}."


@functools.cache
def _target(group: str, option: str) -> str | None:
    try:
        return compose([f"{group}={option}"])[group].get(TARGET)
    except UserError:
        return None


def _wrong_epsilons(recorded: Mapping, expected: Mapping) -> Iterator[str]:
    for name, epsilon in expected.items():
        if not equal(recorded[name], epsilon, TOLERANCE):
            yield f"has {name}={recorded[name]}, but its ledger gives {epsilon}."


def _epsilons_of_ledger(privacy: Statement) -> dict[str, float]:
    """The epsilons of an audit by its ledger, as no settings describe its canaries."""
    ledger = from_plain(privacy["ledger"])
    return {
        name: SPENT[name](ledger, privacy["delta"])
        for name in UPPER_BOUNDS
        if privacy[name] is not None and privacy["guarantee"] != "none"
    }


@functools.cache
def _planned(config: str, accountant: str) -> tuple[Run, Plan]:
    """The run of a configuration, given as JSON, and its plan; the seed has no influence."""
    # Over the defaults: records leave out settings of execution, and later ones that are off.
    run = build(compose([]) | with_current_names(json.loads(config)))
    run = replace(run, paper_accountant=accountant)
    # Warnings of plans are for whoever trains first, and name no record.
    with warnings.catch_warnings(action="ignore"):
        return run, plan(run)


@functools.cache
def _statement(config: str, accountant: str) -> Statement:
    return privacy_statement(*_planned(config, accountant))


def has_data(record: Record) -> bool:
    """Whether a record names its data: of the user's own it only has a checksum."""
    return record.config.get("dataset", {}).get("checksum") is None


def differences_of_rerun(record: Record) -> Iterator[str]:
    """What is different after retraining the run of a record, as predicates of a sentence.

    On the same processor with the same versions every bit must be the same; differences in these
    are named. UserError for a run that cannot be retrained here.
    """
    again = _retrained(record)
    known = {name: again.metrics.get(name) for name in record.metrics}
    for part in ("metrics", "history", "diagnostics"):
        now = known if part == "metrics" else getattr(again, part)
        if not equal(getattr(record, part), now):
            yield f"has different {part} when retrained{_why(record, again)}."


def _retrained(record: Record) -> Record:
    if lacking := _lacking(record):
        raise UserError(f"it has no settings of its {' and '.join(lacking)}.")
    overrides = overrides_of(record)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        again = record_of(attempt(run_config([*overrides, f"results_dir={folder}"])))
    if isinstance(again, str):
        raise UserError(again)
    return again


def _why(record: Record, again: Record) -> str:
    before, now = record.provenance, again.provenance
    changed = [
        f"{name} was {before.get(name)} and is {now.get(name)}"
        for name in ENVIRONMENT
        if before.get(name) != now.get(name)
    ]
    return _in_brackets([*changed, *_other_packages(before, now)])


def _other_packages(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What a record had of plug-ins that are not installed now, or in another version."""
    had, has = map(_packages, (before, now))
    return [
        f"{name} was of {package} and is of {has.get(name, 'none')}"
        for name, package in had.items()
        if has.get(name) != package
    ]


def _packages(provenance: Mapping[str, Any]) -> dict[str, str]:
    """The packages of a record's parts and metrics, with their versions."""
    built = provenance.get(PLUGIN_PARTS_KEY, {}).items()
    metrics = provenance.get("metrics", {}).items()
    return {path: f"{part['package']} {part['version']}" for path, part in built} | {
        f"metric {name}": package for name, package in metrics
    }


def _in_brackets(parts: Sequence[str]) -> str:
    return f" ({', '.join(parts)})" if parts else ""


def equal(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether two values are equal, up to a relative tolerance of numbers; NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[k], other[k], tolerance) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=True)
        return len(one) == len(other) and all(equal(a, b, tolerance) for a, b in pairs)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=tolerance)
    return bool(one == other)
