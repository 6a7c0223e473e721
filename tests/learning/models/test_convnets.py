"""Convolutional networks: sizes, what they refuse, and the standardised convolution."""

from dataclasses import replace

import pytest
import torch
from timm.layers import ScaledStdConv2d
from torch import nn
from torch.nn.utils import parameters_to_vector

from dpbench.learning.models.cnn_tanh import CnnTanh
from dpbench.learning.models.resnet9 import Residual, ResNet9
from dpbench.learning.models.sample_convnet import SampleConvNet
from dpbench.learning.models.scattering_cnn import ScatteringCnn
from dpbench.learning.models.standardised import StandardisedConv2d, standardised_kernel
from dpbench.learning.models.tempered_cnn import TemperedCnn
from dpbench.learning.models.wide_resnet import Block, WideResNet
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build, prepare, run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError

CIFAR = (3, 32, 32)


def size(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("overrides", "shape", "classes", "count"),
    [
        ("model=sample_convnet", (1, 28, 28), 10, 26_010),
        ("model=tempered_cnn", (1, 28, 28), 10, 26_010),
        ("model=tempered_cnn", CIFAR, 10, 550_570),
        ("model=scattering_cnn", (243, 8, 8), 10, 187_210),
        ("model=scattering_cnn_grey", (81, 7, 7), 10, 33_066),
        ("model=resnet9", CIFAR, 10, 2_449_418),
        ("model=resnet9", CIFAR, 100, 2_541_668),
        ("model=resnet9 model.width=32", CIFAR, 10, 616_458),
        ("model=resnet9 model.weight_standardisation=false", CIFAR, 10, 2_447_946),
        ("model=resnet9 model.scale_norm=true", CIFAR, 10, 2_449_418 + 2 * (128 + 256)),
        ("model=wrn16_4", CIFAR, 10, 2_753_818),
        ("model=wrn16_4 model.scale_norm=true", CIFAR, 10, 2_753_818 + 2 * 2 * (64 + 128 + 256)),
        ("model=wrn16_4", CIFAR, 1000, 3_008_248),
        ("model=wrn16_4 model.weight_standardisation=false", CIFAR, 10, 2_751_562),
    ],
)
def test_parameter_count(overrides, shape, classes, count):
    model = build(compose(overrides.split())).model
    with torch.device("meta"):
        assert size(model.build(shape, classes)) == count


@pytest.mark.parametrize(
    "model", [SampleConvNet(), TemperedCnn(), ScatteringCnn(grey=False), ScatteringCnn(grey=True)]
)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64), (1, 16, 17)])
def test_images_of_other_sizes_pass_through(model, shape):
    assert model.build(shape, 5)(torch.rand(2, *shape)).shape == (2, 5)


# The layers of CIFAR10_CNN and MNIST_CNN of ftramer/Handcrafted-DP, models.py, on their features.
@pytest.mark.parametrize(
    ("overrides", "kinds"),
    [
        (
            "dataset=cifar10 features=scattering_imagenet model=scattering_cnn",
            [nn.Conv2d, nn.Tanh, nn.MaxPool2d, nn.Conv2d, nn.Tanh, nn.Flatten, nn.Linear],
        ),
        (
            "dataset=mnist features=scattering model=scattering_cnn_grey",
            [nn.Conv2d, nn.Tanh, nn.Conv2d, nn.Tanh, nn.Flatten, nn.Linear, nn.Tanh, nn.Linear],
        ),
    ],
)
def test_the_networks_on_scattering_features_have_the_layers_of_their_paper(overrides, kinds):
    run, planned = prepare(run_config([*overrides.split(), "normalization=private"]))
    assert list(map(type, run.model.build(run.dataset.shape, run.dataset.classes))) == kinds
    assert planned.noise_multiplier > 0


# 2,748,890 is what Zagoruyko and Komodakis' WRN-16-4 has: no biases, and the skip branch shares
# the norm of the residual one.
def test_a_wide_resnet_is_the_original_but_for_biases_and_norms_of_the_skip_branch():
    plain = WideResNet(16, 4, 16, weight_standardisation=False).build(CIFAR, 10)
    convolutions = [m for m in plain.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 16  # 13 of 3x3 in depth 16, and three of the skip branches
    biases = sum(m.bias.numel() for m in convolutions)
    skip_norms = 2 * (16 + 64 + 128)
    assert size(plain) - biases - skip_norms == 2_748_890


RELU_FIRST, NORM_FIRST = [nn.ReLU, nn.GroupNorm], [nn.GroupNorm, nn.ReLU]


# The branches of `order1` of facebookresearch/tan, src/models/wideresnet.py.
@pytest.mark.parametrize(
    ("order", "residual", "skip"),
    [
        (0, RELU_FIRST, RELU_FIRST),
        (1, NORM_FIRST, NORM_FIRST),
        (2, NORM_FIRST, RELU_FIRST),
        (3, RELU_FIRST, NORM_FIRST),
    ],
)
def test_each_order_of_a_wide_resnet_has_its_layers_on_both_branches(order, residual, skip):
    torch.manual_seed(0)
    built = WideResNet(16, 1, 4, weight_standardisation=False, order=order).build(CIFAR, 10)
    conv = [nn.Conv2d]
    blocks = [module for module in built if isinstance(module, Block)]
    assert len(blocks) == 6
    for number, block in enumerate(blocks):
        assert list(map(type, block.residual)) == (residual + conv) * 2
        if number % 2 == 0:
            assert list(map(type, block.skip)) == skip + conv
    assert list(map(type, built))[7:9] == RELU_FIRST


def test_orders_of_a_wide_resnet_have_the_same_initial_weights_and_different_outputs():
    inputs = torch.rand(2, *CIFAR, generator=torch.Generator().manual_seed(1))
    built = []
    for order in range(4):
        torch.manual_seed(0)
        built.append(WideResNet(16, 1, 4, weight_standardisation=True, order=order).build(CIFAR, 3))
    weights = [parameters_to_vector(model.parameters()).sort().values for model in built]
    assert all(torch.equal(weights[0], other) for other in weights[1:])
    assert len({tuple(model(inputs).flatten().tolist()) for model in built}) == 4


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        (ResNet9(8, 4, "mish", weight_standardisation=True, scale_norm=True), Residual),
        (WideResNet(16, 1, 4, weight_standardisation=True, scale_norm=True), Block),
    ],
)
def test_scale_normalisation_is_a_norm_right_after_the_sum_of_each_block(architecture, kind):
    layers = list(architecture.build(CIFAR, 10))
    after = [layers[at + 1] for at, layer in enumerate(layers) if isinstance(layer, kind)]
    assert len(after) >= 2
    assert {type(layer) for layer in after} == {nn.GroupNorm}
    torch.manual_seed(0)
    sizes = torch.rand(2, after[0].num_channels, 4, 4)
    assert torch.allclose(after[0](100 * sizes), after[0](sizes), atol=1e-3)
    plain = list(replace(architecture, scale_norm=False).build(CIFAR, 10))
    norms = [id(layer) for layer in after]
    left = [type(layer) for layer in layers if id(layer) not in norms]
    assert left == list(map(type, plain))


@pytest.mark.parametrize(
    ("model", "least"),
    [
        (SampleConvNet(), 14),
        (TemperedCnn(), 16),
        (ScatteringCnn(grey=False), 2),
        (ScatteringCnn(grey=True), 2),
        (ResNet9(8, 4, "relu", weight_standardisation=True), 8),
        (WideResNet(10, 1, 4, weight_standardisation=True), 4),
    ],
)
def test_images_that_are_too_small_and_inputs_that_are_none_are_refused(model, least):
    assert model.build((1, least, least), 2)(torch.rand(1, 1, least, least)).isfinite().all()
    with pytest.raises(UserError, match=f"{least} x {least} pixels or more"):
        model.build((1, least - 1, least), 2)
    with pytest.raises(UserError, match="needs images"):
        model.build((98,), 2)


def test_a_network_that_needs_larger_images_is_not_its_own_way_out():
    with pytest.raises(UserError, match=r"model=cnn_tanh needs .* 5 x 5 .*; use mlp\.$"):
        CnnTanh((4, 4)).build((1, 4, 9), 2)


def test_misspelt_choices_are_refused():
    with pytest.raises(UserError, match="mish"):
        ResNet9(8, 4, "mihs", weight_standardisation=True)
    with pytest.raises(UserError, match="depth=15"):
        WideResNet(15, 1, 4, weight_standardisation=True)
    with pytest.raises(UserError, match=r"model\.order must be a whole number from 0 to 3, got 4"):
        run_of(run_config(["dataset=cifar10", "model=wrn16_4", "model.order=4"]))


@pytest.fixture
def convolution():
    torch.manual_seed(0)
    made = StandardisedConv2d(3, 5, 3, 2, 1, bias=True).double()
    torch.nn.init.uniform_(made.gain, 0.5, 2)
    return made


def test_standardised_kernels_are_those_of_timm_with_the_norm_of_the_gain(convolution):
    kernels = standardised_kernel(convolution.weight, convolution.gain, convolution.floor).flatten(
        1
    )
    assert torch.allclose(kernels.mean(1), torch.zeros(5, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(kernels.norm(dim=1), convolution.gain)
    inputs = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    before = convolution(inputs)
    with torch.no_grad():
        convolution.weight.mul_(3).add_(1)
    assert torch.allclose(convolution(inputs), before)
    theirs = ScaledStdConv2d(3, 5, 3, stride=2, padding=1, eps=1e-12).double()
    state = convolution.state_dict()
    theirs.load_state_dict(state | {"gain": state["gain"].view_as(theirs.gain)})
    assert torch.allclose(convolution(inputs), theirs(inputs))
