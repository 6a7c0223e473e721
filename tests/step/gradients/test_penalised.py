"""The gradient of a loss plus the norm of its gradient: book-keeping agrees with torch.func."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from dpbench.step.gradients.factored import FactoredGradients
from dpbench.step.gradients.options import ForwardOptions
from dpbench.step.gradients.penalised import penalised
from dpbench.step.gradients.precision import Precision
from tests.step.gradients.test_engines import (
    CASES,
    EXAMPLES,
    assert_same_answers,
    close,
    curved,
    engines,
    labelled,
    model_and_batch,
    numbers,
)

WEIGHT = 0.7


def asked(engine):
    """An engine of penalised gradients, for the questions of the protocol."""

    def answer(batch):
        return penalised(engine, batch, WEIGHT)

    answer.parameters = engine.parameters
    return answer


@pytest.mark.sampled(15)
@pytest.mark.parametrize("case", CASES)
def test_book_keeping_agrees_with_differentiating_twice(case):
    model, batch = model_and_batch(case)
    made = engines(model)
    assert isinstance(penalised(made["ghost"], batch, WEIGHT), FactoredGradients)
    assert_same_answers(asked(made["ghost"]), asked(made["vmap"]), batch)


@pytest.mark.parametrize("activation", [nn.SiLU, nn.Mish])
def test_an_activation_without_forward_mode_derivative_is_differentiated_twice(activation):
    model = nn.Sequential(nn.Linear(4, 4), activation(), nn.Linear(4, 3)).double()
    made, batch = engines(model), labelled(numbers(4)(EXAMPLES))
    assert_same_answers(asked(made["ghost"]), asked(made["vmap"]), batch)


class Masked(nn.Module):
    """A network with dropout, whose mask is given with each input."""

    def __init__(self, before, after):
        super().__init__()
        self.before, self.after = before, after

    def forward(self, x):
        return self.after(torch.tanh(self.before(x[:, :4])) * x[:, 4:])


def test_gradient_and_its_derivative_are_those_of_one_dropout_mask():
    before, after = nn.Linear(4, 6), nn.Linear(6, 3)
    dropout = nn.Dropout(0.5)
    batch = labelled(numbers(4)(EXAMPLES))
    torch.manual_seed(5)
    mask = dropout(torch.ones(EXAMPLES, 6, dtype=torch.float64))
    with_mask = replace(batch, inputs=torch.cat([batch.inputs, mask], 1))
    masked = engines(Masked(before, after).double())["ghost"]
    reference = penalised(masked, with_mask, WEIGHT).stack()
    dropped = engines(nn.Sequential(before, nn.Tanh(), dropout, after))["ghost"]
    torch.manual_seed(5)
    assert close(penalised(dropped, batch, WEIGHT).stack(), reference)


def test_the_bound_holds_where_the_gradients_of_positions_cancel():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
        x = 3 * torch.rand(20, 1, 16).expand(-1, 2, -1) + 1e-4 * torch.rand(20, 2, 16)

    def opposite(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return 1e4 * (outputs[:, 0] - outputs[:, 1]).sum(1)

    gradients = penalised(engines(model, opposite)["ghost"], labelled(x), WEIGHT)
    factors = (1 / gradients.norms).clamp(max=1)
    for i in range(len(x)):
        only = torch.where(torch.arange(len(x)) == i, factors, 0)
        assert gradients.weighted_sum(only).norm() <= 1.001


@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_an_example_that_is_not_finite_changes_no_other(bad):
    model, batch = model_and_batch("convolutional net")
    engine = engines(model, curved)["ghost"]
    sound = penalised(engine, batch, WEIGHT)
    batch.inputs[0] = bad
    spoilt = penalised(engine, batch, WEIGHT)
    assert not spoilt.norms[0].isfinite()
    assert close(spoilt.norms[1:], sound.norms[1:])
    factors = torch.tensor([0.0, 1, 1, 1, 1], dtype=torch.float64)
    assert close(spoilt.weighted_sum(factors), sound.weighted_sum(factors))


def test_differentiating_twice_is_done_in_the_precision_of_the_run():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    batch = labelled(numbers(4)(EXAMPLES)).each(lambda t: t.float() if t.is_floating_point() else t)
    engine = engines(model)["vmap"]
    full = penalised(engine, batch, WEIGHT).stack()
    engine.options = ForwardOptions(Precision("bf16"))
    error = float((penalised(engine, batch, WEIGHT).stack() - full).norm() / full.norm())
    assert 1e-4 < error < 0.1
