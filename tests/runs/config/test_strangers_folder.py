"""A `--config-dir` from somebody else: what docs/plugins.md says that it cannot cause."""

import os

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import MAX_BYTES, as_overrides
from dpbench.system.errors import UserError
from tests.plugin_files import SHARP, write

GLOBAL = "# @package _global_\n"
TABLE = "title: Mine\npaper: Ours\nmethods: [sgd]\nseeds: [0]"


def refusal(folder, *overrides):
    with pytest.raises(UserError) as told:
        compose([*overrides, *as_overrides([folder])])
    assert "\n" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("defaults: [override /launcher: evil, _self_]\n", "the launcher"),
        ("launcher: {setup: [touch pwned]}\n", "the launcher"),
        ("more: true\n", "more"),
        ("dataset: {file: /etc/passwd}\n", "the dataset"),
        ("model: {weights: /etc/passwd}\n", "the model"),
        ("defaults: [override /dataset: csv, _self_]\n", "the dataset"),
    ],
)
def test_an_option_sets_nothing_that_the_user_did_not_choose(text, what, tmp_path):
    evil = "_target_: dpbench.execution.local.Local\nsetup: [touch pwned]\n"
    option = {"tracker/mine.yaml": f"{GLOBAL}{text}", "launcher/evil.yaml": evil}
    said = refusal(write(tmp_path / "added", option), "tracker=mine")
    assert f"an option of another group cannot set {what}: choose it on the command line" in said


def test_an_option_sets_no_folder_and_nothing_else_that_is_no_group(tmp_path):
    text = f"{GLOBAL}results_dir: /x\ndata_dir: /x\nagain: true\nsave_model: true\njobs: 9\n"
    folder = write(tmp_path / "added", {"privacy/mine.yaml": text})
    keys = ("results_dir", "data_dir", "again", "save_model", "jobs")
    config, usual = compose(["privacy=mine", *as_overrides([folder])]), compose([])
    assert [config[key] for key in keys] == [usual[key] for key in keys]


def test_an_option_may_set_other_groups_of_the_run(tmp_path):
    folder = write(tmp_path / "added", {"privacy/mine.yaml": f"{GLOBAL}schedule: {{lr: 1.0}}\n"})
    assert compose(["privacy=mine", *as_overrides([folder])])["schedule"] == {"lr": 1.0}


def test_the_choices_of_the_user_take_precedence(tmp_path):
    folder = write(tmp_path / "added", {"privacy/mine.yaml": f"{GLOBAL}schedule: {{}}\n"})
    own = ["results_dir=x", "tracker=csv", "launcher=slurm", "dataset=mnist", "jobs=2"]
    config = compose(["privacy=mine", *own, *as_overrides([folder])])
    assert (config["results_dir"], config["jobs"]) == ("x", 2)
    assert config["choices"]["launcher"] == "slurm"


@pytest.mark.parametrize(
    "text",
    [
        *("${oc.env:HOME}", "${ oc.env:HOME}", "x-${oc.env:HOME}", "${oc.env:HOME,x}"),
        *("${oc.decode:3}", "${${a}:HOME}", "\\${oc.env:HOME}", "${a.${b}}"),
    ],
)
@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_file_calls_no_resolver(text, quote, tmp_path):
    text = text.replace("$", "\\x24") if quote == '"' and "\\" not in text else text
    if quote == '"' and text.startswith("\\$"):
        text = f"\\{text}"
    option = f"{SHARP}\nmore: {quote}{text}{quote}\n"
    folder = write(tmp_path / "added", {"method/mine.yaml": option})
    assert "may name another setting" in refusal(folder, "method=mine")


def test_nor_does_its_defaults_list(tmp_path):
    folder = write(tmp_path / "added", {"method/mine.yaml": "defaults: ['${oc.env:HOME}']\n"})
    assert "may name another setting" in refusal(folder, "method=mine")
    folder = write(tmp_path / "other", {"method/mine.yaml": "defaults: ['${epochs}']\n"})
    assert "must be spelt out" in refusal(folder, "method=mine")


def bomb(line, last):
    """Ten of the one before, eleven times."""
    lines = [line(n) for n in range(1, 12)]
    return "\n".join([SHARP, last, *lines]) + "\n"


BOMBS = {
    "aliases": bomb(lambda n: f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]", "a0: &a0 [x]"),
    "interpolations": bomb(lambda n: f"a{n}: '{f'${{method.a{n - 1}}}' * 10}'", "a0: xxxxxxxxxx"),
    "relative interpolations": bomb(
        lambda n: f"a{n}: '{f'${{.a{n - 1}}}' * 10}'", "a0: xxxxxxxxxx"
    ),
    "interpolations from an end": "\n".join(
        [
            SHARP,
            "a:",
            "- xxxxxxxxxx",
            *(f"- '{f'${{method.a[{n - 12}]}}' * 10}'" for n in range(11)),
        ]
    ),
    "mappings": bomb(lambda n: f"a{n}: [{','.join([f'${{method.a{n - 1}}}'] * 10)}]", "a0: [x]"),
    "a circle of interpolations": f"{SHARP}\na: ${{method.b}}\nb: ${{method.a}}\n",
    "an alias of itself": f"{SHARP}\na: &a [*a]\n",
    "nesting": f"{SHARP}\na: {'[' * 3000}{']' * 3000}\n",
    "nesting by indentation": SHARP + "\n" + "".join(f"{' ' * n}a:\n" for n in range(300)),
    "size": f"{SHARP}\na: {'x' * MAX_BYTES}\n",
    "digits": f"{SHARP}\na: {'9' * 5000}\n",
    "a time": f"{SHARP}\na: !!timestamp '2001-99-99'\n",
    "itself": "defaults: [mine]\n",
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=[*BOMBS])
def test_no_file_takes_memory_or_time_without_end(text, tmp_path):
    folder = write(tmp_path / "added", {"method/mine.yaml": text})
    assert "mine.yaml" in (said := refusal(folder, "method=mine")) or "method." in said


def test_nor_do_many_files_that_read_one_another(tmp_path):
    lists = {n: ", ".join(f"a{n + 1}@x{m}" for m in range(10)) for n in range(8)}
    files = {f"method/a{n}.yaml": f"defaults: [{text}]\n" for n, text in lists.items()}
    folder = write(tmp_path / "added", {**files, "method/a8.yaml": SHARP})
    assert "reads more than 100 files by its defaults list" in refusal(folder, "method=a0")


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir],
    ids=["pipe", "device", "folder"],
)
def test_only_regular_files_are_opened(make, tmp_path):
    (tmp_path / "method").mkdir()
    make(tmp_path / "method" / "mine.yaml")
    assert "mine.yaml is not a file of at most 100,000 bytes" in refusal(tmp_path, "method=mine")


@pytest.mark.parametrize("key", ["hydra.searchpath", "results_dir", "launcher.setup"])
def test_the_rules_of_a_table_choose_options_alone(key, tmp_path):
    rule = f"settings: [{{when: {{}}, choose: {{{key}: x}}}}]\n"
    folder = write(tmp_path / "added", {"table/mine.yaml": f"{TABLE}\n{rule}"})
    assert "table.settings[0].choose" in refusal(folder, "+table=mine")


def test_a_table_does_not_set_the_user_s_folder(tmp_path):
    rule = "settings: [{when: {}, set: {results_dir: /somewhere}}]\n"
    folder = write(tmp_path / "added", {"table/mine.yaml": f"{TABLE}\n{rule}"})
    assert "a table cannot set results_dir" in refusal(folder, "+table=mine")
