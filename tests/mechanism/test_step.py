"""The private step as a whole: against references written by hand, and against identities."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.clipping import Abadi, CountQuery, Groupwise, Unclipped
from dpbench.data.dataset import Batch
from dpbench.errors import UserError
from dpbench.gradients import make_engine
from dpbench.mechanism.fit_memory import fit_memory
from dpbench.mechanism.noise import NoNoise
from dpbench.mechanism.physical_batches import PhysicalBatches
from dpbench.mechanism.step import PrivateStep
from dpbench.mechanism.streams import Stream, seeded
from dpbench.methods.clipping_errors import direction_error, magnitude_error
from dpbench.methods.dpsgd import dpsgd
from dpbench.methods.dpsgd_f import dpsgd_f
from dpbench.methods.dpsgd_global import dpsgd_global, dpsgd_global_adapt
from dpbench.methods.fairlens import fairlens
from dpbench.methods.sgd import sgd
from dpbench.models.architecture import cross_entropy

ADAPT = dpsgd_global_adapt(0.5, 3.0, 0.8, 0.1, 2.0, "corrected")


def theta(step: PrivateStep) -> torch.Tensor:
    return step.engine.parameters.theta.detach().clone()


def noiseless(method):
    return dataclasses.replace(method, noise=NoNoise())


def stacked(step: PrivateStep, batch: Batch) -> torch.Tensor:
    return step.engine(batch).stack()


def clipped(rows: torch.Tensor, bound: float) -> torch.Tensor:
    return (rows * (bound / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


# Against a reference written by hand.


def reference_gradients(w: np.ndarray, b: np.ndarray, batch: Batch):
    """Gradients of softmax cross-entropy of one linear layer, example by example, in numpy."""
    for x, y in zip(batch.inputs.numpy(), batch.targets.numpy(), strict=True):
        logits = w @ x + b
        p = np.exp(logits - logits.max())
        p /= p.sum()
        p[y] -= 1
        yield np.concatenate([np.outer(p, x).ravel(), p])


def stream(seed: int) -> Stream:
    return seeded("tests", seed, "", torch.device("cpu"))


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
    step.clip = step.clip.for_groups(3)
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


# Identities.


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


# Noise of the whole step.


def noise_in(step: PrivateStep, silent: PrivateStep, batch: Batch) -> torch.Tensor:
    """What the noise added to the update's gradient, by the same step without it."""
    step(batch)
    silent(batch)
    return step.engine.parameters.theta.grad - silent.engine.parameters.theta.grad


@pytest.mark.parametrize("examples", [0, 3, 12])
@pytest.mark.parametrize("physical", [None, 1, 4])
def test_the_update_has_one_draw_of_noise_over_the_expected_batch_size(
    step_of, batch_of, variance_p, examples, physical
):
    method = dpsgd(0.5, "corrected")
    settings = {"physical": physical, "multiplier": 1.3, "expected": 8.0, "lr": 0.0}
    step, silent = step_of(method, **settings), step_of(noiseless(method), **settings)
    noise = torch.cat([noise_in(step, silent, batch_of(examples, seed=s)) for s in range(10)])
    scale = 1.3 * 0.5 / 8
    assert variance_p(noise, scale) > 1e-3
    for wrong in (2 / 3, 3 / 2, 0.9, 1.1):
        assert variance_p(noise, scale * wrong) < 1e-6
    assert abs(noise.mean()) < 4 * scale / len(noise) ** 0.5


def test_dpsgd_f_has_noise_for_the_largest_bound_even_of_an_absent_group(
    step_of, batch_of, variance_p
):
    method = dpsgd_f(0.5, 2.0, "corrected")
    step, silent = (step_of(m, expected=1.0, lr=0.0) for m in (method, noiseless(method)))
    for s in (step, silent):
        s.clip = s.clip.for_groups(3)
    for seed in range(10):
        batch = batch_of(9, groups=1, seed=seed)  # groups 1 and 2 are absent
        noise = noise_in(step, silent, batch)
        assert variance_p(noise, float(step.clip.bounds.max())) > 1e-4


@pytest.mark.parametrize("relative", [False, True])
def test_counts_have_the_noise_that_their_query_states(step_of, batch_of, variance_p, relative):
    # Batches of one group with short gradients: the exact counts are n, 0, 0, 0, 0, 0.
    seen = []

    class Noted(Groupwise):
        def updated(self, counts, expected_batch_size):
            seen.append(counts)
            return self

    query = CountQuery(3.0, before=True, relative=relative)
    clip = Noted(1e9, query, "groups", "largest", groups=3)
    step = step_of(dataclasses.replace(dpsgd(1.0, "corrected"), clip=clip), multiplier=0.5)
    batch = batch_of(4, groups=1)
    for _ in range(300):
        step(batch)
    noise = torch.stack(seen) - torch.tensor([4.0, 0, 0, 0, 0, 0])
    scale = 1.5 if relative else 3.0
    assert step.method.releases(0.5)[1].mechanism.noise_multiplier == scale
    assert variance_p(noise, scale) > 1e-3
    assert variance_p(noise, scale * 2 / 3) < 1e-6
    assert variance_p(noise, scale * 3 / 2) < 1e-6
    assert abs(noise.mean()) < 4 * scale / noise.numel() ** 0.5


def test_each_generator_has_its_own_purpose(step_of, batch_of):
    def made(**seeds) -> tuple[torch.Tensor, float]:
        step = step_of(ADAPT, **seeds)
        step(batch_of(6))
        return theta(step), float(step.clip.strict_bound)

    (first, z), (noisier, same_z), (same, other_z) = (
        made(),
        made(noise_seed=77),
        made(count_seed=77),
    )
    assert z == same_z != other_z
    assert torch.equal(first, same)  # Z moves after the batch, so the first step is the same
    assert not torch.equal(first, noisier)


def test_the_global_generator_is_not_touched(step_of, batch_of):
    step = step_of(ADAPT)
    before = torch.get_rng_state()
    step(batch_of(6))
    assert torch.equal(torch.get_rng_state(), before)


# What is divided by.


@pytest.mark.parametrize(("variant", "divisor"), [("corrected", 8), ("paper", 5)])
def test_only_published_variants_divide_by_the_real_batch_size(step_of, batch_of, variant, divisor):
    step = step_of(noiseless(dpsgd(0.5, variant)), expected=8.0, lr=0.0)
    batch = batch_of(5)
    step(batch)
    expected = clipped(stacked(step, batch), 0.5) / divisor
    assert torch.allclose(step.engine.parameters.theta.grad, expected, rtol=1e-9)


# Batches at the edge.


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
        step.clip = step.clip.for_groups(3)
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


# When memory runs out.

METHODS = {
    "sgd": sgd(),
    "dpsgd": dpsgd(0.5, "corrected"),
    "dpsgd_global": dpsgd_global(0.5, 3.0, "corrected"),
    "magnitude_error": magnitude_error(0.5),
    "direction_error": direction_error(0.5),
    "dpsgd_global_adapt": ADAPT,
    "dpsgd_f": dpsgd_f(0.5, 2.0, "corrected").on(SimpleNamespace(groups="abc", train_size=9)),
}


class Cramped:
    """An engine that runs out of memory with more than so many examples, at once or late."""

    def __init__(self, engine, holds: int, error=torch.OutOfMemoryError, late: bool = False):
        self.engine, self.holds, self.error, self.late = engine, holds, error, late
        self.parameters, self.model, self.loss = engine.parameters, engine.model, engine.loss
        self.sizes: list[int] = []

    def __call__(self, batch, shift=None):
        self.sizes.append(len(batch))
        gradients = self.engine(batch, shift)
        if len(batch) <= self.holds:
            return gradients
        if self.late:
            gradients.weighted_sum = self._fail
            return gradients
        return self._fail()

    def _fail(self, *_):
        raise self.error("out of memory: tried to allocate 20.00 GiB")


def cramped(step: PrivateStep, holds: int, **settings) -> PrivateStep:
    engine = Cramped(step.engine, holds, **settings)
    physical = PhysicalBatches(step.physical.size, adaptive=True)
    return dataclasses.replace(step, engine=engine, physical=physical)


def everything(step: PrivateStep, batches: list[Batch]) -> list[torch.Tensor]:
    """What some steps left behind: reports, parameters, the clip's state, and the generators'."""
    reports = [torch.stack(tuple(step(batch))) for batch in batches]
    state = getattr(step.clip, "bounds", getattr(step.clip, "strict_bound", 0.0))
    draws = [
        torch.tensor(step.noise.state_dict()["drawn"]),
        torch.tensor(step.counts.state_dict()["drawn"]),
        torch.get_rng_state(),
    ]
    return [*reports, theta(step), torch.as_tensor(state), *draws]


@pytest.mark.parametrize("late", [False, True], ids=["gradient", "sum"])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError, MemoryError])
@pytest.mark.parametrize("name", METHODS)
def test_a_step_that_runs_out_of_memory_is_the_step_of_the_size_that_fits(
    step_of, batch_of, name, error, late
):
    batches = [batch_of(n, seed=n) for n in (11, 3, 0, 9)]
    troubled = cramped(step_of(METHODS[name]), 2, error=error, late=late)
    for before, after in zip(
        everything(step_of(METHODS[name], physical=2), batches),
        everything(troubled, batches),
        strict=True,
    ):
        assert torch.equal(before, after)
    assert troubled.physical.size == 2
    assert max(troubled.engine.sizes[-10:]) <= 2, "a size that did not fit was tried again"


def test_an_example_draws_the_same_in_a_repetition(batch_of):
    """Dropout of a pass that failed is as if it had never been drawn."""

    def step() -> PrivateStep:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 64), nn.Dropout(), nn.Linear(64, 3)).double()
        engine = make_engine("ghost", model, cross_entropy, batch_of(2))
        optimizer = torch.optim.SGD([engine.parameters.theta], lr=0.1)
        method = METHODS["dpsgd_f"]
        return PrivateStep(
            engine, method, optimizer, 1.0, 8.0, PhysicalBatches(3), *map(stream, (1, 2))
        )

    batches = [batch_of(n, seed=n) for n in (7, 5)]
    untroubled = everything(step(), batches)
    # In vain: 7, late in the first pass; then 3.
    troubled = cramped(dataclasses.replace(step(), physical=PhysicalBatches()), 3, late=True)
    assert all(map(torch.equal, untroubled, everything(troubled, batches)))


def test_memory_that_runs_out_between_the_passes_asks_no_second_time(step_of, batch_of):
    """The counts were released when the sum failed: only the sum is made again."""
    step, asked = cramped(step_of(METHODS["dpsgd_f"]), 4, late=True), []
    answer = step._release_counts
    step._release_counts = lambda *arguments: (asked.append(1), answer(*arguments))
    step(batch_of(8))
    assert len(asked) == 1
    assert step.engine.sizes == [8, 4, 4]


def test_one_example_that_does_not_fit_ends_the_run_with_a_sentence(step_of, batch_of):
    step = cramped(step_of(METHODS["dpsgd"]), 0)
    start = theta(step)
    with pytest.raises(UserError, match="even with one example at a time"):
        step(batch_of(5))
    assert torch.equal(theta(step), start)


@pytest.mark.parametrize("physical", [None, 4])
def test_without_adapting_the_sentence_names_the_way_out(step_of, batch_of, physical):
    step = cramped(step_of(METHODS["dpsgd"], physical=physical), 3)
    step.physical.adaptive = False
    size = physical or 5
    with pytest.raises(UserError, match=f"with {size} examples at once; choose physical_batch_siz"):
        step(batch_of(5))


def test_a_method_that_needs_whole_batches_is_not_told_to_split_them(step_of, batch_of):
    step = cramped(step_of(fairlens(0.5, 1.0, 1.0, "corrected")), 3)
    step.physical.adaptive = False
    with pytest.raises(UserError, match="fairlens needs each batch in one piece; choose a smaller"):
        step(batch_of(5))


def test_other_errors_are_passed_on(step_of, batch_of):
    for adapts in (True, False):
        step = cramped(step_of(METHODS["dpsgd"]), 3, error=ValueError)
        step.physical.adaptive = adapts
        with pytest.raises(ValueError, match="tried to allocate"):
            step(batch_of(5))


def test_a_size_found_by_trying_moves_nothing(step_of, batch_of):
    method = METHODS["dpsgd_f"]
    batches = [batch_of(n, seed=n) for n in (6, 9)]
    plain, tried = step_of(method, physical=4), cramped(step_of(method), 4)
    draws = torch.get_rng_state()
    fit_memory(tried, batch_of(2))
    assert torch.equal(torch.get_rng_state(), draws)
    assert tried.physical.size == 4
    assert tried.engine.sizes == [1, 2, 4, 8]
    assert all(map(torch.equal, everything(plain, batches), everything(tried, batches)))


def test_where_memory_is_no_matter_nearly_every_batch_stays_whole(step_of, batch_of):
    step = step_of(METHODS["dpsgd"], expected=100.0)
    fit_memory(step, batch_of(2))
    assert step.physical.size == 160


# What a GPU would have to wait for.


class Waits(TorchDispatchMode):
    """Notes what a GPU could only answer after all that it was asked before."""

    NAMES = (
        "_local_scalar_dense",
        "item",
        "is_nonzero",
        "equal",
        "nonzero",
        "masked_select",
        "bincount",
        "_unique2",
        "repeat_interleave",
    )

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        name = function.__name__.partition(".")[0]
        if name in self.NAMES or (name == "index" and any(map(is_mask, arguments[1]))):
            self.seen.append(name)
        return function(*arguments, **(named or {}))


def is_mask(index) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@pytest.mark.parametrize("physical", [None, 4])
@pytest.mark.parametrize("engine", ["vmap", "ghost"])
@pytest.mark.parametrize("name", METHODS)
def test_no_step_waits_for_a_gpu(monkeypatch, step_of, batch_of, engine, name, physical):
    step, batch = step_of(METHODS[name], engine=engine, physical=physical), batch_of(9)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    with Waits() as waits:
        step(batch)
    assert waits.seen == []


def test_waits_are_seen():
    x = torch.arange(3.0)
    with Waits() as waits:
        x.sum().item()
        bool(x.any())
        x[x > 1]
        torch.bincount(x.long())
    assert waits.seen == ["_local_scalar_dense", "_local_scalar_dense", "index", "bincount"]


def test_a_size_that_was_found_is_part_of_the_state(step_of, batch_of):
    step, other = (step_of(dpsgd(0.5, "corrected")) for _ in range(2))
    step.physical.size = 3
    step(batch_of(6))
    other.load_state_dict(step.state_dict())
    assert other.physical.size == 3
    assert torch.equal(theta(other), theta(step))
    for each in (step, other):
        each(batch_of(6, seed=1))
    assert torch.equal(theta(other), theta(step))
