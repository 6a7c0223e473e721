import math
from dataclasses import replace

import pytest
import torch

from dpbench.learning.data.derive.normalization import Normalization, with_transform
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Data
from dpbench.runs.config.buildable import check_settings
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.digest import digest
from dpbench.runs.training.trainer import fit
from dpbench.system.errors import UserError

DIGITS = Digits(test_share=0.2)
SMALL = ["epochs=1", "model=logistic", "seed=2"]


def run_of(*overrides):
    return build(compose([*SMALL, *overrides]))


def test_each_channel_is_less_its_mean_and_over_its_deviation():
    images = torch.rand(4, 3, 5, 5)
    mean, std = (0.1, 0.2, 0.3), (0.5, 1.0, 4.0)
    seen = Normalization(mean, std)(images)
    for channel in range(3):
        expected = (images[:, channel] - mean[channel]) / std[channel]
        assert torch.allclose(seen[:, channel], expected)
    assert torch.allclose(Normalization([0.5], [0.25])(images), (images - 0.5) / 0.25)


@pytest.mark.slow
def test_whole_and_held_out_and_dealt_out_examples_are_normalised_alike(tmp_path):
    plain = DIGITS.load(tmp_path, 0).train
    indices = torch.tensor([3, 700, 11])
    expected = 2 * plain.at(indices).inputs - 1
    run = run_of("normalization=half", "seed=0", "users=iid", "users.number=100")
    train = run.load(tmp_path).train
    assert torch.allclose(train.at(indices).inputs, expected)
    assert torch.allclose(train.take(indices).at(torch.arange(3)).inputs, expected)
    users = run.users.of(train, 0).at(torch.arange(100))
    assert users.inputs[users.present].min() == -1
    held_out = run_of("normalization=half", "validation=0.2").load(tmp_path)
    assert held_out.tested_on == "validation"
    assert held_out.test.at(torch.arange(9)).inputs.min() == -1


def test_bytes_are_scaled_before(tmp_path):
    plain = DIGITS.load(tmp_path, 0)
    packed = replace(plain.train, inputs=(plain.train.inputs * 255).to(torch.uint8))
    data = with_transform(Data(packed, plain.test), Normalization([0.5], [0.5]))
    seen = data.train.at(torch.arange(50)).inputs
    assert (seen.min(), seen.max()) == (-1, 1)


@pytest.mark.slow
def test_a_run_is_that_on_a_data_set_which_was_normalised_before(tmp_path):
    run = run_of("normalization=half")
    parts = run.load(tmp_path)

    class Twin(Digits):
        def load(self, folder, seed):
            ready = (
                replace(part, inputs=part.at(torch.arange(len(part))).inputs, normalize=None)
                for part in (parts.train, parts.test)
            )
            return Data(*ready)

    twin = replace(run, dataset=Twin(0.2), normalization=None)
    plain = replace(run, normalization=None)
    record = fit(run, tmp_path)
    assert record.metrics == fit(twin, tmp_path).metrics
    assert record.metrics != fit(plain, tmp_path).metrics
    assert record.privacy | {"notes": []} == fit(plain, tmp_path).privacy | {"notes": []}


def test_normalization_is_part_of_the_name_unless_it_is_none():
    plain, half = (run_of(*more).config for more in ([], ["normalization=half"]))
    assert digest(plain) != digest(half)
    assert digest({k: v for k, v in plain.items() if k != "normalization"}) == digest(plain)
    assert not run_of().normalization


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_the_constants_are_those_of_the_training_images(name, request):
    folder = request.getfixturevalue({"mnist": "data_folder", "cifar10": "cifar_folder"}[name])
    run = run_of(f"dataset={name}", f"normalization={name}")
    images = run.dataset.load(folder, 0).train.inputs
    moments = torch.zeros(2, images.shape[1], dtype=torch.float64)
    for part in images.split(1000):  # as many bytes as the cache holds, not gigabytes
        pixels = part.double() / 255
        moments += torch.stack([pixels.sum((0, 2, 3)), pixels.square().sum((0, 2, 3))])
    mean, square = moments / (images.numel() / images.shape[1])
    assert mean.tolist() == pytest.approx(run.normalization.mean, abs=6e-5)
    std = (square - mean**2).sqrt()
    assert std.tolist() == pytest.approx(run.normalization.std, abs=6e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["std=[0]"], "each of normalization.std must be a positive number, got 0"),
        (["mean=[much]"], r"normalization.mean must be a list of numbers, got \['much'\]"),
        (["mean=0.5"], "normalization.mean must be a list of numbers, got 0.5"),
    ],
)
def test_constants_that_are_none_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        run_of("normalization=half", *(f"normalization.{change}" for change in changes))


@pytest.mark.parametrize("value", [math.nan, math.inf, True])
def test_numbers_that_are_none_are_refused(value):
    with pytest.raises(UserError, match=r"normalization.mean must be a list of numbers"):
        check_settings(Normalization, {"mean": [value], "std": [1.0]}, "normalization.")
