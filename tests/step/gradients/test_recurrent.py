"""Recurrent layers step by step, against torch's own."""

import itertools

import pytest
import torch
from torch import nn

from dpbench.step.gradients.recurrent import outputs, unrolled

OPTIONS = [
    {"num_layers": layers, "bidirectional": both, "bias": bias, "batch_first": first}
    for layers, both, bias, first in itertools.product((1, 2), *[(False, True)] * 3)
]
KINDS = {
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "gru": (nn.GRU, {}),
    "lstm": (nn.LSTM, {}),
    "projected lstm": (nn.LSTM, {"proj_size": 3}),
}


def layer(kind, **options):
    make, own = KINDS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make(4, 5, **own, **options).double()


def equal(ours, theirs):
    pairs = zip(*(torch.utils._pytree.tree_leaves(x) for x in (ours, theirs)), strict=True)
    return all(a.shape == b.shape and torch.allclose(a, b) for a, b in pairs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_states_are_those_of_torch(kind, options):
    module, x = layer(kind, **options), torch.rand(3, 6, 4, dtype=torch.float64)
    theirs, states = module(x)
    assert equal(outputs(module, x), (theirs, states))
    assert equal(outputs(module, x, states), module(x, states))
    alone = module(x[0])
    assert equal(outputs(module, x[0]), alone)
    assert equal(outputs(module, x[0], alone[1]), module(x[0], alone[1]))


def test_layers_have_their_own_forward_afterwards():
    module, x = layer("gru", num_layers=2, dropout=0.5), torch.rand(3, 6, 4, dtype=torch.float64)
    with unrolled(nn.Sequential(module)):
        assert "forward" in vars(module)
        kept = module.eval()(x)
    assert "forward" not in vars(module)
    assert equal(kept, module(x))
