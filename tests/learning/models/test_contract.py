"""What every larger model must be, on small versions: one example's gradient is its own."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.bert import Bert
from dpbench.learning.models.resnet9 import ResNet9
from dpbench.learning.models.sample_convnet import SampleConvNet
from dpbench.learning.models.scattering_cnn import ScatteringCnn
from dpbench.learning.models.tempered_cnn import TemperedCnn
from dpbench.learning.models.timm_network import TimmNetwork
from dpbench.learning.models.wide_resnet import WideResNet
from dpbench.step.gradients import make_engine

CLASSES, EXAMPLES, WORDS = 3, 3, 50
IMAGE, TEXT = (3, 16, 16), (2, 9)


def vit(train):
    return TimmNetwork("test_vit", pretrained=False, image_size=32, train=train)


def bert(train):
    return Bert(
        "", pretrained=False, layers=2, hidden=16, heads=2, intermediate=32, vocabulary=WORDS,
        length=12, dropout=0.1, train=train,
    )  # fmt: skip


# The model and its inputs.
CASES = {
    "sample_convnet": (SampleConvNet(), IMAGE),
    "tempered_cnn": (TemperedCnn(), IMAGE),
    "tempered_cnn, grey": (TemperedCnn(), (1, 16, 16)),
    "scattering_cnn": (ScatteringCnn(grey=False), (12, 8, 8)),
    "scattering_cnn, grey": (ScatteringCnn(grey=True), (9, 7, 7)),
    "resnet9": (ResNet9(8, 4, "mish", weight_standardisation=True), IMAGE),
    "resnet9, plain": (ResNet9(8, 4, "mish", weight_standardisation=False), IMAGE),
    "resnet9, scale norm": (
        ResNet9(8, 4, "mish", weight_standardisation=True, scale_norm=True),
        IMAGE,
    ),
    "wide_resnet": (WideResNet(10, 1, 4, weight_standardisation=True), IMAGE),
    "wide_resnet, plain": (WideResNet(10, 1, 4, weight_standardisation=False), IMAGE),
    "wide_resnet, order 2": (WideResNet(10, 1, 4, weight_standardisation=True, order=2), IMAGE),
    "vit": (vit("all"), IMAGE),
    "vit, last block": (vit("last_block_and_head"), IMAGE),
    "vit, biases": (vit("biases_and_head"), IMAGE),
    "bert": (bert("all"), TEXT),
    "bert, last layer": (bert("last_block_and_head"), TEXT),
    "bert, biases": (bert("biases_and_head"), TEXT),
}


def texts(examples):
    tokens = torch.randint(1, WORDS, (examples, TEXT[1]))
    for length, row in enumerate(tokens, start=4):
        row[length:] = 0
    return torch.stack([tokens, torch.randint(0, 2, tokens.shape)], 1)


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def model(case):
    architecture, shape = CASES[case]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return architecture.build(shape, CLASSES).eval()


@pytest.fixture
def batch(case):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        shape = CASES[case][1]
        inputs = texts(EXAMPLES) if shape == TEXT else torch.rand(EXAMPLES, *shape)
    targets = torch.arange(EXAMPLES) % CLASSES
    return Batch(inputs, targets, torch.zeros_like(targets))


def test_outputs_are_one_number_per_class(model, batch):
    outputs = model(batch.inputs)
    assert type(outputs) is torch.Tensor
    assert outputs.shape == (EXAMPLES, CLASSES)


def test_nothing_mixes_the_examples_of_a_batch(model, batch):
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules())
    for row, part in zip(model(batch.inputs), batch.split(1), strict=True):
        assert torch.allclose(model(part.inputs)[0], row, atol=1e-5)


def test_nothing_is_done_in_place(model):
    assert not any(getattr(module, "inplace", False) for module in model.modules())


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "vmap"])
def test_engines_agree_with_the_reference_in_single_precision(model, batch, name):
    reference = make_engine("loop", model, cross_entropy, batch)(batch).stack()
    ours = make_engine(name, model, cross_entropy, batch)(batch).stack()
    error = (ours.double() - reference).norm(dim=1) / reference.norm(dim=1)
    assert error.max() < 1e-4


@pytest.mark.sampled(6)
def test_the_fast_engine_does_it(model, batch):
    assert make_engine("auto", model, cross_entropy, batch).name == "ghost"


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["auto", "vmap"])
def test_a_gradient_in_training_is_finite_dropout_and_all(model, batch, name):
    engine = make_engine(name, model.train(), cross_entropy, batch)
    assert engine(batch).stack().isfinite().all()


def test_double_precision_and_one_example_at_a_time_are_possible(model, batch):
    model = model.double()
    inputs = batch.inputs.double() if batch.inputs.is_floating_point() else batch.inputs
    named = {n: p.detach() for n, p in model.named_parameters()}

    def one(example):
        return functional_call(model, named, (example.unsqueeze(0),)).squeeze(0)

    outputs = vmap(one)(inputs)
    assert outputs.dtype == torch.float64
    assert torch.allclose(outputs, model(inputs))


def test_only_trained_parts_have_gradients(case, model, batch):
    cross_entropy(model(batch.inputs), batch.targets).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    frozen = [p for p in model.parameters() if not p.requires_grad]
    assert bool(frozen) == case.endswith(("last block", "last layer", "biases"))


def test_planning_takes_no_memory(case):
    architecture, shape = CASES[case]
    with torch.device("meta"):
        model = architecture.build(shape, CLASSES)
    assert all(parameter.is_meta for parameter in model.parameters())
