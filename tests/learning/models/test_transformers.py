"""ViT and BERT: sizes, published weights, padding, and that other libraries agree."""

import sys
from dataclasses import replace

import huggingface_hub
import pytest
import timm
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import save_file

from dpbench.learning.models.bert import Bert
from dpbench.learning.models.timm_network import TimmNetwork
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.system.errors import UserError

VIT = TimmNetwork("test_vit", pretrained=False, image_size=32, train="all")
BERT = Bert(
    "tiny", pretrained=False, layers=2, hidden=16, heads=2, intermediate=32, vocabulary=50,
    length=12, dropout=0.0, train="all",
)  # fmt: skip


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No test looks for the hub, and none fails by a progress bar."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


# The counts of BERT-base are those that Opacus' tutorial prints for bert-base-cased on SNLI.
@pytest.mark.parametrize(
    ("overrides", "shape", "classes", "count", "trained"),
    [
        ("model=vit_tiny", (3, 32, 32), 10, 5_526_346, 5_526_346),
        ("model=vit_base", (3, 32, 32), 10, 85_806_346, 85_806_346),
        ("model=vit_base model.train=last_block_and_head", (3, 32, 32), 10, 85_806_346, 7_097_098),
        # Biases of 12 blocks of 11 x 768, of the patches and of the last norm; then the head.
        (
            "model=vit_base model.train=biases_and_head",
            (3, 32, 32), 10, 85_806_346, 12 * 11 * 768 + 2 * 768 + 10 * 769,
        ),
        ("model=bert_tiny", (2, 128), 3, 4_386_307, 4_386_307),
        ("model=bert_base", (2, 128), 3, 108_312_579, 7_680_771),
        # Biases of 12 layers of 11 x 768, of the embeddings' norm and the pooler; then the head.
        (
            "model=bert_base model.train=biases_and_head",
            (2, 128), 3, 108_312_579, 12 * 11 * 768 + 2 * 768 + 3 * 769,
        ),
    ],
)  # fmt: skip
def test_parameter_count(overrides, shape, classes, count, trained):
    model = build(compose(overrides.split())).model
    with torch.device("meta"):
        parameters = list(model.build(shape, classes).parameters())
    assert sum(p.numel() for p in parameters) == count
    assert sum(p.numel() for p in parameters if p.requires_grad) == trained


# ViT


def test_a_vit_computes_what_timm_computes(monkeypatch, tmp_path):
    theirs = timm.create_model("test_vit", num_classes=4, img_size=32, dynamic_img_size=False)
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda *_, **__: tmp_path / "model.safetensors"
    )
    ours = replace(VIT, pretrained=True).build((3, 32, 32), 4)
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(ours(images), torch.zeros(2, 4))  # a new task has a new head, 0 at first
    ours.net.head.load_state_dict(theirs.head.state_dict())
    assert torch.allclose(ours(images), theirs((images - 0.5) / 0.5), atol=1e-5)


def test_small_images_are_enlarged_and_no_class_token_changes_nothing():
    model = VIT.build((1, 8, 8), 4)
    prepared = model.prepared(torch.full((2, 1, 8, 8), 0.75))
    assert torch.equal(prepared, torch.full((2, 3, 32, 32), 0.5))
    assert model(torch.rand(2, 1, 8, 8)).shape == (2, 4)
    model = replace(VIT, name="test_vit3").build((3, 32, 32), 4)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 4)


def test_impossible_vits_are_refused():
    with pytest.raises(UserError, match="vit_tiny_patch16_224"):
        replace(VIT, name="vit_tiny_patch16_242").build((3, 32, 32), 4)
    with pytest.raises(UserError, match="last_block_and_head"):
        replace(VIT, train="last_block")
    with pytest.raises(UserError, match="needs 1 or 3 channels"):
        VIT.build((2, 32, 32), 4)
    with pytest.raises(UserError, match="needs images"):
        VIT.build((98,), 4)


# BERT


def sentences(count=3, length=10):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 50, (count, length), generator=generator)
    return torch.stack([tokens, (torch.arange(length) > 4).long().expand_as(tokens)], 1)


def test_a_bert_computes_what_transformers_computes_whatever_the_padding():
    model = BERT.build((2, 10), 3).eval()
    inputs = sentences()
    inputs[0, 0, 7:] = 0
    tokens, types = inputs.unbind(1)
    theirs = model.net(tokens, attention_mask=tokens != 0, token_type_ids=types).logits
    assert torch.allclose(model(inputs), theirs, atol=1e-6)
    model = BERT.build((2, 12), 3).eval()
    inputs = sentences()
    padded = torch.cat([inputs, torch.zeros(3, 2, 2, dtype=torch.long)], 2)
    assert torch.allclose(model(padded), model(inputs), atol=1e-6)
    inputs = sentences()
    for dropout, same in ((0.0, True), (0.5, False)):
        model = replace(BERT, dropout=dropout).build((2, 10), 3).train()
        assert torch.equal(model(inputs), model(inputs)) is same


def test_published_weights_are_loaded_and_the_head_is_new(tmp_path):
    published = BERT.build((2, 10), 3).net.bert
    published.save_pretrained(tmp_path)
    model = replace(BERT, weights=str(tmp_path), pretrained=True).build((2, 10), 2)
    for name, parameter in published.named_parameters():
        assert torch.equal(model.net.bert.get_parameter(name), parameter), name


def test_impossible_berts_are_refused(tmp_path):
    with pytest.raises(UserError, match="last_block_and_head"):
        replace(BERT, train="last_layer")
    for shape in ((1, 28, 28), (3, 10), (2, 13)):
        with pytest.raises(UserError, match=r"texts of shape \(2, 12\) at most"):
            BERT.build(shape, 3)
    BERT.build((2, 10), 3).net.save_pretrained(tmp_path)
    other = replace(BERT, weights=str(tmp_path), pretrained=True, vocabulary=49)
    with pytest.raises(UserError, match=r"weights of .* do not fit .* of these sizes"):
        other.build((2, 10), 3)


# Without network, and without the libraries


def offline(*_, **__):
    raise LocalEntryNotFoundError("please check your connection")


def test_a_vit_without_network_is_one_sentence(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(
        UserError,
        match=r"needs pre-trained weights: those of timm/test_vit.* model\.pretrained=false",
    ):
        replace(VIT, pretrained=True).build((3, 32, 32), 10)


def test_a_bert_without_network_is_one_sentence(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(
        UserError, match=r"needs pre-trained weights: those of tiny .*model\.pretrained=false"
    ):
        replace(BERT, pretrained=True).build((2, 10), 3)


@pytest.mark.parametrize(
    ("library", "model", "shape"), [("timm", VIT, (3, 32, 32)), ("transformers", BERT, (2, 10))]
)
def test_a_missing_library_is_one_sentence(monkeypatch, library, model, shape):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=rf"needs {library}: run `pip install .*\[models\]"):
        model.build(shape, 3)


def test_planning_needs_no_weights(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with torch.device("meta"):
        replace(VIT, pretrained=True).build((3, 32, 32), 3)
        replace(BERT, pretrained=True).build((2, 10), 3)
