import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from dpbench.learning.data.imagenet32 import TEST, TRAIN, ImageNet32
from dpbench.system.errors import UserError

ROWS = 3  # per file


class Small(ImageNet32):
    train_size = ROWS * len(TRAIN)
    test_size = ROWS


@pytest.fixture
def folder(tmp_path, unchecked) -> Path:
    """A data folder with eleven small files in the publishers' layout."""
    rng = np.random.default_rng(0)
    (tmp_path / "imagenet32").mkdir()
    for source in (*TRAIN, *TEST):
        pixels = rng.integers(0, 256, (ROWS, 3072), dtype=np.uint8)
        labels = [1, 1000, int(rng.integers(1, 1001))]
        batch = {"data": pixels, "labels": labels, "mean": pixels.mean(0)}
        (tmp_path / source.path).write_bytes(pickle.dumps(batch, protocol=2))
    return tmp_path


def original(folder, source):
    return pickle.loads((folder / source.path).read_bytes())


def test_files_are_joined_in_order_and_classes_count_from_0(folder):
    data = Small().load(folder, seed=0)
    batches = [original(folder, source) for source in TRAIN]
    pixels = np.concatenate([batch["data"] for batch in batches])
    assert np.array_equal(data.train.inputs.flatten(1).numpy(), pixels)
    assert data.train.inputs.shape == (Small.train_size, 3, 32, 32)
    assert data.train.targets.tolist() == [k - 1 for batch in batches for k in batch["labels"]]
    assert (data.train.targets.min(), data.train.targets.max()) == (0, 999)
    assert data.test.targets.tolist() == [k - 1 for k in original(folder, *TEST)["labels"]]
    assert not data.train.groups.any()
    scaled = data.train.at(torch.tensor([0])).inputs[0, 1, 2, 3].item()
    assert scaled == pytest.approx(pixels[0, 1024 + 67] / 255)


def test_the_second_load_needs_no_pickles(folder):
    first = Small().load(folder, seed=0)
    for source in (*TRAIN, *TEST):
        (folder / source.path).unlink()
    second = Small().load(folder, seed=1)
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert torch.equal(first.train.targets, second.train.targets)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what is mapped")
def test_photographs_are_mapped_and_not_read(folder):
    data = Small().load(folder, seed=0)
    place = data.train.inputs.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if start <= place < end:
            assert line.endswith("train_images.npy")
            return
    pytest.fail("the photographs are nowhere")


def test_a_conversion_that_fails_leaves_nothing_that_looks_whole(folder):
    broken = folder / TRAIN[6].path
    whole = broken.read_bytes()
    broken.write_bytes(whole[:5000])
    with pytest.raises(UserError, match="train_data_batch_7 is truncated or altered"):
        Small().load(folder, seed=0)
    assert not list(folder.rglob("*.npy")) + list(folder.rglob("*.part"))
    broken.write_bytes(whole)
    assert len(Small().load(folder, seed=0).train) == Small.train_size


def test_another_number_of_photographs_is_refused(folder):
    Small().load(folder, seed=0)
    with pytest.raises(UserError, match=r"30 photographs and .* 30 labels instead of 1281167"):
        ImageNet32().load(folder, seed=0)


def test_a_missing_file_is_named_with_its_page(tmp_path):
    with pytest.raises(UserError, match=r"train_data_batch_1 is missing .* https://image-net"):
        ImageNet32().load(tmp_path, seed=0)


def test_an_altered_file_is_refused_before_it_is_unpickled(tmp_path):
    trap, file = tmp_path / "trap", tmp_path / TRAIN[0].path
    file.parent.mkdir()
    file.write_bytes(b"cos\nmkdir\n(S'" + os.fsencode(trap) + b"'\ntR.")
    with pytest.raises(UserError, match=r"train_data_batch_1 is truncated or altered"):
        ImageNet32().load(tmp_path, seed=0)
    assert not trap.exists()


def test_even_a_file_that_passes_its_checksum_runs_nothing(folder):
    trap = folder / "trap"
    (folder / TRAIN[0].path).write_bytes(b"cos\nmkdir\n(S'" + os.fsencode(trap) + b"'\ntR.")
    with pytest.raises(UserError, match=r"refers to os.mkdir"):
        Small().load(folder, seed=0)
    assert not trap.exists()
