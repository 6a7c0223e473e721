"""What a run draws from its seed: the same again, and nothing from another stream."""

import pytest
import torch

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.runs.training.plan import plan
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.start import private_step, start_training
from dpbench.runs.training.trainer import fit
from dpbench.step.mechanism.streams import seeded
from dpbench.system.errors import UserError
from tests.runs.training.small_runs import METHODS, NOWHERE, run_of, what_it_measured, witnessed


def test_the_same_run_twice_measures_the_same_and_another_seed_something_else():
    first, second = (fit(run_of("dpsgd_global_adapt"), NOWHERE) for _ in range(2))
    assert what_it_measured(first) == what_it_measured(second)
    assert fit(run_of(seed=1), NOWHERE).metrics != fit(run_of(), NOWHERE).metrics


@pytest.fixture
def streams(monkeypatch):
    """The private streams that runs make from then on, in order."""
    made = []

    def noted(*arguments):
        made.append(seeded(*arguments))
        return made[-1]

    monkeypatch.setattr("dpbench.training.run.seeded", noted)
    return made


def named(seed: int, bound: float) -> dict:
    """A configuration, as far as it names a run."""
    choices = {"dataset": "digits", "model": "mlp", "method": "dpsgd_global_adapt"}
    return {"seed": seed, "choices": choices, "method": {"bound": bound}}


@pytest.mark.slow
def test_no_two_purposes_or_runs_share_a_stream(streams):
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


def test_runs_of_one_seed_share_initial_weights_but_no_draws():
    """Two runs with the same draws differ by what an example more changed, and by no noise."""

    def step(bound):
        run = run_of(config=named(0, bound))
        return private_step(run, plan(run), torch.device("cpu"))

    one, other, again = step(0.5), step(0.6), step(0.5)
    assert torch.equal(*(of.engine.parameters.theta for of in (one, other)))
    assert not torch.isclose(*(of.noise_stream.bits(100).double() for of in (one, other))).any()
    assert one.released.seed == again.released.seed != other.released.seed


@pytest.mark.slow
def test_secure_noise_is_another_one_each_time_and_no_seed_makes_it(streams):
    records = [fit(run_of(noise="secure", config=named(0, 0.5)), NOWHERE) for _ in range(2)]
    assert not streams
    assert records[0].metrics != records[1].metrics
    assert {record.privacy["arithmetic"] for record in records} == {"secure"}
    assert fit(run_of(), NOWHERE).privacy["arithmetic"] == "float"
    assert fit(run_of("sgd"), NOWHERE).privacy["arithmetic"] is None
    with pytest.raises(UserError, match="noise=safe is unknown: choose from secure, seeded"):
        run_of(noise="safe")


def test_with_secure_noise_the_draws_inside_a_step_are_secret_too():
    """An example more changes the augmentation and the dropout of the examples behind it."""

    def drawn(**changes):
        run = run_of(augmentation=ShiftsFlips(2, 2, "zero", "none", 1.0), **changes)
        data = run.load(NOWHERE)
        training = start_training(run, plan(run), data, ResourceUsage(torch.device("cpu")))
        tried = torch.Generator().manual_seed(torch.default_generator.initial_seed() % 2**32)
        dropout = torch.rand(4)
        found = torch.equal(dropout, torch.rand(4, generator=tried))
        views = run.augmentation.apply(data.train.inputs[:20], training.batches.views)
        return found, (training.step.released.seed, dropout.tolist(), views.tolist())

    (found, first), (_, second) = drawn(noise="secure"), drawn(noise="secure")
    assert not found, "by a trial of the 32 bits that torch takes of a seed"
    assert all(one != other for one, other in zip(first, second, strict=True))
    assert drawn() == drawn()


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


def test_another_seed_has_another_split_and_one_seed_the_same_noise_whatever_is_counted():
    (one, _), (other, _) = (witnessed(seed=seed, epochs=1) for seed in (0, 1))
    assert not torch.equal(one.start, other.start)
    assert not torch.equal(one.train.inputs, other.train.inputs)
    assert [len(b) for b in one.batches] != [len(b) for b in other.batches]
    plain, counting = (witnessed(method=m, epochs=1)[0] for m in ("dpsgd", "dpsgd_global_adapt"))
    draws = [witness.step.noise_stream.bits(4) for witness in (plain, counting)]
    assert torch.equal(*draws)
