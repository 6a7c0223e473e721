"""Any text as a value, in a list, and as a key: written, and read back as the same."""

import re
import shlex
import warnings

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dpbench.comparison.tables.sweep.command import table
from dpbench.learning.data.custom.oddities import missing_mark
from dpbench.learning.data.custom.table import CONTROL
from dpbench.runs.config.compose import compose
from dpbench.runs.config.literals import literal
from dpbench.runs.config.overrides import expand, parse
from dpbench.runs.execution.python_api import as_overrides
from dpbench.runs.execution.rerun import CommandBuilder
from dpbench.runs.records.digest import digest, scientific
from dpbench.system.errors import UserError
from dpbench.system.validate import for_column
from tests.comparison.tables.sweep.made_up import record

ODD = [
    *("fenêtre", "C, d", "it's", 'say "x"', "a\tb", "3", "2020", "1.5", "1e3", "NA", "None"),
    *("null", "TRUE", "nan", "-inf", "a:b", "a=b", "a[b]", "{a}", "a\\", "\\", "\\'", "'\\\\'"),
    *("$x", "${x}", "\\${x}", "${oc.env:HOME}", "???", " a ", "", "#a", "日本", "😀", "a\nb"),
    *("~a", "+a", "$(id)", "`id`", "a;b", "range(3)", "[a", "a]", "_c0", "\u200b", "é'", "a.b"),
]
SEPARATORS = st.sampled_from([*"'\"\\$[]{}(),:=~+ \t#é.", "${", "}", "null", "1"])
LETTERS = st.characters(codec="utf-8", exclude_characters="\0")
NAMES = st.sampled_from(ODD) | st.lists(SEPARATORS | LETTERS, max_size=8).map("".join)
PATIENT = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
PUBLIC = ["dataset=csv", "dataset.name=x", "dataset.rows=99", "dataset.classes=2"]


@pytest.fixture(scope="module")
def command():
    return CommandBuilder()


def read(value):
    (override,) = parse([f"results_dir={literal(value)}"])
    return override.value()


@pytest.mark.slow
@settings(PATIENT, max_examples=100)
@given(names=st.lists(NAMES, min_size=1, max_size=3, unique=True))
@example(names=ODD)
def test_texts_lists_and_keys_of_mappings_are_read_back(names):
    """Up to interpolations, which are resolved only when a configuration is composed."""
    names = [name.replace("${", "$ {") for name in names]
    assert [read(name) for name in names] == names
    assert read([*names, 3, None, True]) == [*names, 3, None, True]
    assert read({e: [e, {e: 1.5}] for e in names}) == {e: [e, {e: 1.5}] for e in names}


@pytest.mark.slow
@settings(PATIENT, max_examples=30)
@given(names=st.lists(NAMES, min_size=2, max_size=3, unique=True))
@example(names=ODD)
@example(names=["fenêtre", "${[}"])
@example(names=["${.}", "${dataset.groups}"])
def test_the_command_of_a_record_with_any_names_gives_the_same_run(names, command):
    config = compose([*PUBLIC, "dataset.features=3", "dataset.groups=[a,b]"])
    config["dataset"] |= {
        "groups": names, "target": names[0], "group": names[1], "drop": names[1:],
        "standardise": {name: [0.0, 1.0] for name in names},
        "checksum": "sha256:0",
    }  # fmt: skip
    words = shlex.split(command(scientific(config)))[2:]
    assert digest(compose(words)) == digest(config)
    assert [digest(compose(run)) for run in expand(words)] == [digest(config)]
    in_python = as_overrides(tuple(words), {"results_dir": names[0]})
    assert compose(in_python)["results_dir"] == names[0]


@pytest.mark.slow
@settings(PATIENT, max_examples=15)
@given(names=st.lists(NAMES, min_size=4, max_size=6, unique=True))
@example(names=ODD)
def test_columns_and_groups_of_any_name_are_found_in_a_file(names, tmp_path_factory, command):
    # Without what CSV files do not keep: spaces before a name, line breaks, empty and like names.
    names = [*dict.fromkeys(" ".join(name.split()) for name in names)]
    names = [n for n in names if n and not n.startswith(("Unnamed", "\ufeff"))]
    # Among numbers a word is missing or wrong: so no name is a number here.
    # A value with a control character is refused.
    groups = [f"{re.sub(CONTROL, '?', name)}!" for name in names]
    target, number, *others = [*names, "other", "more", "last"]
    folder = tmp_path_factory.mktemp("odd names")
    rows = range(6 * len(names) + 12)
    frame = pd.DataFrame({number: [0.5 * row for row in rows], target: [row % 2 for row in rows]})
    frame[others[0]] = [groups[row % len(names)] for row in rows]
    frame.to_csv(folder / "odd.csv", index=False)
    said = [
        *("dataset=csv", f"dataset.file={literal(str(folder / 'odd.csv'))}"),
        f"dataset.target={literal(target)}",
        f"dataset.group={literal(others[0])}",
        f"dataset.standardise={literal({number: [0, 1]})}",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = compose(said)
    assert {*config["dataset"]["groups"]} == {*frame[others[0]]}
    assert digest(compose(shlex.split(command(scientific(config)))[2:])) == digest(config)


@pytest.mark.slow
@settings(PATIENT, max_examples=25)
@given(names=st.lists(NAMES.filter(lambda n: n.strip(",")), min_size=1, max_size=3, unique=True))
@example(names=ODD)
def test_metrics_of_groups_of_any_name_can_be_named(names, tmp_path_factory):
    names = [name for name in names if name.strip(",") == name]
    folder = tmp_path_factory.mktemp("groups")
    made = record()
    made.metrics.update({f"test/accuracy/{name}": 0.25 for name in names})
    made.save(folder)
    for name in names:
        for text in (f"accuracy/{name}", f"accuracy,test/accuracy/{name},ece"):
            page = table([str(folder), f"out={folder / 't'}", f"metrics={text}"])
            assert "25.0 (1)" in page
            assert page.startswith("# ")
            assert page.split("\n")[1] == ""


def test_odd_keys_and_texts_of_tables_stand_as_they_were_written():
    runs = expand(["dataset.standardise=train,{a:[0,1]},{'C, d':[0,1],é:[2,3],3:[1,2]}", "seed=1"])
    values = [parse(run)[0].value() for run in runs]
    assert values == ["train", {"a": [0, 1]}, {"C, d": [0, 1], "é": [2, 3], "3": [1, 2]}]
    more = ["+optimizer.foreach=false", "dataset.standardise={'C, d':[0,1]}"]
    config = compose([*PUBLIC, "dataset.groups=[a]", *more])
    assert config["dataset"]["standardise"] == {"C, d": [0, 1]}
    assert config["optimizer"]["foreach"] is False
    with pytest.raises(UserError, match="not call a resolver"):
        parse(["table.settings=[{set:{seed:'\\${oc.env:HOME}'}}]"])
    with pytest.raises(UserError, match="is refused: write it in the file of a table"):
        parse(["table.labels={'é':x}"])


@pytest.mark.parametrize(
    "text",
    [
        *("${oc.env:HOME}", "'\\\\${oc.env:HOME}'", "\\\\\\${oc.env:HOME}", "[a,'${oc.env:HOME}']"),
        *("{a:'${oc.env:HOME}'}", "{'é':'${oc.env:HOME}'}", "a,\\${oc.env:HOME}"),
        *("\\${${oc.env:HOME}}", "é${oc.env:HOME}"),
    ],
)
def test_no_way_to_write_a_text_calls_a_resolver(text):
    with pytest.raises(UserError, match="is refused: an interpolation may name another setting"):
        parse([f"method.name={text}"])


@pytest.mark.parametrize("name", ["age", "fenêtre", "C, d", "it's", 'say "x"', "3", "a:b", "null"])
def test_a_way_out_that_has_a_mapping_or_a_list_is_one_word_of_a_shell(name):
    (word,) = shlex.split(for_column("dataset.bounds", name, "[0, 1]"))
    assert parse([word])[0].value() == {name: [0, 1]}
    (word,) = shlex.split(missing_mark(name))
    assert parse([word])[0].value() == [name]
