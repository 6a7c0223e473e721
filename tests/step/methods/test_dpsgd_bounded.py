"""Bounded adaptive clipping: against the authors' loop, and where it becomes other methods."""

import dataclasses
import math

import pytest
import torch

from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.step.clipping import Abadi
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_bounded import dpsgd_bounded
from dpbench.step.methods.dpsgd_quantile import dpsgd_quantile
from dpbench.system.errors import UserError
from tests.problems import problem

NOBODY = torch.zeros(6, dtype=torch.long)
NORMS = torch.tensor([0.01, 0.1, 0.3, 0.9, 2.6, 40.0], dtype=torch.float64)


def bounded(**changes):
    usual = {"bound": 1.0, "lower_bound": 0.1, "quantile": 0.5, "threshold": 2.5}
    usual |= {"clip_learning_rate": 0.2, "count_noise": 12.8, "clip": "abadi", "style": "flat"}
    return dpsgd_bounded(**{**usual, **changes})


def test_bound_and_factors_are_those_of_the_authors_loop():
    clip, bound = bounded(lower_bound=0.5, clip_learning_rate=2.0).clip, 1.0
    for _ in range(6):
        factors = [min(1 / norm, 1 / bound) for norm in NORMS.tolist()]
        assert clip.factors(NORMS, NOBODY).tolist() == pytest.approx(factors)
        within = sum(norm <= 2.5 * bound for norm in NORMS.tolist()) / len(NORMS)
        bound = max(0.5, bound * math.exp(-2.0 * (within - 0.5)))
        clip = clip.updated(clip.counts(NORMS, NOBODY), float(len(NORMS)))
        assert float(clip.clip.bound) == pytest.approx(bound)
    assert bound == 0.5


# The summary at hand has the sign both ways: where nearly all norms are within R, it has to fall.
@pytest.mark.parametrize(("norm", "direction"), [(0.2, -1), (50.0, 1)])
def test_the_bound_falls_where_all_norms_are_within_it_and_rises_where_none_is(norm, direction):
    clip = bounded().clip
    moved = clip.updated(clip.counts(torch.full((8,), norm), NOBODY), 8.0)
    assert float(moved.clip.bound) == pytest.approx(math.exp(direction * 0.1))


@pytest.mark.parametrize("style", ["flat", "layerwise"])
def test_no_answer_pushes_the_bound_below_its_lower_bound(style):
    method = bounded(style=style).bind(problem())
    clip, counts = method.clip, torch.full((2 if style == "layerwise" else 1,), 1e6)
    for _ in range(3):
        clip = clip.updated(counts, 8.0)
    assert float(clip.clip.sensitivity.bound) == pytest.approx(0.1)
    assert clip.sensitivity.bound == 1


def test_the_bound_adapts_from_its_start_above_the_lower_bound_and_the_sensitivity_stays():
    clip = bounded().clip
    for count in (1e3, -1e3, 7.0):
        clip = clip.updated(torch.tensor([count], dtype=torch.float64), 8.0)
        assert clip.sensitivity.bound == 1.0
        assert (clip.factors(NORMS, NOBODY) * NORMS <= 1 + 1e-12).all()
    with pytest.raises(UserError, match=r"method.bound=0.05, where R starts, is below"):
        bounded(bound=0.05)


def test_with_a_bound_that_cannot_move_it_is_dpsgd_with_lr_over_the_bound(step_of, batch_of):
    ours = step_of(bounded(bound=0.5, lower_bound=0.5, quantile=0.0, count_noise=1e-3), lr=0.1)
    usual = step_of(dpsgd(0.5, "corrected"), lr=0.2)
    for seed in range(3):
        ours(batch_of(6, seed=seed))
        usual(batch_of(6, seed=seed))
    thetas = [step.engine.parameters.theta.detach() for step in (ours, usual)]
    assert torch.allclose(*thetas, rtol=1e-4, atol=1e-5)  # up to the grid of the noise


@pytest.mark.slow
def test_epsilon_is_that_of_dpsgd_quantile():
    def epsilon(method):
        return pld(Ledger().after(Step(Poisson(0.02), method.releases(1.0)), 300), 1e-5)

    quantile = dpsgd_quantile(1.0, 0.5, 0.2, 12.8, "abadi", "flat")
    assert epsilon(bounded()) == epsilon(quantile)
    assert epsilon(bounded()) > epsilon(dataclasses.replace(bounded(), clip=Abadi(1.0)))
