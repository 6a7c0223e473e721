"""Engines and physical batch sizes change a run by rounding only."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from absl import logging as absl_logging

from dpbench import memory
from dpbench.data.digits import Digits
from dpbench.data.dutch import Dutch
from dpbench.mechanism.physical_batches import PhysicalBatches
from dpbench.methods.dpsgd import dpsgd
from dpbench.methods.dpsgd_f import dpsgd_f
from dpbench.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.methods.fairlens import fairlens
from dpbench.methods.sgd import sgd
from dpbench.models.mlp import Mlp
from dpbench.models.predict import predict
from dpbench.training import trainer
from dpbench.training.budget import Privacy
from dpbench.training.plan import Run, plan
from dpbench.training.trainer import fit, private_step

NOWHERE = Path("/nowhere")  # digits need no folder
METHODS = {
    "sgd": sgd(),
    "dpsgd": dpsgd(0.5, "corrected"),
    "dpsgd_f": dpsgd_f(0.5, 10.0, "corrected"),
    "dpsgd_global_adapt": dpsgd_global_adapt(0.5, 5.0, 1.0, 0.1, 10.0, "corrected"),
}


@pytest.fixture(autouse=True, scope="module")
def few_words():
    before = absl_logging.get_verbosity()
    absl_logging.set_verbosity(absl_logging.ERROR)
    yield
    absl_logging.set_verbosity(before)


def run_of(method="dpsgd", lr=0.5, **changes):
    usual = {
        "dataset": Digits(0.2),
        "model": Mlp((16,), "tanh"),
        "privacy": Privacy(1.0, None, 1e-5, "rdp"),
        "optimizer": partial(torch.optim.SGD, lr=lr),
        "sampler": "poisson",
        "epochs": 2,
        "batch_size": 128,
        "seed": 0,
    }
    return Run(method=METHODS[method], **usual | changes)


@dataclass
class Witness:
    """Diagnostics that keep what they are shown, and draw from torch's global generator."""

    batches: list = field(default_factory=list)
    epochs: int = 0

    def observer(self, step, train, test):
        self.step, self.train = step, train
        self.start = step.engine.parameters.theta.detach().clone()
        return self

    def before(self, batch):
        torch.rand(7)
        self.batches.append(batch.inputs.clone())

    def end_of_epoch(self):
        self.epochs += 1

    def series(self):
        return {"steps": [len(self.batches)]}


def witnessed(**changes):
    witness = Witness()
    return witness, fit(run_of(diagnostics=witness, **changes), NOWHERE)


def close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        # One test image of a digit weighs about 1/36; none may tip.
        assert value == pytest.approx(theirs[name], rel=1e-3, abs=1e-3), name


@pytest.mark.parametrize("engine", ["ghost", "loop", "vmap"])
def test_every_engine_measures_the_same_up_to_rounding(engine):
    usual = run_of("dpsgd_f", epochs=1, engine="auto")
    record = fit(replace(usual, engine=engine), NOWHERE)
    assert record.provenance["engine"] == engine
    close(record.metrics, fit(usual, NOWHERE).metrics)


@pytest.mark.parametrize("size", [1000, 50, 7])
def test_physical_batches_measure_the_same_up_to_rounding(size):
    whole = fit(run_of("dpsgd_global_adapt", epochs=1), NOWHERE)
    parts = fit(run_of("dpsgd_global_adapt", epochs=1, physical_batch_size=size), NOWHERE)
    close(parts.metrics, whole.metrics)
    assert parts.privacy == whole.privacy


@pytest.mark.parametrize(("room", "size"), [(2**40, 186), (-(2**40), 1)])
def test_a_physical_size_that_is_found_measures_the_same_up_to_rounding(monkeypatch, room, size):
    """120 and 6 standard deviations where there is room; one at a time where there is none."""
    monkeypatch.setattr(memory, "free", lambda _: room)
    for module in (memory, trainer):
        monkeypatch.setattr(module, "check_measurable", lambda _: None)
    usual = run_of("dpsgd_f", epochs=1, device="cpu")
    found = fit(replace(usual, physical_batch_size="auto"), NOWHERE)
    assert found.provenance["physical_batch_size"] == size
    whole = fit(usual, NOWHERE)
    close(found.metrics, whole.metrics)
    assert found.privacy == whole.privacy


def test_a_method_that_needs_whole_batches_has_them_where_the_size_is_to_be_found():
    method = fairlens(0.5, 1.0, 1.0, "corrected")
    run = replace(run_of(dataset=Dutch(0.2)), method=method, physical_batch_size="auto")
    step = private_step(run, plan(run), torch.device("cpu"))
    assert step.physical == PhysicalBatches(None, adaptive=False)


def test_predictions_that_do_not_fit_at_once_are_made_in_parts():
    witness, _ = witnessed(epochs=1)
    engine, test = witness.step.engine, Digits(0.2).load(NOWHERE, 0).test
    whole = predict(engine.model, engine.loss, test)

    def cramped(_, inputs):
        if len(inputs[0]) > 100:
            raise torch.OutOfMemoryError("out of memory")

    engine.model.register_forward_pre_hook(cramped)
    for ours, theirs in zip(predict(engine.model, engine.loss, test), whole, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
