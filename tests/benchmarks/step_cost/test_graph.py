"""torch.compile takes whole private steps, of all models whose steps are counted."""

from dataclasses import replace

import pytest
import torch
from dpbench.benchmarks.step_cost import ours
from dpbench.benchmarks.step_cost.cases import STEP

from dpbench.step.mechanism.graph_step import GraphStep
from dpbench.step.mechanism.step import PrivateStep

pytestmark = pytest.mark.slow

CASES = {case.name: replace(case, batch_size=4) for case in STEP["counted"]}
QUICK = ("dutch_logistic", "adult_mlp")
CPU = torch.device("cpu")


def after_steps(case, kind, monkeypatch):
    """The step, and what three of them leave, with another learning rate and noise in each."""
    monkeypatch.setattr(ours, "PrivateStep", kind)
    stepper = ours.ours(CASES[case], CPU, "ghost")
    left = []
    for i in range(3):
        stepper.configure(0.1 + i, 1.0 / (1 + i))
        left += [
            *stepper.step(next(stepper.batches)),
            stepper.step.released.gradient,
            stepper.weights(),
        ]
    return stepper.step, left


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c in QUICK else pytest.mark.long) for c in CASES]
)
def test_a_step_is_one_graph_with_the_same_bits(case, monkeypatch):
    _, expected = after_steps(case, PrivateStep, monkeypatch)
    step, found = after_steps(case, GraphStep, monkeypatch)
    assert all(map(torch.equal, found, expected))
    assert step.replayed == {"steps": 2}
    assert len(step._graphs) == 1
