"""What every method does in a step, found by its YAML file: a new one is tested as it is.

A method whose guarantee is "proven" has to show it: one example moves what the noise is added to by
no more than the sensitivity that the noise reads, and the noise is as large as the ledger hears.

Methods take other clips: dpsgd is tested with each of them as it is by itself, and the others show
that their proofs hold with each.
"""

import dataclasses

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpbench.learning.data.examples import Batch
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.mechanism.method import Method
from tests.problems import START
from tests.step.methods.every_method import (
    EXPECTED,
    MULTIPLIER,
    every,
    holding,
    listening,
    method_of,
    private,
    proven,
    proven_anywhere,
    those,
    with_counts,
)
from tests.steps import neighbours, theta


@pytest.fixture(scope="module")
def examples_for(batch_of, users_of):
    """examples_for(method, n): a batch in the groups that the method knows, or of users."""

    def make(method: Method, n: int, seed: int = 0) -> Batch:
        if method.users_only:
            return users_of(n, seed=seed)
        return batch_of(n, groups=method.groups or 3, seed=seed)

    return make


answers = st.lists(st.lists(st.floats(-50, 500), min_size=20, max_size=20), max_size=2)


sizes, seeds = st.integers(1, 8), st.integers(0, 10**6)


@pytest.mark.sampled(66)
@pytest.mark.slow
@proven_anywhere
@given(sizes, seeds, st.sampled_from([0.1, 1.0, 1e3]), answers)
@example(
    8, 0, 1e3, [[9, 0, 9, 0, 0, 9, *[0] * 14]]
)  # the gradients of one group were long, and all are now
@settings(derandomize=True, deadline=None, max_examples=5)
def test_one_example_changes_the_sum_by_at_most_the_stated_sensitivity(
    step_of, examples_for, name, variant, n, seed, size, answers
):
    method = method_of(name, variant)
    method = listening(holding(method, answers))
    batch = examples_for(method, n, seed)
    batch.inputs.mul_(size)
    step = step_of(method, multiplier=MULTIPLIER, lr=0.0)
    released = torch.linspace(-1, 1, len(step.engine.parameters), dtype=torch.float64)
    update = method.update.advance(released, 1.0, theta(step), START)
    for one in (batch, *(neighbours(batch, i) for i in range(n))):
        # All neighbours share what was released.
        step.released = ReleasedState(1, 2, released, update=update)
        step.update = method.update
        step(one)
    (total, sensitivity, _), *others = method.noise.calls
    for other, same, _ in others:
        assert sensitivity == same  # or the noise itself would tell the batches apart
        assert (total - other).norm() <= method.excess * sensitivity * (1 + 1e-9)


@pytest.mark.sampled(14)
@with_counts
@given(sizes, seeds, answers)
@settings(derandomize=True, deadline=None, max_examples=5)
def test_one_example_moves_the_counts_by_at_most_one(
    step_of, batch_of, name, variant, n, seed, answers
):
    method = holding(method_of(name, variant), answers)
    step = step_of(method, multiplier=MULTIPLIER, lr=0.0)
    batch = batch_of(n, groups=method.groups or 3, seed=seed)
    start = step.count_stream.state_dict()
    for one in (batch, *(neighbours(batch, i) for i in range(n))):
        step.count_stream.load_state_dict(start)
        step(one)
    first, *others = method.clip.answers
    assert len(others) == n
    for other in others:
        # Noise is added before the sum is rounded to the grid of `dpbench.step.mechanism.noise`.
        assert (first - other).norm() <= 1 + 1e-4


def test_the_paper_variant_of_dpsgd_f_violates_its_sensitivity(step_of, batch_of):
    method = method_of("dpsgd_f", "paper")
    assert method.guarantee.level == "none"
    # A group whose gradients were all long, beside one whose were short: its C_k is above C0.
    method = listening(holding(method, [[9, 0, 9, 0, 0, 3]]))
    batch = dataclasses.replace(batch_of(3), groups=torch.tensor([0, 1, 2]))
    step = step_of(method, multiplier=MULTIPLIER, lr=0.0)
    step(batch)
    step(neighbours(batch, 2))
    (one, sensitivity, _), (other, _, _) = method.noise.calls
    assert (one - other).norm() > 1.5 * sensitivity


@pytest.mark.sampled(94)
@private
@pytest.mark.parametrize("examples", [0, 9])
@pytest.mark.parametrize("physical", [None, 2])
def test_the_noise_is_drawn_once_with_the_scale_in_the_ledger(
    step_of, examples_for, variance_p, name, variant, examples, physical
):
    method = listening(method_of(name, variant))
    physical = None if method.whole_batches else physical
    step = step_of(method, multiplier=MULTIPLIER, physical=physical)
    heard = method.noise.spread(MULTIPLIER)
    noise = []
    for seed in range(8):
        step(examples_for(method, examples, seed))
        total, sensitivity, noisy = method.noise.calls[-1]
        noise.append((noisy - total) / sensitivity)
    assert len(method.noise.calls) == 8
    noise = method.noise.independent(noise)
    assert variance_p(torch.cat(noise), heard) > 1e-3
    assert variance_p(torch.cat(noise), heard * 2 / 3) < 1e-6
    assert variance_p(torch.cat(noise), heard * 3 / 2) < 1e-6


@proven
def test_the_update_is_of_the_noisy_sum_over_the_expected_size(
    step_of, examples_for, name, variant
):
    method = listening(method_of(name, variant))
    step = step_of(method, multiplier=MULTIPLIER, expected=EXPECTED, lr=0.1)
    update = method.update
    for done, n in enumerate((0, 5, 20)):
        start, scale = theta(step), step.clip.sensitivity.bound * MULTIPLIER / EXPECTED
        step(examples_for(method, n))
        noisy = method.noise.calls[-1][2]
        widths = step.clip.widths(step.engine.parameters.layers, noisy)
        mean = noisy * (1 if widths is None else widths) / EXPECTED
        update = update.advance(
            mean,
            scale * (1 if widths is None else widths),
            start,
            START._replace(steps_done=done, expected_batch_size=EXPECTED),
        )
        mean = update(mean.clone(), start)
        assert torch.allclose(theta(step), start - 0.1 * mean, rtol=1e-10, atol=1e-12)


@those(lambda method: method.private and method.clip.query is not None)
def test_counts_have_the_noise_in_the_ledger(step_of, batch_of, variance_p, name, variant):
    method = method_of(name, variant)
    held = holding(method, [])
    step = step_of(held, multiplier=MULTIPLIER, lr=0.0)
    for _ in range(400):
        step(batch_of(0))
    heard = method.releases(MULTIPLIER)[-1].mechanism.noise_multiplier
    noise = torch.stack(held.clip.answers)
    assert variance_p(noise, heard) > 1e-3
    assert variance_p(noise, heard * 2 / 3) < 1e-6
    assert variance_p(noise, heard * 3 / 2) < 1e-6


@pytest.mark.sampled(45)
@those(lambda method: not method.whole_batches)
@pytest.mark.parametrize("physical", [1, 4])
def test_physical_batches_change_only_rounding(step_of, examples_for, name, variant, physical):
    method = method_of(name, variant)
    whole, parts = (step_of(method, physical=p) for p in (None, physical))
    for seed, n in enumerate((9, 0, 4)):
        whole(examples_for(method, n, seed))
        parts(examples_for(method, n, seed))
    assert torch.allclose(theta(whole), theta(parts), rtol=1e-9, atol=1e-12)


@pytest.mark.sampled(47)
@every
@pytest.mark.parametrize("engine", ["ghost", "vmap"])
def test_a_method_does_not_know_which_engine_runs(step_of, examples_for, name, variant, engine):
    method = method_of(name, variant)
    ours, reference = (step_of(method, engine=e) for e in (engine, "loop"))
    for seed in range(2):
        ours(examples_for(method, 6, seed))
        reference(examples_for(method, 6, seed))
    assert torch.allclose(theta(ours), theta(reference), rtol=1e-8, atol=1e-11)


@every
def test_the_reference_engine_takes_a_step_in_float32_too(step_of, examples_for, name, variant):
    method = method_of(name, variant)
    step = step_of(method, engine="loop", dtype=torch.float32)
    start = theta(step)
    step(examples_for(method, 6).each(lambda t: t.float() if t.is_floating_point() else t))
    assert theta(step).isfinite().all()
    assert not torch.equal(theta(step), start)


@every
def test_a_step_on_an_empty_batch_is_a_step(step_of, examples_for, name, variant):
    method = method_of(name, variant)
    step = step_of(method)
    start = theta(step)
    step(examples_for(method, 0))
    assert theta(step).isfinite().all()
    assert torch.equal(theta(step), start) != method.private  # noise, or nothing at all


@every
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_an_example_that_is_not_finite_is_counted_and_poisons_nothing(
    step_of, examples_for, name, variant, bad
):
    method = method_of(name, variant)
    step, batch = step_of(method), examples_for(method, 5)
    batch.inputs[2] = bad
    assert step(batch).finite.tolist() == [True, True, False, True, True]
    assert theta(step).isfinite().all()
    batch.inputs.fill_(bad)
    assert not step(batch).finite.any()
    assert theta(step).isfinite().all()


@every
def test_the_same_seeds_make_the_same_parameters_without_state(
    step_of, examples_for, name, variant
):
    method = method_of(name, variant)
    ends = []
    for _ in range(2):
        step = step_of(method)
        for seed in range(4):
            step(examples_for(method, 7, seed))
        ends.append(theta(step))
    assert torch.equal(*ends)
    before = str(method)
    step = step_of(method)
    step(examples_for(method, 7))
    assert str(method) == before
    assert step.method is method
