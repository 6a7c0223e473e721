"""Models of the suite: sizes that the papers print, and what they refuse."""

import itertools
import math

import pytest
import torch

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.cnn_tanh import CnnTanh
from dpbench.learning.models.logistic import Logistic
from dpbench.learning.models.mlp import Mlp
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.step.gradients import make_engine
from dpbench.system.errors import UserError


def size(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# Esipova et al. 2023, appendix B; on MNIST the paper prints 80,522, which no reading gives.
@pytest.mark.parametrize(
    ("model", "dataset", "count"),
    [
        ("mlp", "adult", 91_650),
        ("regression_mlp", "california", 6_849),
        ("regression_mlp", "wine", 7_041),
        ("logistic", "dutch", 120),
        ("logistic_squashed", "dutch", 120),
        ("cnn_tanh", "celeba", 120_722),
        ("cnn_tanh", "mnist", 97_114),
        ("cnn_tanh", "mnist_unbalanced", 97_114),
    ],
)
def test_parameter_count_is_that_of_the_paper(model, dataset, count):
    run = build(compose([f"model={model}", f"dataset={dataset}"]))
    assert size(run.model.build(run.dataset.shape, run.dataset.classes)) == count


def test_no_reading_of_two_convolutions_has_the_80_522_parameters_printed_for_mnist():
    """3x3 kernels of 32 and 16 channels in either order, on grey or colour images, with or without
    biases; any stride, padding and pooling (a last map of any side); one hidden layer, or none."""
    readings = itertools.product([1, 3], [(32, 16), (16, 32)], [0, 1], [0, 1], range(1, 33))
    for channels, (first, last), bias, head_bias, side in readings:
        convolutions = 9 * (channels * first + first * last) + bias * (first + last)
        features = last * side**2
        assert convolutions + 10 * (features + head_bias) != 80_522
        of_hidden = 80_522 - convolutions - 10 * head_bias  # = width (features + bias + 10)
        assert of_hidden % (features + head_bias + 10) or of_hidden < 0


@pytest.mark.parametrize("name", ["cnn_tanh", "logistic", "logistic_squashed", "mlp"])
def test_small_models_are_built_for_the_default_data_and_need_no_slow_engine(name):
    run = build(compose([f"model={name}"]))
    shape, classes = run.dataset.shape, run.dataset.classes
    model = run.model.build(shape, classes)
    labels = torch.zeros(3, dtype=torch.long)
    batch = Batch(torch.rand(3, *shape), labels, labels)
    assert model(batch.inputs).shape == (3, classes)
    assert make_engine("auto", model, cross_entropy, batch).name == "ghost"


def test_only_squashed_logistic_regression_has_a_floor():
    floor = math.log(1 + math.exp(-1))
    assert round(floor, 3) == 0.313
    model = Logistic(squashed=True).build((5,), 2)
    inputs = 1e4 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    losses = cross_entropy(model(inputs), torch.zeros(200, dtype=torch.long)).detach()
    assert losses.min() >= floor - 1e-6
    assert losses.min() < floor + 1e-3  # the floor is reached, so it is the floor
    model = Logistic(squashed=False).build((5,), 2)
    assert cross_entropy(model(inputs), torch.zeros(200, dtype=torch.long)).min() < 1e-3


def test_cross_entropy_is_the_negative_log_softmax_of_each_example():
    outputs, targets = torch.randn(4, 3, dtype=torch.float64), torch.tensor([0, 2, 1, 2])
    expected = [
        -math.log(math.exp(o[t]) / o.exp().sum()) for o, t in zip(outputs, targets, strict=True)
    ]
    assert cross_entropy(outputs, targets).tolist() == pytest.approx(expected)


def test_unknown_activations_and_inputs_that_are_no_images_are_refused():
    with pytest.raises(UserError, match="needs images"):
        CnnTanh((32, 16)).build((98,), 2)
    with pytest.raises(UserError, match="tanh"):
        Mlp((8,), "tahn")
