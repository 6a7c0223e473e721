"""What every data set promises, for each that has a configuration."""

from functools import cache
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpbench.learning.models.architecture import LOSSES
from dpbench.runs.config.search_path import data_kind

CONFIGS = Path(__file__).parents[3] / "conf" / "dataset"
KINDS = {"tabular data", "images", "texts"}
CUSTOM = {"csv", "hub", "hub_images", "images"}  # of the user's own: tests/learning/data/custom
PUBLISHED_SPLIT = {"mnist", "cifar10", "cifar10_fewer"}  # no draw at all
# Tested on small files in their layout.
NOWHERE = {"celeba", "cifar100", "imagenet32", "movie_reviews", "snli"}


def build(name: str, **changes):
    return instantiate(OmegaConf.load(CONFIGS / f"{name}.yaml"), **changes, _convert_="all")


@cache
def loaded(dataset, folder, seed):
    return dataset.load(folder, seed)


def marks(name: str) -> list:
    if "digits" in name:
        return []
    # The original files of CIFAR-10 take long to unpack.
    return [pytest.mark.data, *([pytest.mark.slow] if name.startswith("cifar10") else [])]


@pytest.fixture(
    params=[
        pytest.param(path.stem, marks=marks(path.stem))
        for path in sorted(CONFIGS.glob("*.yaml"))
        if path.stem not in NOWHERE | CUSTOM
    ]
)
def dataset(request):
    return build(request.param)


@pytest.fixture
def folder(dataset, request):
    if "digits" in dataset.name:
        return Path("unread")
    if dataset.task == "regression":
        return request.getfixturevalue("regression_folder")
    kind = "cifar" if dataset.name.startswith("cifar10") else "data"
    return request.getfixturevalue(f"{kind}_folder")


@pytest.fixture
def data(dataset, folder):
    return loaded(dataset, folder, 0)


def check_split(dataset, split):
    batch = split.at(torch.arange(min(5, len(split))))
    assert split.inputs.shape == (len(split), *dataset.shape)
    assert batch.inputs.dtype == torch.float32
    assert batch.inputs.isfinite().all()
    assert split.groups.dtype == torch.int64
    if dataset.task == "regression":
        assert split.targets.dtype == torch.float32
        assert split.targets.isfinite().all()
    else:
        assert split.targets.dtype == torch.int64
        assert set(split.targets.tolist()) <= set(range(dataset.classes))
    assert set(split.groups.tolist()) <= set(range(len(dataset.groups)))


@pytest.mark.slow
def test_splits_have_the_shapes_and_types_that_were_promised(dataset, data):
    check_split(dataset, data.train)
    check_split(dataset, data.test)
    if dataset.task == "classification":
        assert data.train.targets.unique().tolist() == list(range(dataset.classes))
    assert data.test.groups.unique().tolist() == list(range(len(dataset.groups)))


def test_the_training_set_has_about_the_public_size(dataset, data):
    assert abs(len(data.train) - dataset.train_size) < 2 * dataset.train_size**0.5


@pytest.mark.slow
def test_the_seed_alone_draws_the_split(dataset, data, folder):
    torch.manual_seed(1)
    again, other = dataset.load(folder, 0), dataset.load(folder, 1)
    assert torch.equal(again.train.inputs, data.train.inputs)
    assert torch.equal(again.test.targets, data.test.targets)
    same = torch.equal(other.train.targets, data.train.targets)
    assert same == (dataset.name in PUBLISHED_SPLIT)


def test_small_celeba_keeps_the_same_promises(small_celeba):
    dataset = build("celeba", size=16)
    data = dataset.load(small_celeba, seed=0)
    check_split(dataset, data.train)
    check_split(dataset, data.test)


@pytest.mark.parametrize("name", sorted({path.stem for path in CONFIGS.glob("*.yaml")} - CUSTOM))
def test_all_is_known_before_anything_is_read(name):
    dataset = build(name)
    assert dataset.name == name
    assert dataset.task in LOSSES
    assert (dataset.classes > 1) == (dataset.task == "classification")
    assert dataset.train_size > 0
    assert len(dataset.groups) == len(set(dataset.groups)) >= 1
    assert all(note[0].isupper() and note.endswith(".") for note in dataset.notes)
    assert hash(dataset) == hash(build(name))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_opens_with_its_kind_its_source_its_cost_and_what_to_expect(path):
    comments = [line for line in path.read_text().splitlines() if line.startswith("# ")]
    said = [line.split(":")[0] for line in comments if not line.startswith("#  ")]
    assert said == ["# Kind", "# Source", "# Cost", "# Expect"]
    assert data_kind(path.stem) in KINDS
