"""The black box: likelihood ratios of losses, from shadow runs."""

import math

import numpy as np
import pytest
from dpbench.benchmarks.exposure.membership import (
    Shadows,
    area,
    by_earlier_runs,
    confidences,
    exposure,
    leave_one_out,
    likelihood_ratios,
)
from dpbench.benchmarks.exposure.white_box import play_white_box
from scipy import stats

from dpbench.audit.inference import Scores, gdp_epsilon, one_run_epsilon
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config

pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")


SHORT = ["model.widths=[64]", "epochs=10", "batch_size=256", "privacy.delta=1e-3"]


@pytest.fixture(scope="module")
def attacked():
    """A private run on digits, with canaries."""
    run = run_of(run_config(["method=dpsgd", *SHORT]))
    return run, play_white_box(run, None, 2000)


def test_confidences_are_logits_of_the_probability_of_the_label():
    probabilities = np.array([0.01, 0.5, 0.999])
    expected = np.log(probabilities / (1 - probabilities))
    assert confidences(-np.log(probabilities)) == pytest.approx(expected)
    assert np.isfinite(confidences(np.array([0.0, 120.0]))).all()


def world(runs, targets, gain, seed, spread=0.0):
    """Confidences that being trained on raises by `gain` on average, of targets that differ."""
    draws = np.random.default_rng(seed)
    included = draws.random((runs, targets)) < 0.5
    gains = gain + spread * draws.standard_normal(targets)
    confidence = 3 * draws.standard_normal(targets) + draws.standard_normal((runs, targets))
    return Shadows(confidence + included * gains, included), gains


def slowly(shadows, attacked):
    """The attack by loops, with scipy's densities, and without estimating how much to trust."""
    scores = []
    residuals, freedom = 0.0, 0
    for t in range(shadows.included.shape[1]):
        for flag in (True, False):
            cell = shadows.confidences[shadows.included[:, t] == flag, t]
            residuals += ((cell - cell.mean()) ** 2).sum()
            freedom += len(cell) - 1
    deviation = math.sqrt(residuals / freedom)
    for t in range(shadows.included.shape[1]):
        inside = shadows.confidences[shadows.included[:, t], t].mean()
        outside = shadows.confidences[~shadows.included[:, t], t].mean()
        high = stats.norm.logpdf(attacked[t], inside, deviation)
        scores.append(high - stats.norm.logpdf(attacked[t], outside, deviation))
    return np.array(scores)


def test_with_many_runs_the_attack_is_the_ratio_of_fitted_normal_laws():
    shadows, _ = world(4000, 12, gain=1.0, seed=0, spread=2.0)
    attacked = shadows.confidences[0]
    found = likelihood_ratios(shadows.runs(slice(1, None)), attacked)
    assert found == pytest.approx(slowly(shadows.runs(slice(1, None)), attacked), abs=0.05)


@pytest.mark.slow
def test_with_few_runs_gains_are_shrunk_towards_the_mean():
    """Of a common gain of 0.3 the best attack has an AUC of Phi(0.3/sqrt 2) = 0.584."""
    shadows, _ = world(8, 2000, gain=0.3, seed=1)
    counts = shadows.included[4:].sum(0)
    shadows = shadows.targets((counts > 0) & (counts < 4))
    few, attacked = shadows.runs(slice(4, None)), shadows.runs(slice(4))
    fitted, alone = (
        area(np.stack([attack(few, x) for x in attacked.confidences]), attacked.included)
        for attack in (likelihood_ratios, slowly)
    )
    assert 0.56 < fitted < 0.61
    assert alone < fitted - 0.015


def test_different_gains_are_learned_where_runs_are_many():
    shadows, _ = world(60, 500, gain=0.0, seed=2, spread=2.0)
    assert area(leave_one_out(shadows), shadows.included) > 0.8


def test_a_target_that_is_in_all_shadow_runs_or_in_none_is_scored_by_the_others_gain():
    shadows, _ = world(6, 300, gain=3.0, seed=3)
    shadows.included[:, 0], shadows.included[:, 1] = True, False
    scores = by_earlier_runs(shadows)
    assert scores.shape == (3, 300)
    assert np.isfinite(scores).all()


def test_earlier_runs_alone_decide_on_a_score():
    shadows, _ = world(8, 100, gain=1.0, seed=4)
    before = by_earlier_runs(shadows)
    changed = Shadows(shadows.confidences.copy(), shadows.included.copy())
    changed.confidences[6:] += 5
    changed.included[6:] ^= True
    after = by_earlier_runs(changed)
    assert np.array_equal(before[:2], after[:2])
    assert not np.array_equal(before[2], after[2])


@pytest.mark.parametrize("attack", [leave_one_out, by_earlier_runs])
def test_targets_without_any_gain_look_like_a_coin(attack):
    areas = []
    for seed in range(30):
        shadows, _ = world(8, 200, gain=0.0, seed=seed)
        scores = attack(shadows)
        areas.append(area(scores, shadows.included[-len(scores) :]))
    assert abs(np.mean(areas) - 0.5) < 3 * np.std(areas) / math.sqrt(30) + 1e-3


@pytest.mark.slow
def test_null_scores_of_earlier_runs_prove_nothing():
    """More than an epsilon of 0 in one of twenty at most, as 95% confidence says."""
    found = {"gdp": 0, "one_run": 0}
    for seed in range(60):
        shadows, _ = world(6, 300, gain=0.0, seed=seed)
        scores = Scores(by_earlier_runs(shadows).ravel(), shadows.included[3:].ravel())
        halves = scores.halves(seed)
        found["gdp"] += gdp_epsilon(*halves, 1e-5, 0.95) > 0
        found["one_run"] += one_run_epsilon(*halves, 1e-5, 0.95) > 0
    assert max(found.values()) <= stats.binom.ppf(0.999, 60, 0.05)


@pytest.mark.slow
def test_the_area_and_its_error_are_those_of_pairs_and_of_repetitions():
    scores, included = np.array([[1.0, 2, 2, 3]]), np.array([[False, True, False, True]])
    assert area(scores, included) == (1 + 1 + 0.5 + 1) / 4
    found = []
    for seed in range(40):
        shadows, _ = world(6, 400, gain=1.0, seed=seed)
        found.append(exposure(shadows.confidences / 3, shadows.included))
    spread = np.std([one.auc for one in found])
    assert 0.6 * spread < np.mean([one.error for one in found]) < 1.6 * spread
