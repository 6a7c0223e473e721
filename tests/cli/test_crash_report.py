"""However a command ends: one sentence, a code that says what kind of end it is, nothing lost."""

import errno
import io
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from dpbench.cli import commands, crash_report
from dpbench.cli import main as cli
from dpbench.system.errors import UserError, print_message
from tests.plugin_files import write

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ended(monkeypatch, capsys, tmp_path):
    """ended(command): exit code, stdout and stderr of `dpbench list`, if it does that."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def end(command, *words):
        monkeypatch.setattr(sys, "argv", ["dpbench", "list", *words])
        monkeypatch.setattr(commands, "listing", command)
        code = 0
        try:
            cli.main()
        except SystemExit as exit:
            code = exit.code
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            code = 1  # as Python exits after it
        return code, *capsys.readouterr()

    return end


def raising(error):
    def command(words):
        raise error

    return command


def test_an_unexpected_error_is_one_sentence_and_its_traceback_is_in_a_file(ended, tmp_path):
    code, out, err = ended(raising(KeyError("a\nb")), "dataset")
    (file,) = tmp_path.iterdir()
    assert (code, out) == (1, "")
    assert err == (
        "dpbench: unexpected KeyError: 'a\\nb'; please report this dpbench bug and attach "
        f"{file}, which may quote your data.\n"
    )
    text = file.read_text()
    assert text.startswith("dpbench list dataset\n")
    assert "Traceback (most recent call last)" in text
    assert "raise error" in text


CRASH = """
import sys
from dpbench.cli import commands, main
commands.listing = lambda words: {}["absent"]
sys.argv = ["dpbench", "list"]
main.main()
"""


@pytest.mark.slow
def test_a_process_that_crashes_exits_with_code_1_and_one_sentence(tmp_path):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CRASH], cwd=ROOT, env=env, capture_output=True)
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (1, b"")
    assert line.startswith("dpbench: unexpected KeyError: 'absent'; please report")
    assert "Traceback" in next(tmp_path.iterdir()).read_text()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("def fail(words):\n    words.nothing\n", "AttributeError: 'list' object has no attribute"),
        ("def fail(:\n", "SyntaxError: invalid syntax"),
        ("def fail(words):\n    exit(0)\n", "RuntimeError: exit 0; the details"),
        ("def fail(words):\n    raise BaseException('no')\n", "BaseException: no; the details"),
    ],
)
def test_an_error_in_a_plug_in_is_not_reported_as_one_of_ours(plugin, code, error, ended):
    write(plugin, {"clipworks/broken.py": code})

    def command(words):
        import_module("clipworks.broken").fail(words)

    ended_with, _, err = ended(command)
    assert ended_with == 1
    assert err.startswith(f"dpbench: the plug-in clip-works failed with {error}")
    assert "bug" not in err


def test_a_traceback_is_printed_if_no_file_can_be_written(ended, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    code, _, err = ended(raising(ZeroDivisionError("x")))
    assert code == 1
    assert "Traceback (most recent call last)" in err
    assert err.endswith(
        "please report this dpbench bug and attach the traceback above, "
        "which may quote your data.\n"
    )


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("x"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes"),
    ],
)
def test_running_out_of_memory_is_not_reported_as_a_bug(error, ended, tmp_path):
    code, _, err = ended(raising(error))
    assert code == 1
    assert err.startswith("dpbench: memory ran out: ")
    assert not any(tmp_path.iterdir())


def test_a_refusal_and_an_interrupt_keep_their_codes(ended):
    assert ended(raising(UserError("no.")))[::2] == (2, "dpbench: no.\n")
    assert ended(raising(KeyboardInterrupt()))[0] == 130
    assert ended(raising(SystemExit(1)))[0] == 1


class Broken(io.StringIO):
    """A standard output that takes nothing."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def flush(self):
        raise OSError(self.number, "told by the system")


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.ENOSPC, 1, "dpbench: the output cannot be written (told by the system).\n"),
        (errno.EPIPE, 141, ""),
    ],
)
@pytest.mark.parametrize("command", [print, raising(SystemExit(1))])
def test_a_closed_or_full_output_is_not_called_a_bug(
    number, code, said, command, ended, monkeypatch
):
    monkeypatch.setattr(sys, "stdout", Broken(number))
    assert ended(command)[::2] == (code, said)


@pytest.mark.parametrize(
    "name",
    [
        *("EACCES", "EPERM", "EROFS", "EIO", "ENOSPC", "EDQUOT", "EFBIG", "ENAMETOOLONG"),
        *("ELOOP", "EISDIR", "ENOTDIR", "ESTALE"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(name, ended, tmp_path):
    number = getattr(errno, name)
    code, _, err = ended(raising(OSError(number, os.strerror(number), Path("some/file"))))
    (line,) = err.splitlines()
    assert line.startswith(f"dpbench: some/file cannot be used ({os.strerror(number)}): ")
    assert (code, [*tmp_path.iterdir()]) == (2, [])


def test_a_full_disk_is_one_sentence(ended):
    _, _, err = ended(raising(OSError(errno.ENOSPC, "No space left on device")))
    assert "A file cannot be used" in err
    assert err.endswith("(No space left on device): make room, or give a path on another disk.\n")


@pytest.mark.parametrize("error", [PermissionError(13, "no"), FileNotFoundError(2, "no", "file")])
def test_another_error_of_the_system_is_a_bug(error, ended):
    assert f"unexpected {type(error).__name__}" in ended(raising(error))[2]


@pytest.mark.parametrize("stream", [None, Broken(errno.ENOSPC)])
def test_a_closed_standard_error_is_no_error(stream, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", stream)
    print_message("something")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("shell", "code", "said"),
    [
        ("{} --help > /dev/full", 1, "the output cannot be written (No space left on device)."),
        ("{} list | true; exit ${{PIPESTATUS[0]}}", 141, ""),
        ("{} list 2> /dev/full", 0, ""),
        ("{} frobnicate 2> /dev/full", 2, ""),
        ("{} list $'\\xff'", 2, "is unknown"),
    ],
)
def test_a_process_exits_with_the_right_code_and_message(shell, code, said):
    command = shell.format(f"{sys.executable} -m dpbench")
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == bool(said)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_control_characters_are_escaped_on_a_terminal_and_in_a_pipe(capsys):
    odd, safe = "\x1b[31mred\x07\r\u202eé\t\n", "\\x1b[31mred\\x07\\r\\u202eé\t\n"
    print_message(f"{odd.strip()}")
    assert capsys.readouterr().err == f"dpbench: {safe.strip()}\n"
    for stream in (Terminal(), io.StringIO()):
        crash_report.Output(stream).write(odd)
        assert stream.getvalue() == safe


@pytest.mark.parametrize("words", [[], ["physical_batch_size=auto"]])
def test_advice_on_memory_leaves_out_what_is_set_already(ended, words):
    code, _, err = ended(raising(torch.OutOfMemoryError("CUDA out of memory")), *words)
    assert code == 1
    assert ("physical_batch_size=auto" in err) == (not words)
