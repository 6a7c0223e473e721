"""Private adaptive clipping: the count, the update, and what both cost together."""

import dataclasses
import math

import pytest
import torch

from dpbench.privacy.accountants import rdp
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.step.clipping import Abadi, CountQuery, Quantile, make_clip
from dpbench.step.methods.dpsgd_quantile import dpsgd_quantile
from dpbench.system.errors import UserError

QUERY = CountQuery(25.6, before=False)
NOBODY = torch.zeros(4, dtype=torch.long)


def quantile(clip=None, target=0.5, rate=0.2):
    return Quantile(clip or Abadi(1.0), target, rate, QUERY)


def method(**changes):
    usual = {"bound": 1.0, "quantile": 0.5, "clip_learning_rate": 0.2, "count_noise": 12.8}
    return dpsgd_quantile(**{**usual, "clip": "abadi", "style": "flat", **changes})


def test_norms_within_the_bound_count_up_and_the_real_size_hardly_moves_the_median():
    norms = torch.tensor([0.2, 1.0, 1.1, math.nan])
    assert quantile().counts(norms, NOBODY).tolist() == [0]
    assert quantile().counts(norms[:3], NOBODY).tolist() == [1]
    clip, norms = quantile(), torch.tensor([0.5, 2.0] * 20)
    ends = [clip.updated(clip.counts(norms[:n], NOBODY), 8.0).sensitivity.bound for n in (0, 8, 40)]
    assert [float(m) for m in ends] == pytest.approx([1.0] * 3)


def test_layers_are_counted_apart_and_shared_out_so_that_one_example_moves_all_by_one():
    clip = quantile(make_clip("abadi", "layerwise", [1.0, 2.0]))
    counts = clip.counts(torch.tensor([[0.5, 3.0], [0.5, 1.5]]), NOBODY)
    assert counts.tolist() == pytest.approx([2 / 2**0.5, 0])
    assert clip.counts(torch.tensor([[0.5, 3.0]]), NOBODY).norm() == pytest.approx(1)


# Andrew et al. 2021, Algorithm 1: C <- C exp(-eta (b - gamma)).
@pytest.mark.parametrize("within", [0, 3, 8])
def test_the_bound_moves_by_the_share_that_is_within_it(within):
    outside = 8 - within
    moved = quantile(target=0.7).updated(torch.tensor([float(within - outside)]), 8.0)
    assert float(moved.sensitivity.bound) == pytest.approx(math.exp(-0.2 * (within / 8 - 0.7)))


def test_each_layer_moves_by_its_own_share_and_bounds_have_no_schedule():
    clip = quantile(make_clip("abadi", "layerwise", [3.0, 4.0]))
    moved = clip.updated(torch.tensor([8.0, -8.0]) / 2**0.5, 8.0)
    expected = [3 * math.exp(-0.1), 4 * math.exp(0.1)]
    assert moved.clip.bounds_of(torch.zeros(2)).tolist() == pytest.approx(expected)
    assert float(moved.sensitivity.bound) == pytest.approx(math.hypot(*expected))
    with pytest.raises(UserError, match="tracks a quantile has no schedule"):
        quantile().scaled(2.0)


@pytest.mark.parametrize("target", [0.2, 0.5, 0.9])
def test_the_bound_finds_the_quantile_of_what_the_batches_hold(target):
    draw = torch.Generator().manual_seed(0)
    clip, tail = quantile(target=target), []
    for step in range(400):
        norms = 100 * torch.rand(256, generator=draw, dtype=torch.float64)
        noise = QUERY.noise_multiplier * torch.randn(1, generator=draw, dtype=torch.float64)
        clip = clip.updated(clip.counts(norms, NOBODY) + noise, 256.0)
        tail += [float(clip.sensitivity.bound)] * (step >= 200)
    assert sum(tail) / len(tail) == pytest.approx(100 * target, rel=0.1)


def test_noise_of_the_next_step_reads_the_bound_that_moved(step_of, batch_of, variance_p):
    step = step_of(method(clip_learning_rate=5.0), multiplier=1.0, expected=8.0)
    step(batch_of(0))
    bound = float(step.clip.sensitivity.bound)
    assert not 0.7 < bound < 1.4
    step(batch_of(0))
    noise = step.engine.parameters.theta.grad * 8.0
    assert variance_p(noise, bound) > 1e-3
    assert variance_p(noise, 1.0) < 1e-6


# Their Theorem 1: sum and counts of +-1/2 together cost as much as one sum with this multiplier.
@pytest.mark.parametrize(("sigma", "count_noise"), [(1.0, 12.8), (1.0, 0.8), (2.0, 1.5)])
def test_count_and_sum_are_one_joint_release_of_the_batch(sigma, count_noise):
    def epsilon(releases):
        return rdp(Ledger().after(Step(Poisson(0.02), releases), 300), 1e-5)

    # z of theirs is that of the sum and counts together, z_Delta the sum's own.
    z = (sigma**-2 + (2 * count_noise) ** -2) ** -0.5
    assert (z**-2 - (2 * count_noise) ** -2) ** -0.5 == pytest.approx(sigma)
    alone = dataclasses.replace(method(), clip=Abadi(1.0))
    ours = epsilon(method(count_noise=count_noise).releases(sigma))
    assert ours == pytest.approx(epsilon(alone.releases(z)), rel=1e-9)
    assert ours > epsilon(alone.releases(sigma))


@pytest.mark.parametrize("clip", ["batch", "none"])
def test_a_clip_without_a_bound_cannot_adapt(clip):
    with pytest.raises(UserError, match=f"method.clip={clip} has no bound to adapt: choose abadi"):
        method(clip=clip)
