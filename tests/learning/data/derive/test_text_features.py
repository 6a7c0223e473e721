"""Features of texts from a frozen encoder: each from its own tokens, and of its own alone."""

from dataclasses import dataclass

import pytest
import torch
from transformers import RobertaConfig, RobertaModel

from dpbench.learning.data.derive.features import WithFeatures
from dpbench.learning.data.derive.text_features import TextFeatures
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Data, Split
from dpbench.runs.config.compose import compose
from dpbench.system.errors import UserError

FIRST, PADDING, END = 0, 1, 2
LENGTH = 40
SIZES = {
    "model_type": "roberta", "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 50,
    "pad_token_id": PADDING, "type_vocab_size": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Sentences:
    """Six texts, or pairs of texts, of tokens below 30."""

    pairs: bool
    name = "sentences"
    task = "classification"
    shape = (2, LENGTH)
    classes, train_size = 2, 6
    groups = ("all",)
    notes = ()
    vocabulary, padding = 30, PADDING

    def load(self, folder, seed):
        split = Split(coded(self.pairs), torch.arange(6) % 2, torch.zeros(6, dtype=torch.int64))
        return Data(split, split)


def words():
    """Two texts for each of six examples, as lists of tokens."""
    draw = torch.Generator().manual_seed(0)
    sizes = [(3, 5), (9, 2), (17, 4), (1, 1), (12, 20), (6, 6)]
    return [[torch.randint(3, 30, (n,), generator=draw).tolist() for n in pair] for pair in sizes]


def coded(pairs):
    out = torch.zeros(6, 2, LENGTH, dtype=torch.int32)
    out[:, 0] = PADDING
    for row, (one, other) in enumerate(words()):
        first = [FIRST, *one, END]
        tokens = [*first, *other, END] if pairs else first
        out[row, 0, : len(tokens)] = torch.tensor(tokens)
        out[row, 1, len(first) : len(tokens)] = 1
    return out


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = RobertaModel(RobertaConfig(**SIZES), add_pooling_layer=False).eval()
    net.save_pretrained(folder)
    return net, folder


def features(folder):
    return TextFeatures(
        config=SIZES, package=None, weights=str(folder), hub=None, revision=None, checksum=None
    )


@torch.no_grad()
def mean(net, tokens):
    return net(torch.tensor([tokens])).last_hidden_state[0].mean(0)


@pytest.mark.parametrize("pairs", [False, True])
def test_features_are_means_of_the_encoder_over_each_text(encoder, pairs, tmp_path):
    net, folder = encoder
    of = WithFeatures(Sentences(pairs), features(folder))
    found = of.load(tmp_path, 0).train
    for row, (one, other) in enumerate(words()):
        expected = u = mean(net, [FIRST, *one, END])
        if pairs:
            v = mean(net, [FIRST, *other, END])
            expected = torch.cat([u, v, (u - v).abs(), u * v])
        torch.testing.assert_close(found.inputs[row].float(), expected, rtol=2e-3, atol=2e-3)
    assert found.inputs.shape == (6, *of.shape)
    assert of.vocabulary is None
    assert "taken to be public: not covered by epsilon" in of.note


def test_features_do_not_depend_on_other_texts(encoder):
    _, folder = encoder
    extract = features(folder).extractor(Sentences(True), torch.device("cpu"))
    pairs = coded(True).long()
    whole = extract(pairs)
    for part in (slice(3, 4), slice(1, 5)):
        assert torch.equal(extract(pairs[part]), whole[part])
    assert torch.equal(extract(pairs.flip(0)).flip(0), whole)


def test_features_need_texts_of_the_encoder(encoder):
    _, folder = encoder
    of = features(folder)
    with pytest.raises(UserError, match=r"needs texts of at most 30 tokens, and digits has none"):
        WithFeatures(Digits(test_share=0.2), of)
    other = Sentences(False)
    object.__setattr__(other, "padding", 0)
    with pytest.raises(UserError, match="padded by token 0 and the encoder expects 1"):
        WithFeatures(other, of)
    long = Sentences(False)
    object.__setattr__(long, "shape", (2, 49))
    with pytest.raises(UserError, match="reads 48 tokens, and the texts of sentences may have 49"):
        WithFeatures(long, of)
    config = compose(["features=text", f"features.weights={folder}"])["features"]
    assert config["config"]["hidden_size"] == 8
    assert config["checksum"].startswith("sha256:")
