"""Models that a rule is right for are not refused, and run on the fast engine."""

import warnings

import pytest
import torch
from torch import nn

from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.batch_norm import freeze_batch_norm
from dpbench.step.gradients import EngineFallback, PerExampleShift, make_engine
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.penalised import penalised
from dpbench.step.gradients.rows.check import RowCheck
from dpbench.system.errors import UserError
from tests.step.gradients.forwards import (
    WIDTH,
    as_it_is,
    clipped_by_a_function,
    for_large_batches,
    rarely_by_weight,
    rarely_sorted,
)
from tests.step.gradients.moved_rows import Composed, examples, labelled, seeded


class Sequence(nn.Module):
    """Tokens, expanded positions, and the hidden state of each sequence's last token."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(9, WIDTH), nn.Embedding(5, WIDTH)
        self.mixed, self.head = nn.Linear(5, 5), nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(5).unsqueeze(0))
        h = h + self.mixed(h.transpose(1, 2)).transpose(1, 2)
        last = (x != 0).sum(1).clamp(min=1) - 1
        return self.head(h[torch.arange(len(x)), last])


class Experts(nn.Module):
    """All experts see all rows, and a gate weighs them."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, 3) for _ in range(3))

    def forward(self, x):
        shares = self.gate(x).softmax(1)
        outputs = torch.stack([expert(x) for expert in self.experts], 1)
        return torch.einsum("be,bec->bc", shares, outputs)


class FirstSequence(nn.Module):
    """Computes with positions first and examples second between its modules."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = self.inner(x.view(len(x), 3, 2)).permute(1, 0, 2)
        total = torch.zeros(len(x), WIDTH)
        for step in h:
            total = torch.tanh(total + step)
        return self.head(total)


class LayerDrop(nn.Module):
    """Skips a layer at random in training."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = (nn.Linear(WIDTH, n) for n in (WIDTH, WIDTH, 3))

    def forward(self, x):
        h = torch.tanh(self.one(x))
        if not self.training or torch.rand(()).item() > 0.5:
            h = torch.tanh(self.two(h))
        return self.head(h)


class Checked(Composed):
    """Raises on what is not finite, as careful code does."""

    def forward(self, x):
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        return super().forward(x)


def frozen_batch_norm():
    layers = nn.Linear(WIDTH, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, 3)
    model = nn.Sequential(*layers)
    model(torch.randn(8, WIDTH))
    return freeze_batch_norm(model)


def hooked():
    model = nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh(), nn.Linear(4, 3))
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


RIGHT = {
    "sequence": Sequence,
    "experts": Experts,
    "positions first": FirstSequence,
    "layer drop": LayerDrop,
    "frozen batch normalisation": frozen_batch_norm,
    "hook": hooked,
    "plain": lambda: Composed([as_it_is] * 3, False),
    "large batches": lambda: Composed([as_it_is, for_large_batches], False),
    "rarely sorted": lambda: Composed([as_it_is, rarely_sorted], False),
    "checked": lambda: Checked([as_it_is], False),
    "a function": lambda: Composed([clipped_by_a_function], False),
}
ONE_BY_ONE = ("rarely sorted", "checked", "a function")


def batch_for(model, n, seed=0, scale=1.0):
    if isinstance(model, Sequence):
        draw = torch.Generator().manual_seed(seed)
        return labelled(torch.randint(0, 9, (n, 5), generator=draw))
    return examples(n, seed, scale)


@pytest.mark.parametrize("name", ["ghost", "auto"])
@pytest.mark.parametrize("kind", ONE_BY_ONE)
def test_who_reads_values_is_told_what_it_costs(kind, name):
    model = seeded(RIGHT[kind])
    with pytest.warns(EngineFallback, match="computing gradients one by one, which is slow"):
        make_engine(name, model, cross_entropy, batch_for(model, 2))


class OtherwiseWhenLarge(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.map(x) if len(x) < 100 else self.map(x.sin())


def test_who_does_something_else_with_a_later_batch_is_told_then_and_once():
    model = seeded(OtherwiseWhenLarge)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = make_engine("ghost", model, cross_entropy, examples(2, 0, 1.0))
        engine(examples(50, 0, 1.0))
        with pytest.warns(EngineFallback, match="other numbers of examples.*one by one"):
            engine(examples(100, 0, 1.0))
        engine(examples(101, 0, 1.0))


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("kind", RIGHT)
def test_models_that_a_rule_is_right_for_run_on_the_fast_engine(kind):
    model = seeded(RIGHT[kind])
    engine = make_engine("ghost", model, cross_entropy, batch_for(model, 2))
    assert engine.name == "ghost"
    assert bool(engine.alone) == (kind in ONE_BY_ONE)
    model.eval()
    batch = batch_for(model, 24, 1, scale=3.0)
    reference = Loop(model, cross_entropy, engine.parameters)
    here, right = engine(batch), reference(batch)
    assert torch.allclose(here.stack().double(), right.stack(), rtol=1e-3, atol=1e-5)
    scales = torch.full((24,), 0.01)
    ahead = engine(batch, PerExampleShift(here, scales)).stack().double()
    expected = reference(batch, PerExampleShift(right, scales.double())).stack()
    assert torch.allclose(ahead, expected, rtol=1e-3, atol=1e-5)


def test_rows_that_are_indexed_by_counting_are_followed_once(monkeypatch):
    model = seeded(Sequence)
    engine = make_engine("ghost", model, cross_entropy, batch_for(model, 2))
    engine(batch_for(model, 9))
    monkeypatch.setattr(RowCheck, "_followed", None)
    assert not isinstance(engine(batch_for(model, 9, 1)), MaterialisedGradients)


@pytest.mark.parametrize("rows", [slice(9, 17), slice(3, None, 3)], ids=["slice", "steps"])
def test_a_batch_that_is_a_view_of_a_larger_one_is_one_pass(rows):
    engine = make_engine("ghost", seeded(RIGHT["plain"]), cross_entropy, examples(2, 0))
    batch = examples(24, 1).each(lambda t: t[rows])
    assert not isinstance(engine(batch), MaterialisedGradients)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("kind", ["rarely sorted", "large batches"])
def test_rows_that_move_in_a_step_are_computed_one_by_one(kind):
    model = seeded(RIGHT[kind]).eval()
    engine = make_engine("ghost", model, cross_entropy, examples(2, 0))
    batch = examples(24, 1, scale=5.0)
    reference = Loop(model, cross_entropy, engine.parameters)
    common = torch.full_like(engine.parameters.theta, 0.01)
    pairs = [
        (engine(batch), reference(batch)),
        (engine(batch, common), reference(batch, common.double())),
    ]
    if kind == "large batches":  # torch does not vectorise a branch on values
        pairs.append((penalised(engine, batch, 0.1), penalised(reference, batch, 0.1)))
    for ours, right in pairs:
        assert isinstance(ours, MaterialisedGradients)
        assert torch.allclose(ours.stack().double(), right.stack().double(), 1e-3, 1e-4)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
def test_a_weight_that_a_rare_example_uses_directly_is_no_lost_gradient():
    model = seeded(lambda: Composed([rarely_by_weight], False))
    engine = make_engine("ghost", model, cross_entropy, examples(2, 0))
    with pytest.raises(UserError, match="parameters are used without calling the module"):
        engine(examples(24, 1, scale=5.0))
