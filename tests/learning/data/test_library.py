"""The core runs without the libraries of extras; what needs one names its extra."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dpbench.learning.data.fetch.library import EXTRAS, library
from dpbench.system.errors import UserError

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]

WITHOUT = f"""
import sys
sys.modules |= dict.fromkeys({[*EXTRAS, "optuna", "wandb", "tensorboard", "mlflow"]})
from dpbench.cli.main import main
sys.argv = ["dpbench", *sys.argv[1:]]
sys.exit(main())
"""


def without_extras(*words, cwd):
    command = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize("package", EXTRAS)
def test_the_extra_that_is_named_brings_the_package_and_the_core_does_not(package):
    brings = PROJECT["optional-dependencies"]
    assert any(entry.startswith(f"{package}>=") for entry in brings[EXTRAS[package]])
    assert any(entry.startswith(f"{package}>=") for entry in brings["test"])
    assert not any(entry.startswith(package) for entry in PROJECT["dependencies"])


def test_a_missing_library_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    says = r"features=pretrained needs timm: run `pip install 'dpbench-suite\[models\]'`\."
    with pytest.raises(UserError, match=says):
        library("timm", "features=pretrained")


@pytest.mark.slow
def test_a_run_and_its_table_need_no_extra(tmp_path):
    small = ["model=logistic", "epochs=1", "dataset=digits"]
    for words in (["run", *small], ["table", "results", "dataset=digits"]):
        done = without_extras(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
    report = without_extras("report", cwd=tmp_path)
    assert report.returncode == 2
    assert (
        "dpbench report needs plotly: run `pip install 'dpbench-suite[report]'`." in report.stderr
    )
