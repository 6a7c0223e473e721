"""Mixtures are of an example's own views, and an example is clipped once whatever they are."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.derive.mixup import MAX_ALPHA, MIN_ALPHA, SelfMixup
from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.step.clipping import make_clip
from dpbench.step.gradients import make_engine
from dpbench.system.errors import UserError

SHIFTS = {"shift": 2, "padding": "reflect", "flip": "horizontal", "probability": 0.5}
EXAMPLES, CLASSES, BOUND = 4, 3, 0.7


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def mixup(views=5, mixed=3, alpha=0.8):
    return SelfMixup(views=views, mixed=mixed, alpha=alpha, **SHIFTS)


def pictures(count, seed=9):
    return torch.rand(count, 2, 6, 7, generator=generator(seed), dtype=torch.float64)


def distance_to_mixtures(view, plain):
    """How far a view is from the nearest l u + (1 - l) v with 0 <= l <= 1 of any pair."""
    distances = []
    for u, v in product(plain, repeat=2):
        along = (u - v).flatten()
        share = ((view - v).flatten() @ along / (along @ along).clamp(min=1e-30)).clamp(0, 1)
        distances.append((view - share * u - (1 - share) * v).norm().item())
    return min(distances)


def test_every_mixture_is_of_two_plain_views_of_its_own_example():
    views = mixup(views=7, mixed=4).apply(pictures(20), generator())
    assert views.shape == (20, 7, 2, 6, 7)
    plain, mixed = views[:, :3], views[:, 3:]
    own = [distance_to_mixtures(m, p) for p, ms in zip(plain, mixed, strict=True) for m in ms]
    assert max(own) < 1e-12
    neighbours = zip(plain.roll(1, 0), mixed, strict=True)
    assert min([distance_to_mixtures(m, p) for p, ms in neighbours for m in ms]) > 1e-3


def test_plain_views_are_shifts_and_flips_and_none_depends_on_other_examples():
    images = pictures(5)
    before = mixup().apply(images, generator())
    images[2] = pictures(1, seed=1)[0]
    changed = (mixup().apply(images, generator()) != before).flatten(1).any(1)
    assert changed.tolist() == [False, False, True, False, False]
    images = pictures(6)
    usual = ShiftsFlips(views=3, **SHIFTS).apply(images, generator())
    assert torch.equal(mixup(views=3, mixed=0).apply(images, generator()), usual)
    assert torch.equal(mixup(views=8, mixed=5).apply(images, generator())[:, :3], usual)


@pytest.mark.parametrize("alpha", [MIN_ALPHA, 0.2, 1.0, 4.0])
def test_shares_have_the_mean_and_the_variance_of_their_beta_distribution(alpha):
    shares = mixup(alpha=alpha)._shares((4000, 3), generator())
    variance = 1 / (4 * (2 * alpha + 1))
    assert shares.mean().item() == pytest.approx(0.5, abs=4 * (variance / 12_000) ** 0.5)
    assert shares.var().item() == pytest.approx(variance, rel=0.05)


@pytest.mark.parametrize("alpha", [MIN_ALPHA, MAX_ALPHA])
def test_shares_are_from_zero_to_one_however_extreme_their_distribution(alpha):
    shares = mixup(alpha=alpha)._shares((500, 3), generator())
    assert ((shares >= 0) & (shares <= 1)).all()


def network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 4 * 5, CLASSES)]
    return nn.Sequential(*layers).double()


def clipped_sum(name, model, batch, views, probe):
    engine = make_engine(name, model, cross_entropy, probe, views)
    clip, gradients = make_clip("abadi", "flat", BOUND), engine(batch)
    return gradients.weighted_sum(clip.factors(clip.norms(gradients), batch.groups)).double()


def reference_sum(model, batch):
    """The mean gradient over the views of each example by autograd, clipped, and added up."""
    total = 0
    for inputs, target in zip(batch.inputs, batch.targets, strict=True):
        losses = cross_entropy(model(inputs), target.expand(len(inputs)))
        gradients = torch.autograd.grad(losses.mean(), list(model.parameters()))
        gradient = torch.cat([part.flatten() for part in gradients])
        total = total + gradient * (BOUND / gradient.norm()).clamp(max=1)
    return total


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    mixed=st.integers(1, 4),
    alpha=st.sampled_from([0.2, 1.0, 8.0]),
    scale=st.sampled_from([0.01, 1.0, 100.0]),
)
def test_one_example_moves_the_clipped_sum_by_at_most_the_bound(seed, mixed, alpha, scale):
    """With the views of all others as they are; ghost, loop and autograd agree on the sum."""
    augmentation = mixup(views=mixed + 2, mixed=mixed, alpha=alpha)
    images = scale * pictures(EXAMPLES, seed)
    targets = torch.arange(EXAMPLES) % CLASSES
    batch = Batch(images, targets, torch.zeros_like(targets))
    batch = augmentation.of(batch, generator(seed))
    without = batch.each(lambda part: part[1:])
    expected = reference_sum(network(), batch)
    for name in ("ghost", "loop"):
        ours, less = (
            clipped_sum(name, network(), part, augmentation.views, batch)
            for part in (batch, without)
        )
        assert torch.allclose(ours, expected, atol=1e-5 * BOUND * EXAMPLES)
        assert (ours - less).norm() <= BOUND * (1 + 1e-5)


def test_the_option_has_plain_and_mixed_views_at_the_account_of_none():
    asked = ["dataset=mnist", "model=cnn_tanh", "augmentation.views=3", "privacy.epsilon=3"]
    plain = prepare(run_config([*asked, "augmentation=shifts_flips"]))
    mixed = prepare(run_config([*asked, "augmentation=dp_mix_self", "augmentation.mixed=2"]))
    assert plain[1].noise_multiplier == mixed[1].noise_multiplier
    assert digest(plain[0].config) != digest(mixed[0].config)
    part = compose(["augmentation=dp_mix_self"])["augmentation"]
    assert (part["views"] - part["mixed"], part["mixed"]) == (16, 18)
    with pytest.raises(UserError, match=r"augmentation.mixed must be a whole number of at least 0"):
        prepare(run_config([*asked, "augmentation=dp_mix_self", "augmentation.mixed=-1"]))


@pytest.mark.parametrize("mixed", [5, 6])
def test_mixtures_of_nothing_are_refused(mixed):
    with pytest.raises(UserError, match=rf"mixed={mixed} must be less than augmentation.views=5"):
        mixup(mixed=mixed)


@pytest.mark.parametrize("alpha", [0.001, 1e7])
def test_a_share_that_cannot_be_drawn_is_refused(alpha):
    with pytest.raises(UserError, match=r"augmentation.alpha=.* must be a number from 0.01 to"):
        mixup(alpha=alpha)
