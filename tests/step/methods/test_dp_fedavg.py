"""DP-FedAvg: against users who train one by one with torch, and as DP-FedSGD rescaled."""

import copy

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.step.clipping.choice import BY_NORM
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.methods.dp_fedavg import dp_fedavg
from dpbench.step.methods.dp_fedsgd import dp_fedsgd
from tests.steps import noiseless, theta

RELEASED = ReleasedState(0, 1, None)
LOCAL = [(1, None), (1, 1), (3, 2), (2, 3), (2, None)]


def updates(step, batch, method):
    return -method.gradient(step.engine, batch, step.clip, RELEASED).stack()


def trained_alone(step, batch, k, epochs, size, lr, bound):
    """The update of one user, by torch.optim.SGD on its examples; drawn back after every batch but
    the last."""
    model = copy.deepcopy(step.engine.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    start = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    inputs, targets = (t[k, batch.present[k]] for t in (batch.inputs, batch.targets))
    size = size or len(targets)
    pieces = list(zip(inputs.split(size), targets.split(size), strict=True)) * epochs
    for made, (x, y) in enumerate(pieces):
        if made:
            moved = nn.utils.parameters_to_vector(model.parameters()).detach() - start
            moved = moved * min(1, bound / float(moved.norm()))
            nn.utils.vector_to_parameters(start + moved, model.parameters())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach() - start


@pytest.mark.parametrize("bound", [1e9, 0.3])
@pytest.mark.parametrize(("epochs", "size"), LOCAL)
def test_every_user_trains_as_it_would_alone(step_of, users_of, epochs, size, bound):
    method, batch = dp_fedavg(bound, epochs, size, 0.2, None), users_of(6)
    step = step_of(method)
    before = theta(step)
    ours = updates(step, batch, method)
    wanted = [trained_alone(step, batch, k, epochs, size, 0.2, bound) for k in range(6)]
    assert torch.allclose(ours, torch.stack(wanted), rtol=1e-9, atol=1e-12)
    assert torch.equal(theta(step), before)  # places are functional: the model never moves
    if bound < 1:
        assert any(update.norm() > bound for update in wanted)


@pytest.mark.parametrize("clip", BY_NORM)
@pytest.mark.parametrize("style", ["flat", "layerwise"])
def test_a_user_s_update_does_not_depend_on_other_users(step_of, users_of, clip, style):
    # Or taking one away would move the others too, and the bound would bound nothing.
    method, batch = dp_fedavg(0.3, 2, 1, 0.1, None, clip, style), users_of(6)
    step = step_of(method)
    together = updates(step, batch, method)
    for k in range(6):
        size = int(batch.sizes[k])
        single = Batch(
            *(t[k : k + 1, :size] for t in (batch.inputs, batch.targets)),
            batch.groups[k : k + 1],
            batch.present[k : k + 1, :size],
        )
        assert torch.allclose(together[k], updates(step, single, method)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("cap", [None, 3])
@pytest.mark.parametrize("a", [0.125, 2.0])  # which scale the grid that noise is rounded to
def test_one_local_step_is_dp_fedsgd_with_bound_and_rate_rescaled(step_of, users_of, a, cap):
    avg = step_of(dp_fedavg(0.5 * a, 1, None, a, cap), lr=0.1 / a)
    sgd = step_of(dp_fedsgd(0.5, cap), lr=0.1)
    for seed, n in enumerate((7, 0, 3)):
        avg(users_of(n, seed=seed))
        sgd(users_of(n, seed=seed))
    assert torch.allclose(theta(avg), theta(sgd), rtol=1e-9, atol=1e-12)


def test_server_sgd_with_rate_1_averages_the_users_models(step_of, users_of):
    method, batch = noiseless(dp_fedavg(1e9, 2, 2, 0.1, None)), users_of(5)
    step = step_of(method, expected=5.0, lr=1.0)
    models = theta(step) + updates(step, batch, method)
    step(batch)
    assert torch.allclose(theta(step), models.mean(0), rtol=1e-10, atol=1e-12)


def test_losses_are_of_the_first_epoch_and_what_is_not_finite_removes_its_user(step_of, users_of):
    method, batch = dp_fedavg(1.0, 1, None, 0.1, None), users_of(5)
    step = step_of(method)
    losses = method.gradient(step.engine, batch, step.clip, RELEASED).losses
    assert torch.allclose(losses, step.engine(batch).losses, rtol=1e-12)
    several = dp_fedavg(1.0, 3, 2, 1e-9, None)
    losses = several.gradient(step.engine, batch, step.clip, RELEASED).losses
    assert torch.allclose(losses, step.engine(batch).losses, rtol=1e-6)
    method, batch = dp_fedavg(0.5, 2, 1, 0.1, None), users_of(5)
    last = int(batch.sizes[1]) - 1
    batch.inputs[1, last] = torch.nan
    step = step_of(method)
    assert step(batch).finite.tolist() == [True, False, True, True, True]
    assert theta(step).isfinite().all()
