"""Causal language models: the loss of a text, its gradient, and what is refused."""

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import REDUCTIONS, token_mean
from dpbench.learning.models.causal_lm import CausalLm
from dpbench.learning.models.lora import Adapted, Lora
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.step.clipping.functions import Abadi
from dpbench.step.gradients import make_engine
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.parameters import Parameters
from dpbench.step.gradients.vmap import Vmap
from dpbench.system.errors import UserError

WORDS, LENGTH = 50, 10
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LIKE_LLAMA = {**SIZES, "intermediate_size": 32, "num_key_value_heads": 1}
KINDS = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 24},
    "gpt_neox": {**SIZES, "intermediate_size": 32, "max_position_embeddings": 24},
    "llama": LIKE_LLAMA,
    "qwen2": LIKE_LLAMA,
}
NOWHERE = dict.fromkeys(("package", "weights", "hub", "revision", "checksum"))
PARTS = (
    *("biases_and_head", "norms_and_head", "lora", "largest_and_head"),
    *("first_layer_and_head", "last_block_and_head", "all"),
)


def language_model(kind="gpt2", tied=True, **settings):
    config = {"model_type": kind, "vocab_size": WORDS, "tie_word_embeddings": tied, **KINDS[kind]}
    config |= {"bos_token_id": None, "eos_token_id": None}
    usual = {"config": config, "pretrained": False, "dropout": 0.0, "train": "all"}
    usual |= {"lora": Lora(2, 4.0, None), "reduction": "mean", "share": 0.1}
    return CausalLm(**{**NOWHERE, **usual, **settings})


def texts(length=LENGTH):
    """Four texts of `length`, 6, 2 and 1 tokens."""
    tokens = torch.randint(1, WORDS, (4, length), generator=torch.Generator().manual_seed(0))
    places = torch.arange(length)
    inside = places < torch.tensor([[length], [6], [2], [1]])
    return torch.stack([tokens * inside, (inside & (places > 0)).long()], 1)


def batch_of(inputs):
    counts = inputs[:, 1].sum(1).float()
    return Batch(inputs, counts, torch.zeros(len(inputs), dtype=torch.long))


def network(**settings):
    """A network away from where adapters start, in float64."""
    torch.manual_seed(0)
    net = language_model(**settings).build((2, LENGTH), 1).double()
    for parameter in net.parameters():
        if parameter.requires_grad:
            parameter.data += 0.05 * torch.randn_like(parameter)
    return net


def gradients(engine, net, inputs, loss=token_mean):
    return engine(net, loss, Parameters(net))(batch_of(inputs))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_the_loss_that_transformers_has(kind):
    net, inputs = language_model(kind).build((2, LENGTH), 1), texts()
    tokens, predicted = inputs.unbind(1)
    labels = tokens.masked_fill(predicted == 0, -100)
    for ours, one, row in zip(net(inputs).squeeze(1), tokens, labels, strict=True):
        theirs = net.net(one.unsqueeze(0), labels=row.unsqueeze(0)).loss
        count = (row >= 0).sum()
        torch.testing.assert_close(ours, count * theirs if count else torch.zeros(()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padding", [0, 7])
def test_padding_of_any_number_changes_neither_loss_nor_gradient(kind, padding):
    net, inputs = network(kind=kind, train="lora"), texts()
    more = torch.zeros(4, 2, 5, dtype=torch.long)
    more[:, 0] = padding
    longer = torch.cat([inputs, more], 2)
    torch.testing.assert_close(net(longer), net(inputs))
    ours, theirs = (gradients(Ghost, net, x).stack() for x in (longer, inputs))
    torch.testing.assert_close(ours, theirs)
    assert not theirs[3].any()  # a text of one token


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("train", PARTS)
@pytest.mark.parametrize("tied", [False, True])
def test_norms_and_sums_of_each_part_are_those_of_the_reference(train, tied, reduction):
    loss = REDUCTIONS[reduction]
    net, batch = network(train=train, tied=tied), batch_of(texts())
    engine = make_engine("auto", net, loss, batch)
    both = tied and train in ("all", "first_layer_and_head")
    assert engine.name == ("vmap" if both else "ghost")
    ours, reference = engine(batch), gradients(Loop, net, batch.inputs, loss)
    factors = torch.linspace(0.2, 1, 4).double()
    torch.testing.assert_close(ours.losses, reference.losses)
    torch.testing.assert_close(ours.layer_norms, reference.layer_norms, rtol=1e-9, atol=1e-9)
    expected = reference.weighted_sum(factors)
    torch.testing.assert_close(ours.weighted_sum(factors), expected, rtol=1e-9, atol=1e-9)


def test_the_loss_is_the_sum_of_its_tokens_losses_or_their_mean():
    net, inputs = network(), texts()
    tokens, predicted = inputs.unbind(1)
    chosen = net.logits(tokens)[:, :-1].log_softmax(2).gather(2, tokens[:, 1:, None]).squeeze(2)
    sums, counts = -(chosen * predicted[:, 1:]).sum(1), torch.tensor([9.0, 5.0, 1.0, 1.0])
    for name, expected in (("sum", sums), ("mean", sums / counts)):
        model = language_model(reduction=name)
        losses = model.loss(net(inputs), batch_of(inputs).targets)
        torch.testing.assert_close(losses, expected)
        assert f"its loss is the {name} over its tokens" in model.note


def test_a_tied_weight_has_the_gradients_of_both_of_its_uses():
    """The sum of those of a copy of the network in which they are two weights; the norm has the
    cross term."""
    tied, apart = network(), network(tied=False)
    apart.load_state_dict(tied.state_dict())
    first, last = "net.transformer.wte.weight", "net.lm_head.weight"
    rows = Parameters(apart).unflatten(gradients(Ghost, apart, texts()).stack()[0])
    together = gradients(Vmap, tied, texts())
    both = Parameters(tied).unflatten(together.stack()[0])
    torch.testing.assert_close(both[first], rows[first] + rows[last])
    assert last not in both
    squares = (
        sum(row.square().sum() for row in rows.values()) + 2 * (rows[first] * rows[last]).sum()
    )
    torch.testing.assert_close(together.norms[0] ** 2, squares)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_text_moves_the_clipped_sum_by_its_bound_at_most(reduction):
    net, loss, clip = network(train="lora"), REDUCTIONS[reduction], Abadi(0.1)

    def clipped(inputs):
        found = gradients(Ghost, net, inputs, loss)
        return found.weighted_sum(clip.factors(found.norms, torch.zeros(len(inputs)).long()))

    inputs = texts()
    moved = [clipped(inputs) - clipped(inputs[torch.arange(4) != out]) for out in range(4)]
    norms = torch.stack(moved).norm(dim=1)
    assert (norms <= 0.1 * (1 + 1e-6)).all()
    torch.testing.assert_close(norms[0], torch.tensor(0.1).double(), rtol=1e-4, atol=0)


def test_the_gradient_of_a_person_is_the_mean_over_their_texts():
    net, inputs = network(train="lora"), texts()
    alone = gradients(Ghost, net, inputs).stack()
    batch = batch_of(inputs)
    targets, present = batch.targets.view(2, 2), torch.tensor([[True, True], [True, False]])
    people = Batch(inputs.view(2, 2, 2, LENGTH), targets, torch.zeros(2).long(), present)
    found = Ghost(net, token_mean, Parameters(net))(people).stack()
    torch.testing.assert_close(found, torch.stack([(alone[0] + alone[1]) / 2, alone[2]]))


def test_adapters_are_in_all_linear_maps_but_the_last():
    net = language_model(train="lora").build((2, LENGTH), 1).net
    adapted = {name for name, module in net.named_modules() if isinstance(module, Adapted)}
    places = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    assert adapted == {f"transformer.h.{layer}.{place}" for layer in (0, 1) for place in places}
    chosen = language_model(train="lora", lora=Lora(2, 4.0, ["c_attn"])).build((2, LENGTH), 1)
    trained = [name for name, p in chosen.named_parameters() if p.requires_grad]
    assert len(trained) == 4
    assert all("c_attn.lora_" in name for name in trained)


# Where weights are


@pytest.fixture
def folder(tmp_path):
    """GPT-2 as it was published: with its masks, and without a last map of its own."""
    sizes = {**KINDS["gpt2"], "vocab_size": WORDS, "bos_token_id": None, "eos_token_id": None}
    transformers.GPT2Model(transformers.GPT2Config(**sizes)).save_pretrained(tmp_path / "gpt2")
    change(tmp_path / "gpt2", lambda t: {**t, "h.0.attn.bias": torch.ones(1, 1, 24, 24)})
    return tmp_path / "gpt2"


def change(folder, changed):
    file = folder / "model.safetensors"
    save_file(changed(load_file(file)), file, {"format": "pt"})


def test_a_published_network_computes_what_transformers_computes(folder):
    config = compose(["model=causal_lm", f"model.weights={folder}"])
    model = build({**config}).model
    assert "a language model from a local file (sha256:" in model.note
    net, inputs = model.build((2, LENGTH), 1), texts()
    theirs = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    tokens, predicted = inputs.unbind(1)
    logits = theirs(tokens).logits[:, :-1]
    losses = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none") * predicted[:, 1:]
    torch.testing.assert_close(net(inputs).squeeze(1), losses.sum(1))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (lambda t: {n: v for n, v in t.items() if n != "h.1.ln_1.bias"}, r"lacks .*h\.1\.ln"),
        (lambda t: t | {"h.2.ln_1.bias": t["h.1.ln_1.bias"]}, r"do not fit .*h\.2\.ln_1\.bias"),
        (lambda t: t | {"wte.weight": t["wte.weight"][:9]}, r"do not fit .*wte\.weight"),
    ],
    ids=["a layer too few", "a layer too many", "fewer words"],
)
def test_weights_of_another_network_are_refused(folder, changed, says):
    change(folder, lambda tensors: {n: t.clone() for n, t in changed(tensors).items()})
    with pytest.raises(UserError, match=says):
        build(compose(["model=causal_lm", f"model.weights={folder}"])).model.build((2, LENGTH), 1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"train": "head"}, "a language model gets no new head"),
        ({"reduction": "max"}, "model.reduction"),
        ({"config": {"model_type": "vit"}}, "'vit' is no causal language model in transformers"),
        ({"config": None}, "model=causal_lm needs a network"),
        ({"config": {"model_type": "bert", "vocab_size": WORDS, **SIZES}}, "masks later tokens"),
        ({"config": {"model_type": "bloom", "vocab_size": WORDS}}, "masks later tokens"),
    ],
    ids=["head", "reduction", "vit", "nothing", "bert", "bloom"],
)
def test_what_is_no_causal_language_model_is_refused(settings, says):
    if "bloom" in str(settings):
        settings["config"] |= {"hidden_size": 16, "n_layer": 1, "n_head": 2}
    with pytest.raises(UserError, match=says):
        language_model(**settings).build((2, LENGTH), 1)


def test_longer_texts_than_it_has_positions_are_refused():
    with pytest.raises(UserError, match=r"texts of shape \(2, 24\) at most, .* \(2, 25\)"):
        language_model().build((2, 25), 1)
