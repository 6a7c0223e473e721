"""Sums of losses on a grid: the grid, the transform's error, and what is added for it."""

import math

import numpy as np
import pytest
from scipy import fft, stats

from dpbench.privacy.amplification import addition_deltas, removal_deltas
from dpbench.privacy.composition import (
    PER_STAGE,
    TRUNCATED_MASS,
    UNIT,
    Losses,
    LossSum,
    connect_dots,
)
from dpbench.privacy.gaussian import GaussianProfile


def sampled(mu: float, rate: float, interval: float, low: int, high: int) -> Losses:
    profile = GaussianProfile(mu)
    return connect_dots(
        lambda e: removal_deltas(profile, rate, e),
        lambda e: addition_deltas(profile, rate, e),
        interval, low, high, profile.rounding,
    )  # fmt: skip


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
def test_the_grid_has_the_profile_at_its_points_and_no_less_between_them(rate):
    profile, interval = GaussianProfile(1.0), 0.002
    losses = sampled(1.0, rate, interval, 5_000, 7_500)
    for epsilon in (-2.0, -0.361, -0.05, 0.0, 0.013, 0.05, 1.0, 1.721, 6.0):
        past = losses.indices * interval - epsilon
        ours = losses.infinite + np.clip(-np.expm1(-past), 0, None) @ losses.masses
        if epsilon < 0:
            (dual,) = addition_deltas(profile, rate, np.array([-epsilon]))
            exact = 1 - math.exp(epsilon) + math.exp(epsilon) * dual
        else:
            (exact,) = removal_deltas(profile, rate, np.array([epsilon]))
        assert exact * (1 - 1e-13) <= ours
        on_grid = abs(epsilon / interval - round(epsilon / interval)) < 1e-9
        assert ours <= exact * (1 + (1e-9 if on_grid else 2e-2))


def test_masses_far_out_are_exact_relatively_and_not_only_to_what_1_can_carry():
    losses = sampled(1.0, 1.0, 1e-3, 12_000, 12_000)
    edges = (losses.indices[[9_000 + 12_000, 9_100 + 12_000]]) * 1e-3
    ours = losses.masses[21_000:21_100].sum()
    x = edges - 0.5  # the loss is x - 1/2 above N(1, 1)'s own place
    exact = stats.norm.sf(x[0]) - stats.norm.sf(x[1])
    assert exact < 1e-16
    assert ours == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("bits", [8, 14, 19])
def test_a_transform_is_as_exact_as_is_said(bits):
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long double is no longer than double here")
    weights = np.random.default_rng(bits).random(2**bits) ** 8
    weights /= weights.sum()
    exact = fft.rfft(weights.astype(np.longdouble))
    error = np.abs(fft.rfft(weights) - exact).max()
    assert error <= PER_STAGE * bits * UNIT / 2
    assert error > UNIT / 100


@pytest.mark.parametrize("times", [30, 3_000, 100_000])
def test_the_allowance_for_round_off_exceeds_it(times):
    if np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("long double is no longer than double here")
    total = LossSum([(sampled(1.0, 0.05, 1e-3, 400, 4_000), times)], 1e-3)
    tilt = total.best_tilt(1e-9)
    tilted = total.tilted(tilt)
    ((losses, _),) = total.parts
    _, weights = losses.tilted(tilt)
    size = 1 << (max(len(tilted.masses), len(weights)) - 1).bit_length()
    powers = np.exp(times * np.log(fft.rfft(weights.astype(np.longdouble), size)))
    start = times * losses.start
    exact = np.roll(fft.irfft(powers, size), -((tilted.start - start) % size))
    error = np.abs(tilted.masses - exact[: len(tilted.masses)]).max()
    assert error <= tilted.error
    assert error > 0


def test_the_grid_of_a_sum_has_all_of_it_but_what_is_said():
    losses = sampled(1.0, 0.05, 1e-2, 40, 400)
    tilted = LossSum([(losses, 50)], 1e-2).tilted(0.02)
    _, weights = losses.tilted(0.02)
    whole = np.array([1.0])
    for _ in range(50):
        whole = np.convolve(whole, weights)
    inside = whole[tilted.start - 50 * losses.start :][: len(tilted.masses)]
    assert 1 - inside.sum() <= TRUNCATED_MASS + 1e-14
    assert np.abs(inside - tilted.masses).max() < 1e-14


def test_deltas_are_those_of_convolution_and_at_any_tilt_no_less():
    losses = sampled(1.0, 0.3, 2e-2, 40, 300)
    total = LossSum([(losses, 6)], 2e-2)
    whole = np.array([1.0])
    for _ in range(6):
        whole = np.convolve(whole, losses.masses)
    at = (6 * losses.start + np.arange(len(whole))) * 2e-2
    asked = np.array([0.0, 0.7, 3.01, 9.0])
    exacts = [total.infinite + np.clip(-np.expm1(e - at), 0, None) @ whole for e in asked]
    for tilt in (0.001, 0.02, 0.1, 1.0, 20.0):
        assert (total.deltas(asked, total.tilted(tilt)) >= exacts).all()
    for epsilon, exact in zip(asked, exacts, strict=True):
        (ours,) = total.deltas(np.array([epsilon]), total.tilted(total.tilt_to(epsilon)))
        assert exact * (1 - 1e-12) <= ours <= exact * (1 + 1e-9)


def test_an_infinite_loss_is_one_of_the_sum_and_deltas_depend_on_no_other():
    total = LossSum(
        [(Losses(0, np.array([0.9]), 0.1), 2), (Losses(0, np.array([0.5]), 0.5), 1)], 1.0
    )
    assert total.infinite == pytest.approx(1 - 0.9**2 * 0.5)
    total = LossSum([(sampled(1.0, 0.3, 2e-3, 4_000, 6_000), 20)], 2e-3)
    tilted = total.tilted(total.best_tilt(1e-5))
    epsilons = np.array([0.5, 2.0, 4.0, 4.001])
    alone = [total.deltas(np.array([epsilon]), tilted)[0] for epsilon in epsilons]
    assert total.deltas(epsilons, tilted) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize(("rate", "times", "delta"), [(0.02, 300, 1e-5), (0.9, 9, 1e-12)])
def test_an_epsilon_is_that_of_halving_one_by_one(rate, times, delta):
    interval = 2e-3
    total = LossSum([(sampled(1.0, rate, interval, 4_000, 6_000), times)], interval)
    tilted = total.tilted(total.best_tilt(delta))
    found = total.epsilon(delta)

    def enough(epsilon: float) -> bool:
        return total.deltas(np.array([epsilon]), tilted)[0] <= delta

    assert enough(found)
    assert not enough(found * (1 - 2e-9))
    low, high = 0.5 * found, 2 * found
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    assert high <= found <= high * (1 + 1.1e-9)
