"""Whether a record says what follows from its settings, and what its run would say again."""

import functools
import json
import math
import shlex
import tempfile
from collections.abc import Iterator
from typing import Any

from dpbench.config.compose import compose
from dpbench.errors import UserError
from dpbench.execution.prepare import build
from dpbench.execution.rerun import command_builder
from dpbench.execution.run import load_or_run
from dpbench.privacy.ledger import from_plain
from dpbench.records.digest import with_current_names
from dpbench.records.divergence import DIVERGED
from dpbench.records.reading import load
from dpbench.records.record import Record
from dpbench.training.plan import plan, privacy_statement

EPSILONS = ("rdp", "pld", "gdp", "claimed")

TOLERANCE = 1e-3
"""Relative, of an epsilon: versions of an accountant differ by the width of their grids."""

COMPUTES = ("code", "device", "torch", "numpy", "engine", "threads", "physical_batch_size")
"""Of the provenance, what the bits of a run on a CPU depend on."""


def contradictions(record: Record) -> Iterator[str]:
    """What the record says and does not follow from its settings, each as a sentence.

    The ledger must be the planned one, and each epsilon what the accountants say of it.
    """
    if str(record.provenance.get("commit")).endswith("+"):
        yield "was made with uncommitted changes."
    steps = sum(entry["times"] for entry in record.privacy["ledger"])
    diverged = record.status == DIVERGED
    config = json.dumps(record.config | {"seed": 0}, sort_keys=True)
    try:
        expected = _statement(config, steps if diverged else None)
    except (UserError, KeyError, TypeError) as error:
        yield f"has settings of which this version makes no run: {error}"
        return
    said = record.privacy
    if from_plain(said["ledger"]) != from_plain(expected["ledger"]):
        yield f"has a ledger that its settings do not plan: {json.dumps(said['ledger'])}"
    for name in ("delta", "guarantee"):
        if said[name] != expected[name]:
            yield f"says {name} {said[name]}, and its settings make it {expected[name]}."
    same_claim = said.get("claimed_by", "rdp") == expected["claimed_by"]
    for name in EPSILONS if same_claim else EPSILONS[:-1]:
        if not same(said[name], expected[name], TOLERANCE):
            yield f"says {name} {said[name]}, and its ledger spends {expected[name]}."


@functools.cache
def _statement(config: str, steps: int | None) -> dict:
    """The privacy statement of a configuration, as JSON; of its first steps where it diverged.

    The seed has no influence on it.
    """
    # Over the defaults: records leave out settings of execution, and later ones that are off.
    run = build(compose([]) | with_current_names(json.loads(config)))
    planned = plan(run)
    return privacy_statement(run, planned, planned.ledger.first(steps) if steps else None)


def differences_of_rerun(record: Record) -> Iterator[str]:
    """Trains the run of a record again; what is then different, each as a sentence.

    Every bit must be the same on the same processor with the same versions; what differs in these
    is named.
    """
    try:
        again = _trained_again(record)
    except UserError as error:
        yield f"cannot be trained again: {error}"
        return
    for part in ("metrics", "history", "diagnostics"):
        if not same(getattr(record, part), getattr(again, part)):
            yield f"has other {part} than when it is trained again{_why(record, again)}."


def _trained_again(record: Record) -> Record:
    _, _, *overrides = shlex.split(command_builder()(record.config))
    for name in ("engine", "threads", "physical_batch_size"):
        if (value := record.provenance.get(name)) is not None:
            overrides.append(f"{name}={value}")
    with tempfile.TemporaryDirectory() as folder:
        again = load(load_or_run([*overrides, f"results_dir={folder}"], quiet=True))
    assert again is not None
    return again


def _why(record: Record, again: Record) -> str:
    before, now = record.provenance, again.provenance
    changed = [
        f"{name} was {before.get(name)} and is {now.get(name)}"
        for name in COMPUTES
        if before.get(name) != now.get(name)
    ]
    return f" ({', '.join(changed)})" if changed else ""


def same(one: Any, other: Any, tolerance: float = 0.0) -> bool:
    """Whether two values are equal, NaN as well, up to a relative tolerance of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k], tolerance) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=True)
        return len(one) == len(other) and all(same(a, b, tolerance) for a, b in pairs)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=tolerance)
    return bool(one == other)
