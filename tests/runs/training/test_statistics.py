"""Normalization by noisy statistics: their sensitivity, noise and ledger, and what they are of."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Split
from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import GaussianMechanism
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.runs.training import statistics
from dpbench.runs.training.checkpoints import Checkpoints
from dpbench.runs.training.statistics import (
    PrivateNormalization,
    clipped_sum,
    median_of,
    noisy_histogram,
)
from dpbench.runs.training.trainer import fit
from tests.runs.training.small_runs import keyed

SMALL = ["epochs=1", "model=logistic", "batch_size=512", "privacy=noise1"]
MEASURED = [*SMALL, "normalization=private"]
BOTH = SMALL, MEASURED
TARGET = ["privacy=eps3", "privacy.accountant=pld"]
SILENT = 1e-9  # a noise multiplier

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
rows_of = st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5)


def images(inputs):
    number = torch.zeros(len(inputs), dtype=torch.long)
    return Split(inputs, number, number)


def of(number):
    return SimpleNamespace(train_size=number)


@pytest.mark.slow
@given(rows_of, st.floats(1e-6, 1e6))
@settings(max_examples=300, deadline=None)
def test_one_example_moves_the_clipped_sum_by_at_most_the_bound(rows, bound):
    vectors = torch.tensor(rows, dtype=torch.float64)
    without = clipped_sum(vectors[1:], bound)
    moved = float((clipped_sum(vectors, bound) - without).norm())
    # The sum of the others is rounded as well.
    assert moved <= bound * (1 + 1e-12)


def test_constants_are_exact_where_nothing_is_clipped_or_noisy_and_no_variance_is_zero():
    vectors = torch.randn(50, 4, dtype=torch.float64)
    assert torch.allclose(clipped_sum(vectors, 100.0), vectors.sum(0))
    assert clipped_sum(vectors, 0.5).norm() < vectors.sum(0).norm() + 25
    inputs = torch.rand(4000, 3, 4, 4) + torch.tensor([0.0, 1.0, 2.0])[None, :, None, None]
    inputs = inputs[:1].expand(4000, -1, -1, -1) + 1e-6 * inputs  # all norms just at the median
    found = PrivateNormalization(SILENT, SILENT).measured(images(inputs), of(4000), 1e-5, keyed())
    assert torch.allclose(found.mean, inputs.double().mean((0, 2, 3)), rtol=1e-4)
    assert torch.allclose(found.variance, inputs.double().var((0, 2, 3), correction=0), rtol=1e-3)
    normal = found(inputs)
    assert normal.mean((0, 2, 3)).abs().max() < 0.01
    assert torch.allclose(normal.std((0, 2, 3)), torch.ones(3), atol=0.01)
    constants = statistics.ChannelNormalization(torch.ones(2), torch.tensor([0.0, 4.0]))
    found = constants(torch.full((1, 2, 1, 1), 5.0)).flatten().tolist()
    assert found == pytest.approx([0, 2], abs=1e-4)


@pytest.mark.parametrize("value", [0.0, 1e-45, 1.0, 3e38, math.inf])
def test_one_norm_changes_one_count_by_one(value, monkeypatch):
    seen = []

    class Listening:
        def add(self, total, sensitivity, multiplier, stream):
            seen.append((total.clone(), sensitivity))
            return total

    monkeypatch.setattr(statistics, "Gaussian", Listening)
    others = torch.rand(20, dtype=torch.float64)
    for norms in (others, torch.cat([others, torch.tensor([value], dtype=torch.float64)])):
        noisy_histogram(norms, 1.0, keyed())
    (before, sensitivity), (after, _) = seen
    assert (after - before).abs().sum() == (after - before).abs().max() == 1 == sensitivity


def test_the_median_is_found_up_to_the_width_of_a_bin():
    norms = torch.randn(20_000, dtype=torch.float64).exp()
    for key in range(5):
        found = median_of(noisy_histogram(3 * norms, 16.0, keyed(key)))
        assert 2**-0.25 < found / (3 * norms.median()) < 2**0.5


@pytest.mark.parametrize("scale", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_scale_in_the_ledger(scale, monkeypatch):
    step = PrivateNormalization(8.0, 16.0).step(of(9), 1e-5)
    assert step.sampling.rate == 1.0
    multipliers = [release.mechanism.noise_multiplier for release in step.releases]
    assert multipliers == [16.0, 8.0, 16.0, 8.0]
    assert all(isinstance(release.mechanism, GaussianMechanism) for release in step.releases)
    monkeypatch.setattr(statistics, "median_of", lambda histogram: 1.0)
    inputs = torch.full((10, 2000, 1, 1), 0.0)
    found = PrivateNormalization(scale * 8, 16.0).measured(images(inputs), of(10), 1e-5, keyed())
    fits = kstest(10 * found.mean, norm(0, 8).cdf).pvalue
    assert fits > 1e-3 if scale == 1 else fits < 1e-6


def test_the_noise_of_the_histogram_has_the_scale_that_it_is_given(monkeypatch):
    drawn = []

    class Listening(statistics.Gaussian):
        def add(self, total, sensitivity, multiplier, stream):
            noisy = super().add(total.clone(), sensitivity, multiplier, stream)
            drawn.append((noisy - total).numpy())
            return noisy

    monkeypatch.setattr(statistics, "Gaussian", Listening)
    for key in range(50):
        noisy_histogram(torch.rand(30, dtype=torch.float64), 16.0, keyed(key))
    assert kstest(np.concatenate(drawn), norm(0, 16).cdf).pvalue > 1e-3


def test_the_four_releases_have_noise_of_their_own(monkeypatch):
    keys = []

    class Listening(statistics.Gaussian):
        def add(self, total, sensitivity, multiplier, stream):
            keys.append(stream.state_dict()["drawn"])
            return super().add(total, sensitivity, multiplier, stream)

    monkeypatch.setattr(statistics, "Gaussian", Listening)
    PrivateNormalization(8.0, 16.0).measured(images(torch.rand(9, 2, 3, 3)), of(9), 1e-5, keyed())
    assert len(keys) == 4
    assert keys == sorted(set(keys))


def test_an_example_that_is_not_finite_counts_as_zero():
    inputs = torch.rand(100, 2, 3, 3)
    inputs[7, 1, 0, 0], inputs[8] = math.nan, math.inf
    found = PrivateNormalization(8.0, 16.0).measured(images(inputs), of(100), 1e-5, keyed())
    zero = inputs.clone()
    zero[7], zero[8] = 0, 0
    other = PrivateNormalization(8.0, 16.0).measured(images(zero), of(100), 1e-5, keyed())
    assert torch.equal(found.mean, other.mean)
    assert torch.equal(found.variance, other.variance)


@pytest.mark.slow
def test_the_ledger_of_a_run_has_them_once_and_epsilon_pays(tmp_path):
    plain, measured = (load(load_or_run(run_config([*o, f"results_dir={tmp_path}"]))) for o in BOTH)
    assert measured.privacy["ledger"][:-1] == plain.privacy["ledger"]
    last = measured.privacy["ledger"][-1]
    assert (last["times"], last["sampling"]["rate"], len(last["releases"])) == (1, 1.0, 4)
    for bound in ("rdp", "pld", "gdp", "claimed"):
        assert measured.privacy[bound] > plain.privacy[bound]
    assert measured.metrics != plain.metrics


@pytest.mark.slow
def test_a_target_epsilon_is_met_with_them(no_statement):
    plain, measured = (prepare(run_config([*o, *TARGET]))[1] for o in BOTH)
    assert measured.noise_multiplier > plain.noise_multiplier
    assert 2.98 < pld(measured.ledger, 1e-5) <= 3


def test_the_test_split_is_normalised_by_the_constants_of_the_training_split(tmp_path):
    data = build(compose(MEASURED)).load(tmp_path)
    assert data.test.normalize is data.train.normalize
    plain = Digits(0.2).load(tmp_path, 0).test.at(torch.arange(4)).inputs
    constants = data.train.normalize
    expected = (plain - constants.mean[0]) / (constants.variance[0] + 1e-5).sqrt()
    assert torch.allclose(data.test.at(torch.arange(4)).inputs, expected.float(), atol=1e-5)


class Stopped(Exception):
    pass


@pytest.mark.slow
def test_a_run_with_secure_noise_goes_on_with_the_constants_it_began_with(tmp_path, monkeypatch):
    used = []

    class Listening(statistics.ChannelNormalization):
        def __call__(self, inputs):
            used.append(self.mean.tolist())
            return super().__call__(inputs)

    monkeypatch.setattr(statistics, "ChannelNormalization", Listening)
    monkeypatch.setattr("dpbench.training.start.ChannelNormalization", Listening)
    run = replace(build(compose([*MEASURED, "noise=secure", "epochs=2"])), engine="vmap")
    checkpoints = Checkpoints(tmp_path / "checkpoints", 1e-9)  # after every step

    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("dpbench.training.evaluation.evaluate", stop)
        with pytest.raises(Stopped):
            fit(run, tmp_path, quiet=True, checkpoints=checkpoints)
    before = used[-1]
    used.clear()
    fit(run, tmp_path, quiet=True, checkpoints=checkpoints)
    assert used
    assert all(mean == before for mean in used)
    used.clear()
    fit(run, tmp_path, quiet=True)
    assert before not in used
