"""Users in every engine and at every place: as if each were computed from its own rows alone."""

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import PerExampleShift, make_engine
from dpbench.step.gradients.flatten import flatten
from dpbench.step.gradients.penalised import penalised
from dpbench.system.errors import UserError

ENGINES = ("ghost", "vmap", "loop")


def one(batch, k):
    """User k without what fills its row up."""
    size = int(batch.sizes[k])
    return Batch(
        *(t[k : k + 1, :size] for t in (batch.inputs, batch.targets)),
        batch.groups[k : k + 1],
        batch.present[k : k + 1, :size],
    )


def engine_of(name, batch):
    """On a network with two inner layers, and a parameter that belongs to no layer."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
            self.scale = nn.Parameter(torch.tensor([1.5]))

        def forward(self, inputs):
            return self.layers(inputs) * self.scale

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make_engine(name, Net().double(), cross_entropy, batch)


def test_shares_and_the_penalty_are_those_of_the_user(users_of):
    batch = users_of(6)
    flat = flatten(batch, 1, batch.inputs)
    assert torch.equal(flat.shares > 0, batch.present)
    assert torch.allclose(flat.shares.sum(1), torch.ones(6, dtype=torch.float64))
    losses = torch.arange(24.0, dtype=torch.float64)
    means = [losses.view(6, 4)[k, batch.present[k]].mean() for k in range(6)]
    assert torch.allclose(flat.losses(losses), torch.stack(means))
    batch, engine = users_of(5), engine_of("vmap", users_of(2))
    ours = penalised(engine, batch, 0.3).stack()
    alone = [penalised(engine, one(batch, k), 0.3).stack() for k in range(5)]
    assert torch.allclose(ours, torch.cat(alone), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(ours, engine(batch).stack())


@pytest.mark.filterwarnings("ignore:engine=ghost")  # of the parameter without a layer
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("place", ["theta", "common", "own"])
def test_a_user_is_as_if_it_were_alone_wherever_gradients_are_taken(users_of, name, place):
    batch = users_of(5)
    engine, reference = (engine_of(n, users_of(2)) for n in (name, "loop"))

    def at(engine, batch):
        if place == "theta":
            return engine(batch)
        if place == "common":
            return engine(batch, torch.linspace(-1, 1, 58, dtype=torch.float64))
        return engine(batch, PerExampleShift(engine(batch), engine(batch).norms * 0.1))

    ours = at(engine, batch)
    alone = [at(reference, one(batch, k)) for k in range(5)]
    assert torch.allclose(ours.losses, torch.cat([a.losses for a in alone]), rtol=1e-9)
    wanted = torch.cat([a.stack() for a in alone])
    assert torch.allclose(ours.stack(), wanted, rtol=1e-8, atol=1e-11)
    assert torch.allclose(ours.layer_norms, torch.cat([a.layer_norms for a in alone]), rtol=1e-8)
    factors = torch.linspace(0.1, 1, 5, dtype=torch.float64)
    assert torch.allclose(ours.weighted_sum(factors), factors @ wanted, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_is_a_mean_is_refused(batch_of, engine):
    with pytest.raises(UserError, match=r"loss of \d examples has shape \[\]: it must be one num"):
        make_engine(
            engine, nn.Linear(5, 3), nn.functional.cross_entropy, batch_of(2, dtype=torch.float32)
        )
