import os
import pickle
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from dpbench.learning.data.cifar import (
    ARCHIVE_10,
    TEST_10,
    TEST_100,
    TRAIN_10,
    TRAIN_100,
    Cifar10,
    Cifar100,
)
from dpbench.system.errors import UserError

LAYOUTS = {
    Cifar10: ("cifar-10-python.tar.gz", "labels", TRAIN_10, TEST_10),
    Cifar100: ("cifar-100-python.tar.gz", "fine_labels", TRAIN_100, TEST_100),
}
ROWS = 4  # per batch


@pytest.fixture(params=LAYOUTS, ids=["cifar10", "cifar100"])
def small(request, tmp_path, unchecked):
    """A data set, a folder with an archive in its layout, and its training batches."""
    archive, labels, train, test = LAYOUTS[request.param]
    rng = np.random.default_rng(0)
    batches = []
    with tarfile.open(tmp_path / archive, "w:gz") as tar:
        for source in (*train, *test):
            pixels = rng.integers(0, 256, (ROWS, 3072), dtype=np.uint8)
            classes = rng.integers(0, request.param.classes, ROWS).tolist()
            batch = {"data": pixels, labels: classes, "coarse_labels": [0] * ROWS}
            (tmp_path / "batch").write_bytes(pickle.dumps(batch, protocol=2))
            tar.add(tmp_path / "batch", source.path)
            batches.append((pixels, classes))
    return request.param(), tmp_path, batches


def test_batches_are_taken_out_of_the_archive_and_joined_in_order(small):
    dataset, folder, batches = small
    data = dataset.load(folder, seed=0)
    *train, test = batches
    pixels = np.concatenate([batch[0] for batch in train])
    assert data.train.inputs.shape == (len(pixels), 3, 32, 32)
    assert data.train.inputs.dtype == torch.uint8
    for row, channel, y, x in [(0, 0, 0, 0), (1, 1, 2, 3), (2, 2, 31, 30), (3, 0, 7, 8)]:
        assert data.train.inputs[row, channel, y, x] == pixels[row, 1024 * channel + 32 * y + x]
    assert data.train.targets.tolist() == [k for batch in train for k in batch[1]]
    assert np.array_equal(data.test.inputs.flatten(1).numpy(), test[0])
    assert data.test.targets.tolist() == test[1]
    for split in (data.train, data.test):
        alone = len(dataset.groups) == 1
        assert torch.equal(split.groups, 0 * split.targets if alone else split.targets)


def test_the_archive_is_not_needed_twice(small):
    dataset, folder, _ = small
    first = dataset.load(folder, seed=0)
    for archive in folder.glob("*.tar.gz"):
        archive.unlink()
    assert torch.equal(dataset.load(folder, seed=1).train.inputs, first.train.inputs)
    assert not list(folder.rglob("*.part"))


def test_an_altered_batch_is_refused_before_it_is_unpickled(tmp_path):
    trap = tmp_path / "trap"
    for source in (*TRAIN_10, *TEST_10):
        path = tmp_path / source.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"cos\nmkdir\n(S'" + os.fsencode(trap) + b"'\ntR.")
    with pytest.raises(UserError, match=r"data_batch_1 is truncated or altered"):
        Cifar10().load(tmp_path, seed=0)
    assert not trap.exists()


def test_an_altered_archive_is_refused(tmp_path):
    (tmp_path / ARCHIVE_10.path).write_bytes(b"something else")
    with pytest.raises(UserError, match=r"cifar-10-python.tar.gz is truncated or altered"):
        Cifar10().load(tmp_path, seed=0)


@pytest.mark.parametrize("cls", LAYOUTS)
def test_checksums_are_those_of_torchvision(cls):
    import torchvision  # which takes two seconds, in whichever process needs it

    theirs = getattr(torchvision.datasets, cls.__name__.upper())
    _, _, train, test = LAYOUTS[cls]
    for ours, listed in ((train, theirs.train_list), (test, theirs.test_list)):
        expected = [(f"{theirs.base_folder}/{name}", f"md5:{md5}") for name, md5 in listed]
        assert [(source.path, source.checksum) for source in ours] == expected


@pytest.mark.slow  # unpacks the original files at the first time
@pytest.mark.data
def test_cifar10_is_read_as_torchvision_reads_it(cifar_folder: Path):
    import torchvision

    data = Cifar10().load(cifar_folder, seed=0)
    for split, train in ((data.train, True), (data.test, False)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of pickles that numpy 1 wrote
            theirs = torchvision.datasets.CIFAR10(cifar_folder, train)
        assert np.array_equal(split.inputs.permute(0, 2, 3, 1).numpy(), theirs.data)
        assert split.targets.tolist() == split.groups.tolist() == theirs.targets
    assert tuple(theirs.classes) == Cifar10.groups
    assert len(data.train) == Cifar10.train_size
