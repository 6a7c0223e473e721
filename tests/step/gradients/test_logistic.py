"""Logistic regression without a graph: the bits of the ghost engine's pass, or that pass itself."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as modules_of_torch

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import EngineFallback, Parameters, make_engine
from dpbench.step.gradients.engine import PerExampleShift
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.precision import Precision

CLASSES = 3


def model_of(*after: nn.Module, bias: bool = True, flatten: nn.Module | None = None):
    torch.manual_seed(0)
    return nn.Sequential(flatten or nn.Flatten(), nn.Linear(6, CLASSES, bias=bias), *after)


def batch_of(n: int = 40, shape: tuple[int, ...] = (2, 3)) -> Batch:
    inputs = torch.randn(n, *shape, generator=torch.Generator().manual_seed(1))
    return Batch(inputs, torch.arange(n) % CLASSES, torch.zeros(n, dtype=torch.int64))


def unhurried(engine: Ghost) -> Ghost:
    """The engine, which from now on takes every pass by hooks."""
    engine._logistic = None
    return engine


def in_closed_form(engine, batch: Batch) -> bool:
    return engine._in_closed_form(batch) is not None


MODELS = {
    "plain": model_of,
    "squashed": lambda: model_of(nn.Sigmoid()),
    "no bias": lambda: model_of(bias=False),
    "float64": lambda: model_of().double(),
    "certain": lambda: model_of().requires_grad_(False).apply(enlarged).requires_grad_(True),
}


def enlarged(module: nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        parameter.mul_(1000)


def difficult(batch: Batch) -> Batch:
    """Some examples are not finite, huge, tiny, zero, or have the class that has no loss."""
    inputs, targets = batch.inputs.clone(), batch.targets.clone()
    for i, value in enumerate((torch.nan, torch.inf, 1e30, 1e-30, 0.0)):
        inputs[i, 0] = value
    targets[5] = -100
    return Batch(inputs, targets, batch.groups)


@pytest.mark.parametrize("change", [lambda batch: batch, difficult], ids=["easy", "difficult"])
@pytest.mark.parametrize("name", MODELS)
def test_every_bit_is_that_of_the_pass_by_hooks(name, change):
    model, batch = MODELS[name](), change(batch_of())
    batch = Batch(batch.inputs.to(model[1].weight), batch.targets, batch.groups)
    engine = Ghost(model, cross_entropy, Parameters(model))
    assert in_closed_form(engine, batch)
    ours, factors = engine(batch), torch.rand(len(batch)).to(model[1].weight)
    factors[:6] = 0
    expected = unhurried(engine)(batch)
    for a, b in (
        (ours.losses, expected.losses),
        (ours.norms, expected.norms),
        (ours.layer_norms, expected.layer_norms),
        (ours.weighted_sum(factors), expected.weighted_sum(factors)),
        (ours.stack(), expected.stack()),
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        assert not a.requires_grad


def test_no_class_has_no_gradient_and_one_that_does_not_exist_is_refused():
    model = model_of()
    gradients = Ghost(model, cross_entropy, Parameters(model))(difficult(batch_of()))
    assert gradients.losses[5] == gradients.norms[5] == 0
    model, batch = model_of(), batch_of()
    batch.targets[0] = CLASSES
    with pytest.raises(IndexError, match="out of bounds"):
        Ghost(model, cross_entropy, Parameters(model))(batch)


@pytest.mark.parametrize("name", ["plain", "squashed"])
def test_it_is_what_the_checked_engine_computes_by(name, monkeypatch):
    engine = make_engine("ghost", MODELS[name](), cross_entropy, batch_of(4))
    monkeypatch.setattr(engine, "_together", None)
    reference = make_engine("loop", MODELS[name](), cross_entropy, batch_of(4))
    torch.testing.assert_close(engine(batch_of()).stack(), reference(batch_of()).stack().float())


def with_weight_after_bias(linear: nn.Linear) -> None:
    weight = linear.weight.detach()
    del linear.weight
    linear.weight = nn.Parameter(weight)


def with_another_parameter(linear: nn.Linear) -> None:
    linear.register_parameter("another", nn.Parameter(torch.zeros(2)))


@pytest.mark.parametrize("change", [with_weight_after_bias, with_another_parameter])
def test_a_layer_with_other_parameters_has_another_engine(change):
    model = model_of()
    change(model[1])
    with pytest.warns(EngineFallback):
        engine = make_engine("ghost", model, cross_entropy, batch_of(4))
    assert engine.name == "vmap"
    reference = make_engine("loop", model, cross_entropy, batch_of(4))
    torch.testing.assert_close(engine(batch_of()).stack(), reference(batch_of()).stack().float())


def test_a_second_pass_with_shifts_takes_up_where_it_ended():
    model = model_of()
    engine = Ghost(model, cross_entropy, Parameters(model))
    scales = torch.linspace(-1, 1, 40)
    ours = engine(batch_of(), PerExampleShift(engine(batch_of()), scales))
    slow = unhurried(engine)
    expected = slow(batch_of(), PerExampleShift(slow(batch_of()), scales))
    assert torch.equal(ours.stack(), expected.stack())


class Doubled(nn.Linear):
    def forward(self, x):
        return super().forward(2 * x)


class Chained(nn.Sequential):
    def forward(self, x):
        return super().forward(2 * x)


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


def parametrised(model: nn.Module) -> nn.Module:
    nn.utils.parametrize.register_parametrization(model[1], "weight", Twice())
    return model


def frozen(name: str):
    def change(model: nn.Module) -> nn.Module:
        getattr(model[1], name).requires_grad_(False)
        return model

    return change


def smooth(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


OTHERS = {
    "a layer more": lambda: model_of(nn.Linear(CLASSES, CLASSES)),
    "another activation": lambda: model_of(nn.Tanh()),
    "a subclass of the layer": lambda: nn.Sequential(nn.Flatten(), Doubled(6, CLASSES)),
    "a subclass around it": lambda: Chained(nn.Flatten(), nn.Linear(6, CLASSES)),
    "a parametrisation": lambda: parametrised(model_of()),
    "a frozen weight": lambda: frozen("weight")(model_of()),
    "a frozen bias": lambda: frozen("bias")(model_of()),
    "some axes flattened": lambda: model_of(flatten=nn.Flatten(1, 2)),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore::dpbench.gradients.choice.EngineFallback")
def test_any_other_model_is_passed_through(name):
    model = OTHERS[name]()
    engine = make_engine("ghost", model, cross_entropy, batch_of(4))
    assert engine.name == "vmap" or not in_closed_form(engine, batch_of())
    reference = make_engine("loop", model, cross_entropy, batch_of(4))
    torch.testing.assert_close(engine(batch_of()).stack(), reference(batch_of()).stack().float())


def test_any_other_loss_is_computed():
    model = model_of()
    assert not in_closed_form(Ghost(model, smooth, Parameters(model)), batch_of())


def doubled_input(module, inputs):
    return tuple(2 * x for x in inputs)


def doubled_output(module, inputs, output):
    return 2 * output


def doubled_gradient(module, *gradients):
    return tuple(2 * g for g in gradients[-1])


HOOKS = {
    "forward_pre_hook": doubled_input,
    "forward_hook": doubled_output,
    "full_backward_pre_hook": doubled_gradient,
    "full_backward_hook": lambda module, given, _: doubled_gradient(module, given),
}


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("at", [0, 1, None, "all"])
def test_a_hook_is_not_passed_by(kind, at):
    model = model_of()
    engine = Ghost(model, cross_entropy, Parameters(model))
    assert in_closed_form(engine, batch_of())
    if at == "all":
        hook = getattr(modules_of_torch, f"register_module_{kind}")(HOOKS[kind])
    else:
        hook = getattr(model if at is None else model[at], f"register_{kind}")(HOOKS[kind])
    try:
        assert not in_closed_form(engine, batch_of())
    finally:
        hook.remove()
    assert in_closed_form(engine, batch_of())


def replaced(model: nn.Module) -> None:
    model[1] = nn.Linear(6, CLASSES)


LATER = {
    "the layer's forward": lambda model: setattr(model[1], "forward", torch.relu),
    "the model's forward": lambda model: setattr(model, "forward", torch.relu),
    "a parametrisation": parametrised,
    "another layer": replaced,
    "a layer more": lambda model: model.append(nn.Linear(CLASSES, CLASSES)),
    "another class": lambda model: setattr(model, "__class__", Chained),
}


@pytest.mark.parametrize("name", LATER)
def test_what_a_user_changes_later_is_seen(name):
    model = model_of()
    engine = Ghost(model, cross_entropy, Parameters(model))
    assert in_closed_form(engine, batch_of())
    LATER[name](model)
    assert not in_closed_form(engine, batch_of())


def test_other_batches_and_precisions_are_passed_through():
    model, batch = model_of(), batch_of()
    engine = Ghost(model, cross_entropy, Parameters(model))
    shares = F.one_hot(batch.targets, CLASSES).float()
    assert not in_closed_form(engine, Batch(batch.inputs, shares, batch.groups))
    assert not in_closed_form(engine, batch.as_users())
    assert not in_closed_form(engine, Batch(batch.inputs.double(), batch.targets, batch.groups))
    with torch.autocast("cpu", torch.bfloat16):
        assert not in_closed_form(engine, batch)
    assert in_closed_form(engine, batch)
    for name in ("bf16", "tf32"):
        engine.options = ForwardOptions(Precision(name))
        assert not in_closed_form(engine, batch)
    other = model_of()
    assert not in_closed_form(Ghost(other, cross_entropy, Parameters(other), views=2), batch)


def test_shifted_parameters_are_passed_through(monkeypatch):
    model = model_of()
    engine = Ghost(model, cross_entropy, Parameters(model))
    monkeypatch.setattr(engine, "_in_closed_form", None)
    shift = torch.ones(len(engine.parameters))
    assert not torch.equal(engine(batch_of(), shift).norms, engine(batch_of(), 0 * shift).norms)
