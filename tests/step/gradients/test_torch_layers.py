"""Models of torch's own layers are followed once, however large their batches are."""

import random
from math import prod

import pytest
import torch
from torch import nn

from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.resnet9 import ResNet9
from dpbench.learning.models.wide_resnet import Block, WideResNet
from dpbench.step.gradients import EngineFallback, Parameters, make_engine
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.modules import RowsMoved
from dpbench.step.gradients.rows.torch_layers import TYPES
from dpbench.system.errors import UserError
from tests.step.gradients.moved_rows import SIZES, Recorded, batch_for, right, seeded

SHAPES = [(6,), (6, 8), (4, 6, 6)]
LAYERS = [kind for kind in TYPES if kind is not nn.Sequential]
SHAPED = ("Linear", "Conv", "Norm", "Pool", "Flatten", "GLU", "Embedding")
FIRST = [kind for kind in LAYERS if not any(part in kind.__name__ for part in SHAPED)]


def random_layer(kind, shape, draw):
    """A layer of that type with random settings, for examples of that shape."""
    name, axes = kind.__name__, range(1, len(shape) + 1)
    if kind is nn.Embedding:
        return kind(9, draw.randint(2, 4))
    if kind is nn.Linear:
        return kind(shape[-1], draw.randint(1, 5), bias=draw.random() < 0.7)
    if name.startswith("Conv"):
        settings = {"stride": draw.randint(1, 2), "padding": draw.randint(0, 2)}
        if draw.random() < 0.3:
            settings = {"padding": "same", "padding_mode": draw.choice(["zeros", "circular"])}
        return kind(shape[0], draw.randint(2, 4), draw.randint(1, 3), **settings)
    if kind is nn.GroupNorm:
        return kind(draw.choice([n for n in (1, 2, 3) if shape[0] % n == 0]), shape[0])
    if kind in (nn.LayerNorm, nn.RMSNorm):
        return kind(shape[-draw.choice(axes) :])
    if name.startswith("Adaptive"):
        return kind(draw.randint(1, 3))
    if "Pool" in name:
        return kind(draw.randint(1, 2), draw.randint(1, 2), ceil_mode=draw.random() < 0.5)
    if kind is nn.Flatten:
        start = draw.choice(axes)
        return kind(start, draw.choice([-1, *range(start, len(shape) + 1)]))
    if kind is nn.GLU:
        return kind(draw.choice([n for n in axes if shape[n - 1] % 2 == 0]))
    if kind in (nn.Softmax, nn.Softmin, nn.LogSoftmax):
        return kind(draw.choice([*axes, *(-n for n in axes)]))
    return kind()


def takes(kind, shape):
    """Whether the type takes examples of that shape, with any settings drawn for it."""
    dims = {"1d": 2, "2d": 3}.get(kind.__name__[-2:], len(shape))
    even = kind is not nn.GLU or any(size % 2 == 0 for size in shape)
    return kind is not nn.Embedding and dims == len(shape) and min(shape) > (dims > 1) and even


def random_chain(kind, seed):
    """Layers around one of that type, some in a chain of their own, and the shape of an example."""
    draw = random.Random(seed)
    given = shape = draw.choice([s for s in SHAPES if kind is nn.Embedding or takes(kind, s)])
    kinds = [kind] if kind is nn.Embedding else [draw.choice(FIRST), kind]
    layers = []
    for step in range(4):
        fitting = [other for other in LAYERS if takes(other, shape)]
        if step < len(kinds) or fitting:
            chosen = kinds[step] if step < len(kinds) else draw.choice(fitting)
            layers.append(random_layer(chosen, shape, draw).double())
            x = torch.ones(
                2, *shape, dtype=torch.int64 if chosen is nn.Embedding else torch.float64
            )
            shape = layers[-1](x).shape[1:]
    split = draw.randint(0, len(layers))
    chain = nn.Sequential(*layers[:split]), *layers[split:]
    return nn.Sequential(*chain, nn.Flatten(), nn.Linear(prod(shape), 3)).double(), given


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_a_chain_is_followed_once_and_rows_are_independent(kind, seed, followed):
    model, shape = seeded(lambda: random_chain(kind, seed), seed)
    assert kind in map(type, model.modules())
    engine = make_engine("ghost", model, cross_entropy, batch_for(model, shape, 2))
    assert engine.name == "ghost"
    assert followed
    followed.clear()
    model.train()
    for n in SIZES:
        engine(batch_for(model, shape, n))
    model.eval()
    for n in SIZES:
        batch = batch_for(model, shape, n)
        assert right(engine, batch)
        others = batch_for(model, shape, n, seed=1)
        others.inputs[0] = batch.inputs[0]
        torch.testing.assert_close(engine(others).stack()[0], engine(batch).stack()[0])
    assert not followed


RESIDUAL = {
    "resnet9": lambda plain: ResNet9(4, 4, "mish", not plain),
    "resnet9_scale_norm": lambda plain: ResNet9(4, 4, "relu", not plain, scale_norm=True),
    "wide_resnet": lambda plain: WideResNet(10, 1, 4, not plain),
}


@pytest.mark.parametrize("standardised", [False, True])
@pytest.mark.parametrize("name", RESIDUAL)
def test_a_residual_network_is_followed_once(name, standardised, followed):
    built = seeded(lambda: RESIDUAL[name](not standardised).build((3, 8, 8), 3), 0).double()
    engine = Ghost(built, cross_entropy, Parameters(built))
    for n in SIZES:
        assert right(engine, batch_for(built, (3, 8, 8), n))
    assert followed == [SIZES[0]]


@pytest.mark.parametrize(("n", "error"), [(5, RowsMoved), (7, RuntimeError)])
def test_a_connection_that_mixes_rows_at_one_size_is_refused_at_every_size(n, error):
    """[B, 5, 5] plus [B, 5] has torch's broadcasting at five rows alone."""
    skip = nn.Sequential(nn.Flatten(), nn.Linear(25, 5))
    layers = Block(nn.Linear(5, 5), skip), nn.Flatten(), nn.Linear(25, 3)
    model = nn.Sequential(*layers).double()
    engine = Ghost(model, cross_entropy, Parameters(model))
    with pytest.raises(error):
        engine._together(batch_for(model, (5, 5), n), None)


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: kind.__name__)
def test_a_layer_does_the_same_with_any_number_of_rows(kind):
    model, shape = seeded(lambda: random_chain(kind, 0))
    found = []
    for n in (2, 3, 6, 8, 17, 40):  # some are sizes of other axes too
        with Recorded() as recorded:
            model(batch_for(model, shape, n).inputs)
        found.append(recorded.names)
    assert found[0]
    assert all(names == found[0] for names in found)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize(
    "layers",
    [
        [nn.Softmax(0), nn.Linear(6, 3)],
        [nn.Softmax(-2), nn.Linear(6, 3)],
        [nn.Flatten(0), nn.Linear(6, 3)],
        [nn.LayerNorm((4, 6)), nn.Linear(6, 3)],
        [nn.Linear(6, 4), nn.Flatten(0), nn.Linear(16, 3)],
        [nn.Embedding(9, 4, max_norm=0.1).requires_grad_(False), nn.Flatten(), nn.Linear(24, 3)],
    ],
    ids=["softmax", "softmax from the end", "flatten", "norm", "features", "look-up"],
)
def test_layers_that_mix_rows_are_refused_at_every_size(layers, followed):
    model = nn.Sequential(*layers).double()
    engine = Ghost(model, cross_entropy, Parameters(model))
    for n in (4, 4, 8):
        try:
            assert right(engine, batch_for(model, (6,), n))
        except (UserError, RuntimeError, ValueError, IndexError):
            continue
        assert n in followed


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Conv2d(4, 4, 3, padding=1), nn.Flatten(), nn.Linear(36, 3)], (6, 6)),
        ([nn.Linear(4, 4), nn.Unflatten(0, (4, 1)), nn.Linear(1, 3)], ()),
        ([nn.MaxPool2d(1), nn.Conv2d(4, 4, 1), nn.Flatten(), nn.Linear(36, 3)], (6, 6)),
    ],
    ids=["images", "features", "maxima"],
)
def test_a_batch_that_torch_reads_as_one_example_has_no_gradients(layers, shape):
    model = nn.Sequential(*layers).double()
    engine = Ghost(model, cross_entropy, Parameters(model))
    for n in (4, 4, 8):
        with pytest.raises((RuntimeError, UserError)):
            engine(batch_for(model, shape, n)).stack()
