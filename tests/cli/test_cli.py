"""What a user types and reads. Most commands run in this process, which saves importing torch."""

import json
import re
from pathlib import Path

import pytest

from dpbench.cli.registry import COLUMN, COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def test_usage_names_every_command_and_one_command_s_is_its_part_of_the_whole(command):
    for name in COMMANDS:
        for words in ((name, "--help"), (name, "-h"), ("help", name)):
            done = command(*words)
            assert (done.code, done.err) == (0, [])
            assert done.out[0].startswith(f"dpbench {name} ")
            indents = {len(line) - len(line.lstrip()) for line in done.out if line[:9].isspace()}
            assert indents <= {COLUMN}
            assert not any(re.match(rf"\W*{other} \[", line) for other in COMMANDS if other != name
                           for line in done.out)  # fmt: skip
    assert command("rum", "--help").code == command("help", "rum").code == 2
    for words in ([], ["--help"], ["-h"], ["help"]):
        done = command(*words)
        assert (done.code, done.err) == (0, [])
        text = "\n".join(done.out)
        assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "epochs"], "epochs: 20"),
        (["run", "batch_limit"], "# for sampler=truncated"),
        (["epsilon", "epochs=1", "noise"], "# Noise and batches: seeded"),
        (["run", "optimizer.lr"], "lr: 0.5"),
        (["run", "model.lora.rank"], "  rank: 8"),
        (["run", "users.most"], "rows of a user that are trained on"),
        (["search", "finalists"], "finalists=0"),
        (["run", "schedule"], "`dpbench list schedule` describes them"),
    ],
)
def test_the_help_says_what_a_setting_means(command, words, said):
    done = command("help", *words)
    assert (done.code, done.err) == (0, [])
    assert said in "\n".join(done.out)
    assert not done.out[0].startswith("dpbench ")


@pytest.mark.parametrize("key", ["epoch", "defaults", "optimizer.lrr", "finalists"])
def test_the_help_refuses_a_setting_that_is_none(command, key):
    done = command("help", "run", key)
    assert done.code == 2
    assert len(done.err) == 1


@pytest.mark.slow
def test_a_delta_above_1_over_n_is_only_a_warning(command, nowhere):
    done = command("epsilon", "privacy.delta=0.001", *nowhere)
    assert done.code == 0
    (line,) = done.err
    assert line.startswith("dpbench: privacy.delta=0.001 is above 1/n = 0.0007")
    assert json.loads(done.out[-1])["delta"] == 0.001
    assert command("epsilon", "privacy.delta=0.0001", *nowhere).err == []


def test_list_names_groups_and_options_and_says_what_they_are(command, tmp_path):
    names = sorted(path.stem for path in (ROOT / "conf" / "dataset").glob("*.yaml"))
    everything = command("list").out
    assert f"dataset: {', '.join(names)}" in everything
    heads = sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir())
    assert [line.split(":")[0] for line in everything] == heads
    said = command("list", "method", "model", "dpsgd", "mlp").out
    assert [line for line in said if line[0] != " "] == ["method=dpsgd", "model=mlp"]
    assert command("list", "dpsgd").out[0] == "method=dpsgd"
    refused = command("list", "method", "dpsgdd")
    assert (refused.code, refused.out) == (2, [])
    assert "method=dpsgdd is unknown: did you mean dpsgd" in refused.err[0]
    own = tmp_path / "method" / "mine.yaml"
    own.parent.mkdir()
    own.write_text(
        "\n#@package method\n#Mine, from 2025.\n#  Cost: none.\nbound: 1.0\n# Not this.\n"
    )
    own.with_name("silent.yaml").write_text("bound: 1.0\n")
    said = command("list", "method", "engine", "--config-dir", str(tmp_path)).out
    at = said.index("method=mine")
    assert said[at + 1 : at + 3] == ["    Mine, from 2025.", "     Cost: none."]
    assert said[at + 3].startswith("method=")
    assert said[said.index("method=silent") + 1].startswith(("method=", "engine="))
    assert next(word for word in said if word.startswith("engine=")) == "engine=auto"


def test_every_option_says_what_it_is():
    from dpbench.runs.config.search_path import description, groups, options

    assert all(description(group, option) for group in groups() for option in options(group))


def test_data_checks_the_named_sets_and_continues_after_a_missing_one(command, tmp_path):
    assert command("data", "digits").out == ["digits: 1438 training and 359 test examples"]
    (line,) = command("data", "celeba", f"data_dir={tmp_path}").err
    assert f"list_attr_celeba.txt is missing in {tmp_path}" in line
    said = command("data", "celeba", "digits", f"data_dir={tmp_path}")
    assert said.out == ["digits: 1438 training and 359 test examples"]
    assert said.err[-1] == "dpbench: missing, or not as published: celeba."
