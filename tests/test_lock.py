"""One process at a time, however it ends; the others wait and say so."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench import lock
from dpbench.errors import UserError
from dpbench.lock import exclusive

HOLDER = """
import sys
from pathlib import Path
from dpbench.lock import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

VISITOR = """
import os, sys, time, warnings
from pathlib import Path
from dpbench.lock import exclusive
warnings.simplefilter("ignore")
for _ in range(20):
    with exclusive(Path(sys.argv[1])):
        inside = os.open(sys.argv[2], os.O_CREAT | os.O_EXCL)  # fails where another is inside
        time.sleep(0.001)
        os.unlink(sys.argv[2])
        os.close(inside)
"""


def process(code: str, *arguments: Path) -> subprocess.Popen:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    here = Path(__file__).resolve().parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], text=True, cwd=here, **pipes
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoints" / "0123456789abcdef" / "lock"


def test_it_leaves_nothing_behind(path, tmp_path):
    with exclusive(path):
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_it_leaves_what_is_not_its_own(path):
    with exclusive(path):
        (path.parent / "000001.ckpt").touch()
    assert [left.name for left in path.parent.iterdir()] == ["000001.ckpt"]


def test_it_is_free_again_after_an_error(path):
    with pytest.raises(ZeroDivisionError), exclusive(path):
        raise ZeroDivisionError
    with exclusive(path):
        pass


def test_who_comes_second_says_who_it_waits_for_until_that_one_is_killed(path, monkeypatch):
    with process(HOLDER, path) as holder:
        assert holder.stdout.readline() == "held\n"
        said = []

        def warn(sentence, **_):
            said.append(sentence)
            holder.kill()

        monkeypatch.setattr(lock.warnings, "warn", warn)
        with exclusive(path):
            assert holder.wait() != 0
            assert path.exists()
    by = f"being carried out by process {holder.pid} on {socket.gethostname()}: waiting"
    assert [by in sentence for sentence in said] == [True]
    assert not path.exists()


def test_of_many_that_come_and_go_there_is_one_inside_at_a_time(path, tmp_path):
    visitors = [process(VISITOR, path, tmp_path / "inside") for _ in range(3)]
    for visitor in visitors:
        _, complaint = visitor.communicate()
        assert (visitor.returncode, complaint) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_the_lock_is_refused(path):
    path.mkdir(parents=True)
    with pytest.raises(UserError, match="cannot be written"), exclusive(path):
        pass
