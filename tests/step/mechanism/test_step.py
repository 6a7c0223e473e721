"""The private step as a whole: against references written by hand, and against identities."""

import dataclasses
import math
from contextlib import nullcontext
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.clipping import Abadi, Unclipped
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.methods.clipping_errors import direction_error, magnitude_error
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import dpsgd_f
from dpbench.step.methods.dpsgd_global import dpsgd_global, dpsgd_global_adapt
from dpbench.step.methods.sgd import sgd
from dpbench.system.errors import UserError
from tests.problems import problem
from tests.steps import noiseless, stream, theta

ADAPT = dpsgd_global_adapt(0.5, 3.0, 0.8, 0.1, 2.0, "corrected")


def stacked(step: PrivateStep, batch: Batch) -> torch.Tensor:
    return step.engine(batch).stack()


def clipped(rows: torch.Tensor, bound: float) -> torch.Tensor:
    return (rows * (bound / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


def reference_gradients(w: np.ndarray, b: np.ndarray, batch: Batch):
    """Gradients of softmax cross-entropy of one linear layer, example by example, in numpy."""
    for x, y in zip(batch.inputs.numpy(), batch.targets.numpy(), strict=True):
        logits = w @ x + b
        p = np.exp(logits - logits.max())
        p /= p.sum()
        p[y] -= 1
        yield np.concatenate([np.outer(p, x).ravel(), p])


def logistic_step(method, batch: Batch, **settings) -> PrivateStep:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        engine = make_engine("auto", nn.Linear(5, 3).double(), cross_entropy, batch)
    optimizer = torch.optim.SGD([engine.parameters.theta], lr=0.3)
    return PrivateStep(engine, method, optimizer, 0.7, 8.0, PhysicalBatches(), *map(stream, (1, 2)))


def test_dpsgd_is_the_algorithm_written_by_hand(batch_of, released):
    bound, batches = 0.5, [batch_of(n, seed=n) for n in (6, 9, 0, 1)]
    step = logistic_step(dpsgd(bound, "corrected"), batch_of(2))
    by_hand, draw = theta(step).numpy(), stream(1)
    for batch in batches:
        total = np.zeros(18)
        for g in reference_gradients(by_hand[:15].reshape(3, 5), by_hand[15:], batch):
            total += g / max(1, np.linalg.norm(g) / bound)
        by_hand = by_hand - 0.3 * released(total, 0.7 * bound, draw) / 8
        step(batch)
        np.testing.assert_allclose(theta(step).numpy(), by_hand, rtol=1e-10, atol=1e-12)


def test_dpsgd_global_adapt_is_the_algorithm_written_by_hand(batch_of, released):
    bound, z, tau, eta, sigma2 = 0.5, 3.0, 0.8, 0.1, 2.0
    step = logistic_step(ADAPT, batch_of(2))
    by_hand = theta(step).numpy()
    draw, answer = map(stream, (1, 2))
    for batch in [batch_of(n, seed=n) for n in (6, 9, 0, 1)]:
        total, above = np.zeros(18), 0
        for g in reference_gradients(by_hand[:15].reshape(3, 5), by_hand[15:], batch):
            norm = np.linalg.norm(g)
            total += g * (bound / z if norm <= z else bound / norm)
            above += norm > tau * z
        by_hand = by_hand - 0.3 * released(total, 0.7 * bound, draw) / 8
        (count,) = released(np.array([float(above)]), sigma2, answer)
        z *= math.exp(-eta + count / 8)
        step(batch)
        np.testing.assert_allclose(theta(step).numpy(), by_hand, rtol=1e-10, atol=1e-12)
        assert float(step.clip.strict_bound) == pytest.approx(z, rel=1e-12)


def test_dpsgd_f_is_the_algorithm_written_by_hand(batch_of, released):
    bound, sigma = 0.5, 0.7
    step = logistic_step(dpsgd_f(bound, 2.0, "corrected"), batch_of(2))
    step.clip = step.clip.bind(problem())
    by_hand = theta(step).numpy()
    draw, answer = map(stream, (1, 2))
    for batch in [batch_of(n, seed=n) for n in (6, 30, 0, 1)]:
        rows = [*reference_gradients(by_hand[:15].reshape(3, 5), by_hand[15:], batch)]
        counts = np.zeros((3, 2))
        for g, k in zip(rows, batch.groups, strict=True):
            counts[k, int(np.linalg.norm(g) > bound)] += 1
        answers = released(counts.ravel(), 2.0 * sigma, answer).reshape(3, 2)
        o, m = np.maximum(np.floor(answers), 0).T
        r = np.array([a / (a + b) if a + b else 1.0 for a, b in zip(m, o, strict=True)])
        bounds = bound * (1 + r / max(r.mean(), 1e-8))
        total = np.zeros(18)
        for g, k in zip(rows, batch.groups, strict=True):
            total += g / max(1, np.linalg.norm(g) / bounds[k])
        by_hand = by_hand - 0.3 * released(total, sigma * bounds.max(), draw) / 8
        step(batch)
        np.testing.assert_allclose(theta(step).numpy(), by_hand, rtol=1e-10, atol=1e-12)


def test_a_bound_without_end_and_hardly_any_noise_is_sgd(step_of, batch_of):
    private = step_of(dpsgd(1e9, "corrected"), multiplier=1e-20)
    plain = step_of(sgd(), multiplier=0.0)
    for seed in range(3):
        private(batch_of(7, seed=seed))
        plain(batch_of(7, seed=seed))
    assert torch.allclose(theta(private), theta(plain), rtol=1e-9)


def test_sgd_is_a_step_of_torch_on_the_sum_over_the_expected_size(step_of, batch_of):
    step, batch = step_of(sgd(), expected=8.0, lr=0.1), batch_of(5)
    start, rows = theta(step), stacked(step, batch)
    step(batch)
    assert torch.allclose(theta(step), start - 0.1 * rows.sum(0) / 8, rtol=1e-12)


def test_one_group_makes_dpsgd_f_flat_with_twice_the_bound(step_of, batch_of):
    fair, flat = step_of(dpsgd_f(0.25, 3.0, "corrected")), step_of(dpsgd(0.5, "corrected"))
    for seed in range(3):
        batch = batch_of(9, groups=1, seed=seed)
        fair(batch)
        flat(batch)
    assert torch.allclose(theta(fair), theta(flat), rtol=1e-10)


def test_dpsgd_global_with_z_above_all_norms_is_sgd_rescaled(step_of, batch_of):
    bound, z = 0.5, 1e4
    scaled = step_of(noiseless(dpsgd_global(bound, z, "corrected")), lr=0.1 * z / bound)
    plain, batch = step_of(sgd(), lr=0.1), batch_of(6)
    scaled(batch)
    plain(batch)
    assert torch.allclose(theta(scaled), theta(plain), rtol=1e-10)


def test_dpsgd_global_adapt_with_z_below_all_norms_normalises(step_of, batch_of):
    method = noiseless(dpsgd_global_adapt(0.5, 1e-6, 1.0, 0.1, 2.0, "corrected"))
    step, batch = step_of(method, expected=1.0), batch_of(6)
    rows = stacked(step, batch)
    step(batch)
    expected = 0.5 * nn.functional.normalize(rows).sum(0)
    assert torch.allclose(step.engine.parameters.theta.grad, expected, rtol=1e-9)


@pytest.mark.parametrize("make", [magnitude_error, direction_error])
def test_each_error_of_clipping_leaves_the_other_property_right(make, step_of, batch_of):
    step, batch = step_of(make(0.5), expected=1.0), batch_of(6)
    rows = stacked(step, batch)
    along, length = (rows.sum(0), clipped(rows, 0.5))[:: 1 if make is magnitude_error else -1]
    step(batch)
    grad = step.engine.parameters.theta.grad
    assert grad.norm() == pytest.approx(float(length.norm()))
    assert torch.cosine_similarity(grad, along, dim=0) == pytest.approx(1)
    assert torch.cosine_similarity(grad, length, dim=0) < 0.999  # so that it says something


@pytest.mark.parametrize(("variant", "divisor"), [("corrected", 8), ("paper", 5)])
def test_only_published_variants_divide_by_the_real_batch_size(step_of, batch_of, variant, divisor):
    step = step_of(noiseless(dpsgd(0.5, variant)), expected=8.0, lr=0.0)
    batch = batch_of(5)
    step(batch)
    expected = clipped(stacked(step, batch), 0.5) / divisor
    assert torch.allclose(step.engine.parameters.theta.grad, expected, rtol=1e-9)


def test_an_empty_batch_is_a_step_of_noise_only(step_of, batch_of, released):
    step = step_of(dpsgd(0.5, "corrected"), multiplier=1.3, expected=8.0)
    start = theta(step)
    report = step(batch_of(0))
    noise = torch.from_numpy(released(np.zeros(len(start)), 1.3 * 0.5, stream(1)))
    assert torch.allclose(theta(step), start - 0.1 * noise / 8, rtol=1e-12)
    assert [len(seen) for seen in report] == [0, 0]


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
@pytest.mark.parametrize("engine", ["ghost", "vmap", "loop"])
@pytest.mark.parametrize("physical", [None, 2])
def test_non_finite_examples_are_counted_and_add_nothing(step_of, batch_of, engine, physical, bad):
    batch = batch_of(6)
    batch.inputs[[1, 4]] = bad
    rest = batch.each(lambda t: t[[0, 2, 3, 5]])
    spoilt, clean = (
        step_of(dpsgd(0.5, "corrected"), engine=engine, physical=physical) for _ in range(2)
    )
    report, expected = spoilt(batch), clean(rest)
    assert torch.allclose(theta(spoilt), theta(clean), rtol=1e-9)
    assert report.finite.tolist() == [True, False, True, True, False, True]
    assert expected.finite.all()
    assert torch.allclose(report.losses[report.finite], expected.losses)
    assert not report.losses[~report.finite].isfinite().any()


@pytest.mark.parametrize("engine", ["ghost", "vmap", "loop"])
def test_a_batch_of_nothing_but_non_finite_examples_is_noise_only(step_of, batch_of, engine):
    batch = batch_of(3)
    batch.inputs.fill_(torch.nan)
    spoilt, empty = (step_of(dpsgd(0.5, "corrected"), engine=engine) for _ in range(2))
    report = spoilt(batch)
    empty(batch_of(0))
    assert torch.allclose(theta(spoilt), theta(empty), rtol=1e-12)
    assert not report.finite.any()
    assert len(report.losses) == 3


def test_the_report_is_of_all_examples_in_their_order(step_of, batch_of):
    batch = batch_of(7)
    whole, parts = (step_of(sgd(), physical=p)(batch) for p in (None, 3))
    assert torch.allclose(whole.losses, parts.losses)
    assert len(whole.losses) == len(parts.finite) == 7
    assert torch.equal(whole.finite, parts.finite)


def test_counts_of_a_before_query_are_those_of_the_whole_logical_batch(step_of, batch_of):
    # One count per group: split or not, the answer and so the bounds must be the same.
    method = dpsgd_f(0.5, 2.0, "corrected")
    bounds = []
    for physical in (None, 1, 4):
        step = step_of(method, physical=physical)
        step.clip = step.clip.bind(problem())
        step(batch_of(11))
        bounds.append(step.clip.bounds)
    assert torch.equal(bounds[0], bounds[1])
    assert torch.equal(bounds[0], bounds[2])


def test_the_sum_moves_by_no_more_than_the_sensitivity_on_a_real_model(step_of, batch_of):
    bound, batch = 0.5, batch_of(8)
    step = step_of(noiseless(dpsgd(bound, "corrected")), expected=1.0, lr=0.0)

    def total(b: Batch) -> torch.Tensor:
        step(b)
        return step.engine.parameters.theta.grad

    whole = total(batch)
    moved = [
        float((whole - total(batch.each(lambda t, i=i: torch.cat([t[:i], t[i + 1 :]])))).norm())
        for i in range(8)
    ]
    assert max(moved) == pytest.approx(bound)  # the longest gradients are long enough
    assert max(moved) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("clip", [Abadi(0.5), Unclipped()])
def test_momentum_and_learning_rate_see_the_private_gradient_only(step_of, batch_of, clip):
    method = dataclasses.replace(dpsgd(0.5, "corrected"), clip=clip)
    step = step_of(noiseless(method), lr=0.0)
    start = theta(step)
    step(batch_of(4))
    assert torch.equal(theta(step), start)


def test_an_optimizer_of_other_parameters_is_refused(step_of):
    """Those of the model are views of theta, and would never move."""
    step = step_of(dpsgd(1.0, "corrected"))
    other = torch.optim.SGD(step.engine.model.parameters(), lr=0.1)
    with pytest.raises(UserError, match=r"must be made for \[engine.parameters.theta\]"):
        dataclasses.replace(step, optimizer=other)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("noise_multiplier", -1.0), ("noise_multiplier", math.nan), ("expected_batch_size", 0)],
)
def test_settings_by_which_noise_would_be_no_noise_are_refused(step_of, setting, value):
    with pytest.raises(UserError, match=f"{setting} must be a"):
        dataclasses.replace(step_of(dpsgd(1.0, "corrected")), **{setting: value})


class Rounded(Abadi):
    """The usual clip, which notes how float32 products may be rounded where it is called."""

    seen: ClassVar[list[tuple[str, bool]]] = []

    def norms(self, gradients):
        self.seen.append(product_precision())
        return super().norms(gradients)

    def finish(self, total):
        self.seen.append(product_precision())
        return super().finish(total)


def product_precision() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("matmul", ["highest", "high", "medium"])
@pytest.mark.parametrize("convolution", [False, True])
def test_norms_and_sums_are_in_full_precision_wherever_a_step_is_taken(
    step_of, batch_of, monkeypatch, matmul, convolution
):
    before = torch.get_float32_matmul_precision()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", convolution)
    monkeypatch.setattr(Rounded, "seen", [])
    torch.set_float32_matmul_precision(matmul)
    try:
        step_of(dataclasses.replace(dpsgd(1.0, "corrected"), clip=Rounded(1.0)))(batch_of(4))
        assert product_precision() == (matmul, convolution)
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(Rounded.seen) == 2
    assert set(Rounded.seen) == {("highest", False)}


@pytest.mark.parametrize("engine", ["ghost", "vmap"])
def test_a_step_within_somebodys_autocast_has_the_bits_of_one_outside(
    step_of, batch_of, monkeypatch, engine
):
    """Norms in bfloat16 would be too small, by 0.4% with vmap: more than the sensitivity."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # as within a run
    found = []
    for context in (nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        step = step_of(dpsgd(1.0, "corrected"), engine=engine, dtype=torch.float32)
        with context:
            step(batch_of(25, dtype=torch.float32))
            assert torch.is_autocast_enabled("cpu") == isinstance(context, torch.autocast)
        found.append(theta(step))
    assert torch.equal(*found)


def test_an_error_in_a_step_leaves_the_precision_as_it_was(step_of, batch_of, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    step = step_of(dpsgd(1.0, "corrected"))
    with pytest.raises(RuntimeError):
        step(batch_of(4).each(lambda tensor: tensor[:, None]))
    assert torch.backends.cudnn.allow_tf32
