"""Checks at the claimed rate and at sizes of which no batch is a whole number, and how rarely all
comparisons of a check together raise a false alarm."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from dpbench.audit.code.audited import AuditedTraining
from dpbench.audit.code.checks import batches, noise
from dpbench.audit.code.checks.batches import RARE_PAIRS, _dependent, _excess
from dpbench.audit.code.checks.participation import Participation, as_claimed, uneven_sizes
from dpbench.audit.code.task import NOTHING, ClaimedDpsgd, Finding
from dpbench.runs.records.epsilon import REFUTED
from tests.audit.loops.planted import audited

Chances = Callable[..., float | np.ndarray]
"""Of each example to be in the next batch."""


def claimed(task, errors, step):
    return task.sample_rate


def training(chances: Chances = claimed, by_batches: bool = False):
    """A training in NumPy. by_batches: whether its noise is divided by the batches of an epoch."""

    def factory(task):
        inputs, targets = np.asarray(task.inputs, float), np.asarray(task.targets, float)
        weights, draw = np.zeros(task.features), np.random.default_rng(task.seed)
        yield weights
        for step in range(task.steps):
            errors = inputs @ weights - targets
            chosen = draw.random(len(inputs)) < chances(task, errors, step)
            gradients = 2 * errors[chosen, None] * inputs[chosen]
            norms = np.linalg.norm(gradients, axis=1)
            total = np.minimum(1, task.bound / np.maximum(norms, 1e-12)) @ gradients
            spread = task.noise_multiplier * task.bound
            spread *= task.sample_rate if by_batches else 1
            total += spread * draw.normal(size=weights.shape)
            weights = weights - task.learning_rate * total / task.batch_size
            yield weights

    return factory


def of_a_loader(task, errors, step):
    """One over the number of whole batches, as loaders count them that drop the last."""
    return 1 / (len(errors) // round(len(errors) * task.sample_rate))


def of_classes(task, errors, step):
    return task.sample_rate * np.where(errors < 0, 3, 1)


def of_errors(task, errors, step):
    return task.sample_rate * np.abs(errors) / np.abs(errors).mean()


def with_a_favourite(task, errors, step):
    return task.sample_rate + (np.arange(len(errors)) == 17) * 0.4


def with_a_long_step(task, errors, step):
    return task.sample_rate * (2 if step == 100 else 1)


PLANTED = {
    "one over whole batches": (of_a_loader, 0.15, "an example is"),
    "one over whole batches, where 1/rate is whole": (of_a_loader, 0.125, "an example is"),
    "a constant": (lambda *_: 0.125, 0.05, "an example is"),
    "a class three times as often": (of_classes, 0.125, "an example"),
    "hard examples more often": (of_errors, 0.125, "with a large error"),
    "one example more often": (with_a_favourite, 0.125, "one example"),
    "a step of twice as many": (with_a_long_step, 0.125, "in one step"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_rate_above_the_claimed_one_is_refuted(name):
    chances, rate, words = PLANTED[name]
    finding = batches.sampling(
        AuditedTraining(name, training(chances), ClaimedDpsgd(sample_rate=rate))
    )
    assert finding.verdict == REFUTED
    assert words in finding.sentence


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.15, 0.05, 0.004, 1.0])
@pytest.mark.parametrize("loop", ["poisson", "arrays"])
def test_a_right_training_is_spared_at_any_rate(loop, rate):
    assert batches.sampling(audited(loop, sample_rate=rate)) == NOTHING


@pytest.mark.long
@pytest.mark.parametrize("rate", [0.15, 0.05])
def test_a_training_of_opacus_which_rounds_its_rate_down_is_spared(rate):
    code = audited("opacus_training", sample_rate=rate)
    assert batches.sampling(code) == NOTHING
    assert noise._at_the_claimed_rate(code) is None


def test_batches_of_the_uneven_sizes_are_no_whole_numbers():
    assert [uneven_sizes(rate) for rate in (0.15, 0.125, 1.0)] == [[262, 264], [250, 253], [250]]


def test_noise_that_is_divided_by_the_batches_of_an_epoch_is_refuted():
    """Where all examples are in a batch, it is right."""
    code, wrong = (
        AuditedTraining("made", training(by_batches=b), ClaimedDpsgd()) for b in (False, True)
    )
    assert noise._at_the_claimed_rate(code) is None
    finding = noise._at_the_claimed_rate(wrong)
    assert finding.verdict == REFUTED
    assert "The noise, at a sampling rate of 0.125, has 0.12" in finding.sentence


def poisson(seed: int, rate: float) -> Participation:
    """Of 253 examples in right batches."""
    draw = torch.Generator().manual_seed(seed)
    return Participation((torch.rand(64, 253, generator=draw) < rate).double(), rate)


@pytest.mark.parametrize("rate", [0.125, 0.5, 1 / 64])
def test_all_looks_at_right_batches_together_err_as_rarely_as_one_may(rate, monkeypatch):
    monkeypatch.setattr(batches, "RARE", 0.05)
    found: list[Finding | None] = [batches._too_often(poisson(seed, rate)) for seed in range(200)]
    assert sum(one is not None for one in found) <= stats.binom.ppf(0.999, 200, 0.05)


COMPARED = 12
"""What the check of the scale compares beside the claimed rate: all noise, the least parameter and
step, and nine conditions."""


def test_all_looks_at_right_noise_together_err_as_rarely_as_their_number_allows(monkeypatch):
    monkeypatch.setattr(noise, "RARE", 0.01)
    monkeypatch.setattr(noise, "noise_as_claimed", lambda code: torch.randn(8, 40, 7))
    monkeypatch.setattr(noise, "noise", lambda *args, **settings: torch.randn(600))
    torch.manual_seed(0)
    code = audited("plain")
    alarms = sum(noise.scale(code) != NOTHING for _ in range(50))
    assert alarms <= stats.binom.ppf(0.999, 50, COMPARED * 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.125, 0.05])
@pytest.mark.parametrize("number", [250, 256, 1000])
@pytest.mark.parametrize("loop", ["poisson", "arrays"])
def test_right_batches_are_independent_at_any_rate_and_size(loop, number, rate):
    assert [*_dependent(as_claimed(audited(loop, sample_rate=rate), number).members)] == []


def test_looks_at_independent_batches_err_rarely():
    draw = torch.Generator().manual_seed(0)
    for rate in (0.5, 0.125, 1 / 64):
        excess = [_excess(standardised(draw, rate)) for _ in range(50)]
        assert abs(float(np.mean(excess))) < 0.6
        assert max(excess) < RARE_PAIRS / 2


def standardised(draw: torch.Generator, rate: float) -> torch.Tensor:
    """Who is in right batches [64, 200], with mean 0 and variance 1."""
    members = (torch.rand(64, 200, generator=draw) < rate).double()
    return (members - rate) / (rate * (1 - rate)) ** 0.5


@pytest.mark.parametrize("coordinates", [1, 7, 300])
def test_gaussian_noise_has_the_law_and_no_twins(coordinates):
    drawn = torch.randn(8, 40, coordinates, generator=torch.Generator().manual_seed(0)).double()
    rows = drawn.flatten(0, 1)
    assert noise._numbers(rows.flatten()) is noise._lengths(rows) is None
    assert noise._directions(rows) == NOTHING
    assert not noise._has_twins(rows)


def test_twins_are_found_among_any_number_of_parameters():
    drawn = torch.randn(4, 10_000, generator=torch.Generator().manual_seed(0)).double()
    drawn[:, 9000] = drawn[:, 10]
    assert noise._has_twins(drawn)
