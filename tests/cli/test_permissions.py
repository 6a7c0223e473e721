"""Files that this user may not use: each command says so in one sentence that names who and what.

Root may use all files, so its commands run without that privilege.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["run", "model=logistic", "epochs=1"]

UNPRIVILEGED = [
    "setpriv",
    *(f"--{kept}=-dac_override,-dac_read_search" for kept in ("bounding-set", "inh-caps")),
]

# In one process, as starting a command takes seconds.
COMMANDS = """
import contextlib, io, json, sys
from dpbench.cli.main import main

def ended(arguments):
    sys.argv, said = ["dpbench", *arguments], io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
    return code, said.getvalue().splitlines()

cases = json.load(sys.stdin)
try:
    open("closed/file").close()
    print("null")
except PermissionError:
    print(json.dumps({name: ended(arguments) for name, arguments in cases.items()}))
"""

REPORTED = ("report", "publish", "verify")
CASES = {
    **{
        f"{name} of closed results": (
            [name, "results_dir=closed"],
            "closed/tables" if name == "report" else "closed/runs",
        )
        for name in REPORTED
    },
    **{
        f"{name} of closed runs": ([name, "results_dir=runs_closed"], "runs_closed/runs")
        for name in REPORTED
    },
    "run into closed results": ([*SMALL, "results_dir=closed"], "closed/runs"),
    "sweep into closed results": ([*SMALL, "-m", "seed=1,2", "results_dir=closed"], "closed/runs"),
    "search into closed results": (
        ["search", "N=1", "optimizer.lr=1,2", "results_dir=closed"],
        "closed/search",
    ),
    "table of closed results": (["table", "closed"], "closed/runs"),
    "track of closed results": (["track", "tracker=csv", "results_dir=closed"], "closed/runs"),
    "run again beside closed models": (
        [*SMALL, "again=true", "results_dir=models_closed"],
        "models_closed/models",
    ),
    "run with closed checkpoints": (
        [*SMALL, "seed=1", "results_dir=checkpoints_closed"],
        "checkpoints_closed/checkpoints",
    ),
    "run into results of others": ([*SMALL, "seed=1", "results_dir=read_only"], "read_only/runs"),
    "report into a folder of others": (
        ["report", "results_dir=read_only", "out=read_only/x.html"],
        "read_only/x.html",
    ),
    "run on closed data": (
        ["run", "dataset=wine", "model=regression_mlp", "data_dir=data", "results_dir=x"],
        "data/wine/winequality-red.csv",
    ),
    "run in a closed data folder": (
        ["run", "dataset=wine", "model=regression_mlp", "data_dir=closed", "results_dir=x"],
        "closed/wine",
    ),
    "run on a closed table": (
        ["run", "dataset=csv", "dataset.file=closed.csv", "dataset.target=y", "results_dir=x"],
        "closed.csv",
    ),
    "run on images with a closed class": (
        ["run", "dataset=images", "dataset.folder=images", "results_dir=x"],
        "images",
    ),
    "a closed option": (["list", "method", "--config-dir", "option"], "option/method/x.yaml"),
    "a closed group of options": (["list", "method", "--config-dir", "group"], "group/method"),
    "a closed folder of options": (["list", "method", "--config-dir", "closed"], "closed"),
    "a name that is too long": (
        ["publish", "results_dir=read_only", f"out={300 * 'x'}"],
        "out must be the name of a file, with at most 255 bytes in each part",
    ),
    "a link to itself": ([*SMALL, "results_dir=loop"], "loop"),
    "a file for a folder": ([*SMALL, "results_dir=closed.csv"], "closed.csv"),
}
"""Commands, and what the sentence of each names."""

CLOSED = (
    ("closed", 0o000),
    ("runs_closed/runs", 0o000),
    ("models_closed/models", 0o555),
    ("checkpoints_closed/checkpoints", 0o000),
    ("read_only/runs", 0o555),
    ("read_only", 0o555),
    ("data/wine/winequality-red.csv", 0o000),
    ("closed.csv", 0o000),
    ("images/b", 0o000),
    ("option/method/x.yaml", 0o000),
    ("group/method", 0o000),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which some things are closed, until the tests have ended."""
    place = tmp_path_factory.mktemp("closed")
    path = load_or_run(run_config([*SMALL[1:], f"results_dir={place / 'closed'}"]), quiet=True)
    (place / "closed" / "file").touch()
    for copy in ("runs_closed", "models_closed", "checkpoints_closed", "read_only"):
        shutil.copytree(place / "closed", place / copy)
    for folder in (
        "checkpoints_closed/checkpoints",
        "models_closed/models",
        "data/wine",
        "images/a",
        "images/b",
        "option/method",
        "group/method",
    ):
        (place / folder).mkdir(parents=True)
    (place / "models_closed" / "models" / f"{path.stem}.pt").touch()
    for file in (
        "data/wine/winequality-red.csv",
        "closed.csv",
        "images/a/x.png",
        "images/b/x.png",
        "option/method/x.yaml",
    ):
        (place / file).touch()
    (place / "loop").symlink_to("loop")
    for name, mode in CLOSED:
        (place / name).chmod(mode)
    yield place
    for name, _ in reversed(CLOSED):
        (place / name).chmod(0o755)


@pytest.fixture(scope="module")
def ended(place):
    """The exit code and the lines on standard error of each command."""
    root = os.geteuid() == 0
    if root and not shutil.which("setpriv"):
        pytest.skip("root may use all files, and there is no setpriv to give that up")
    done = subprocess.run(
        [*(UNPRIVILEGED if root else ()), sys.executable, "-c", COMMANDS],
        input=json.dumps({name: arguments for name, (arguments, _) in CASES.items()}),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=place,
        check=True,
    )
    if (found := json.loads(done.stdout)) is None:
        pytest.skip("this process may use all files, and cannot give that up")
    return found


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_inaccessible_file_is_one_sentence(name, ended):
    code, lines = ended[name]
    assert code == 2
    (line,) = lines
    assert line.startswith("dpbench: ")
    assert line.endswith(".")
    assert CASES[name][1] in line
    assert "bug" not in line
