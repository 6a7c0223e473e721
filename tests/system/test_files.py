"""Files that are complete or not there, and what killed processes leave behind."""

import multiprocessing
import os
import signal
import stat

import pytest

from dpbench.system import files
from dpbench.system.errors import UserError
from dpbench.system.files import (
    check_replaceable,
    check_writable,
    files_in,
    new_folder,
    remove_parts,
    replace_file,
    write_atomically,
    write_once,
)


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(call, error, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_atomically(path, b"first")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, call, fail)
    with pytest.raises((UserError, KeyboardInterrupt)):
        write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_files_appear_whole_with_the_permissions_of_the_umask(tmp_path, monkeypatch):
    path, seen = tmp_path / "record.json", []
    replace = os.replace

    def look(source, target):
        seen.append((path.exists(), source.read_bytes(), source.name.startswith(".")))
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    write_atomically(path, b"all of it")
    assert seen == [(False, b"all of it", True)]
    path = tmp_path / "table.md"
    before = os.umask(0o022)
    try:
        write_atomically(path, b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("write", [lambda path: write_atomically(path, b""), check_writable])
def test_a_folder_that_cannot_be_written_is_one_sentence(write, tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match=r"file.*cannot be written \(.+\); set results_dir") as told:
        write(file / "runs" / "record.json")
    assert "\n" not in str(told.value)


def test_only_a_regular_file_is_replaced(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "nowhere").symlink_to("missing")
    os.mkfifo(tmp_path / "pipe")
    for name in ("file", "new"):
        check_replaceable(tmp_path / name)
    for name in ("link", "nowhere", "pipe", "/dev/null", "/dev/stdout"):
        with pytest.raises(UserError, match=f"^out=.*{name} is not a regular file"):
            check_replaceable(tmp_path / name)


def test_a_folder_is_created_empty_and_its_files_are_sorted_and_may_be_none(tmp_path):
    check_writable(tmp_path / "new" / "runs")
    assert list((tmp_path / "new" / "runs").iterdir()) == []
    for name in ("b.json", "a.json", "c.txt"):
        write_atomically(tmp_path / name, b"")
    assert [p.name for p in files_in(tmp_path, "*.json")] == ["a.json", "b.json"]
    assert files_in(tmp_path / "missing", "*") == files_in(tmp_path / "c.txt", "*") == []


def test_a_private_file_is_readable_by_its_owner_only(tmp_path):
    replace_file(tmp_path / "000001.ckpt", b"", mode=0o600)
    assert stat.S_IMODE((tmp_path / "000001.ckpt").stat().st_mode) == 0o600


def write_and_die(path):
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    write_atomically(path, b"never there")


def write_slowly(path, begun, go_on):
    def slow(part, target, replace=os.replace):
        begun.set()
        assert go_on.wait(60)
        replace(part, target)

    os.replace = slow
    write_atomically(path, b"slow")


def process(target, *arguments):
    started = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    started.start()
    return started


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_the_next_write_removes_parts_left_by_a_killed_process(tmp_path):
    for name in ("table.md", "other.md"):
        process(write_and_die, tmp_path / name).join()
    assert len(names(tmp_path)) == 2
    write_atomically(tmp_path / "table.md", b"whole")
    (part, table) = names(tmp_path)
    assert part.startswith(".other.md.")
    assert table == "table.md"


def fill_and_die(path):
    with new_folder(path) as part:
        (part / "half").write_bytes(b"never there")
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model", "m" * 255])
def test_the_next_folder_removes_one_left_by_a_killed_process(tmp_path, name):
    process(fill_and_die, tmp_path / name).join()
    assert len(names(tmp_path)) == 1
    with new_folder(tmp_path / name) as part:
        (part / "whole").write_bytes(b"")
        with new_folder(tmp_path / "other"):
            remove_parts(tmp_path)
    assert names(tmp_path) == sorted([name, "other"])
    assert names(tmp_path / name) == ["whole"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_failed_folder_leaves_nothing(tmp_path, error):
    with pytest.raises(error), new_folder(tmp_path / "model"):
        raise error
    assert names(tmp_path) == []


def test_parts_being_written_are_left_alone(tmp_path):
    path, context = tmp_path / "table.md", multiprocessing.get_context("fork")
    begun, go_on = context.Event(), context.Event()
    writer = process(write_slowly, path, begun, go_on)
    assert begun.wait(60)
    write_atomically(path, b"quick")
    remove_parts(tmp_path)
    go_on.set()
    writer.join()
    assert writer.exitcode == 0
    assert (names(tmp_path), path.read_bytes()) == (["table.md"], b"slow")


def test_other_hidden_files_are_left_alone(tmp_path):
    theirs = [".table.md.swp", ".table.md.0123456789abcdef.orig", ".tablexmd.0123456789abcdef"]
    for name in theirs:
        (tmp_path / name).touch()
    (tmp_path / ".table.md.0123456789abcdef").touch()
    os.mkfifo(tmp_path / ".table.md.fedcba9876543210")
    write_atomically(tmp_path / "table.md", b"")
    assert names(tmp_path) == sorted(["table.md", ".table.md.fedcba9876543210", *theirs])


def test_what_is_written_once_keeps_its_first_content(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "key"
    assert write_once(path, b"first") == b"first"
    assert write_once(path, b"second") == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["key"]
    path, write = tmp_path / "key", files.write_atomically

    def overtaken(whole, *arguments):
        path.write_bytes(b"first")
        write(whole, *arguments)

    monkeypatch.setattr(files, "write_atomically", overtaken)
    assert write_once(path, b"second") == b"first"
    assert {*tmp_path.iterdir()} == {path, tmp_path / "folder"}
