"""Files made from others: none is believed that is not, byte for byte, the one that was made."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.data.caches import ensure_cached
from dpbench.learning.data.celeba import CelebA
from dpbench.system import files
from dpbench.system.errors import UserError


@pytest.fixture
def two(tmp_path):
    """two(): has two files made, and returns them; two.times: how often."""

    def have():
        def make(parts):
            have.times += 1
            for number, part in enumerate(parts):
                part.write_bytes(bytes(range(100)) * (number + 1))

        ensure_cached(have.paths, make)
        return have.paths

    have.times, have.paths = 0, [tmp_path / "a.npy", tmp_path / "b.npy"]
    return have


def test_they_are_made_once(two, tmp_path):
    first, second = two()
    assert (first.read_bytes(), len(second.read_bytes())) == (bytes(range(100)), 200)
    assert two() == [first, second]
    assert two.times == 1
    names = {"a.npy", "a.npy.lock", "a.npy.sha256", "b.npy", "b.npy.sha256"}
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="there is no sha256sum")
def test_anybody_can_check_them(two, tmp_path):
    two()
    asked = ["sha256sum", "--check", "--strict", "a.npy.sha256", "b.npy.sha256"]
    subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1), st.integers(0, 8 * 100 - 1))
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory, which, bit):
    folder = tmp_path_factory.mktemp("folder")
    paths = [folder / "a", folder / "b"]

    def make(parts):
        for part in parts:
            part.write_bytes(bytes(range(100)))

    ensure_cached(paths, make)
    content = bytearray(paths[which].read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    paths[which].write_bytes(content)
    with pytest.raises(UserError, match=f"{paths[which]} is truncated or altered: delete it to"):
        ensure_cached(paths, make)
    paths[which].unlink()
    ensure_cached(paths, make)
    assert paths[which].read_bytes() == bytes(range(100))


@pytest.mark.parametrize("lost", ["a.npy", "b.npy", "a.npy.sha256", "b.npy.sha256"])
def test_if_one_file_is_missing_all_are_created_again(two, tmp_path, lost):
    two()
    (tmp_path / lost).unlink()
    two()
    assert two.times == 2


def test_runs_of_one_process_share_the_reading(two, monkeypatch):
    two()
    monkeypatch.setattr(files, "digest_of", lambda path: pytest.fail("read again"))
    two()


def test_a_flipped_bit_in_packed_photographs_is_found(small_celeba):
    data = CelebA(size=16, target="Male", group="Eyeglasses")
    data.load(small_celeba, seed=0)
    packed = small_celeba / "celeba" / "train_16.npy"
    content = bytearray(packed.read_bytes())
    content[-1] ^= 1
    packed.write_bytes(content)
    with pytest.raises(UserError, match=r"train_16.npy is truncated or altered"):
        data.load(small_celeba, seed=0)
