"""The queue of what needs a GPU: pieces that go on where they were, tried on the CPU."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.bench.command import parse
from dpbench.config.compose import compose
from dpbench.execution.prepare import build
from dpbench.reproduce.target import target_of

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
    folder: Path, *lines: str, minutes: int = 5, script: Path = ROOT / "benchmarks" / "gpu"
) -> subprocess.CompletedProcess:
    queue = folder / "queue"
    queue.write_text("# a comment\n" + "\n".join(lines) + "\n")
    return subprocess.run(
        [script, queue],
        env={**os.environ, "OUT": str(folder / "out"), "MINUTES": str(minutes)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_every_piece_is_a_command_that_exists():
    assert COMMANDS["tests"][:3] == ["pytest", "-m", "gpu"]
    for program, verb, *arguments in (c for n, c in COMMANDS.items() if n != "tests"):
        assert program == "dpbench"
        if verb == "bench":
            assert parse([a.replace("=cuda", "=cpu") for a in arguments]).cases()
            continue
        table, *overrides = arguments
        settings = [o for o in overrides if not re.match("device=|results_dir=", o)]
        target = target_of(table, settings)
        for method in target.table["methods"]:
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


@pytest.mark.slow
def test_a_command_is_interrupted_when_time_is_up_and_begun_again_later(tmp_path):
    script = (ROOT / "benchmarks" / "gpu").read_text()
    in_seconds = tmp_path / "root" / "benchmarks" / "gpu"
    in_seconds.parent.mkdir(parents=True)
    in_seconds.write_text(script.replace("60 * ${MINUTES:-10}", "${MINUTES}"))
    in_seconds.chmod(0o755)
    saved = "trap 'echo saved >> $OUT/count; exit 1' INT; while true; do sleep 0.1; done"
    for times in (1, 2):
        found = piece(tmp_path, f"run  {saved}", "next  true", minutes=2, script=in_seconds)
        assert found.stdout == "run: goes on when this is run again\nnext: not begun\n"
        assert (tmp_path / "out" / "count").read_text() == times * "saved\n"
