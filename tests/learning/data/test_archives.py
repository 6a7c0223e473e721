"""Miniatures of the publishers' archives, with their keys and types, from download to a run."""

import hashlib
import io
import pickle
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from dpbench.learning.data import cifar, imagenet32
from dpbench.learning.data.cifar import Cifar100
from dpbench.learning.data.fetch import download
from dpbench.learning.data.imagenet32 import ImageNet32
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import read
from dpbench.system.errors import UserError

ROWS = 60  # of each pickle
SMALL = ["model=logistic", "epochs=1", "batch_size=30"]


def pickled(content: dict) -> bytes:
    """As Python 2 wrote it: in protocol 2."""
    return pickle.dumps(content, protocol=2)


def photographs(classes: range, draw: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    return draw.integers(0, 256, (ROWS, 3072), dtype=np.uint8), draw.choice(classes, ROWS).tolist()


def verified(source: download.Source, content: bytes, *urls: str) -> download.Source:
    """The source with the checksum of other content, and its addresses."""
    return replace(source, checksum="md5:" + hashlib.md5(content).hexdigest(), urls=urls)


@pytest.fixture
def cifar100(tmp_path, monkeypatch):
    """CIFAR-100's archive in a folder that stands in for its publisher's site."""
    draw = np.random.default_rng(0)
    archive = tmp_path / "site" / cifar.ARCHIVE_100.path
    archive.parent.mkdir()
    members = []
    with tarfile.open(archive, "w:gz") as tar:
        for source in (*cifar.TRAIN_100, *cifar.TEST_100):
            pixels, fine = photographs(range(100), draw)
            content = pickled(
                {
                    "filenames": [f"photograph_s_{i:06d}.png" for i in range(ROWS)],
                    "batch_label": f"{source.path} batch 1 of 1",
                    "fine_labels": fine,
                    "coarse_labels": [label // 5 for label in fine],
                    "data": pixels,
                }
            )
            member = tarfile.TarInfo(source.path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
            members.append(verified(source, content))
    site = verified(cifar.ARCHIVE_100, archive.read_bytes(), archive.as_uri())
    monkeypatch.setattr(cifar, "ARCHIVE_100", site)
    monkeypatch.setattr(cifar, "TRAIN_100", (members[0],))
    monkeypatch.setattr(cifar, "TEST_100", (members[1],))
    monkeypatch.setattr(Cifar100, "train_size", ROWS)
    return archive


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """ImageNet32's eleven files where a person puts them."""
    draw = np.random.default_rng(0)
    (tmp_path / "data" / "imagenet32").mkdir(parents=True)

    def made(source: download.Source) -> download.Source:
        pixels, labels = photographs(range(1, 1001), draw)
        content = pickled({"data": pixels, "labels": labels, "mean": pixels.mean(0)})
        (tmp_path / "data" / source.path).write_bytes(content)
        return verified(source, content)

    monkeypatch.setattr(imagenet32, "TRAIN", tuple(map(made, imagenet32.TRAIN)))
    monkeypatch.setattr(imagenet32, "TEST", tuple(map(made, imagenet32.TEST)))
    monkeypatch.setattr(ImageNet32, "train_size", ROWS * len(imagenet32.TRAIN))
    monkeypatch.setattr(ImageNet32, "test_size", ROWS)
    return tmp_path / "data"


@pytest.fixture
def run_in(tmp_path, monkeypatch):
    """run_in(dataset): the record of one epoch on what lies in, or is downloaded to, `data`."""
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    return lambda *words: read(
        load_or_run(run_config([*words, *SMALL, f"results_dir={tmp_path / 'out'}"]))
    )


@pytest.mark.slow
def test_cifar100_is_downloaded_verified_unpacked_and_trained_on(cifar100, run_in, tmp_path):
    record = run_in("dataset=cifar100")
    assert 0 <= record.metrics["test/accuracy"] <= 1
    cifar100.unlink()
    assert run_in("dataset=cifar100", "seed=1").metrics, "the archive is not asked for again"
    assert (tmp_path / "data" / cifar.TRAIN_100[0].path).exists()


def test_another_archive_than_the_publisher_s_is_not_unpacked(cifar100, tmp_path):
    cifar100.write_bytes(cifar100.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"cifar-100-python\.tar\.gz is missing"):
        Cifar100().load(tmp_path / "data", 0)
    assert not (tmp_path / "data" / cifar.TRAIN_100[0].path).exists()


@pytest.mark.long
def test_imagenet32_is_verified_converted_once_and_trained_on(imagenet, run_in):
    words = ["dataset=imagenet32", "privacy.delta=1e-5"]
    record = run_in(*words)
    assert 0 <= record.metrics["test/accuracy"] <= 1
    for source in (*imagenet32.TRAIN, *imagenet32.TEST):
        (imagenet / source.path).unlink()
    assert run_in(*words, "seed=1").metrics, "the converted files suffice"


@pytest.fixture
def arrays(imagenet):
    """ImageNet32's files as those of numpy, which the publishers distribute as well."""
    for source in (*imagenet32.TRAIN, *imagenet32.TEST):
        file = imagenet / source.path
        content = pickle.loads(file.read_bytes())
        np.savez(file, **{key: np.asarray(value) for key, value in content.items()})
    return imagenet


def test_imagenet32_as_arrays_is_that_of_pickles(arrays):
    for source in (*imagenet32.TRAIN, *imagenet32.TEST):
        (arrays / source.path).unlink()
    data = ImageNet32().load(arrays, 0)
    with np.load(arrays / "imagenet32" / "train_data_batch_10.npz") as last:
        assert np.array_equal(data.train.inputs[-ROWS:].flatten(1), last["data"])
        assert np.array_equal(data.train.targets[-ROWS:], last["labels"] - 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda data, labels: {"data": data[:, :-1], "labels": labels},
        lambda data, labels: {"data": data, "labels": labels[:-1]},
        lambda data, labels: {"data": data.astype(float), "labels": labels},
        lambda data, labels: {"data": data},
        lambda data, labels: {"data": data, "labels": labels.astype(object)},
        lambda data, labels: {"data": np.tile(data, (9, 1)), "labels": np.tile(labels, 9)},
    ],
    ids=["pixels", "labels", "type", "missing", "pickled", "number"],
)
def test_broken_arrays_of_imagenet32_are_refused(change, arrays):
    file = arrays / "imagenet32" / "train_data_batch_3.npz"
    with np.load(file) as content:
        np.savez(file, **change(content["data"], content["labels"]))
    with pytest.raises(UserError, match=r"train_data_batch_.* is truncated or altered"):
        ImageNet32().load(arrays, 0)
    assert not [*(arrays / "imagenet32").glob("*.npy")]


def test_a_file_of_imagenet32_with_one_bit_flipped_is_refused(imagenet):
    file = imagenet / imagenet32.TRAIN[3].path
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="train_data_batch_4 is truncated or altered"):
        ImageNet32().load(imagenet, 0)
