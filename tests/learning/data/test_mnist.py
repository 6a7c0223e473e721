import gzip
import struct

import pytest
import torch

from dpbench.learning.data.mnist import Mnist, read_idx


def idx(array: torch.Tensor) -> bytes:
    return (
        bytes([0, 0, 8, array.dim()])
        + struct.pack(f">{array.dim()}I", *array.shape)
        + bytes(array.flatten().tolist())
    )


def test_an_idx_file_is_read_in_its_own_shape(tmp_path):
    array = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4)
    (tmp_path / "file").write_bytes(idx(array))
    assert torch.equal(read_idx(tmp_path / "file"), array)


@pytest.mark.slow
@pytest.mark.data
def test_the_original_files_may_lie_there_packed(data_folder, tmp_path):
    packed = tmp_path / "MNIST" / "raw"
    packed.mkdir(parents=True)
    for file in (data_folder / "MNIST" / "raw").glob("*-ubyte"):
        (packed / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes(), 1))
    there, here = Mnist().load(data_folder, seed=0), Mnist().load(tmp_path, seed=0)
    assert torch.equal(there.train.inputs, here.train.inputs)
    assert torch.equal(there.test.targets, here.test.targets)


@pytest.mark.data
def test_the_class_sizes_are_those_of_the_original_files(data_folder):
    data = Mnist().load(data_folder, seed=0)
    assert tuple(torch.bincount(data.train.targets).tolist()) == Mnist().class_sizes
    assert data.train.at(torch.arange(10)).inputs.max() == 1
