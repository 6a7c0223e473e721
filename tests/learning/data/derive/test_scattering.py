"""Scattering features: each image by itself, computed once, and refused where that is no use."""

import sys

import numpy as np
import pytest
import torch
from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

from dpbench.learning.data.derive import features
from dpbench.learning.data.derive.features import WithFeatures
from dpbench.learning.data.derive.normalization import Normalization
from dpbench.learning.data.derive.scattering import Scattering
from dpbench.learning.data.digits import Digits
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.runs.records.digest import digest
from dpbench.system.errors import UserError

DIGITS = Digits(test_share=0.2)
SCATTERED = WithFeatures(DIGITS, Scattering(depth=1))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return SCATTERED.load(tmp_path_factory.mktemp("data"), 0)


@pytest.mark.parametrize(("depth", "channels"), [(1, 9), (2, 81), (3, 217)])
def test_the_channels_are_those_of_the_library(depth, channels):
    images = torch.rand(1, 1, 16, 16)
    assert Scattering(depth).channels == channels
    assert Scattering(depth).transform((16, 16))(images).shape == (1, channels, *[16 >> depth] * 2)


def test_shapes_are_those_of_the_paper_and_names_of_other_runs_as_before():
    def shape(name):
        return build(compose([f"dataset={name}", "features=scattering"])).dataset.shape

    assert (shape("mnist"), shape("cifar10")) == ((81, 7, 7), (243, 8, 8))
    plain, other = (build(compose(o)).config for o in ([], ["features=scattering"]))
    assert digest(plain) != digest(other)
    assert digest({k: v for k, v in plain.items() if k != "features"}) == digest(plain)


def test_an_image_has_the_features_that_it_has_alone(data):
    pixels = DIGITS.load(None, 0).train
    library = ScatteringTorch2D(J=1, shape=(8, 8))
    for index in (0, 700, len(pixels) - 1):  # in different parts of what is transformed at once
        alone = library(pixels.at(torch.tensor([index])).inputs).flatten(1, 2)
        assert torch.allclose(data.train.at(torch.tensor([index])).inputs, alone, atol=1e-6)
    assert data.train.inputs.shape == (len(pixels), *SCATTERED.shape)
    assert torch.equal(data.train.targets, pixels.targets)


def test_pixels_are_normalised_before(tmp_path, data):
    constants = Normalization([0.5], [0.25])
    with_features = WithFeatures(DIGITS, Scattering(depth=1, normalization=constants))
    normalised = with_features.load(tmp_path, 0)
    pixels = (DIGITS.load(None, 0).test.inputs - 0.5) / 0.25
    expected = ScatteringTorch2D(J=1, shape=(8, 8))(pixels.contiguous()).flatten(1, 2)
    assert torch.allclose(normalised.test.inputs, expected, atol=1e-5)
    assert with_features.notes == (*DIGITS.notes, constants.note)
    before = WithFeatures(DIGITS, Scattering(depth=1)).load(tmp_path, 0)
    assert torch.equal(before.test.inputs, data.test.inputs), "files of both are kept"
    with pytest.raises(UserError, match="channels"):
        WithFeatures(DIGITS, Scattering(1, Normalization([0.5] * 3, [0.25]))).load(tmp_path, 0)


@pytest.mark.slow
def test_bytes_are_scaled_to_one_before(tmp_path):
    class Bytes(Digits):
        def load(self, folder, seed):
            plain = super().load(folder, seed)
            for split in (plain.train, plain.test):
                object.__setattr__(split, "inputs", (split.inputs * 255).round().byte())
            return plain

    small = WithFeatures(Bytes(0.2), Scattering(1)).load(tmp_path, 0)
    mean = small.test.inputs[:, 0].mean()
    pixels = DIGITS.load(tmp_path, 0).test.inputs.mean()
    assert 0.2 < float(mean / pixels) < 5  # and not 255 times as large


@pytest.mark.slow
def test_they_are_computed_once_for_each_draw_of_the_images(tmp_path, monkeypatch):
    calls = []

    def counting(self, *where, transform=Scattering.transform):
        calls.append(where)
        return transform(self, *where)

    monkeypatch.setattr(Scattering, "transform", counting)
    first = SCATTERED.load(tmp_path, 0)
    again = SCATTERED.load(tmp_path, 0)
    assert len(calls) == 2  # the training and the test split
    assert torch.equal(first.test.inputs, again.test.inputs)
    other = SCATTERED.load(tmp_path, 1)
    assert len(calls) == 4
    assert not torch.equal(first.test.inputs, other.test.inputs)


@pytest.mark.slow
def test_an_altered_file_is_refused(tmp_path):
    SCATTERED.load(tmp_path, 0)
    for path in (tmp_path / "features").glob("*.npy"):
        content = np.load(path, mmap_mode="r+")
        content[0, 0] += 1
        content.flush()
    with pytest.raises(UserError, match="is truncated or altered: delete it"):
        SCATTERED.load(tmp_path, 0)


def test_held_out_examples_have_features_as_well(tmp_path):
    run = build(compose(["features=scattering", "features.depth=1", "validation=0.2"]))
    assert run.load(tmp_path).test.at(torch.arange(5)).inputs.shape == (5, 9, 4, 4)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kymatio.scattering2d.frontend.torch_frontend", None)
    with pytest.raises(UserError, match=r"pip install 'dpbench-suite\[features\]'"):
        Scattering(1).transform((8, 8))


def test_few_images_are_transformed_at_once(monkeypatch, tmp_path):
    sizes = []

    def counting(images):
        sizes.append(len(images))
        return images.repeat(1, 9, 1, 1)[..., :4, :4]

    monkeypatch.setattr(features, "AT_ONCE", 500)
    monkeypatch.setattr(Scattering, "transform", lambda self, *where: counting)
    SCATTERED.load(tmp_path, 0)
    assert max(sizes) == 500
