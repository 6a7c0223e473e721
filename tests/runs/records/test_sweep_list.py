"""The runs of a sweep, from a file that may be damaged or somebody else's."""

import os

import pytest

from dpbench.runs.records.sweep_list import read_list, write_list
from dpbench.system.errors import UserError


def test_the_runs_of_a_sweep_are_read_by_its_name(tmp_path):
    write_list(tmp_path, "mine", ["ab", "cd"])
    assert read_list(tmp_path, "mine") == {"ab", "cd"}


def test_a_damaged_list_is_written_anew(tmp_path):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.txt").write_bytes(b"\377\376\200")
    write_list(tmp_path, "mine", ["ab"])
    assert read_list(tmp_path, "mine") == {"ab"}


@pytest.mark.parametrize("name", ["other", "../runs/mine", "/etc/passwd"])
def test_a_name_reaches_no_other_file(name, tmp_path):
    write_list(tmp_path, "mine", ["ab"])
    with pytest.raises(UserError, match=f"has no sweep {name}: did you mean|choose from mine"):
        read_list(tmp_path, name)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "is not a regular file"),
        (os.mkdir, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (lambda path: path.write_bytes(b"\377\376\200"), "is not UTF-8 text"),
    ],
)
def test_an_invalid_list_is_one_sentence(make, reason, tmp_path):
    (tmp_path / "sweeps").mkdir()
    make(tmp_path / "sweeps" / "mine.txt")
    with pytest.raises(UserError, match=rf"mine\.txt {reason}: run the sweep again"):
        read_list(tmp_path, "mine")
