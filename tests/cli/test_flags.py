"""Flags: the version, completion in bash, and Hydra's ways to look at a configuration."""

import re
import shutil
import subprocess

import pytest
import yaml

from dpbench import __version__
from dpbench.cli.completion import completion, words
from dpbench.cli.main import COMMANDS, main, usage_of
from dpbench.cli.show_config import split_flags
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import groups
from dpbench.runs.records.digest import digest


@pytest.fixture
def said(monkeypatch, capsys):
    """What a command prints."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["dpbench", *arguments])
        main()
        return capsys.readouterr().out

    return run


def test_the_version_is_that_of_the_package(said):
    assert said("--version") == f"dpbench {__version__}\n"


@pytest.mark.parametrize("flags", [["--cfg", "job"], ["-c", "job"], ["--cfg=job"]])
def test_the_configuration_is_shown_without_running(flags, said, tmp_path):
    overrides = ["+table=misalignment_table5", "method=dpsgd_global", "seed=3"]
    shown = yaml.safe_load(said("run", *flags, *overrides, f"results_dir={tmp_path}"))
    expected = compose([*overrides, f"results_dir={tmp_path}"])
    assert shown == {key: value for key, value in expected.items() if key != "choices"}
    assert list(tmp_path.iterdir()) == []


def test_the_files_of_the_options_are_shown(said):
    lines = said("run", "--info", "method=bam", "epochs=3").splitlines()
    assert "method/bam.yaml" in "\n".join(lines)
    assert len(lines) == len(groups()) - 1 + 3  # not of tables, and with two folders and the record
    assert lines[-1] == f"record: results/runs/{digest(compose(['method=bam', 'epochs=3']))}.json"


def test_flags_are_distinguished_from_overrides():
    assert split_flags(["a=1", "-m", "b=2"]) == ({"-m"}, ["a=1", "b=2"])
    assert split_flags(["--multirun"]) == ({"-m"}, [])


def completed(line: str) -> set[str]:
    """What bash proposes at the end of a line."""
    script = f"""
{completion("bash")}
COMP_LINE={line!r} COMP_POINT=${{#COMP_LINE}} COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
read -r -a COMP_WORDS <<< "$COMP_LINE"
[[ $COMP_LINE == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_dpbench
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return {*done.stdout.split()}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dpbench re", {"recipe", "release", "reproduce", "report"}),
        ("dpbench --v", {"--version"}),
        ("dpbench run method=dpsgd_g", {"dpsgd_global", "dpsgd_global_adapt"}),
        ("dpbench run optimizer.l", {"optimizer.lr="}),
        ("dpbench run method=bam --c", {"--cfg", "--config-dir"}),
        ("dpbench reproduce misalignment_table", {f"misalignment_table{n}" for n in range(1, 6)}),
        ("dpbench data mn", {"mnist", "mnist_unbalanced"}),
        ("dpbench list opt", {"optimizer"}),
    ],
)
def test_bash_completes_commands_options_and_keys(line, expected):
    assert completed(line) == expected


IN_ZSH = """
compdef() {{ :; }}
compadd() {{ shift 3; print -l -- "$@"; }}
{script}
words=({line}) CURRENT=$#words
_dpbench
"""
IN_FISH = """
{script}
complete -C {line}
"""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_propose_the_same_words(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on the PATH: install it")
    script = completion(shell)
    for line, expected in (("dpbench ''", {*COMMANDS, "--version"}), ("dpbench data ''", None)):
        quoted = line if shell == "zsh" else f"'{line.removesuffix(chr(39) * 2)}'"
        text = (IN_ZSH if shell == "zsh" else IN_FISH).format(script=script, line=quoted)
        done = subprocess.run([shell, "-c", text], capture_output=True, text=True, check=True)
        assert {*done.stdout.split()} == (expected or {*words("data")})


def test_every_command_has_a_function_and_its_help_is_completed():
    """A setting in the help, as baseline=, is one of the words that may follow the command."""
    for name, command in COMMANDS.items():
        named = {*re.findall(r"(?<![-\w.'])([a-z_]+=)", usage_of(command))}
        known = {word.partition("=")[0] + "=" for word in words(name) if "=" in word}
        assert named - {"a=", "b="} <= known, name
    for command in COMMANDS.values():
        assert callable(command.function())
