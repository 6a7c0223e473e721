"""The queue of what needs a GPU: pieces that go on where they were, tried on the CPU."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from dpbench.benchmarks.step_cost.command import parse
from msgspec.structs import replace

from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build

ROOT = Path(__file__).parents[2]
QUEUE = (ROOT / "benchmarks" / "gpu.queue").read_text(encoding="utf-8")
COMMANDS = {
    name: shlex.split(command)
    for line in QUEUE.splitlines()
    if line and not line.startswith("#")
    for name, command in [line.split(maxsplit=1)]
}

RUN = (
    f"{sys.executable} -m dpbench run epochs=1 model=logistic device=cpu threads=1 results_dir=$OUT"
)


def piece(
    folder: Path,
    *lines: str,
    minutes: int = 5,
    longest: int = 8,
    script: Path = ROOT / "benchmarks" / "gpu",
    **more: str,
) -> subprocess.CompletedProcess:
    queue = folder / "queue"
    queue.write_text("# a comment\n" + "\n".join(lines) + "\n")
    return subprocess.run(
        [script, queue],
        env={
            **os.environ,
            **more,
            "OUT": str(folder / "out"),
            "MINUTES": str(minutes),
            "PIECE": str(longest),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_every_piece_is_a_command_that_exists():
    assert COMMANDS["tests"][:3] == ["pytest", "-m", "gpu"]
    for program, verb, *arguments in (c for n, c in COMMANDS.items() if n != "tests"):
        assert program == "dpbench"
        if verb == "bench":
            request = parse([a.replace("=cuda", "=cpu") for a in arguments])
            assert replace(request, device="cuda").cases()
            continue
        table, *overrides = arguments
        settings = [o for o in overrides if not re.match("device=|results_dir=", o)]
        target = target_of(table, settings)
        for method in target.table.methods:
            build(compose(next(target.cells_of(target.conditions[0], method))))


@pytest.mark.slow
def test_pieces_are_made_once_and_a_failure_does_not_stop_the_rest(tmp_path):
    lines = ("broken  exit 3", f"run  {RUN}", "last  echo x >> $OUT/count")
    first = piece(tmp_path, *lines)
    log = tmp_path / "out" / "broken.log"
    assert first.stdout.splitlines() == [
        f"broken: failed (3), see {log}",
        "run: done",
        "last: done",
    ]
    assert first.returncode == 1
    assert len([*(tmp_path / "out" / "runs").glob("*.json")]) == 1
    again = piece(tmp_path, *(lines[1:]))
    assert again.stdout.splitlines() == ["run: done before", "last: done before"]
    assert again.returncode == 0
    assert (tmp_path / "out" / "count").read_text() == "x\n"


def test_a_piece_without_time_goes_on_later(tmp_path):
    lines = ("first  true", "second  true")
    none = piece(tmp_path, *lines, minutes=0)
    assert none.stdout.splitlines() == ["first: not begun", "second: not begun"]
    assert none.returncode == 1
    assert piece(tmp_path, *lines).returncode == 0


@pytest.fixture
def in_seconds(tmp_path) -> Path:
    """The script, in which a minute is a second."""
    script = tmp_path / "root" / "benchmarks" / "gpu"
    script.parent.mkdir(parents=True)
    text = (ROOT / "benchmarks" / "gpu").read_text()
    script.write_text(text.replace("minute=60", "minute=1"))
    script.chmod(0o755)
    return script


SAVED = "trap 'echo saved >> $OUT/count; exit 1' INT; while true; do sleep 0.1; done"


@pytest.mark.slow
def test_a_command_is_interrupted_when_time_is_up_and_begun_again_later(tmp_path, in_seconds):
    for times in (1, 2):
        found = piece(tmp_path, f"run  {SAVED}", "next  true", minutes=2, script=in_seconds)
        assert found.stdout == "run: goes on when this is run again\nnext: not begun\n"
        assert (tmp_path / "out" / "count").read_text() == times * "saved\n"


@pytest.mark.slow
def test_a_piece_ends_when_its_own_time_is_up_and_the_next_is_begun(tmp_path, in_seconds):
    lines = (f"run  {SAVED}", "next  true")
    found = piece(tmp_path, *lines, minutes=60, longest=1, script=in_seconds)
    assert found.stdout == "run: goes on when this is run again\nnext: done\n"


def test_it_goes_on_from_its_packed_state_alone(tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    large = "head -c 20000000 /dev/urandom > $OUT/large"
    piece(first, f"made  {large}")
    packed = sorted((first / "out").glob("state.tar.gz.*"))
    assert len(packed) == 2
    assert all(part.stat().st_size <= 15 * 2**20 for part in packed)
    second = tmp_path / "second"
    (second / "out").mkdir(parents=True)
    for part in packed:
        (second / "out" / part.name).write_bytes(part.read_bytes())
    assert piece(second, f"made  {large}").stdout == "made: done before\n"
    large_file = (first / "out" / "large").read_bytes()
    assert (second / "out" / "large").read_bytes() == large_file


def test_packing_reads_nothing_that_it_writes_and_keeps_the_last_state_if_it_fails(tmp_path):
    assert piece(tmp_path, "one  head -c 1000000 /dev/urandom > $OUT/one").stderr == ""
    (packed,) = (tmp_path / "out").glob("state.tar.gz.*")
    before = packed.read_bytes()
    tar = tmp_path / "bin" / "tar"
    tar.parent.mkdir()
    tar.write_text("#!/bin/sh\necho half\nexit 2\n")
    tar.chmod(0o755)
    path = f"{tar.parent}{os.pathsep}{os.environ['PATH']}"
    assert piece(tmp_path, "two  true", PATH=path).returncode == 1
    assert packed.read_bytes() == before
