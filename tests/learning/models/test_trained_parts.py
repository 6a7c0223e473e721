"""What is trained of a pre-trained network: the same setting, and exact gradients, for all."""

import json
from dataclasses import replace

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.batch_norm import with_group_norm
from dpbench.learning.models.bert import Bert
from dpbench.learning.models.lora import Adapted, Lora
from dpbench.learning.models.timm_network import TimmNetwork
from dpbench.learning.models.trained_parts import TRAIN, Sparse, train_largest
from dpbench.runs.config.buildable import check_settings
from dpbench.runs.config.compose import compose
from dpbench.runs.records.adapters import save_adapter
from dpbench.runs.records.digest import digest
from dpbench.step.gradients import make_engine
from dpbench.step.gradients.loop import Loop
from dpbench.step.gradients.parameters import Parameters
from dpbench.system.errors import UserError

IMAGE, TEXT = (3, 32, 32), (2, 9)
CLASSES, WORDS = 3, 50


def timm_network(name, *targets):
    lora = Lora(2, 4.0, list(targets) or None)
    return TimmNetwork(name, pretrained=False, image_size=32, train="all", lora=lora)


BERT = Bert(
    "", pretrained=False, layers=2, hidden=16, heads=2, intermediate=32, vocabulary=WORDS,
    length=12, dropout=0.0, train="all", lora=Lora(2, 4.0, ["query", "value"]),
)  # fmt: skip
VIT = timm_network("test_vit", "qkv")
CONVOLUTIONAL = timm_network("test_efficientnet", "conv_pw", "conv_pwl")
NETWORKS = {"convolutional": (CONVOLUTIONAL, IMAGE), "vit": (VIT, IMAGE), "bert": (BERT, TEXT)}
LARGE = {
    "efficientnet_lite0": (timm_network("efficientnet_lite0"), IMAGE),
    "tf_efficientnet_lite0": (timm_network("tf_efficientnet_lite0", "conv_pwl"), IMAGE),
    "vit_tiny": (timm_network("vit_tiny_patch16_224", "qkv", "fc1"), IMAGE),
    "bert_tiny": (replace(BERT, hidden=128, intermediate=512, lora=Lora(2, 4.0, None)), TEXT),
}


def built(architecture, shape, train):
    """A network whose trained parts are away from where they start, as adapters start at 0."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = replace(architecture, train=train).build(shape, CLASSES).eval()
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data += 0.02 * torch.randn_like(parameter)
        return model


def batch_of(shape, examples=3):
    draw = torch.Generator().manual_seed(1)
    if shape == TEXT:
        tokens = torch.randint(1, WORDS, (examples, TEXT[1]), generator=draw)
        inputs = torch.stack([tokens, torch.zeros_like(tokens)], 1)
    else:
        inputs = torch.rand(examples, *shape, generator=draw)
    targets = torch.arange(examples) % CLASSES
    return Batch(inputs, targets, torch.zeros_like(targets))


def ghost_is_exact(architecture, shape, train):
    """Norms and clipped sums of the fast engine and of the float64 reference."""
    model, batch = built(architecture, shape, train), batch_of(shape)
    engine = make_engine("auto", model, cross_entropy, batch)
    assert engine.name == "ghost"
    reference = Loop(model, cross_entropy, Parameters(model))(batch)
    ours = engine(batch)
    assert torch.allclose(ours.norms.double(), reference.norms, rtol=1e-4)
    factors = (reference.norms.median() / reference.norms).clamp(max=1)
    expected = reference.weighted_sum(factors)
    difference = ours.weighted_sum(factors.float()).double() - expected
    assert difference.norm() < 1e-4 * expected.norm()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("train", TRAIN)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_fast_engine_is_exact(network, train):
    ghost_is_exact(*NETWORKS[network], train)


@pytest.mark.long
def test_batch_normalisation_becomes_group_normalisation_on_request():
    fixed = replace(CONVOLUTIONAL, fix=True, image_size=96)
    ghost_is_exact(fixed, IMAGE, "all")
    model, kept = built(fixed, IMAGE, "norms_and_head"), built(CONVOLUTIONAL, IMAGE, "all")
    kinds = [type(module) for module in model.modules()]
    assert nn.BatchNorm2d not in kinds
    count = sum(isinstance(module, nn.BatchNorm2d) for module in kept.modules())
    assert kinds.count(nn.GroupNorm) == count > 0
    assert trained("convolutional", "norms_and_head") == {
        name for name, p in model.net.named_parameters() if p.requires_grad
    }


def test_group_normalisation_has_the_scales_of_the_batch_normalisation_it_replaces():
    model = nn.Sequential(nn.Conv2d(3, 12, 1), nn.BatchNorm2d(12), nn.BatchNorm2d(7, affine=False))
    scale = model[1].weight
    first, second = with_group_norm(model)[1:]
    assert first.weight is scale
    assert (first.num_groups, second.num_groups, second.weight) == (4, 1, None)


@pytest.mark.long
@pytest.mark.parametrize("train", TRAIN)
@pytest.mark.parametrize("network", LARGE)
def test_the_fast_engine_is_exact_at_published_sizes(network, train):
    ghost_is_exact(*LARGE[network], train)


@pytest.mark.slow
@pytest.mark.parametrize("train", ["lora", "largest_and_head"])
def test_layers_that_pad_as_tensorflow_does_begin_as_they_were(train):
    padded, draw = timm_network("tf_efficientnet_lite0"), torch.Generator().manual_seed(1)
    images, outputs = torch.rand(2, *IMAGE, generator=draw), []
    for part in ("all", train):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            outputs.append(replace(padded, train=part).build(IMAGE, CLASSES).eval()(images))
    assert torch.allclose(*outputs, atol=1e-6)


# Runs are planned, and saved models are checked, on a model without numbers.
@pytest.mark.parametrize("train", TRAIN)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_model_without_numbers_has_the_parameters_and_buffers_of_one_with_them(network, train):
    architecture, shape = NETWORKS[network]
    with torch.device("meta"):
        planned = replace(architecture, train=train).build(shape, CLASSES)
    assert form(planned) == form(built(architecture, shape, train))


def form(model):
    state = [(name, tensor.shape) for name, tensor in model.state_dict().items()]
    return state, [name for name, p in model.named_parameters() if p.requires_grad]


def trained(network, train):
    model = built(*NETWORKS[network], train)
    return {name for name, p in model.net.named_parameters() if p.requires_grad}


HEADS = {"convolutional": "classifier", "vit": "head", "bert": "classifier"}


@pytest.mark.parametrize("network", NETWORKS)
def test_the_head_is_always_trained_and_alone_if_asked(network):
    head = {f"{HEADS[network]}.weight", f"{HEADS[network]}.bias"}
    assert trained(network, "head") == head
    assert all(head < trained(network, train) for train in TRAIN[1:])


@pytest.mark.parametrize("network", NETWORKS)
def test_biases_are_all_biases(network):
    everything = trained(network, "all")
    others = trained(network, "biases_and_head") - trained(network, "head")
    biases = {name for name in everything if name.endswith("bias")}
    assert others == biases - {f"{HEADS[network]}.bias"}


@pytest.mark.parametrize(("network", "norms"), [("vit", 6 * 2 + 1), ("bert", 2 * 2 + 1)])
def test_normalisations_are_their_scales_and_shifts(network, norms):
    others = trained(network, "norms_and_head") - trained(network, "head")
    assert len(others) == 2 * norms
    assert all("norm" in name.lower() for name in others)


def test_batch_normalisations_are_trained_and_their_statistics_are_not():
    model = built(*NETWORKS["convolutional"], "norms_and_head").train()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
    assert all(norm.weight.requires_grad and norm.bias.requires_grad for norm in norms)


@pytest.mark.parametrize(
    ("network", "parts"),
    [
        ("convolutional", ("blocks.4.0", "conv_head", "bn2")),
        ("vit", ("blocks.5", "norm")),
        ("bert", ("bert.encoder.layer.1", "bert.pooler")),
    ],
)
def test_the_last_block_is_what_comes_last(network, parts):
    everything = trained(network, "all")
    last = {n for n in everything if n.startswith(tuple(f"{part}." for part in parts))}
    assert trained(network, "last_block_and_head") == last | trained(network, "head")


@pytest.mark.parametrize(
    ("network", "parts"),
    [
        ("convolutional", ("conv_stem.", "bn1.")),
        ("vit", ("cls_token", "pos_embed", "patch_embed.")),
        ("bert", ("bert.embeddings.",)),
    ],
)
def test_the_first_layer_is_what_comes_before_the_first_block(network, parts):
    first = {n for n in trained(network, "all") if n.startswith(parts)}
    assert first
    assert trained(network, "first_layer_and_head") == first | trained(network, "head")


def test_the_largest_weights_are_a_share_of_each_layer_by_magnitude():
    net = nn.Sequential(nn.Linear(10, 5), nn.Linear(5, 30), nn.Linear(30, 2))
    before = [p.detach().clone() for p in net.parameters()]
    inputs = torch.rand(3, 10)
    expected = net(inputs)
    train_largest(net, {"0": net[0], "1": net[1]}, 0.018)
    assert torch.allclose(net(inputs), expected)
    for layer, weight, number in ((net[0], before[0], 1), (net[1], before[2], 2)):  # of 50 and 150
        chosen = weight.flatten().abs().topk(number).indices
        assert layer.places.tolist() == sorted(chosen.tolist())
        assert layer.largest.shape == (number,)
    assert isinstance(net[2], nn.Linear)


def test_a_step_moves_the_largest_weights_and_no_others():
    model = replace(VIT, train="largest_and_head", share=0.03).build(IMAGE, CLASSES)
    layers = [module for module in model.net.modules() if isinstance(module, Sparse)]
    trained = sum(layer.largest.numel() for layer in layers)
    assert trained == sum(int(0.03 * layer.base.weight.numel()) for layer in layers)
    model(batch_of(IMAGE).inputs).square().sum().backward()
    moved = {name for name, p in model.net.named_parameters() if p.grad is not None}
    assert moved == {n for n in moved if n.endswith(".largest") or n.startswith("head.")}
    assert all(layer.largest.grad.any() for layer in layers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_efficientnet", "tf_efficientnet_lite0", "test_resnet"])
def test_a_convolutional_network_computes_what_timm_computes(name, tmp_path):
    torch.manual_seed(0)
    theirs = timm.create_model(name, num_classes=CLASSES).eval()
    save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    ours = TimmNetwork(name, True, 32, "head", weights=str(tmp_path / "w.safetensors"))
    model = ours.build(IMAGE, CLASSES).train()
    model.net.get_classifier().load_state_dict(theirs.get_classifier().state_dict())
    images = torch.rand(2, *IMAGE)
    constants = (torch.tensor(theirs.pretrained_cfg[k]).view(3, 1, 1) for k in ("mean", "std"))
    mean, std = constants
    expected = theirs.forward_head(theirs.forward_features((images - mean) / std), pre_logits=False)
    assert not [m for m in model.modules() if isinstance(m, nn.Dropout) and m.p]
    assert torch.allclose(model(images), expected, atol=1e-4)


def test_weights_of_other_names_in_the_same_order_are_recognised(tmp_path):
    theirs = timm.create_model("test_resnet", num_classes=7)
    state = theirs.state_dict()
    renamed = {f"layer_{i}.{n.rpartition('.')[2]}": v for i, (n, v) in enumerate(state.items())}
    torch.save(renamed, tmp_path / "w.pt")
    place = str(tmp_path / "w.pt")
    model = TimmNetwork("test_resnet", True, 32, "head", weights=place).build(IMAGE, CLASSES)
    assert torch.equal(model.net.layer1[0].conv1.weight, theirs.layer1[0].conv1.weight)


# Adapters


@pytest.mark.parametrize("network", NETWORKS)
def test_adapters_change_nothing_at_the_start(network):
    architecture, shape = NETWORKS[network]
    torch.manual_seed(0)
    model = replace(architecture, train="lora").build(shape, CLASSES).eval()
    inputs = batch_of(shape).inputs
    adapted = model(inputs)
    for path, module in list(model.net.named_modules()):
        if isinstance(module, Adapted):
            model.net.set_submodule(path, module.base)
    assert torch.allclose(model(inputs), adapted, atol=1e-6)


@pytest.mark.parametrize(
    "base", [nn.Linear(5, 4), nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(3, 4, 1)]
)
def test_an_adapter_adds_the_product_of_its_maps(base):
    adapted = Adapted(base, 2, 1.5)
    nn.init.normal_(adapted.lora_B.weight)
    inputs = torch.randn(3, 5) if isinstance(base, nn.Linear) else torch.randn(3, 3, 6, 6)
    with torch.no_grad():
        product = adapted.lora_B.weight.flatten(1) @ adapted.lora_A.weight.flatten(1)
        expected = base(inputs), adapted(inputs)
        base.weight += 1.5 * product.view_as(base.weight)
        assert torch.allclose(base(inputs), expected[1], atol=1e-5)


def test_names_of_targets_are_checked():
    with pytest.raises(UserError, match=r"targets=query names no linear map .* attn|fc1.*qkv"):
        replace(VIT, train="lora", lora=Lora(2, 4.0, ["query"])).build(IMAGE, CLASSES)
    with pytest.raises(UserError, match=r"write \[query, value\]"):
        Lora(2, 4.0, [])
    for targets in ("qkv", [1]):
        with pytest.raises(UserError, match=r"model\.lora\.targets must be a list of texts"):
            check_settings(Lora, {"rank": 2, "alpha": 1.0, "targets": targets}, "model.lora.")
    with pytest.raises(UserError, match=r"model\.lora\.alpha"):
        check_settings(Lora, {"rank": 2, "alpha": 0.0, "targets": None}, "model.lora.")
    with pytest.raises(UserError, match=r"needs model\.lora"):
        replace(VIT, train="lora", lora=None)


def test_adapters_name_a_run_only_if_they_are_trained():
    base, other = "model=vit_tiny", "model.lora.rank=3"
    assert digest(compose([base])) == digest(compose([base, other]))
    lora = [base, "model.train=lora"]
    assert digest(compose(lora)) != digest(compose([*lora, other]))


@pytest.mark.parametrize("network", NETWORKS)
def test_adapters_are_saved_by_the_names_of_peft(network, tmp_path):
    model = built(*NETWORKS[network], "lora")
    save_adapter(model, tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 4.0)
    assert config["modules_to_save"] == [HEADS[network]]
    tensors = load_file(tmp_path / "adapter/adapter_model.safetensors")
    expected = {
        f"base_model.model.{path}.lora_{part}.weight"
        for path in config["target_modules"]
        for part in "AB"
    }
    head = {f"base_model.model.{HEADS[network]}.{kind}" for kind in ("weight", "bias")}
    assert tensors.keys() == expected | head
    first = config["target_modules"][0]
    kept = tensors[f"base_model.model.{first}.lora_A.weight"]
    assert torch.equal(kept, model.net.get_submodule(first).lora_A.weight)


def test_a_model_without_adapters_has_none_to_save(tmp_path):
    with pytest.raises(UserError, match=r"no adapters: train one with model\.train=lora"):
        save_adapter(built(*NETWORKS["vit"], "head"), tmp_path)
