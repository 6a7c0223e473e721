"""Texts of several lengths: no padding changes a gradient, a sum, or a prediction."""

from dataclasses import replace

import pytest
import torch

from dpbench.learning.data.examples import Batch, Lengths, Split
from dpbench.learning.data.tokens import Tokens
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.predict import predict
from dpbench.learning.models.text import Text
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.system.errors import UserError

N, MOST, PADDING = 30, 24, 1
LENGTHS = Lengths((6, 12), PADDING)
ENCODER = Text(
    config={
        "model_type": "roberta", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 30,
        "pad_token_id": PADDING, "type_vocab_size": 1,
    },
    package=None, hub=None, revision=None, checksum=None, pretrained=False, dropout=0.0,
    train="all",
)  # fmt: skip


def texts():
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(2, 40, (N, MOST), generator=draw)
    sizes = torch.randint(1, MOST + 1, (N,), generator=draw)
    tokens[torch.arange(MOST) >= sizes.unsqueeze(1)] = PADDING
    return torch.stack([tokens, torch.zeros_like(tokens)], 1), sizes


@pytest.fixture(scope="module")
def engine():
    torch.manual_seed(0)
    net = ENCODER.build((2, MOST), 3).double()
    inputs, _ = texts()
    return make_engine("auto", net, cross_entropy, batch(inputs[:4]))


def batch(inputs):
    classes = torch.arange(len(inputs)) % 3
    return Batch(inputs, classes, classes)


def test_each_text_has_the_least_length_that_it_fits_in():
    inputs, sizes = texts()
    inputs[0, 0, 2] = PADDING  # inside a text it is a token like any other
    found = {int(place): length for places, length in LENGTHS.groups(inputs) for place in places}
    assert found == {
        place: min(length for length in (6, 12, MOST) if size <= length)
        for place, size in enumerate(sizes.tolist())
    }
    assert Lengths((64,), PADDING).groups(inputs)[0][1] == MOST


def test_any_padding_gives_the_same_gradient(engine):
    inputs, _ = texts()
    whole = engine(batch(inputs))
    for places, length in LENGTHS.groups(inputs):
        cut = engine(batch(inputs).each(lambda t, at=places: t[at]).cut(length))
        torch.testing.assert_close(cut.stack(), whole.stack()[places])
        torch.testing.assert_close(cut.losses, whole.losses[places])


def clipped(engine):
    def work(part):
        gradients = engine(part)
        return gradients.weighted_sum((0.1 / gradients.norms).clamp(max=1))

    return work


@pytest.mark.parametrize("size", [None, 4])
@pytest.mark.parametrize("adaptive", [False, True])
def test_sums_by_length_are_those_of_the_whole_batch(engine, size, adaptive):
    inputs, _ = texts()
    seen = []

    def work(part):
        seen.append(part.inputs.shape)
        return clipped(engine)(part)

    total = PhysicalBatches(size, adaptive, LENGTHS).sum(batch(inputs), work)
    torch.testing.assert_close(total, clipped(engine)(batch(inputs)))
    assert {shape[2] for shape in seen} == {6, 12, MOST}
    assert sum(shape[0] for shape in seen) == N
    assert max(shape[0] for shape in seen) <= (size or N)


def test_no_texts_or_what_needs_one_piece_are_a_batch_too(engine):
    whole = batch(texts()[0])
    assert PhysicalBatches(lengths=LENGTHS).sum(whole, lambda part: part is whole, "some method")
    empty = batch(texts()[0][:0])
    assert PhysicalBatches(lengths=LENGTHS).sum(empty, len) == 0


def test_predictions_are_in_the_order_of_the_examples(engine):
    inputs, _ = texts()
    classes = torch.arange(N) % 3
    split = Split(inputs, classes, classes)
    plain = predict(engine.model, cross_entropy, split)
    for found, expected in zip(
        predict(engine.model, cross_entropy, replace(split, lengths=LENGTHS), batch_size=4),
        plain,
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("lengths", [[64, 32], [0, 32], [32, 32]])
def test_lengths_have_to_ascend(lengths):
    with pytest.raises(UserError, match=r"dataset.tokens.lengths"):
        Tokens("some", 40, 24, lengths=lengths)
