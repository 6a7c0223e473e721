"""The head's own learning rate is torch's parameter group of it."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from dpbench.runs.training.start import scale_head
from dpbench.runs.training.trainer import fit
from dpbench.system.errors import UserError
from tests.runs.training.small_runs import NOWHERE, Witness, run_of

OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": partial(torch.optim.Adam, lr=0.1),
    "adamw": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.1),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_equals_a_parameter_group_of_torch(name):
    start = torch.randn(7, dtype=torch.float64)
    theta = nn.Parameter(start.clone())
    body, head = nn.Parameter(start[:5].clone()), nn.Parameter(start[5:].clone())
    ours = OPTIMIZERS[name]([theta])
    scale_head(ours, theta, slice(5, 7), 10.0)
    rate = OPTIMIZERS[name].keywords["lr"]
    torchs = OPTIMIZERS[name]([{"params": [body]}, {"params": [head], "lr": 10 * rate}])
    for _ in range(6):
        theta.grad = torch.randn(7, dtype=torch.float64)
        body.grad, head.grad = theta.grad[:5].clone(), theta.grad[5:].clone()
        ours.step()
        torchs.step()
    torch.testing.assert_close(theta.detach(), torch.cat([body, head]).detach())


def moved(factor):
    """How far a run of one step moves the body and the last layer."""
    witness = Witness()
    one_step = run_of(epochs=1, batch_size=1438, head_lr_factor=factor)
    fit(replace(one_step, diagnostics=witness), NOWHERE)
    parameters = witness.step.engine.parameters
    step, head = parameters.theta.detach() - witness.start, parameters.layers[-1].at
    return step[: head.start], step[head]


def test_in_a_run_only_the_last_layer_moves_further():
    body, head = moved(None)
    same_body, further = moved(3.0)
    assert body.any()
    assert torch.equal(same_body, body)
    torch.testing.assert_close(further, 3 * head)


@pytest.mark.parametrize("factor", [0, -1.0, True, "10", float("nan"), float("inf")])
def test_an_invalid_factor_is_refused(factor):
    with pytest.raises(UserError, match="head_lr_factor must be a positive number, got"):
        run_of(head_lr_factor=factor)
