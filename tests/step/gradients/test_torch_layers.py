"""Models of torch's own layers are followed once, however large their batches are."""

import random
from math import prod

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as modules_of_torch
from torch.overrides import TorchFunctionMode

from dpbench.learning.models.architecture import ClassWeighted, cross_entropy
from dpbench.learning.models.resnet9 import ResNet9
from dpbench.learning.models.wide_resnet import Block, WideResNet
from dpbench.step.gradients import EngineFallback, Parameters, make_engine
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.modules import RowsMoved
from dpbench.step.gradients.rows.check import RowCheck
from dpbench.step.gradients.rows.dispatch import DispatchMode
from dpbench.step.gradients.rows.same_operations import FEW
from dpbench.step.gradients.rows.torch_layers import TYPES, operations_of
from dpbench.system.errors import UserError
from tests.step.gradients.moved_rows import labelled, seeded

SHAPES = [(6,), (6, 8), (4, 6, 6)]
LAYERS = [kind for kind in TYPES if kind is not nn.Sequential]
SHAPED = ("Linear", "Conv", "Norm", "Pool", "Flatten", "GLU", "Embedding")
FIRST = [kind for kind in LAYERS if not any(part in kind.__name__ for part in SHAPED)]
SIZES = (3, 7, 24)


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


def batch_for(model, shape, n, seed=0):
    draw = torch.Generator().manual_seed(seed)
    if any(isinstance(module, nn.Embedding) for module in model.modules()):
        return labelled(torch.randint(0, 9, (n, *shape), generator=draw))
    return labelled(torch.randn(n, *shape, generator=draw, dtype=torch.float64))


@pytest.fixture
def followed(monkeypatch):
    """The numbers of rows of all passes that are followed, or compared with one that was."""
    sizes = []

    def counted(watch):
        def counting(self, inputs, *rest):
            sizes.append(len(inputs))
            return watch(self, inputs, *rest)

        return counting

    for name in ("_followed", "_compared"):
        monkeypatch.setattr(RowCheck, name, counted(getattr(RowCheck, name)))
    return sizes


def right(engine, batch):
    """Whether each gradient is that of the example alone."""
    expected = Loop(engine.model, engine.loss, engine.parameters)(batch).stack()
    return torch.allclose(engine(batch).stack().double(), expected, 1e-4, 1e-6)


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


class Recorded(DispatchMode):
    """Within the context, records the names of operations."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket)
        return func(*args, **(kwargs or {}))


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


class Own(nn.Linear):
    """A subclass that may do anything."""


class OwnChain(nn.Sequential):
    """A container that may do anything."""


class OwnWeight(nn.Parameter):
    """A parameter whose operations may do anything."""


class OwnTensor(torch.Tensor):
    """A tensor whose operations may do anything."""


class Watched(TorchFunctionMode):
    """A mode that may do anything instead of an operation."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def reversed_if_many(x):
    """What a check on few rows does not see."""
    return x.flip(0) if len(x) > 20 else x


def chain(*more, first=nn.Linear):
    return seeded(
        lambda: nn.Sequential(nn.Flatten(), first(6, 4), nn.Tanh(), *more, nn.Linear(4, 3))
    ).double()


def changed(change):
    model = chain()
    change(model)
    return model


def with_forward(model):
    model[2].forward = lambda x: torch.tanh(reversed_if_many(x))


def with_call(model):
    model[2]._call_impl = lambda x: torch.tanh(reversed_if_many(x))


def with_compiled_call(model):
    model[2]._compiled_call_impl = lambda x: torch.tanh(reversed_if_many(x))


def with_pre_hook(model):
    model[2].register_forward_pre_hook(lambda _, inputs: tuple(map(reversed_if_many, inputs)))


def with_hook(model):
    model[2].register_forward_hook(lambda _, inputs, output: reversed_if_many(output))


def with_backward_hook(model):
    model[2].register_full_backward_hook(lambda _, given, out: tuple(map(reversed_if_many, given)))


def with_backward_pre_hook(model):
    model[2].register_full_backward_pre_hook(lambda _, out: tuple(map(reversed_if_many, out)))


def with_another_class(model):
    model[2].__class__ = type("Tanh", (nn.Tanh,), {"forward": lambda _, x: reversed_if_many(x)})


def with_a_layer_more(model):
    model.insert(3, type("Reversed", (nn.Module,), {"forward": lambda _, x: reversed_if_many(x)})())


CHANGES = (
    with_forward, with_call, with_compiled_call, with_pre_hook, with_hook, with_backward_hook,
    with_backward_pre_hook, with_another_class, with_a_layer_more,
)  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("later", [False, True], ids=["before", "later"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_other_code_is_followed_at_each_size(change, later, followed):
    model = chain() if later else changed(change)
    try:
        engine = make_engine("ghost", model, cross_entropy, batch_for(model, (6,), 2))
    except UserError:
        assert not later
        return
    if later:
        change(model)
        assert not operations_of(model, hooks=4)
    model.eval()
    for n in SIZES:
        followed.clear()
        assert right(engine, batch_for(model, (6,), n))
        assert engine.name == "vmap" or engine.alone or followed in ([n], [FEW, n])


def parametrised():
    model = chain()
    nn.utils.parametrize.register_parametrization(model[1], "weight", nn.Identity())
    return model


def with_own_weight():
    model = chain()
    model[1].weight = OwnWeight(model[1].weight.detach())
    return model


OTHERS = {
    "a subclass of a layer": lambda: chain(first=Own),
    "a subclass of the container": lambda: OwnChain(*chain()),
    "a subclass within": lambda: chain(OwnChain(nn.Tanh())),
    "a parametrisation": parametrised,
    "a subclass of a parameter": with_own_weight,
    "a layer that is not listed": lambda: chain(nn.PReLU()),
    "a note": lambda: changed(lambda model: setattr(model[2], "note", object())),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_types_are_followed_at_each_size(name):
    assert operations_of(chain(), hooks=0)
    assert not operations_of(OTHERS[name](), hooks=0)


@pytest.mark.parametrize(
    "mode",
    [Watched, Recorded, lambda: torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone)],
    ids=["functions", "operations", "saved tensors"],
)
@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
def test_a_pass_under_a_mode_is_followed(mode, followed):
    model = chain()
    engine = Ghost(model, cross_entropy, Parameters(model))
    engine(batch_for(model, (6,), 12))
    with mode():
        engine(batch_for(model, (6,), 9))
    assert followed == [12, FEW, 9]


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
def test_a_pass_with_a_hook_of_all_modules_is_followed(kind):
    hook = getattr(modules_of_torch, f"register_module_{kind}_hook")(lambda *_: None)
    try:
        assert not operations_of(chain(), hooks=0)
    finally:
        hook.remove()
    assert operations_of(chain(), hooks=0)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (nn.Tanh, "forward"),
        (nn.Tanh, "__call__"),
        (nn.Module, "__call__"),
        (nn.Module, "_call_impl"),
    ],
)
def test_a_patched_class_is_followed(owner, name, monkeypatch):
    with monkeypatch.context() as patch:
        code = getattr(owner, name)
        patch.setattr(owner, name, lambda *args: code(*args))
        assert not operations_of(chain(), hooks=0)
    assert operations_of(chain(), hooks=0)


def smooth(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


def test_another_loss_is_followed_at_each_size(followed):
    model = chain()
    engine = Ghost(model, smooth, Parameters(model))
    for n in SIZES:
        engine(batch_for(model, (6,), n))
    assert followed == [FEW, *SIZES]


class Shuffled(ClassWeighted):
    """Gives examples of large batches the outputs of others."""

    def __call__(self, outputs, targets):
        return super().__call__(reversed_if_many(outputs), targets)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
def test_another_class_of_a_known_loss_is_followed_at_each_size(followed):
    weighted, shuffled = (
        Ghost(model, kind(torch.ones(3)), Parameters(model))
        for kind, model in ((ClassWeighted, chain()), (Shuffled, chain()))
    )
    for n in SIZES:
        weighted(batch_for(weighted.model, (6,), n))
    assert followed == [SIZES[0]]
    assert all(right(shuffled, batch_for(shuffled.model, (6,), n)) for n in (9, 24))


def test_what_a_method_computes_from_outputs_is_followed_at_each_size(followed):
    model = chain()
    engine = Ghost(model, cross_entropy, Parameters(model))
    for n in (9, 24):
        x = batch_for(model, (6,), n).inputs
        with torch.no_grad():
            out, expected = engine.by_row(lambda x: reversed_if_many(model(x)), x), model(x)
        torch.testing.assert_close(out, expected)
    assert followed == [FEW, 9, 24]


def test_another_function_of_outputs_is_followed(followed):
    model = chain()
    engine = Ghost(model, cross_entropy, Parameters(model))
    x = batch_for(model, (6,), 9).inputs
    with torch.no_grad():
        expected = engine.by_row(model, x)
        for _ in range(2):
            torch.testing.assert_close(engine.by_row(lambda x: model(x).flip(0), x), expected)
            torch.testing.assert_close(engine.by_row(lambda x: 2 * model(x), x), 2 * expected)
    assert followed == [9, FEW, FEW, 9, FEW]  # rows that move are followed again


def test_a_layer_that_is_used_again_is_another_model():
    tanh = nn.Tanh()
    assert operations_of(nn.Sequential(tanh), 0) != operations_of(nn.Sequential(tanh, tanh), 0)


def test_another_kind_of_tensor_is_followed(followed):
    model = chain()
    engine = Ghost(model, cross_entropy, Parameters(model))
    engine(batch_for(model, (6,), 12))
    engine(batch_for(model, (6,), 9).each(lambda t: t.as_subclass(OwnTensor)))
    engine(batch_for(model, (6,), 8))
    assert followed == [12, FEW, 9]


def test_another_setting_or_mode_of_a_layer_is_followed(followed):
    model = chain(nn.Softmax(1), nn.Dropout(0.0))
    engine = Ghost(model, cross_entropy, Parameters(model))

    def follows(n):
        followed.clear()
        assert right(engine, batch_for(model, (6,), n))
        return followed == [n]

    assert follows(12)
    assert not follows(9)
    model[4].eval()
    assert follows(8)
    assert not follows(9)
    model[3].dim = 0
    assert follows(9)
    assert follows(9)
    model[3].dim = 1
    assert not follows(7)


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
