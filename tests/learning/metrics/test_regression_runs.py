"""The trainer where numbers are predicted: every method and engine, by the squared error."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch

from dpbench.comparison.search.selection import RULES, Trial, ranked
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.models.mlp import Mlp
from dpbench.runs.training.budget import Privacy
from dpbench.runs.training.run import Run
from dpbench.runs.training.trainer import fit
from dpbench.step.methods.bam import bam
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import dpsgd_f
from dpbench.step.methods.fairlens import fairlens
from dpbench.step.methods.sgd import sgd
from dpbench.system.errors import UserError

NOWHERE = Path("/nowhere")


@dataclass(frozen=True)
class Line:
    """y = x_0 - 2 x_1 + 5, without noise."""

    name = "line"
    task = "regression"
    shape = (2,)
    classes = 1
    groups = ("all",)
    train_size = 400
    notes = ()

    def load(self, folder, seed):
        draw = torch.Generator().manual_seed(seed)
        return Data(self.split(400, draw), self.split(100, draw))

    def split(self, n, draw):
        inputs = torch.randn(n, 2, generator=draw)
        targets = inputs @ torch.tensor([1.0, -2.0]) + 5
        return Split(inputs, targets, torch.zeros(n, dtype=torch.int64))


CONFIG = {"seed": 0, "choices": {"dataset": "line", "model": "mlp", "method": "sgd"}, "method": {}}
USUAL = Run(
    dataset=Line(),
    model=Mlp((), "relu"),
    method=sgd(),
    privacy=Privacy(1.0, None, 1e-5, "rdp"),
    optimizer=partial(torch.optim.SGD, lr=0.1),
    sampler="poisson",
    epochs=10,
    batch_size=40,
    seed=0,
    config=CONFIG,
)


def test_a_line_is_found_and_nothing_is_said_of_classes():
    record = fit(USUAL, NOWHERE)
    assert set(record.metrics) == {
        *(f"test/{name}" for name in ("loss", "mse", "rmse", "mae", "r2", "loss/all")),
        *(f"train_set/{name}" for name in ("loss", "loss/all")),
    }
    assert record.metrics["test/r2"] > 0.999
    assert record.metrics["test/mse"] == pytest.approx(record.metrics["test/loss"], rel=1e-5)
    assert record.calibration == {}


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [dpsgd(1.0, "corrected"), dpsgd_f(1.0, 10.0, "corrected"), bam(1.0, 0.05)],
    ids=lambda method: method.name,
)
def test_engines_agree_and_private_methods_learn(method):
    run = replace(USUAL, method=method, privacy=Privacy(0.5, None, 1e-5, "rdp"))
    ours, reference = (fit(replace(run, engine=e), NOWHERE).metrics for e in ("ghost", "loop"))
    assert ours == pytest.approx(reference, rel=1e-4)
    assert ours["test/r2"] > 0.5


def test_a_method_that_needs_groups_is_refused():
    with pytest.raises(UserError, match="fairlens is defined for exactly 2 groups and line has 1"):
        fit(replace(USUAL, method=fairlens(1.0, 1.0, 1.0, "corrected")), NOWHERE)


@pytest.mark.parametrize("rule", RULES)
def test_trials_without_accuracy_are_ranked_by_their_loss(rule):
    def trial(number, loss):
        record = replace(fitted, metrics={"validation/loss": loss, "validation/mse": loss})
        return Trial(number, (f"lr={number}",), {"0": record})

    fitted = fit(replace(USUAL, epochs=1), NOWHERE)
    trials = [trial(1, 2.0), trial(2, 1.0), trial(3, float("nan"))]
    assert [one.number for one in ranked(trials, RULES[rule])] == [2, 1]
