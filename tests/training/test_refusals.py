"""What cannot be trained is refused before data is read."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
import torch
from absl import logging as absl_logging

from dpbench import memory
from dpbench.data.derive.augmentation import ShiftsFlips
from dpbench.data.digits import Digits
from dpbench.errors import UserError
from dpbench.methods.dpsgd import dpsgd
from dpbench.methods.dpsgd_f import dpsgd_f
from dpbench.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.methods.fairlens import fairlens
from dpbench.methods.sgd import sgd
from dpbench.models.mlp import Mlp
from dpbench.training.budget import Privacy
from dpbench.training.plan import Run, plan
from dpbench.training.trainer import fit

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


VIEWS = ShiftsFlips(views=2, shift=2, padding="reflect", flip="horizontal", probability=0.5)


@dataclass(frozen=True)
class Unreadable(Digits):
    """Digits that must not be read."""

    def load(self, folder, seed):
        pytest.fail("data was read")


def test_a_plan_reads_nothing():
    planned = plan(run_of(dataset=Unreadable(0.2), epochs=3))
    assert planned.steps == planned.ledger.steps == 36
    assert planned.noise_multiplier == 1.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 1439}, "larger than the 1438 training examples"),
        ({"lr": -1.0}, "model or optimizer cannot be built: Invalid learning rate: -1.0"),
        ({"lr": 1e39}, "model or optimizer cannot be built"),
        ({"device": "nonsense"}, "device=nonsense is not available here"),
        ({"augmentation": replace(VIEWS, shift=8)}, "shift=8 must be less than the side"),
        ({"ema_decay": 1.0}, "ema_decay must be a number from 0 to below 1"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_data_is_read(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        fit(run_of(dataset=Unreadable(0.2), **changes), NOWHERE)


def test_where_memory_cannot_be_measured_nothing_is_read(monkeypatch):
    monkeypatch.setattr(memory, "resident", lambda _: None)
    run = run_of(dataset=Unreadable(0.2), physical_batch_size="auto", device="cpu")
    with pytest.raises(UserError, match="physical_batch_size=auto cannot measure"):
        fit(run, NOWHERE)


def test_a_method_that_does_not_fit_the_data_is_refused_before_data_is_read():
    run = replace(run_of(dataset=Unreadable(0.2)), method=fairlens(0.5, 1.0, 1.0, "corrected"))
    with pytest.raises(UserError, match="exactly 2 groups and digits has 10"):
        fit(run, NOWHERE)
