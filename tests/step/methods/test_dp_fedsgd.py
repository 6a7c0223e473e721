"""DP-FedSGD: against users one by one, and as DP-SGD where each has one example."""

import dataclasses
from functools import partial
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.data.derive.users import Units, iid
from dpbench.learning.data.examples import Batch
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Step
from dpbench.runs.training.accounting import statement
from dpbench.step.clipping.choice import BY_NORM
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.methods.dp_fedavg import dp_fedavg
from dpbench.step.methods.dp_fedsgd import WeightedMean, Weights, dp_fedsgd, local_batches
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError
from tests.problems import problem
from tests.steps import noiseless, theta

FED = dp_fedsgd(0.5, None)
SIZES = Units("user", 4, (1, 2, 3, 4))


def planned(method, units: Units):
    """The method for users of these sizes."""
    of = SimpleNamespace(units=units)
    parts = {name: getattr(method, name).bind(of) for name in ("gradient", "update")}
    return dataclasses.replace(method, **parts)


def alone(batch: Batch, k: int) -> Batch:
    """The examples of one user."""
    here = batch.present[k]
    return Batch(batch.inputs[k, here], batch.targets[k, here], batch.groups[k].expand(here.sum()))


def gradient_of(step, batch: Batch, k: int) -> torch.Tensor:
    """Of the user's mean loss, by torch."""
    own, parameters = alone(batch, k), step.engine.parameters
    return parameters.gradient(step.engine.loss(step.engine.model(own.inputs), own.targets).mean())


@pytest.mark.parametrize("engine", ["loop", "vmap", "ghost"])
def test_a_user_s_gradient_is_that_of_its_mean_loss(step_of, users_of, engine):
    step, batch = step_of(FED, engine=engine), users_of(6)
    gradients = step.engine(batch)
    wanted = torch.stack([gradient_of(step, batch, k) for k in range(6)])
    assert torch.allclose(gradients.stack(), wanted, rtol=1e-9, atol=1e-12)
    assert torch.allclose(gradients.norms, wanted.norm(dim=1), rtol=1e-9)


@pytest.mark.parametrize("engine", ["loop", "vmap", "ghost"])
def test_padding_does_not_affect_the_gradient(step_of, users_of, engine):
    batch = users_of(6)
    other = dataclasses.replace(
        batch,
        inputs=torch.where(batch.present.unsqueeze(2), batch.inputs, 7.0),
        targets=torch.where(batch.present, batch.targets, 1),
    )
    assert not torch.equal(batch.inputs, other.inputs)
    engine = step_of(FED, engine=engine).engine
    assert torch.allclose(engine(batch).stack(), engine(other).stack(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("cap", [None, 2, 3.5])
def test_a_step_is_the_algorithm_written_by_hand(step_of, users_of, released, stream_of, cap):
    method, batch = dp_fedsgd(0.5, cap), users_of(6)
    method = planned(method, SIZES)
    step = step_of(method, multiplier=0.7, expected=2.0, lr=0.1)
    start, total = theta(step), torch.zeros(579, dtype=torch.float64)
    for k in range(6):
        w = 1.0 if cap is None else min(int(batch.present[k].sum()) / cap, 1.0)
        g = gradient_of(step, batch, k)
        total += w * g * min(1, 0.5 / float(g.norm()))
    noisy = torch.from_numpy(released(total.numpy(), 0.7 * 0.5, stream_of(1)))
    # q W for q = 2/4
    qw = 0.5 * sum(1.0 if cap is None else min(n / cap, 1.0) for n in SIZES.sizes)
    step(batch)
    by_hand = start - 0.1 * noisy / qw
    assert torch.allclose(theta(step), by_hand, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("style", ["flat", "layerwise"])
@pytest.mark.parametrize("engine", ["loop", "vmap", "ghost"])
def test_users_of_one_example_are_dpsgd_to_the_bit(step_of, batch_of, engine, style):
    fed = step_of(dp_fedsgd(0.5, 1, style=style), engine=engine)
    plain = step_of(dpsgd(0.5, "corrected", style=style), engine=engine)
    for seed, n in enumerate((7, 0, 3)):
        batch = batch_of(n, seed=seed)
        fed(batch.as_users())
        plain(batch)
    assert torch.equal(theta(fed), theta(plain))


def test_examples_repeated_are_their_user_once(step_of, batch_of):
    batch = batch_of(5)
    threefold = batch.as_users().each(lambda t: t)
    threefold = Batch(
        threefold.inputs.expand(-1, 3, -1),
        threefold.targets.expand(-1, 3),
        batch.groups,
        threefold.present.expand(-1, 3),
    )
    one, three = step_of(FED), step_of(FED)
    one(batch)
    three(threefold)
    assert torch.allclose(theta(one), theta(three), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("cap", [1, 2.5, 100])
def test_a_user_moves_the_sum_by_its_weight_and_by_the_bound_at_most(step_of, users_of, cap):
    method = noiseless(dp_fedsgd(0.5, cap, clip="normalise"))
    step, batch = step_of(method, expected=1.0, lr=1.0), users_of(6)
    for k in range(6):
        start = theta(step)
        step(batch.each(lambda t, k=k: t[k : k + 1]))
        wanted = 0.5 * min(1, int(batch.sizes[k]) / cap)
        assert float((theta(step) - start).norm()) == pytest.approx(wanted, rel=1e-9)
        assert wanted <= method.clip.sensitivity.bound


def test_weights_are_capped_and_local_batches_are_in_no_account():
    sizes = torch.tensor([1.0, 4.0, 9.0])
    assert Weights(4.0)(sizes).tolist() == [0.25, 1, 1]
    assert Weights(None)(sizes).tolist() == [1, 1, 1]
    capped = WeightedMean(Weights(4.0)).bind(SimpleNamespace(units=Units("user", 3, (1, 4, 9))))
    assert (capped.mean, capped.excess) == (pytest.approx(0.75), 1)
    whole, local = dp_fedsgd(0.5, 3.0), dp_fedsgd(0.5, 3.0, local_batch_size=1)
    assert whole.releases(1.3) == local.releases(1.3)
    assert whole.guarantee == local.guarantee


def test_a_step_on_local_batches_is_that_written_by_hand(step_of, users_of, released, stream_of):
    method, batch = dp_fedsgd(0.5, 3.5, local_batch_size=2), users_of(6)
    method = planned(method, SIZES)
    step = step_of(method, multiplier=0.7, expected=2.0, lr=0.1)
    start, total = theta(step), torch.zeros(579, dtype=torch.float64)
    local = local_batches(batch, 2, seed=0, step=0)
    for k in range(6):
        g = gradient_of(step, local, k)
        total += min(int(batch.sizes[k]) / 3.5, 1.0) * g * min(1, 0.5 / float(g.norm()))
    noisy = torch.from_numpy(released(total.numpy(), 0.7 * 0.5, stream_of(1)))
    qw = 0.5 * sum(min(n / 3.5, 1.0) for n in SIZES.sizes)
    step(batch)
    assert torch.allclose(theta(step), start - 0.1 * noisy / qw, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", ["corrected", "paper"])
@pytest.mark.parametrize("size", [4, 100])
def test_a_local_batch_of_all_examples_is_the_whole_to_the_bit(step_of, users_of, size, variant):
    whole = step_of(dp_fedsgd(0.5, None, variant=variant))
    local = step_of(dp_fedsgd(0.5, None, variant=variant, local_batch_size=size))
    for seed, n in enumerate((7, 0, 3)):
        for step in (whole, local):
            step(users_of(n, seed=seed))
    assert torch.equal(theta(whole), theta(local))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_gradient_of_a_local_batch_is_unbiased(step_of, users_of, size):
    """Against the mean over all subsets, one by one; and over many steps within six deviations."""
    method, batch = dp_fedsgd(0.5, None, local_batch_size=size), users_of(6)
    step = step_of(method)
    draws = torch.stack(
        [method.gradient(step.engine, batch, step.clip, ReleasedState(made, 400, None)).stack()
         for made in range(400)]
    )  # fmt: skip
    for k in range(6):
        user = alone(batch, k)
        each = step.engine(user).stack()
        subsets = list(combinations(range(len(user)), min(size, len(user))))
        means = torch.stack([each[list(subset)].mean(0) for subset in subsets])
        assert torch.allclose(means.mean(0), gradient_of(step, batch, k), rtol=1e-9, atol=1e-12)
        allowed = 6 * means.std(0, unbiased=False) / 20 + 1e-9
        assert ((draws[:, k].mean(0) - means.mean(0)).abs() <= allowed).all()


@pytest.mark.sampled(5)
@pytest.mark.slow
@given(st.integers(1, 5), st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([1, 1e3]))
@settings(derandomize=True, deadline=None, max_examples=15)
@pytest.mark.parametrize("style", ["flat", "layerwise"])
@pytest.mark.parametrize("clip", BY_NORM)
def test_with_any_local_batches_a_user_moves_the_sum_by_at_most_its_weight_of_the_bound(
    step_of, users_of, clip, style, size, seed, made, length
):
    method = dp_fedsgd(0.5, 3.0, clip, style, local_batch_size=size)
    method = method.bind(problem(users=iid(20, 0.0)))
    step, batch = step_of(method), users_of(5, seed=seed)
    batch.inputs.mul_(length)
    released = ReleasedState(made, made + 1, None, seed)

    def total(users):
        gradients = method.gradient(step.engine, users, method.clip, released)
        factors = method.clip.factors(method.clip.norms(gradients), users.groups)
        return method.clip.reduce(gradients, factors)

    for k in range(5):
        others = batch.each(lambda t, k=k: torch.cat([t[:k], t[k + 1 :]]))
        moved = float((total(batch) - total(others)).norm())
        weight = min(1, int(batch.sizes[k]) / 3)
        assert moved <= weight * method.clip.sensitivity.bound * (1 + 1e-9)


@pytest.mark.parametrize("physical", [1, 2, 5])
def test_physical_batches_have_the_local_batches_of_the_whole(step_of, users_of, physical):
    method = dp_fedsgd(0.5, None, local_batch_size=1)
    whole, parts = (step_of(method, physical=p) for p in (None, physical))
    for seed in range(3):
        whole(users_of(7, seed=seed))
        parts(users_of(7, seed=seed))
    assert torch.allclose(theta(whole), theta(parts), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [dp_fedsgd, partial(dp_fedavg, local_epochs=1,
                                  local_batch_size=None, local_lr=1.0)])  # fmt: skip
def test_as_published_a_user_moves_the_sum_by_its_examples_times_the_bound(step_of, users_of, make):
    method = make(bound=0.5, cap=None, clip="normalise", variant="paper")
    method = planned(noiseless(method), SIZES)
    step, batch = step_of(method, expected=1.0, lr=1.0), users_of(6)
    for k in range(6):
        start = theta(step)
        step(batch.each(lambda t, k=k: t[k : k + 1]))
        moved = float((theta(step) - start).norm()) * method.update.mean
        assert moved == pytest.approx(0.5 * int(batch.sizes[k]), rel=1e-9)


@pytest.mark.parametrize("make", [dp_fedsgd, partial(dp_fedavg, local_epochs=1,
                                  local_batch_size=None, local_lr=1.0)])  # fmt: skip
def test_a_user_with_more_examples_than_planned_counts_as_the_largest(step_of, users_of, make):
    """As where a data set is subsampled, and only the expected number of examples is public."""
    smaller = Units("user", 4, (1, 2, 2, 2))
    method = make(bound=0.5, cap=None, clip="normalise", variant="paper")
    method = planned(noiseless(method), smaller)
    step, batch = step_of(method, expected=1.0, lr=1.0), users_of(6)
    assert int(batch.sizes.max()) > 2
    for k in range(6):
        start = theta(step)
        step(batch.each(lambda t, k=k: t[k : k + 1]))
        moved = float((theta(step) - start).norm()) * method.update.mean
        assert moved == pytest.approx(0.5 * min(int(batch.sizes[k]), 2), rel=1e-9)


def test_as_published_the_account_has_the_noise_over_the_largest_number_of_examples():
    method = dp_fedsgd(0.5, None, variant="paper")
    method = planned(method, SIZES)
    (release,) = method.releases(3.0)
    assert release.mechanism == GaussianMechanism(3.0 / max(SIZES.sizes))
    assert release.claimed == GaussianMechanism(3.0)
    book = Ledger().after(Step(Poisson(0.1, "user"), (release,)), 50)
    says = statement(book, method, 1e-5, 3.0)
    assert says["guarantee"] == "proven"
    assert says["claimed"] < says["rdp"] / max(SIZES.sizes)


def test_as_published_with_one_example_each_it_is_the_corrected_one(step_of, users_of):
    ones = Units("user", 4, (1, 1, 1, 1))
    made = [dp_fedsgd(0.5, None, variant=variant) for variant in ("paper", "corrected")]
    made = [planned(method, ones) for method in made]
    assert made[0].releases(2.0) == made[1].releases(2.0)
    steps = [step_of(method) for method in made]
    for step in steps:
        step(users_of(4).each(lambda t: t[:, :1] if t.dim() > 1 else t))
    assert torch.equal(*map(theta, steps))
    with pytest.raises(UserError, match=r"leave method\.cap null"):
        dp_fedsgd(1.0, 3.0, variant="paper")
