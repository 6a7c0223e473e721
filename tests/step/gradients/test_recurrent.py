"""Recurrent layers step by step, against torch's own."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import make_engine
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


# Packed sequences

LENGTHS = torch.tensor([2, 6, 3])


def packed(module, x, hx=None, **padding):
    """Outputs of a layer for sequences of LENGTHS, padded again, their lengths and last states."""
    first = module.batch_first
    sequences = pack_padded_sequence(x, LENGTHS, batch_first=first, enforce_sorted=False)
    out, states = module(sequences, hx)
    return *pad_packed_sequence(out, batch_first=first, **padding), states


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_have_the_outputs_and_states_of_torch(kind, options):
    module = layer(kind, **options)
    x = torch.rand(*((3, 6) if module.batch_first else (6, 3)), 4, dtype=torch.float64)
    theirs = packed(module, x)
    started = packed(module, x, theirs[2], padding_value=-1.0, total_length=8)
    with unrolled(module):
        assert equal(packed(module, x), theirs)
        assert equal(packed(module, x, theirs[2], padding_value=-1.0, total_length=8), started)


class Words(nn.Module):
    """Classifies sequences of words, 0 being padding, by the state after the last and the mean."""

    def __init__(self, kind, **options):
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.inner = kind(4, 5, batch_first=True, **options)
        self.head = nn.Linear(10 if options.get("bidirectional") else 5, 3)

    def forward(self, words):
        lengths = (words > 0).sum(1)
        x = pack_padded_sequence(self.table(words), lengths.cpu(), True, enforce_sorted=False)
        out, hidden = self.inner(x)
        last = (hidden[0] if isinstance(hidden, tuple) else hidden)[-1]
        mean = pad_packed_sequence(out, batch_first=True)[0].sum(1) / lengths.unsqueeze(1)
        return self.head(mean + nn.functional.pad(last, (0, mean.shape[1] - last.shape[1])))


def sentences(*lengths):
    words = torch.randint(1, 7, (len(lengths), 6), generator=torch.Generator().manual_seed(0))
    words = words * (torch.arange(6) < torch.tensor(lengths).unsqueeze(1))
    targets = torch.arange(len(lengths)) % 3
    return Batch(words, targets, torch.zeros_like(targets))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, nn.LSTM])
def test_gradients_of_packed_sequences_are_those_of_each_alone(kind, options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Words(kind, **options).double()
    batch = sentences(4, 1, 6, 3, 6)
    fast, loop = (make_engine(name, model, cross_entropy, batch) for name in ("auto", "loop"))
    assert fast.name == "vmap"
    ours, reference = fast(batch), loop(batch)
    torch.testing.assert_close(ours.stack(), reference.stack(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ours.norms, reference.norms)
    rows = fast.by_row(model, batch.inputs)
    torch.testing.assert_close(rows, model(batch.inputs))


def test_sequences_that_were_packed_without_padding_are_refused():
    module = layer("gru")
    sequences = PackedSequence(torch.rand(5, 4).double(), torch.tensor([2, 2, 1]))
    with unrolled(module), pytest.raises(NotImplementedError, match="packed without padding"):
        module(sequences)
