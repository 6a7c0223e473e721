"""Section 3.1 of the note: its formula with the largest gradients found in place of the bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from dpbench.comparison.reproduce.target import Target
from dpbench.learning.data.examples import Batch
from dpbench.privacy.accountants import ORDERS, lower_bound, note
from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.privacy.paper_epsilons import note_conversion, note_moments
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.epsilon import rounded_down
from dpbench.runs.training.float64 import in_float64, initial_network
from dpbench.runs.training.plan import privacy_statement
from dpbench.runs.training.run import Run
from dpbench.system.validate import Count

from .epsilons import planned_table

PARTS = 1000
"""The largest gradients are rounded up to a thousandth of the bound."""

PHYSICAL = 64
"""Examples whose gradients are held at once."""

HEAD = (
    "run",
    "parameters",
    "largest gradient over G, mean of coordinates",
    "the note's formula, G",
    "the same, largest gradients",
    "at least",
)


@dataclass(frozen=True)
class MeasuredSettings:
    """examples: the number of training examples whose gradients are taken, as of one batch."""

    examples: Count


class Measured(NamedTuple):
    """Of a run: the note's epsilon, that by the largest gradients, and a proven lower bound."""

    note: float
    measured: float
    least: float


def measured_epsilons(target: Target) -> dict[str, bytes]:
    """The files of the table by suffix, with a row per condition; nothing is trained."""
    setup = target.computed_by(MeasuredSettings)
    source = f", from the gradients of {setup.examples} training examples at the initial weights"
    return planned_table(target, HEAD, partial(_row, target, setup), claim, source)


def claim(runs: Sequence[Measured]) -> str:
    """A sentence on whether the measured loss is an upper bound of what may be spent."""
    below = sum(run.measured < run.least for run in runs)
    said = "1 claim: the privacy loss measured from gradients (section 3.1) is an upper bound."
    if not below:
        return f"{said} It is undecided."
    return (
        f"{said} It does not hold: in {below} of {len(runs)} runs it is below what an example at "
        "the bound spends."
    )


def _row(target: Target, setup: MeasuredSettings, label: str, overrides: list[str]) -> tuple:
    """The line of a planned run, its epsilons, and its privacy statement."""
    config = run_config(overrides)
    run, planned = prepare(config)
    delta, mechanism = run.privacy.delta, planned.step.releases[0].mechanism
    assert isinstance(mechanism, CoordinateMechanism)
    batch = in_float64(run, target.config.data_folder, run.seed, setup.examples)
    largest = largest_gradients(run, batch, config["method"]["bound"])
    rate = planned.sampler.expected_batch_size / run.dataset.train_size
    spent = Measured(
        note(planned.ledger, delta),
        measured_epsilon(largest, mechanism, rate, planned.steps, delta),
        lower_bound(planned.ledger, delta),
    )
    line = (
        label,
        str(mechanism.dimension),
        f"{largest.mean():.3f}",
        f"{spent.note:.3f}",
        f"{spent.measured:.3f}",
        rounded_down(spent.least, 3),
    )
    return line, spent, privacy_statement(run, planned)


def largest_gradients(run: Run, batch: Batch, bound: float) -> np.ndarray:
    """The largest of each coordinate's absolute gradients [D], clipped to the bound, over it."""
    network = initial_network(run, run.seed, PHYSICAL)
    largest = [network.gradients(p).stack().abs().amax(0) for p in batch.split(PHYSICAL)]
    return (torch.stack(largest).amax(0) / bound).clamp(max=1).numpy()


def measured_epsilon(
    largest: np.ndarray, mechanism: CoordinateMechanism, rate: float, steps: int, delta: float
) -> float:
    """The note's epsilon where coordinate m moves by largest[m] G at most."""
    lambdas = np.array(ORDERS) - 1
    counts = np.bincount(np.ceil(PARTS * largest).astype(int))
    moments = [
        count * note_moments(rate * mechanism.shift * part / PARTS, lambdas)
        for part, count in enumerate(counts)
    ]
    return note_conversion(steps * np.sum(moments, axis=0), delta, lambdas)
