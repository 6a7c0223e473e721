"""Sign methods: the exponential mechanism, accumulation, and what cannot be put together."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from dpbench.privacy.ledger import CoordinateMechanism
from dpbench.step.clipping import Abadi
from dpbench.step.mechanism.noise import PerCoordinate
from dpbench.step.methods.dp_losgd import dp_losgd, dp_signlosgd
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.sgd import sgd
from dpbench.step.methods.signsgd import dp_signsgd, dp_signsgd_laplace, signsgd
from dpbench.system.errors import UserError
from tests.problems import SIZE, problem
from tests.steps import theta

BOUND, MULTIPLIER = 0.01, 0.02


def exponential_mechanism(gradient: np.ndarray, sigma: float) -> np.ndarray:
    """Pr(r_i = 1) over r in {-1, 1}^d, drawn with weight exp(sigma r.g) (the note, section 1)."""
    answers = np.array(np.meshgrid(*[[-1, 1]] * len(gradient))).reshape(len(gradient), -1)
    weights = np.exp(sigma * (gradient @ answers))
    return (weights * (answers == 1)).sum(1) / weights.sum()


def test_dp_signlosgd_is_the_exponential_mechanism(stream_of):
    total, sensitivity, multiplier = np.array([-1.5, -0.2, 0.0, 0.1, 2.0]), 1.1, 0.7
    expected = exponential_mechanism(total, 1 / (2 * multiplier * sensitivity))
    method, draw = dp_signlosgd(BOUND), stream_of(0)
    times = 20_000
    sums = torch.tensor(total).repeat(times)
    noisy = method.noise.add(sums, sensitivity, multiplier, draw)
    counts = (method.update(noisy, sums) == 1).double().view(times, -1).sum(0).int()
    for count, p in zip(counts.tolist(), expected, strict=True):
        assert stats.binomtest(count, times, p).pvalue > 1e-3
    wrong = exponential_mechanism(total, 1.5 / (2 * multiplier * sensitivity))
    assert stats.binomtest(counts[0].item(), times, wrong[0]).pvalue < 1e-6


@pytest.mark.parametrize(
    ("sign", "whole"), [(dp_signlosgd, dp_losgd), (signsgd, sgd)], ids=["logistic", "plain"]
)
def test_a_sign_method_moves_by_the_signs_of_the_other_s_update(step_of, batch_of, sign, whole):
    made = [m(BOUND) if m in (dp_signlosgd, dp_losgd) else m() for m in (sign, whole)]
    moves = []
    for method in made:
        step = step_of(method.bind(problem()), multiplier=MULTIPLIER, lr=1.0)
        start = theta(step)
        step(batch_of(9))
        moves.append(start - theta(step))
    assert torch.equal(moves[0].round(), moves[1].sign())
    assert (moves[0] - moves[0].round()).abs().max() < 1e-9


def test_dp_signsgd_is_the_sign_of_dpsgd(step_of, batch_of):
    moves = []
    for method in (dp_signsgd(0.5, "abadi", "flat"), dpsgd(0.5, "corrected")):
        step = step_of(method.bind(problem()), lr=1.0)
        start = theta(step)
        step(batch_of(9))
        moves.append(start - theta(step))
    assert torch.equal(moves[0].round(), moves[1].sign())


@pytest.mark.parametrize("make", [dp_losgd, dp_signlosgd, dp_signsgd_laplace])
def test_accumulation_adds_clipped_sums_before_a_draw_and_sign(step_of, batch_of, stream_of, make):
    method, batch = make(BOUND).bind(problem()), batch_of(9)
    step = step_of(method, physical=2, multiplier=MULTIPLIER, lr=1.0, expected=8.0)
    total = step_of(method, engine="loop").engine(batch).stack().clamp(-BOUND, BOUND).sum(0)
    scale, draw = MULTIPLIER * BOUND * SIZE**0.5, stream_of(1)
    noisy = method.noise.add(total, scale, 1.0, draw) / 8
    start = theta(step)
    step(batch)
    assert torch.allclose(start - theta(step), method.update(noisy, start), atol=1e-8)


def test_the_ledger_lists_every_coordinate_and_signs():
    for make, signed in ((dp_losgd, False), (dp_signlosgd, True)):
        (release,) = make(BOUND).bind(problem()).releases(0.4)
        assert release.mechanism == CoordinateMechanism("logistic", 0.4, SIZE, signed)
        scale = 0.4 * BOUND * math.sqrt(SIZE)
        assert release.mechanism.shift == pytest.approx(BOUND / scale)


def test_an_account_for_another_size_is_refused(step_of):
    with pytest.raises(UserError, match=r"made for 578 parameters and the model trains 579"):
        step_of(dp_losgd(BOUND).bind(problem(size=SIZE - 1)))
    with pytest.raises(UserError, match="made for no parameters"):
        step_of(dp_losgd(BOUND))


def test_noise_for_all_coordinates_at_once_needs_a_bound_of_each():
    method = dp_losgd(BOUND).bind(problem())
    assert method.noise == PerCoordinate("logistic", SIZE)
    assert method.clip.sensitivity.bound == pytest.approx(BOUND * SIZE**0.5)
    mixed = dataclasses.replace(dp_losgd(BOUND), clip=Abadi(1.0))
    with pytest.raises(UserError, match="the noise of dp_losgd needs a bound on each coordinate"):
        mixed.bind(problem())
