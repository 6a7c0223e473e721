"""Views are found out by comparing them with every shift and flip that there is."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from dpbench.learning.data.derive.augmentation import FLIPS, PADDINGS, ShiftsFlips
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.dutch import Dutch
from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.runs.config.buildable import check_settings
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError

SHIFT = 2
AXES = {"horizontal": 2, "vertical": 1}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def usual(**changes):
    values = {"views": 3, "shift": SHIFT, "padding": "zero", "flip": "none", "probability": 0.5}
    check_settings(ShiftsFlips, values | changes, "augmentation.")
    return ShiftsFlips(**values | changes)


def pictures(count, height=6, width=7):
    return torch.rand(count, 2, height, width, generator=generator(9))


def moved(image, down, right, flipped, padding, flip):
    """One image [C, H, W] padded, cut out again elsewhere, and flipped."""
    mode = {"zero": "constant", "reflect": "reflect"}[padding]
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)), mode=mode)
    top, left = SHIFT - down, SHIFT - right
    cut = padded[:, top : top + height, left : left + width]
    return np.flip(cut, AXES[flip]) if flipped else cut


def how(image, view, padding, flip):
    """(down, right, flipped) of a view; it fails where that is not one triple."""
    reach = range(-SHIFT, SHIFT + 1)
    fitting = [
        found
        for found in product(reach, reach, (False, True)[: 1 if flip == "none" else 2])
        if np.array_equal(moved(image, *found, padding, flip), view, equal_nan=True)
    ]
    assert len(fitting) == 1
    return fitting[0]


@pytest.mark.parametrize(("padding", "flip"), list(product(PADDINGS, FLIPS)))
def test_every_view_is_its_own_image_shifted_and_flipped(padding, flip):
    images = pictures(20)
    images[0, 0, 1, 1] = torch.nan  # must not spread to where zeros are filled in
    views = usual(views=4, padding=padding, flip=flip).apply(images, generator())
    assert views.shape == (20, 4, 2, 6, 7)
    seen = {how(images[b], views[b, k], padding, flip) for b in range(20) for k in range(4)}
    assert len(seen) > 12


@pytest.mark.long
def test_shifts_and_flips_have_their_probabilities_and_do_not_depend_on_each_other():
    images = pictures(700, 3, 3)
    views = usual(views=2, flip="horizontal").apply(images, generator())
    drawn = np.array(
        [[how(i, v, "zero", "horizontal") for v in of] for i, of in zip(images, views, strict=True)]
    )
    down, right, flipped = drawn.reshape(-1, 3).T
    still = (down == 0) & (right == 0)

    def share(event, expected, n=1400):
        assert np.mean(event) == pytest.approx(expected, abs=4 * (expected / n) ** 0.5)

    share(flipped, 0.5)
    share(still, 0.5 + 0.5 / 25)
    share(still & (flipped == 1), 0.52 / 2)
    for there in product(range(-SHIFT, SHIFT + 1), repeat=2):
        if there != (0, 0):
            share((down == there[0]) & (right == there[1]), 0.5 / 25)
    first, second = drawn[:, 0], drawn[:, 1]
    share((first == second)[:, 2], 0.5, 700)
    share((first[1:] == second[:-1])[:, 2], 0.5, 699)


def test_nothing_moves_with_probability_0_and_all_are_flipped_with_1():
    images = pictures(6)
    copies = images.unsqueeze(1).expand(-1, 3, -1, -1, -1)
    still = usual(probability=0, flip="vertical").apply(images, generator())
    assert torch.equal(still, copies)
    turned = usual(probability=1, shift=0, flip="vertical").apply(images, generator())
    assert torch.equal(turned, copies.flip(-2))


def test_an_empty_batch_has_no_views_and_one_view_is_no_axis():
    empty = Batch(torch.zeros(0, 3, 8, 8), *torch.zeros(2, 0, dtype=torch.int64))
    assert usual(views=5).of(empty, generator()).inputs.shape == (0, 5, 3, 8, 8)
    assert usual(views=1).of(empty, generator()).inputs.shape == (0, 3, 8, 8)
    batch = Batch(pictures(4), torch.arange(4), torch.arange(4) % 2)
    several, one = (usual(views=k).of(batch, generator()) for k in (3, 1))
    assert (several.inputs.shape, one.inputs.shape) == ((4, 3, 2, 6, 7), (4, 2, 6, 7))
    assert several.targets is batch.targets
    assert several.groups is batch.groups


def test_draws_come_from_the_given_generator_alone():
    images, draw = pictures(8), generator(3)
    state = torch.get_rng_state()
    first = usual().apply(images, draw)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(usual().apply(images, draw), first)
    assert torch.equal(usual().apply(images, generator(3)), first)


@pytest.mark.parametrize("name", ["ghost", "loop", "vmap"])
def test_an_example_is_clipped_once_whatever_its_views(name, stream_of):
    """All but without noise, what one example adds to the parameters is at most lr C / B."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(84, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    augmented = usual(views=4, flip="horizontal")
    example = Batch(50 * pictures(1).double(), torch.tensor([2]), torch.tensor([0]))
    probe = Batch(torch.rand(2, 4, 2, 6, 7).double(), torch.tensor([0, 1]), torch.tensor([0, 0]))
    engine = make_engine(name, model, cross_entropy, probe, augmented.views)
    theta = engine.parameters.theta
    before = theta.detach().clone()
    step = PrivateStep(
        engine=engine,
        method=dpsgd(0.5, "corrected"),
        optimizer=torch.optim.SGD([theta], lr=0.1),
        noise_multiplier=1e-9,
        expected_batch_size=8.0,
        physical=PhysicalBatches(),
        noise_stream=stream_of(1),
        count_stream=stream_of(2),
    )
    step(augmented.of(example, generator()))
    assert torch.linalg.vector_norm(theta.detach() - before).item() == pytest.approx(0.1 * 0.5 / 8)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"views": 0}, "augmentation.views must be a whole number from 1 to 10000, got 0"),
        ({"views": 2.0}, "augmentation.views must be a whole number, got 2.0"),
        ({"shift": -1}, "augmentation.shift must be a whole number of at least 0, got -1"),
        ({"padding": "zeros"}, "augmentation.padding=zeros is unknown: did you mean zero"),
        ({"flip": "horizntal"}, "augmentation.flip=horizntal is unknown: did you mean horizontal"),
        ({"probability": 1.5}, "augmentation.probability must be a number from 0 to 1, got 1.5"),
        ({"probability": True}, "augmentation.probability must be a number, got True"),
    ],
)
def test_invalid_values_are_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        usual(**changes)


def test_inputs_that_cannot_be_shifted_are_refused():
    usual(shift=7).check(Digits(0.2))
    with pytest.raises(UserError, match=r"shift=8 must be less than the side .* digits"):
        usual(shift=8).check(Digits(0.2))
    with pytest.raises(UserError, match=r"needs images, and the inputs of dutch are \(59,\)"):
        usual().check(Dutch(0.2))
