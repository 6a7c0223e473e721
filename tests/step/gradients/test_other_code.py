"""Code that is not torch's own is followed at each size of a batch, whatever it is hidden in."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as modules_of_torch
from torch.overrides import TorchFunctionMode

from dpbench.learning.models.architecture import ClassWeighted, cross_entropy
from dpbench.step.gradients import EngineFallback, Parameters, make_engine
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.rows.same_operations import FEW
from dpbench.step.gradients.rows.torch_layers import operations_of
from dpbench.system.errors import UserError
from tests.step.gradients.moved_rows import SIZES, Recorded, batch_for, right, seeded


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
