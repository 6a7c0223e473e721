"""A lock that one process has at a time, and that ends with it."""

import errno
import multiprocessing
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from dpbench.system.errors import UserError
from dpbench.system.lock import Busy, exclusive


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "locks" / "abc" / "lock"


def test_without_waiting_the_holder_is_named(lock):
    with exclusive(lock):
        with pytest.raises(Busy, match=r"process \d+ on .* is already executing run abc"):
            exclusive(lock, wait=False).__enter__()
        assert lock.exists(), "the one who has it lost it"
    with exclusive(lock, wait=False):
        pass


def test_with_waiting_the_lock_is_acquired_afterwards(lock):
    order = []

    def second():
        with pytest.warns(UserWarning, match="waiting for it to end"), exclusive(lock):
            order.append("second")

    with exclusive(lock):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_empty_folders_are_removed_and_other_files_kept(lock, tmp_path):
    with exclusive(lock):
        pass
    assert list(tmp_path.iterdir()) == []
    with exclusive(lock):
        (lock.parent / "checkpoint").touch()
    assert [path.name for path in lock.parent.iterdir()] == ["checkpoint"]


def hold(path, has_it):
    with exclusive(path):
        has_it.set()
        time.sleep(600)


def test_the_lock_of_a_killed_process_is_free(lock):
    context = multiprocessing.get_context("fork")  # nothing here has threads
    has_it = context.Event()
    holder = context.Process(target=hold, args=(lock, has_it))
    holder.start()
    assert has_it.wait(60)
    with pytest.raises(Busy):
        exclusive(lock, wait=False).__enter__()
    holder.kill()
    holder.join()
    with exclusive(lock, wait=False) as abandoned:
        assert abandoned
    with exclusive(lock, wait=False) as abandoned:
        assert not abandoned, "the one before ended as it should"


def test_a_lock_retaken_by_another_process_is_not_removed(lock):
    with exclusive(lock):
        shutil.rmtree(lock.parent)
        other = exclusive(lock)
        other.__enter__()
    assert lock.exists()
    with pytest.raises(Busy):
        exclusive(lock, wait=False).__enter__()
    other.__exit__(None, None, None)


def test_failing_to_remove_a_lock_is_harmless_and_holders_may_be_abandoned(lock, monkeypatch):
    def refused(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, exclusive(lock):
        patch.setattr(os, "unlink", refused)
    with exclusive(lock, wait=False):
        pass
    with pytest.raises(KeyboardInterrupt), exclusive(lock):
        raise KeyboardInterrupt
    with exclusive(lock, wait=False) as abandoned:
        assert abandoned
    with pytest.raises(UserError), exclusive(lock):
        raise UserError("refused.")
    assert not lock.parent.exists(), "what is refused leaves nothing"


def count_up(path, file, times):
    for _ in range(times):
        with exclusive(path):
            number = int(file.read_text())
            time.sleep(0.0005)
            file.write_text(str(number + 1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* is already executing")
def test_removing_the_lock_file_does_not_break_exclusion(lock, tmp_path):
    file = tmp_path / "count"
    file.write_text("0")
    context = multiprocessing.get_context("fork")
    several = [context.Process(target=count_up, args=(lock, file, 50)) for _ in range(4)]
    for process in several:
        process.start()
    for process in several:
        process.join()
    assert file.read_text() == "200"


def test_a_link_in_its_place_is_refused_and_leads_nowhere(lock, tmp_path):
    """As in somebody else's results folder."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.symlink_to(victim)
    with pytest.raises(UserError, match=r"cannot be written .*links"), exclusive(lock):
        pass
    assert victim.read_text() == "precious"


def test_folders_that_cannot_be_created_or_written_are_one_sentence(tmp_path, lock):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        exclusive(tmp_path / "file" / "abc" / "lock").__enter__()
    lock.parents[1].symlink_to(tmp_path / "not-mounted")
    with pytest.raises(UserError, match=r"locks is a link to .*not-mounted, which does not exist"):
        exclusive(lock).__enter__()
    # As others may remove it at any time, it is made again, but not for ever.
    with pytest.raises(UserError, match=r"/dev/null/abc cannot be written \(Not a directory\)"):
        exclusive(Path("/dev/null/abc/lock")).__enter__()
    with pytest.raises(
        UserError, match=r"/proc/abc cannot be written \(No such file or directory\)"
    ):
        exclusive(Path("/proc/abc/lock")).__enter__()
