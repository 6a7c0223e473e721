"""What becomes of a run that is put away: all of it or nothing, and never anybody else's."""

import errno
import json
import math
import os
import resource
import shutil
import stat
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.runs.training import checkpoints
from dpbench.runs.training.checkpoints import FORMAT, Checkpoints, locked_checkpoints
from dpbench.system.errors import UserError

STATE = {
    "tensors": {"theta": torch.linspace(0, 1, 7), "generator": torch.Generator().get_state()},
    "plain": [1, 0.1, -math.inf, None, True, "text", ("pair", [2])],
}
CONDITIONS = {"torch": "2.14", "physical_batch_size": None}


@pytest.fixture
def kept(tmp_path):
    return Checkpoints(tmp_path, None)


def taken_up(kept, conditions):
    """The state that a run would go on from, or None."""
    states = []
    assert kept.resume_from_last(conditions, states.append) == bool(states)
    return states[0] if states else None


def numbers(folder):
    return [int(path.stem) for path in sorted(folder.iterdir())]


def numbered(number):
    return {"number": number}


def saved(kept, *states, conditions=CONDITIONS):
    for state in states:
        kept.save(state, conditions)


def test_a_saved_state_is_restored(kept):
    saved(kept, STATE)
    back = taken_up(kept, CONDITIONS)
    assert repr(back) == repr(STATE)
    for name, tensor in STATE["tensors"].items():
        assert torch.equal(back["tensors"][name], tensor)


def test_without_checkpoints_nothing_is_restored(kept):
    assert taken_up(kept, CONDITIONS) is None


def test_the_last_two_stay_and_the_last_one_counts(kept, tmp_path):
    for number in range(1, 13):  # 10 comes after 9
        saved(kept, numbered(number))
        assert numbers(tmp_path) == [number - 1, number][-number:]
        assert taken_up(kept, CONDITIONS) == numbered(number)


def test_another_process_counts_on(kept, tmp_path):
    saved(kept, numbered(1), numbered(2))
    saved(Checkpoints(tmp_path, None), numbered(3))
    assert numbers(tmp_path) == [2, 3]


def test_none_is_left_of_a_run_that_is_over(kept, tmp_path):
    saved(kept, numbered(1), numbered(2))
    kept.clear()
    assert numbers(tmp_path) == []


@pytest.mark.parametrize("minutes", [0.5, 10])
def test_the_next_one_is_due_after_so_many_minutes_of_training(monkeypatch, tmp_path, minutes):
    now = [1000.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    kept = Checkpoints(tmp_path, minutes)
    for _ in range(3):
        assert not kept.due()
        now[0] += 60 * minutes - 0.1
        assert not kept.due()
        now[0] += 0.2
        assert kept.due()
        saved(kept, STATE)


def test_none_is_ever_due_where_none_is_wanted(monkeypatch, kept):
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: 1e9)
    assert not kept.due()


DAMAGES = {
    "empty": lambda packed: b"",
    "half": lambda packed: packed[: len(packed) // 2],
    "all but a byte": lambda packed: packed[:-1],
    "only its first line": lambda packed: packed[: packed.index(b"\n") + 1],
    "without a first line": lambda packed: packed[packed.index(b"\n") + 1 :],
    "one byte more": lambda packed: packed + b"\0",
    "no object": lambda packed: b"[1]\n" + packed,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_passed_over_with_a_sentence_for_the_one_before(kept, tmp_path, damage):
    saved(kept, numbered(1), numbered(2))
    last = tmp_path / "000002.ckpt"
    last.write_bytes(DAMAGES[damage](last.read_bytes()))
    with pytest.warns(UserWarning, match=r"000002.ckpt is damaged: it is ignored") as said:
        assert taken_up(kept, CONDITIONS) == numbered(1)
    assert len(said) == 1


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_flipped_bit_goes_unnoticed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("folder") / "run"
    folder.mkdir()
    kept = Checkpoints(folder, None)
    saved(kept, STATE)
    (path,) = folder.iterdir()
    packed = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(packed) - 1) | st.integers(0, packed.index(b"\n")))
    packed[at] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(packed)
    with pytest.warns(UserWarning, match="it is ignored"):
        assert taken_up(kept, CONDITIONS) is None


@pytest.mark.parametrize(
    ("asked", "differs"),
    [
        ({"torch": "2.15"}, "was written with torch=2.14 instead of torch=2.15: it is ignored"),
        ({"physical_batch_size": 7}, "physical_batch_size=None instead of physical_batch_size=7"),
        ({"engine": "loop"}, "was written with engine=None instead of engine=loop"),
    ],
)
def test_one_made_otherwise_is_passed_over_and_says_how(kept, asked, differs):
    saved(kept, STATE)
    with pytest.warns(UserWarning, match=differs):
        assert taken_up(kept, CONDITIONS | asked) is None


def test_that_of_another_run_is_not_mistaken_for_ones_own(tmp_path):
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
    saved(Checkpoints(mine, None), STATE)
    (mine / "000001.ckpt").rename(other / "000001.ckpt")
    with pytest.warns(UserWarning, match="run=mine instead of run=other"):
        assert taken_up(Checkpoints(other, None), CONDITIONS) is None


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_one_of_another_format_is_passed_over(kept, tmp_path, version):
    older = {"format": version, "whatever": "it said then"}
    (tmp_path / "000001.ckpt").write_bytes(json.dumps(older).encode() + b"\nwhatever it held")
    with pytest.warns(UserWarning, match=f"has format {version} instead of {FORMAT}"):
        assert taken_up(kept, CONDITIONS) is None


class Trap:
    """Makes a folder when it is unpickled, as an attacker would do worse."""

    def __init__(self, folder):
        self._folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self._folder),)


def test_nothing_in_one_is_ever_executed_and_the_one_before_counts(kept, tmp_path):
    made = tmp_path / "made by the trap"
    saved(kept, numbered(1), {"trap": Trap(made)})
    with pytest.warns(UserWarning, match=r"has unexpected content \(UnpicklingError\)"):
        assert taken_up(kept, CONDITIONS) == numbered(1)
    assert not made.exists()


FORGED = {
    "brackets": b"[" * 200_000 + b"\n",
    "conditions": json.dumps({"format": FORMAT, "conditions": [], "sha256": ""}).encode() + b"\n",
    "a format of a million digits": b'{"format": ' + b"1" * 10**6 + b"}\n",
    "a format that is a list": b'{"format": [' + b"1, " * 10**5 + b"1]}\n",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_first_line_is_one_short_sentence(kept, tmp_path, name):
    saved(kept, numbered(1))
    (tmp_path / "000002.ckpt").write_bytes(FORGED[name])
    with pytest.warns(UserWarning, match="it is ignored") as said:
        assert taken_up(kept, CONDITIONS) == numbered(1)
    assert [len(str(one.message)) < 400 for one in said] == [True]


def test_a_pipe_in_the_place_of_one_is_not_read(kept, tmp_path):
    saved(kept, numbered(1))
    os.mkfifo(tmp_path / "000002.ckpt")
    (tmp_path / "notes.ckpt").touch()
    with pytest.warns(UserWarning, match="is not a file: it is ignored"):
        assert taken_up(kept, CONDITIONS) == numbered(1)


def test_a_checkpoint_that_cannot_be_loaded_is_skipped(kept):
    saved(kept, numbered(1), numbered(2))
    tried = []

    def load(state):
        tried.append(state["number"])
        if state["number"] == 2:
            raise KeyError("parts")

    with pytest.warns(
        UserWarning, match=r"does not belong to this run \(KeyError\): it is ignored"
    ):
        assert kept.resume_from_last(CONDITIONS, load)
    assert tried == [2, 1]


def test_running_out_of_memory_does_not_skip_a_checkpoint(kept):
    saved(kept, numbered(1), numbered(2))

    def load(state):
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError):
        kept.resume_from_last(CONDITIONS, load)


def test_only_its_owner_may_read_one(kept, tmp_path):
    before = os.umask(0)
    try:
        saved(kept, STATE)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "000001.ckpt").stat().st_mode) == 0o600


def test_a_removed_folder_is_recreated(tmp_path):
    with locked_checkpoints(tmp_path / "checkpoints" / "run", None) as kept:
        saved(kept, numbered(1))
        shutil.rmtree(tmp_path / "checkpoints")
        assert taken_up(kept, CONDITIONS) is None
        saved(kept, numbered(2))
        assert taken_up(kept, CONDITIONS) == numbered(2)
        shutil.rmtree(tmp_path / "checkpoints")
        kept.clear()
    assert list(tmp_path.iterdir()) == []


def test_those_that_cannot_be_removed_are_a_warning(kept, tmp_path, monkeypatch):
    saved(kept, numbered(1))

    def refused(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.warns(UserWarning, match=r"cannot be removed \(No space left on device\)"):
        kept.clear()
    assert numbers(tmp_path) == [1]


@contextmanager
def no_file_above(size):
    """The system refuses to let files of this process grow larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def full_disk(call):
    """One of the calls by which a file gets to the disk finds no room there."""

    def fails(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, fails)
        yield


NO_ROOM = {
    "the file is too large": (lambda: no_file_above(1000), "File too large"),
    "fsync": (lambda: full_disk("fsync"), "No space left on device"),
    "replace": (lambda: full_disk("replace"), "No space left on device"),
}


@pytest.mark.parametrize("where", NO_ROOM)
def test_a_full_disk_costs_a_checkpoint_and_not_the_run(kept, tmp_path, where):
    no_room, why = NO_ROOM[where]
    saved(kept, numbered(1), numbered(2))
    sentence = rf"cannot be written to .* \({why}\): the run continues"
    with pytest.warns(UserWarning, match=sentence) as said, no_room():
        saved(kept, STATE)
    assert len(said) == 1
    assert numbers(tmp_path) == [1, 2]
    assert taken_up(kept, CONDITIONS) == numbered(2)
    saved(kept, numbered(3))  # where there is room again
    assert numbers(tmp_path) == [2, 3]


def test_a_failed_write_is_retried_when_the_next_checkpoint_is_due(monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    (tmp_path / "file").touch()
    kept = Checkpoints(tmp_path / "file" / "run", 1)
    now[0] = 61
    assert kept.due()
    with pytest.warns(UserWarning, match="Not a directory"):
        saved(kept, STATE)
    assert not kept.due()


def test_parts_left_by_a_killed_process_are_removed(tmp_path):
    folder = tmp_path / "checkpoints" / "run"
    with locked_checkpoints(folder, None) as kept:
        saved(kept, numbered(1))
        (folder / ".000002.ckpt.0123456789abcdef").write_bytes(b"half")
    with locked_checkpoints(folder, None) as kept:
        assert sorted(path.name for path in folder.iterdir()) == ["000001.ckpt", "lock"]
        assert taken_up(kept, CONDITIONS) == numbered(1)


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "000001.ckpt").write_text("precious")
    (tmp_path / "run").symlink_to("mine")
    refused = pytest.raises(UserError, match="run is a link, and a run has its own folder: remove")
    with refused, locked_checkpoints(tmp_path / "run", None) as checkpoints:
        checkpoints.clear()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["000001.ckpt"]


def test_a_run_without_checkpoints_leaves_no_folder(tmp_path):
    with locked_checkpoints(tmp_path / "checkpoints" / "run", None) as kept:
        saved(kept, STATE)
        kept.clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["checkpoints", "checkpoints/run"])
def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, place):
    blocked = tmp_path / place
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("in the way")
    with (
        pytest.raises(UserError, match=r"cannot be written \(.*\); set results_dir"),
        locked_checkpoints(tmp_path / "checkpoints" / "run", None),
    ):
        pass
