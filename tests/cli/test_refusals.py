"""What cannot be done is refused in one sentence, with exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import ROOT, process


def refused(done, sentence):
    assert (done.code, done.out) == (2, [])
    (line,) = done.err
    assert line.startswith("dpbench: ")
    assert len(line) < 1000
    assert sentence in line


TABLE = Path(__file__).with_name("refusals.txt")
LONG = [
    ("run ~" + "k" * 4000 + "=3", "k... cannot be deleted: set it to a value."),
    ("run +" + "k" * 4000 + "=3", "k... is not a setting: "),
    ("run " + "x" * 400 + ".y=1", "x... is not a setting: "),
    ("run model=" + "x" * 400, "x... is unknown: "),
]


def table() -> list[tuple[str, ...]]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split(" | ")) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize(("words", "sentence"), [*table(), *LONG])
def test_a_command_is_refused_in_one_sentence(words, sentence, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    refused(command(*words.split()), sentence)
    left = [path for path in tmp_path.rglob("*") if path.is_file() or words.startswith("run ")]
    assert left == []


def test_a_device_that_is_not_there_is_refused_before_any_work(command, nowhere):
    for device in ("nonsense", "meta", "cuda:999"):
        done = command("run", *nowhere, f"device={device}")
        refused(done, f"device={device} is not available here; try device=auto.")


@pytest.mark.slow
def test_a_results_folder_that_cannot_be_written_is_refused_at_once(command, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    for arguments in (["run"], ["reproduce", "demo"]):
        done = command(*arguments, f"results_dir={tmp_path / 'file'}")
        refused(done, "cannot be written (Not a directory); set results_dir")


def test_a_data_folder_that_cannot_be_written_is_refused(command, tmp_path):
    (tmp_path / "file").touch()
    folders = f"data_dir={tmp_path / 'file'}", f"results_dir={tmp_path}"
    refused(command("run", "dataset=adult", *folders), "set data_dir or DPBENCH_DATA to a folder")


def test_a_corrupted_data_file_is_refused(command, tmp_path):
    file = tmp_path / "adult" / "adult.data"
    file.parent.mkdir()
    file.write_text("39, State-gov, 77516, Bachelors\n")
    folders = f"data_dir={tmp_path}", f"results_dir={tmp_path}"
    for arguments in (["run", "dataset=adult"], ["run", "-m", "dataset=adult", "seed=0,1"]):
        refused(command(*arguments, *folders), f"{file} is truncated or altered: delete it")


@pytest.mark.slow
def test_a_process_ends_with_code_2_and_one_line(nowhere):
    refused(process("run", "dataset=adult", "epoch=3", *nowhere), "epoch is not a setting")


IMPORTED = """
import sys
from dpbench.cli.main import main
try:
    main()
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["audit canary=10", "epsilon epochs=none"])
def test_a_refusal_waits_for_no_import_of_torch(words):
    command = [sys.executable, "-c", IMPORTED, *words.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "2 False\n", done.stderr


def test_a_deleted_working_folder_is_refused_before_any_work(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    done = command("run", "epochs=1")
    assert (done.code, done.out) == (2, [])
    assert done.err == [
        "dpbench: the working folder cannot be used (No such file or directory): change to "
        "another one."
    ]
    assert command("--version").code == 0
