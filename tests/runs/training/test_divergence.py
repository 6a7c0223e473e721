"""Runs whose losses, outputs or gradients are not finite."""

import math
from dataclasses import dataclass, replace

import pytest
import torch

from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.models.predict import predict
from dpbench.runs.training import evaluation
from dpbench.runs.training.plan import plan, privacy_statement
from dpbench.runs.training.trainer import fit
from dpbench.step.methods.dpsgd import dpsgd
from tests.runs.training.small_runs import METHODS, NOWHERE, run_of, witnessed


def test_a_run_that_diverges_ends_there_with_nan_and_the_epsilon_of_all_planned_steps():
    wild = dpsgd(1e3, "corrected")
    run = replace(run_of(lr=1e38, epochs=3), method=wild)
    record = fit(run, NOWHERE)
    assert record.status == "diverged"
    assert all(math.isnan(value) for value in record.metrics.values())
    assert len(record.history["train/loss"]) == 1
    planned = privacy_statement(run, plan(run))
    attacks = record.privacy["attacks"]  # of records, not of plans
    assert {**record.privacy, "why": planned["why"]} == {**planned, "attacks": attacks}
    assert "only the epsilon of all planned steps covers" in record.privacy["why"]
    assert "planned" not in fit(run_of(epochs=1), NOWHERE).privacy["why"]


def test_one_output_that_is_not_finite_is_divergence_too(monkeypatch):
    """Weights stay finite as a rule, because gradients that are not finite count as zero."""

    def spoilt(*arguments, **settings):
        outputs, losses = predict(*arguments, **settings)
        outputs[0, 0] = math.inf
        return outputs, losses

    monkeypatch.setattr(evaluation, "predict", spoilt)
    record = fit(run_of(epochs=1), NOWHERE)
    assert record.status == "diverged"
    assert all(math.isnan(value) for value in record.metrics.values())


@dataclass(frozen=True)
class OneBroken(Digits):
    """Digits whose first training example is not finite."""

    broken: float = math.nan

    def load(self, folder, seed):
        data = Digits.load(self, folder, seed)
        inputs = data.train.inputs.clone()
        inputs[0] = self.broken
        return Data(Split(inputs, data.train.targets, data.train.groups), data.test)


@dataclass(frozen=True)
class AllBroken(Digits):
    """Digits whose training examples are none."""

    def load(self, folder, seed):
        data = Digits.load(self, folder, seed)
        inputs = torch.full_like(data.train.inputs, math.nan)
        return Data(Split(inputs, data.train.targets, data.train.groups), data.test)


def test_a_run_has_diverged_where_no_gradient_is_finite_but_a_private_one_does_not_end():
    """Its parameters stay finite, as such gradients count as zero."""
    run = run_of("sgd", dataset=AllBroken(0.2), epochs=3)
    record = fit(run, NOWHERE)
    assert record.status == "diverged"
    assert all(math.isnan(value) for value in record.metrics.values())
    assert len(record.history["train/loss"]) == 1
    assert "planned" not in record.privacy["why"]
    """Which is a fact about the data, and released without noise by the number of steps."""
    run = run_of("dpsgd", dataset=AllBroken(0.2), epochs=3)
    record = fit(run, NOWHERE)
    assert record.status == "complete"
    assert record.privacy == fit(replace(run, dataset=Digits(0.2)), NOWHERE).privacy
    assert min(record.history["train/not_finite"]) > 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("method", METHODS)
def test_an_example_that_is_not_finite_is_counted_and_poisons_nothing(method, broken):
    run = run_of(method, dataset=OneBroken(0.2, broken), epochs=1, batch_size=719)
    record = fit(run, NOWHERE)
    assert record.status == "complete"
    assert all(math.isfinite(v) for name, v in record.metrics.items() if name.startswith("test/"))
    assert math.isnan(record.metrics["train_set/loss"])  # one of whose examples has none
    assert all(map(math.isfinite, record.history["train/loss"]))
    witness, _ = witnessed(method=method, dataset=run.dataset, epochs=1, batch_size=719)
    seen = sum(int((~batch.isfinite()).flatten(1).any(1).sum()) for batch in witness.batches)
    # An infinite pixel saturates tanh, so its gradient is not finite either: 0 * inf.
    assert record.history["train/not_finite"] == [seen]
    assert seen > 0
