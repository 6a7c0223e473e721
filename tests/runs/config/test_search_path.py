"""Folders that a command line adds: found by every command, and only as conf/ is."""

import re

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import expand, grammar
from dpbench.runs.config.search_path import KEY, as_overrides, options, searching, split_folders
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from tests.plugin_files import SHARP, write


@pytest.fixture
def folder(tmp_path):
    """A folder with a method in it, whose path needs quotes."""
    return write(tmp_path / "o'nes own, è", {"method/sharp.yaml": SHARP})


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--config-dir"], ["-cd"], ["--config-dir="]])
def test_the_flag_is_an_override_for_other_processes(folder, flags):
    words = [f"{flags[0]}{folder}"] if "=" in flags[0] else [*flags, str(folder)]
    added, others = split_folders(["seed=1", *words, "epochs=1"])
    assert (added, others) == ((folder,), ["seed=1", "epochs=1"])
    assert split_folders(as_overrides(added)) == (added, [])
    assert expand(["method=sharp,sgd", *as_overrides(added)]) == [
        [f"method={name}", *as_overrides(added)] for name in ("sharp", "sgd")
    ]
    run = run_of(run_config(["method=sharp", *as_overrides(added)]))
    assert (run.config["choices"]["method"], run.method.clip.constant) == ("sharp", 0.001)


def test_afterwards_the_folder_is_not_searched(folder):
    compose(["method=sharp", *as_overrides([folder])])
    assert "sharp" not in options("method")
    with pytest.raises(UserError, match="method=sharp is unknown"):
        compose(["method=sharp"])
    with searching([folder]), grammar():
        assert "sharp" in options("method")


def test_a_folder_is_relative_to_where_the_command_is_given(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    folder.rename("plain")
    assert compose(["method=sharp", f"{KEY}=[plain]"])["method"]["name"] == "sharp"
    (absolute,), _ = split_folders(["-cd", "plain"])
    assert absolute == folder.parent / "plain"


def test_a_changed_file_is_read_again(folder):
    added = as_overrides([folder])
    assert compose(["method=sharp", *added])["method"]["clip"]["constant"] == 0.001
    write(folder, {"method/sharp.yaml": SHARP.replace("0.001", "0.01")})
    assert compose(["method=sharp", *added])["method"]["clip"]["constant"] == 0.01


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"method/dpsgd.yaml": SHARP}, "method/dpsgd.yaml has the name of an option in "),
        ({"methods/x.yaml": SHARP}, "is not in the folder of a group: did you mean method"),
        ({"config.yaml": "seed: 3"}, "config.yaml is not in the folder of a group"),
    ],
)
def test_a_file_that_would_not_be_read_is_refused(tmp_path, files, sentence):
    added = as_overrides([write(tmp_path / "added", files)])
    with pytest.raises(UserError) as told:
        compose(added)
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("target", "way_out"),
    [
        ("os.system", "code of your own comes in a plug-in"),
        ("clipworks.Net", "code of your own comes in a plug-in"),
        ("dpbench.cli.main.main", "did you mean"),
        ("dpbench.clipping.functions.Abadis", "did you mean dpbench.clipping.functions.Abadi"),
    ],
)
def test_its_files_declare_nothing(tmp_path, target, way_out):
    added = write(tmp_path / "added", {"method/x.yaml": f"_target_: {target}\n"})
    refusal = f"is refused: no file in conf/method names it; {re.escape(way_out)}"
    with pytest.raises(UserError, match=refusal):
        run_of(run_config(["method=x", *as_overrides([added])]))
