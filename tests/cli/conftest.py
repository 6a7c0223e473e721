"""What the tests of commands share."""

import sys
import warnings
from types import SimpleNamespace

import pytest

from dpbench.cli.main import main


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command: exit code, and lines of stdout and of stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpbench", *map(str, arguments)])
        code = 0
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                main()
            except SystemExit as end:
                code = end.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out.splitlines(), err=err.splitlines())

    return run


@pytest.fixture
def nowhere(tmp_path):
    """Overrides to folders that are not there, and must not be there afterwards."""
    data, results = tmp_path / "data", tmp_path / "results"
    yield f"data_dir={data}", f"results_dir={results}"
    assert not data.exists()
    assert not results.exists()
