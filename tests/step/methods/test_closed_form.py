"""Least squares and prototypes: moments as in a loop over examples, and what follows from them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.neighbors import NearestCentroid
from torch import nn

from dpbench.audit.inference import Scores, bounds, refutes
from dpbench.audit.request import prepare_audit
from dpbench.learning.data.examples import Batch
from dpbench.privacy.accountants import pld
from dpbench.privacy.gaussian import exact_epsilon
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.step.methods.closed_form import Moments, Scaling, packed, unpacked
from dpbench.step.methods.dp_least_squares import LeastSquares, dp_least_squares
from dpbench.step.methods.dp_prototypes import Prototypes, dp_prototypes
from dpbench.system.errors import UserError
from tests.problems import Made, problem
from tests.step.methods.every_method import listening
from tests.steps import noiseless

CLASSES, FEATURES = 3, 5
SCALING = Scaling(2.0, 0.5)


def made(method):
    return method.bind(problem())


def least_squares(bound=2.0, constant=0.5, second_weight=0.7, ridge=1.0):
    return made(dp_least_squares(bound, constant, second_weight, ridge, 1.0))


def prototypes(bound=2.0, constant=0.5):
    return made(dp_prototypes(bound, constant, 1.0))


BOTH = pytest.mark.parametrize("make", [least_squares, prototypes])


def rows(z, label, second):
    """One row's moments, entry by entry: c z z^T whole, and y z^T."""
    d = len(z)
    matrix = [second * float(z[i] * z[j]) for i in range(d) for j in range(d)]
    first = [float(z[j]) if k == label else 0.0 for k in range(CLASSES) for j in range(d)]
    return torch.tensor(matrix + first, dtype=torch.float64)


def whole(moments, second):
    """Moments [S] with the matrix whole, as `rows` has it."""
    first = moments[-CLASSES * (FEATURES + 1) :]
    matrix = unpacked(moments[: -len(first)]) if second else torch.zeros(FEATURES + 1, FEATURES + 1)
    return torch.cat([matrix.flatten().to(first), first])


def drawn(n, seed=0, size=2.0):
    draw = torch.Generator().manual_seed(seed)
    inputs = size * torch.randn(n, FEATURES, dtype=torch.float64, generator=draw)
    targets = torch.randint(0, CLASSES, (n,), generator=draw)
    return Batch(inputs, targets, torch.zeros_like(targets))


@pytest.mark.parametrize("second", [0.0, 1.3])
@pytest.mark.parametrize("views", [1, 4])
def test_moments_are_those_of_a_loop_over_rows(second, views):
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(6, views, FEATURES + 1, dtype=torch.float64, generator=draw)
    classes = torch.randint(0, CLASSES, (6, views), generator=draw)
    shares = torch.rand(6, views, dtype=torch.float64, generator=draw)
    shares /= shares.sum(1, keepdim=True)
    ours = Moments(torch.zeros(6).double(), z, classes, CLASSES, shares, second)
    expected = torch.stack(
        [
            sum(shares[i, v] * rows(z[i, v], int(classes[i, v]), second) for v in range(views))
            for i in range(6)
        ]
    )
    assert torch.allclose(ours.norms, expected.norm(dim=1))
    factors = torch.rand(6, dtype=torch.float64, generator=draw)
    total = ours.weighted_sum(factors)
    assert torch.allclose(whole(total, second), factors @ expected)
    assert torch.allclose(ours.stack().norm(dim=1), expected.norm(dim=1))
    vector = torch.randn(len(total), dtype=torch.float64, generator=draw)
    assert torch.allclose(ours.dot(vector), ours.stack() @ vector)


def test_a_packed_matrix_has_the_norm_of_the_matrix():
    matrix = torch.randn(4, 4, dtype=torch.float64)
    matrix = matrix + matrix.T
    assert torch.allclose(packed(matrix).norm(), matrix.norm())
    assert torch.allclose(unpacked(packed(matrix)), matrix)


def exact_sum(step_of, method, batch):
    """What the noise is added to, and its sensitivity."""
    method = listening(method)
    step_of(method, lr=0.0)(batch)
    total, sensitivity, _ = method.noise.calls[-1]
    return total, sensitivity


@BOTH
@given(st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e4]))
@settings(derandomize=True, deadline=None, max_examples=8)
def test_one_example_moves_all_moments_by_the_sensitivity_at_most(step_of, make, n, seed, size):
    """Taken away, or replaced by another one: S, and 2 S."""
    method, batch, other = make(), drawn(n, seed, size), drawn(n, seed + 1, size)
    total, sensitivity = exact_sum(step_of, method, batch)
    for i in range(n):
        rest, _ = exact_sum(
            step_of, method, batch.each(lambda t, i=i: torch.cat([t[:i], t[i + 1 :]]))
        )
        assert (total - rest).norm() <= sensitivity * (1 + 1e-9)
        replaced = Batch(*(torch.cat([b[:i], o[i : i + 1], b[i + 1 :]]) for b, o in zip(
            (batch.inputs, batch.targets, batch.groups),
            (other.inputs, other.targets, other.groups), strict=True,
        )))  # fmt: skip
        moved, _ = exact_sum(step_of, method, replaced)
        assert (total - moved).norm() <= 2 * sensitivity * (1 + 1e-9)


@BOTH
def test_the_sensitivity_is_reached(step_of, make):
    total, sensitivity = exact_sum(step_of, make(bound=1e-3), drawn(1))
    assert total.norm() == pytest.approx(float(sensitivity), rel=1e-9)


@pytest.mark.parametrize(("c", "r2"), [(0.7, 1.25), (2.0, 1.25)])
def test_the_sensitivity_is_that_of_the_formula(c, r2):
    expected = math.sqrt(c**2 * r2**2 + r2)
    assert least_squares(second_weight=c).clip.sensitivity.bound == pytest.approx(expected)
    assert prototypes().clip.sensitivity.bound == pytest.approx(math.sqrt(r2))


def test_features_are_clipped_and_have_a_constant_which_the_head_of_maps_computes_alike():
    z = SCALING(torch.tensor([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0]]))
    assert torch.allclose(z, torch.tensor([[0.6, 0.8, 0.5], [0.3, 0.4, 0.5], [0, 0, 0.5]]))
    maps, x = torch.randn(CLASSES, FEATURES + 1), 0.1 * torch.randn(7, FEATURES)
    head = SCALING.head(maps)
    weight, bias = head[: CLASSES * FEATURES].view(CLASSES, -1), head[CLASSES * FEATURES :]
    assert torch.allclose(x @ weight.T + bias, SCALING(x) @ maps.T, atol=1e-6)


def moments_of(z, labels, second):
    first = (nn.functional.one_hot(labels, CLASSES).to(z).T @ z).flatten() / len(z)
    return torch.cat([packed(second * z.T @ z / len(z)), first]) if second else first


@pytest.mark.parametrize(
    ("ridge", "deviation", "alpha"),
    [(1.0, 0.0, 40e-9), (2.0, 0.01, 40 * 2.0 * math.sqrt(2 * (FEATURES + 1)) * 0.01 / 0.7)],
)
def test_it_is_least_squares_with_a_ridge_in_units_of_the_noise(ridge, deviation, alpha):
    batch = drawn(40)
    z = SCALING(batch.inputs)
    update = LeastSquares(SCALING, 1.0, CLASSES, second_weight=0.7, ridge=ridge)
    maps = update.solution(moments_of(z, batch.targets, 0.7), deviation)
    one_hot = nn.functional.one_hot(batch.targets, CLASSES).double()
    reference = Ridge(alpha=alpha, fit_intercept=False, tol=1e-12).fit(z.numpy(), one_hot.numpy())
    assert torch.allclose(maps, torch.from_numpy(reference.coef_), rtol=1e-5, atol=1e-7)


def test_noise_has_the_norm_as_stated_and_indefinite_moments_are_harmless():
    d, deviation = 200, 0.3
    noise = unpacked(deviation * torch.randn(d * (d + 1) // 2, dtype=torch.float64))
    norm = float(torch.linalg.matrix_norm(noise, 2))
    assert norm == pytest.approx(math.sqrt(2 * d) * deviation, rel=0.15)
    update = LeastSquares(SCALING, 1.0, CLASSES)
    d = FEATURES + 1
    noise = torch.randn(d * (d + 1) // 2 + CLASSES * d, dtype=torch.float64)
    assert torch.linalg.eigvalsh(unpacked(noise[: d * (d + 1) // 2])).min() < 0
    maps = update.solution(noise, 1.0)
    least = math.sqrt(2 * d)
    assert maps.norm() <= noise.norm() / least * (1 + 1e-9)


def test_without_noise_the_nearest_mean_decides():
    batch = drawn(60, size=0.3)
    z = SCALING(batch.inputs)
    maps = Prototypes(SCALING, 1.0, CLASSES).solution(moments_of(z, batch.targets, 0.0), 0.0)
    reference = NearestCentroid().fit(z[:, :-1].numpy(), batch.targets.numpy())
    assert (z @ maps.T).argmax(1).tolist() == reference.predict(z[:, :-1].numpy()).tolist()


def test_an_absent_class_has_no_division_by_zero():
    batch = drawn(20)
    batch.targets.fill_(1)
    for second, update in (
        (0.0, Prototypes(SCALING, 1.0, CLASSES)),
        (1.0, LeastSquares(SCALING, 1.0, CLASSES)),
    ):
        maps = update.solution(moments_of(SCALING(batch.inputs), batch.targets, second), 0.0)
        assert maps.isfinite().all()


@BOTH
def test_several_releases_are_averaged(step_of, make):
    method = listening(make())
    step = step_of(method, multiplier=0.8, expected=4.0, lr=1.0)
    update = method.update
    for seed in range(3):
        step(drawn(6, seed))
    means = torch.stack([noisy for _, _, noisy in method.noise.calls]) / 4.0
    deviation = 0.8 * float(method.clip.sensitivity.bound) / 4.0 / math.sqrt(3)
    expected = update.scaling.head(update.solution(means.mean(0), deviation))
    assert torch.allclose(step.engine.parameters.theta.detach()[-len(expected) :], expected)


@BOTH
def test_one_release_is_one_gaussian_mechanism_and_moves_only_the_last_layer(step_of, make):
    step = step_of(make(), lr=1.0)
    before = step.engine.parameters.theta.detach().clone()
    step(drawn(6))
    moved = step.engine.parameters.theta.detach() != before
    assert moved[-3 * 65 :].all()
    assert not moved[: -3 * 65].any()
    method, sigma = make(), 1.7
    ledger = Ledger().after(Step(Poisson(1.0), method.releases(sigma)), 1)
    assert pld(ledger, 1e-5) == pytest.approx(exact_epsilon(1 / sigma, 1e-5), rel=1e-3)


@pytest.mark.long
@pytest.mark.sampled(1)
@BOTH
def test_an_attack_on_the_sum_finds_no_more_than_the_account_and_nearly_that(step_of, make):
    """The likelihood ratio for an example of the largest norm, in half of 600 runs."""
    method = listening(make(bound=1e-3))
    step = step_of(method, multiplier=1.0, expected=1.0, lr=0.0)
    canary, nobody = drawn(1), drawn(1).each(lambda t: t[:0])
    included = torch.arange(600) % 2 == 0
    for inside in included:
        step(canary if inside else nobody)
    direction = method.noise.calls[0][0]
    sensitivity = float(method.clip.sensitivity.bound)
    scores = torch.stack([noisy for _, _, noisy in method.noise.calls]) @ direction
    scores = scores / sensitivity**2
    shift = scores[included].mean() - scores[~included].mean()
    assert float(shift) == pytest.approx(1.0, abs=0.25)
    assert float(scores[~included].std()) == pytest.approx(1.0, abs=0.1)
    ledger = Ledger().after(Step(Poisson(1.0), method.releases(1.0)), 1)
    attack = Scores(scores.numpy(), included.numpy())
    found = bounds(attack, ledger, 1e-5, 0.95, seed=0)
    assert not refutes(attack, ledger, 1e-5, seed=0)
    assert 1.0 < found.family <= pld(ledger, 1e-5)


def test_what_has_no_classes_or_no_attack_is_refused():
    for method in ("dp_least_squares", "dp_prototypes"):
        with pytest.raises(UserError, match=f"{method}.*there is no attack on it"):
            prepare_audit([f"method={method}"])
    with pytest.raises(UserError, match="dp_prototypes needs classes, and made has none"):
        dp_prototypes(1.0, 0.5, 1.0).bind(problem(Made(("a",), task="regression")))


@BOTH
def test_a_model_without_a_linear_last_layer_is_refused(step_of, make):
    step = step_of(make())
    step.engine.model[2].requires_grad_(False)
    replaced = noiseless(make())
    with pytest.raises(UserError, match="computes a linear layer with a bias and 3 outputs"):
        replaced.gradient(step.engine, drawn(2), step.clip, step.released)
