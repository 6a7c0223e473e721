"""Shuffled batches spend at least the lower bound, and the figure of several laws is made of it."""

import csv
import io
import math

import numpy as np
import pytest
from dpbench.benchmarks.claims.sampling_laws import SamplingLawSettings, epsilons
from dpbench.benchmarks.claims.shuffled import shuffled_lower_bound
from scipy.stats import norm

from dpbench.comparison.reproduce.command import reproduce
from dpbench.privacy.gaussian import exact_epsilon


@pytest.mark.parametrize(("sigma", "epochs"), [(0.7, 1), (1.0, 4), (3.0, 9)])
def test_one_batch_in_an_epoch_is_the_gaussian_mechanism(sigma, epochs):
    exact = exact_epsilon(epochs**0.5 / sigma, 1e-5)
    assert 0.97 * exact < shuffled_lower_bound(sigma, 1, epochs, 1e-5) <= exact


@pytest.mark.parametrize(("sigma", "steps", "epochs"), [(0.8, 3, 1), (1.0, 5, 2)])
def test_the_whole_vectors_spend_at_least_as_much_by_samples(sigma, steps, epochs):
    delta, number = 1e-2, 400_000
    least = shuffled_lower_bound(sigma, steps, epochs, delta)
    found = []
    for seed, (sampled, other) in enumerate(((2, 1), (1, 2))):
        draws, loss = np.random.default_rng(seed), 0.0
        for _ in range(epochs):
            x = sigma * draws.standard_normal((number, steps))
            x[np.arange(number), draws.integers(steps, size=number)] += sampled

            def density(shift, x=x):
                return np.exp((shift * x - shift**2 / 2) / sigma**2).mean(1)

            loss = loss + np.log(density(sampled) / density(other))
        gains = np.maximum(-np.expm1(least - loss), 0)
        found.append((gains.mean(), gains.std() / number**0.5))
    assert any(mean > delta - 4 * error for mean, error in found)


@pytest.mark.parametrize("steps", [20, 500])
def test_one_epoch_is_no_worse_than_the_best_threshold_of_the_largest_sum(steps):
    """The events of Chua et al. 2024."""

    def beyond(shift, c):
        return -np.expm1(norm.logcdf(c - shift) + (steps - 1) * norm.logcdf(c))

    c = np.linspace(-3, 12, 3001)
    epsilon = shuffled_lower_bound(1.0, steps, 1, 1e-5) + 0.01
    assert (beyond(2, c) - math.exp(epsilon) * beyond(1, c)).max() < 1e-5


def test_few_steps_and_epochs_spend_more_and_never_more_than_without_sampling():
    by_steps = [shuffled_lower_bound(1.0, steps, 5, 1e-5) for steps in (2, 10, 100, 1000)]
    by_epochs = [shuffled_lower_bound(1.0, 100, epochs, 1e-5) for epochs in (1, 3, 10, 30)]
    assert by_steps == sorted(by_steps, reverse=True)
    assert by_epochs == sorted(by_epochs)
    assert by_steps[0] < exact_epsilon(5**0.5, 1e-5)
    assert shuffled_lower_bound(1000.0, 100, 1, 0.5) == 0


@pytest.mark.slow
def test_laws_are_ordered_as_their_proofs_say():
    data = epsilons(SamplingLawSettings(10_000, 1e-5, [1.0], [3], [20, 50], 1.6))
    assert (data["allocation"] < data["poisson"]).all()
    assert (data["poisson"] <= data["truncated"] * (1 + 1e-9)).all()
    assert (data["truncated"] < 1.01 * data["poisson"]).all()
    assert (data["poisson"] < data["shuffled, at least"]).all()
    assert (data["shuffled, at least"] < data["shuffled, at most"]).all()


@pytest.mark.slow
def test_the_figure_is_a_picture_its_points_and_a_page(tmp_path):
    said = reproduce("sampling_laws", [f"results_dir={tmp_path}", "scale=cpu_hour"])
    files = {path.suffix: path for path in (tmp_path / "tables").iterdir()}
    assert set(files) == {".md", ".csv", ".json", ".png", ".svg", ".pdf"}
    assert files[".md"].read_text() == said
    assert "too small in 2 of 2 settings, by a factor of up to 5.12." in said
    assert "what is proven is larger in 0 of 2 settings." in said
    points = list(csv.DictReader(io.StringIO(files[".csv"].read_text())))
    assert [float(point["allocation"]) for point in points] == pytest.approx([5.398, 1.704], 1e-3)
