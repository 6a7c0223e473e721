"""Runs that are broken in one place are refuted."""

from dataclasses import replace

import pytest
import torch

from dpbench.step.gradients.ghost import Ghost
from dpbench.step.mechanism import sampling
from dpbench.step.mechanism.noise import Gaussian
from tests.audit.attacking import is_refuted, less_noise

# So few canaries are no data set: attacks are sharper at a large delta.
pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")


def small_sensitivity(patch):
    from dpbench.step.clipping.functions import Abadi

    patch.setattr(Abadi, "factors", lambda self, norms, groups: 1.25 * self.bound / norms)


def forgotten_norm(patch):
    """A fifth of each gradient is not in its norm."""
    norms = Ghost.__call__

    def mutant(self, *arguments):
        gradients = norms(self, *arguments)
        if gradients.norms.dtype is torch.float32:  # engines are checked in float64
            gradients.norms.mul_(0.8)
        return gradients

    patch.setattr(Ghost, "__call__", mutant)


def same_noise(patch):
    """All of a run's steps draw the same noise: their differences have none."""
    add, first = Gaussian.add, {}

    def mutant(self, total, sensitivity, multiplier, stream):
        noise = add(self, torch.zeros_like(total), sensitivity, multiplier, stream)
        return total + first.setdefault(len(total), noise)

    patch.setattr(Gaussian, "add", mutant)


def examples_twice(patch):
    at = sampling.PoissonSampler.batches

    def mutant(self, size, stream):
        for indices in at(self, size, stream):
            yield indices.repeat(2)

    patch.setattr(sampling.PoissonSampler, "batches", mutant)


def fixed_batches(patch):
    """Each example once an epoch, and accounted as Poisson."""

    def mutant(self, size, stream):
        pieces = round(1 / self.rate)
        while True:
            yield from torch.randperm(size).tensor_split(pieces)

    patch.setattr(sampling.PoissonSampler, "batches", mutant)


def examples_one_by_one(patch):
    """A user's examples are clipped one by one, and each counts as a user."""
    from dpbench.audit import game

    on = game.on_canaries

    def mutant(run, number):
        made = on(run, number)
        return replace(made, dataset=replace(made.dataset, copies=3))

    patch.setattr(game, "on_canaries", mutant)
    patch.setattr("dpbench.audit.audit.on_canaries", mutant)


def empty_batches_skipped(patch):
    """As often drawn, but steps with nobody in them are not taken."""
    at = sampling.PoissonSampler.batches

    def mutant(self, size, stream):
        return (indices for indices in at(self, size, stream) if len(indices))

    patch.setattr(sampling.PoissonSampler, "batches", mutant)


MUTANTS = {
    "noise times 0.9": (less_noise(0.9), {"canaries": 60_000}),
    "noise times 0.8": (less_noise(0.8), {}),
    "sensitivity 1.25 too small": (small_sensitivity, {"canaries": 10_000}),
    "a part left out of the norm": (forgotten_norm, {"canaries": 10_000}),
    "the same noise in all steps": (same_noise, {"canaries": 4000, "rate": 0.1, "steps": 10}),
    "each example twice in a batch": (examples_twice, {"canaries": 4000}),
    "fixed batches accounted as Poisson": (
        fixed_batches,
        {"privacy": "privacy.noise_multiplier=0.3", "canaries": 4000, "rate": 0.1, "steps": 10},
    ),
    "empty batches skipped": (
        empty_batches_skipped,
        {"privacy": "privacy.noise_multiplier=0.4", "canaries": 1000, "rate": 1e-3, "steps": 3000},
    ),
    "views or users' examples counted as units": (
        examples_one_by_one,
        {"canaries": 4000, "rate": 0.1, "steps": 40},
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_refuted(name, monkeypatch):
    mutate, how = MUTANTS[name]
    mutate(monkeypatch)
    privacy = how.get("privacy", "privacy.noise_multiplier=1")
    size = {key: value for key, value in how.items() if key != "privacy"}
    assert is_refuted("method=dpsgd", privacy, **size)
