"""Models in which rows, modules and weights do not stay where a rule takes them to be."""

import random

import pytest
import torch
from torch import nn

from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import ENGINES, EngineFallback, make_engine
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.penalised import penalised
from dpbench.step.gradients.rows.rules import Mixed, RowAxis
from dpbench.step.gradients.rows.same_operations import FEW, SameOperations
from dpbench.step.gradients.rows.tracer import RowTracer
from dpbench.system.errors import UserError
from tests.step.gradients.forwards import (
    ERRORS,
    IN_LARGE_BATCHES,
    KEEPS_ROWS,
    MOVES,
    as_it_is,
    clipped_by_a_hook,
    clipped_by_a_module,
    clipped_by_a_node,
    clipped_by_an_old_hook,
    scaled_by_a_draw,
    scaled_by_a_text,
    scaled_by_an_index,
)
from tests.step.gradients.moved_rows import Composed, examples, holds, seeded, sensitivity
from tests.step.gradients.rows_by_size import BY_SIZE


def marked(x):
    """A tracer of the rows of x."""
    tracer = RowTracer(len(x), lambda _: None, SameOperations(len(x), FEW, [x], None))
    tracer.mark(x)
    return tracer


def test_an_index_keeps_the_rows_only_if_it_is_that_of_all_in_order():
    x = torch.rand(4, 3)
    with marked(x) as tracer:
        kept, moved = x[torch.arange(4)], x[torch.tensor([1, 0, 2, 3])]
    assert tracer.of(kept) == RowAxis(0, 1)
    assert isinstance(tracer.of(moved), Mixed)


def test_code_that_stores_what_a_gradient_needs_is_noticed():
    x = torch.rand(4, 3, requires_grad=True)
    stored = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    with stored, marked(x) as tracer:
        x.sin()
    assert tracer.packs


@pytest.mark.sampled(10)
@pytest.mark.filterwarnings("ignore:Using .*non-full backward hook:FutureWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("training_only", [False, True])
@pytest.mark.parametrize("part", MOVES, ids=lambda part: part.__name__)
def test_a_part_that_moves_rows_costs_no_sensitivity(part, training_only):
    model = seeded(lambda: Composed([as_it_is, part], training_only))
    holds(model, "ghost", scale=3.0, n=22 if part in IN_LARGE_BATCHES else 10)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("training_only", [False, True])
@pytest.mark.parametrize("part", BY_SIZE, ids=lambda part: part.__name__)
def test_the_number_of_examples_costs_no_sensitivity(part, training_only):
    model = seeded(lambda: Composed([as_it_is, part], training_only))
    holds(model, "ghost", scale=3.0, n=22)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["ghost", "vmap"])
@pytest.mark.parametrize("part", [*ERRORS, scaled_by_a_text], ids=lambda part: part.__name__)
def test_an_error_or_a_text_that_one_example_causes_changes_no_other(part, name):
    model = seeded(lambda: Composed([as_it_is, part], False))
    holds(model, name, scale=3.0, n=10, one_large=True)


@pytest.mark.parametrize("part", [scaled_by_an_index, scaled_by_a_draw])
@pytest.mark.parametrize("name", ["ghost", "vmap"])
def test_an_error_that_is_caught_is_named(part, name):
    model = seeded(lambda: Composed([as_it_is, part], False))
    engine = make_engine(name, model, cross_entropy, examples(2, 0, 0.1))
    usual, large = examples(10, 1, 0.1), examples(10, 1, 0.1)
    large.inputs[0, 0] = 5
    passes = (
        engine,
        lambda batch: engine.by_row(model, batch.inputs),
        lambda batch: penalised(engine, batch, 0.1),
    )
    for compute in passes:
        compute(usual)  # passes like it are not followed any more
        with pytest.raises(UserError, match=r"(caught|catches) an error.*engine=loop"):
            compute(large)


class MixedAtRandom(nn.Module):
    """A loss that mixes outputs, as a generator of its own decides."""

    def __init__(self):
        super().__init__()
        self.draw = random.Random(0)

    def forward(self, outputs, targets):
        mixed = len(outputs) > 20 and self.draw.random() < 0.5
        return cross_entropy(outputs + outputs.detach().flip(0) if mixed else outputs, targets)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
def test_a_loss_that_draws_is_followed_in_each_pass():
    model = seeded(lambda: Composed([as_it_is], False))
    engine = make_engine("ghost", model, MixedAtRandom(), examples(2, 0))
    assert sensitivity(engine, examples(24, 1, 3.0)) <= 1 + 1e-5


def test_the_reference_penalises_examples_one_by_one():
    model = seeded(lambda: Composed([as_it_is, scaled_by_an_index], False))
    engine = make_engine("loop", model, cross_entropy, examples(2, 0))
    batch = examples(10, 1)
    batch.inputs[0, 0] = 5
    assert sensitivity(lambda part: penalised(engine, part, 0.1), batch) <= 1 + 1e-5


def test_an_error_that_every_pass_catches_costs_time_alone():
    def careful(module, h, x):
        try:
            return module(h @ x)
        except RuntimeError:
            return module(h)

    model = seeded(lambda: Composed([careful], False))
    with pytest.warns(EngineFallback, match="Python catches an error .*one by one, which is slow"):
        engine = make_engine("ghost", model, cross_entropy, examples(2, 0))
    reference = Loop(model, cross_entropy, engine.parameters)
    batch = examples(10, 1)
    assert torch.allclose(engine(batch).stack().double(), reference(batch).stack(), 1e-3, 1e-5)


@pytest.mark.filterwarnings("ignore:Using .*non-full backward hook:FutureWarning")
@pytest.mark.parametrize(
    "part", [clipped_by_a_hook, clipped_by_a_module, clipped_by_an_old_hook, clipped_by_a_node]
)
def test_vmap_refuses_hooks_through_which_gradients_pass(part):
    model = seeded(lambda: Composed([as_it_is, part], False))
    with pytest.raises(UserError, match=r"engine=vmap cannot be used .*engine=loop"):
        make_engine("vmap", model, cross_entropy, examples(2, 0))


@pytest.mark.filterwarnings("ignore:Using .*non-full backward hook:FutureWarning")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.long
@pytest.mark.parametrize("seed", range(300))
def test_random_models_keep_their_sensitivity_or_are_refused(seed):
    draw = random.Random(seed)
    parts = draw.choices((*KEEPS_ROWS, *MOVES), k=draw.randint(1, 4))
    model = seeded(lambda: Composed(parts, draw.random() < 0.5), seed)
    model.double()  # some are too badly conditioned for float32
    for name in (*ENGINES, "auto"):
        scale, n = draw.choice((0.5, 1.0, 3.0)), draw.choice((3, 12, 24))
        holds(model, name, scale, n, one_large=draw.random() < 0.5)
