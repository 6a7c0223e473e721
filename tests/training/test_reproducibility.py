"""What a run draws from its seed: the same again, and nothing from another stream."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import torch
from absl import logging as absl_logging

from dpbench.data.digits import Digits
from dpbench.errors import UserError
from dpbench.mechanism.streams import seeded
from dpbench.methods.dpsgd import dpsgd
from dpbench.methods.dpsgd_f import dpsgd_f
from dpbench.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.methods.sgd import sgd
from dpbench.models.mlp import Mlp
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


def what_it_measured(record):
    return record.metrics, record.history, record.privacy, record.status


def test_the_same_run_twice_measures_the_same_to_the_last_bit():
    first, second = (fit(run_of("dpsgd_global_adapt"), NOWHERE) for _ in range(2))
    assert what_it_measured(first) == what_it_measured(second)


@pytest.fixture
def streams(monkeypatch):
    """The private streams that runs make from then on, in order."""
    made = []

    def noted(*arguments):
        made.append(seeded(*arguments))
        return made[-1]

    monkeypatch.setattr("dpbench.training.plan.seeded", noted)
    return made


def named(seed: int, bound: float) -> dict:
    """A configuration, as far as it names a run."""
    choices = {"dataset": "digits", "model": "mlp", "method": "dpsgd_global_adapt"}
    return {"seed": seed, "choices": choices, "method": {"bound": bound}}


def test_no_stream_of_a_run_is_another_s_nor_another_run_s(streams):
    """Noise, counts and batches: of two seeds, and of two runs that share their seed."""
    for seed in (0, 1):
        for bound in (0.5, 0.6):
            run = run_of("dpsgd_global_adapt", seed=seed, epochs=1, config=named(seed, bound))
            fit(run, NOWHERE)
    assert len(streams) == 12
    assert len({stream.state_dict()["key"] for stream in streams}) == 12
    made, size = 12, 64 * 16 + 16 + 16 * 10 + 10
    for noise, counts, batches in zip(*[iter(streams)] * 3, strict=True):
        assert noise.state_dict()["drawn"] == made * size
        assert counts.state_dict()["drawn"] == made
        assert batches.state_dict()["drawn"] > 1000


def test_runs_of_one_seed_start_from_the_same_weights_and_have_noise_of_their_own():
    def step(bound):
        run = run_of(config=named(0, bound))
        return private_step(run, plan(run), torch.device("cpu"))

    one, other = step(0.5), step(0.6)
    assert torch.equal(*(of.engine.parameters.theta for of in (one, other)))
    assert not torch.isclose(*(of.noise.bits(100).double() for of in (one, other))).any()


def test_secure_noise_is_another_one_each_time_and_no_seed_makes_it(streams):
    records = [fit(run_of(noise="secure", config=named(0, 0.5)), NOWHERE) for _ in range(2)]
    assert not streams
    assert records[0].metrics != records[1].metrics
    assert {record.privacy["arithmetic"] for record in records} == {"secure"}
    assert fit(run_of(), NOWHERE).privacy["arithmetic"] == "float"
    assert fit(run_of("sgd"), NOWHERE).privacy["arithmetic"] is None
    with pytest.raises(UserError, match="noise=safe is unknown: choose from secure, seeded"):
        run_of(noise="safe")


def test_another_seed_measures_something_else():
    assert fit(run_of(seed=1), NOWHERE).metrics != fit(run_of(), NOWHERE).metrics


@pytest.mark.parametrize("method", METHODS)
def test_nothing_depends_on_torch_s_global_generator(method):
    torch.manual_seed(1)
    alone = fit(run_of(method, epochs=1), NOWHERE)
    torch.manual_seed(2)
    witness, watched = witnessed(method=method, epochs=1)
    assert what_it_measured(watched) == what_it_measured(alone)
    assert watched.diagnostics == {"steps": [12]}
    assert witness.epochs == 1


@pytest.mark.parametrize("method", METHODS)
def test_methods_are_paired_by_seed(method):
    """Same split, same initial weights, same batches: whatever the methods draw beside."""
    ours, _ = witnessed(method=method, epochs=1)
    baseline, _ = witnessed(method="sgd", epochs=1)
    assert torch.equal(ours.start, baseline.start)
    assert torch.equal(ours.train.inputs, baseline.train.inputs)
    assert len(ours.batches) == len(baseline.batches) == 12
    assert all(map(torch.equal, ours.batches, baseline.batches))


def test_another_seed_has_another_split_other_weights_and_other_batches():
    (one, _), (other, _) = (witnessed(seed=seed, epochs=1) for seed in (0, 1))
    assert not torch.equal(one.start, other.start)
    assert not torch.equal(one.train.inputs, other.train.inputs)
    assert [len(b) for b in one.batches] != [len(b) for b in other.batches]


def test_private_methods_draw_the_same_noise_from_the_same_seed_whatever_they_count():
    plain, counting = (
        witnessed(method=method, epochs=1)[0] for method in ("dpsgd", "dpsgd_global_adapt")
    )
    draws = [witness.step.noise.bits(4) for witness in (plain, counting)]
    assert torch.equal(*draws)
