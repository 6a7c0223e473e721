"""Models that mix a batch by what a rare example has, which no probe shows: nothing that a method
releases depends on more than each example."""

import pytest
import torch
from torch import nn

from dpbench.step.gradients import EngineFallback
from dpbench.step.mechanism.dry_run import check_method
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.system.errors import UserError
from tests.step.methods.every_method import (
    MULTIPLIER,
    holding,
    listening,
    method_of,
    proven,
    with_counts,
)

LARGE = 1e4


class Scaled(nn.Module):
    """Divides all inputs if one of them is large, as code for images of bytes does."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(torch.where(x.amax() > LARGE, x / 255, x))


class ScaledByPython(Scaled):
    """The same by a branch."""

    def forward(self, x):
        return self.model(x / 255 if x.max() > LARGE else x)


class Centred(Scaled):
    """Subtracts the mean of a batch that has a large input."""

    def forward(self, x):
        return self.model(x - torch.where(x.amax() > LARGE, x.mean(0), 0))


class Turned(Scaled):
    """Turns all inputs round, and makes them larger, if one of them is large."""

    def forward(self, x):
        return self.model(torch.where(x.amax() > LARGE, -100 * x, x))


class Remembering(Scaled):
    """Turns all inputs round once one of them was large."""

    def __init__(self, model):
        super().__init__(model)
        self.largest = torch.zeros(())

    def forward(self, x):
        after = self.model(torch.where(self.largest > LARGE, -100 * x, x))
        self.largest = torch.maximum(self.largest.to(x), x.detach().amax())
        return after


class RememberingByPython(Remembering):
    """The same by a flag."""

    def forward(self, x):
        after = self.model(-100 * x if self.largest else x)
        self.largest = self.largest or bool(x.max() > LARGE)
        return after


@pytest.fixture
def totals(step_of, batch_of, users_of):
    """By how much a rare example moves the sum of a step, its sensitivity, and the counts with and
    without it; None where the model is refused."""

    def found(method, engine, around):
        method = listening(holding(method, []))
        make = users_of if method.users_only else lambda n: batch_of(n, groups=method.groups or 3)
        batch = make(8)
        batch.inputs[3].view(-1)[0] = 2 * LARGE
        step = step_of(method, engine=engine, multiplier=MULTIPLIER, lr=0.0, around=around)
        try:
            check_method(step, batch)
        except UserError:
            return None
        method.noise.calls.clear()
        method.clip.answers.clear()
        start = step.count_stream.state_dict()
        for one in (batch, batch.each(lambda t: torch.cat([t[:3], t[4:]]))):
            step.released = ReleasedState(1, 2, None, update=method.update)
            step.update = method.update
            step.count_stream.load_state_dict(start)
            step(one)
        (total, sensitivity, _), (other, _, _) = method.noise.calls
        return total - other, method.excess * sensitivity, method.clip.answers

    return found


@pytest.mark.sampled(80)
@pytest.mark.slow
@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize(
    ("engine", "around"),
    [
        ("auto", Scaled),
        ("auto", ScaledByPython),
        ("auto", Centred),
        ("auto", Turned),
        ("auto", Remembering),
        ("auto", RememberingByPython),
        ("loop", Scaled),
    ],
)
@proven
def test_a_rare_example_moves_the_sum_by_no_more_than_alone(totals, name, variant, engine, around):
    found = totals(method_of(name, variant), engine, around)
    if found is None:  # torch does not vectorise a branch
        assert name == "dp_fedavg"
        assert around in (ScaledByPython, RememberingByPython)
    else:
        moved, sensitivity, _ = found
        assert moved.norm() <= sensitivity * (1 + 1e-6)


@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("name", ["dp_least_squares bound=1.0", "dp_prototypes bound=1.0"])
def test_nor_does_it_where_the_features_of_all_examples_are_clipped(totals, name):
    moved, sensitivity, _ = totals(method_of(name, None), "auto", Turned)
    assert moved.norm() <= sensitivity * (1 + 1e-6)


@pytest.mark.sampled(28)
@pytest.mark.slow
@pytest.mark.filterwarnings(f"ignore::{EngineFallback.__module__}.EngineFallback")
@pytest.mark.parametrize("around", [Scaled, ScaledByPython])
@with_counts
def test_a_rare_example_moves_the_counts_by_no_more_than_alone(totals, name, variant, around):
    first, other = totals(method_of(name, variant), "auto", around)[2]
    assert (first - other).norm() <= 1 + 1e-4
