"""Each setting of each command: in its help, in its completion, and refused in one sentence."""

import re
from pathlib import Path
from typing import get_args

import pytest
from dpbench.benchmarks.step_cost.command import SUITES
from msgspec.structs import fields

from dpbench.audit.audit import GAMES
from dpbench.audit.request import FOR_CONTENDERS
from dpbench.cli.completion import words
from dpbench.cli.main import usage_of
from dpbench.cli.registry import COMMANDS
from dpbench.comparison.search.samplers import SAMPLERS
from dpbench.comparison.search.selection import RULES
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.runs.config.commands import (
    AuditCommand,
    BenchCommand,
    RunAuditCommand,
    SearchCommand,
    TableCommand,
)
from dpbench.system.arguments import described, meanings, read
from dpbench.system.errors import UserError

KINDS = [(command, kind) for command in COMMANDS.values() for kind in command.settings]
SETTINGS = [
    pytest.param(command, kind, field, id=f"{command.name} {field.name}")
    for command, kind in KINDS
    for field in fields(kind)
]


@pytest.mark.parametrize(("command", "kind", "field"), SETTINGS)
def test_a_setting_is_in_the_help_with_a_meaning_and_in_the_completion(command, kind, field):
    assert len(meanings(kind)[field.name].split()) > 1
    assert re.search(rf"^  {field.name}=\S*(  |$)", usage_of(command), re.MULTILINE)
    assert any(word.startswith(f"{field.name}=") for word in words(command.name))


@pytest.mark.parametrize(("command", "kind", "field"), SETTINGS)
def test_a_bad_value_is_refused_in_one_sentence_that_names_its_setting(command, kind, field):
    takes_any = {str, tuple[str, ...]} & {field.type}
    for bad in ["", *([] if takes_any else ["x\0"])]:
        with pytest.raises(UserError) as refused:
            read(command.name, kind, [f"{field.name}={bad}"])
        sentence = str(refused.value)
        assert re.match(rf"{field.name}\b", sentence)
        assert sentence.endswith((".", "?"))
        assert ". " not in sentence


@pytest.mark.parametrize(("command", "kind"), KINDS)
def test_the_help_has_no_setting_that_is_none_and_defaults_that_it_takes(command, kind):
    assert {*meanings(kind)} == {*kind.__struct_fields__}
    given = [head for head, _ in described(kind) if not head.endswith("=")]
    assert read(command.name, kind, given) == kind()


@pytest.mark.parametrize(
    ("kind", "word", "sentence"),
    [
        (SearchCommand, "private=yes", "private=yes is unknown: choose from false, true."),
        (SearchCommand, "epsilon=0", "epsilon must be a positive number, got 0.0."),
        (SearchCommand, "trials=nan", "trials must be a number, got nan."),
        (SearchCommand, "n=3", "n is not an argument of x: did you mean N"),
        (RunAuditCommand, "claim=-1", "claim must be a number of at least 0, got -1.0."),
        (RunAuditCommand, "confidence=1", "confidence must be a number between 0 and 1, got 1.0."),
        (TableCommand, "out=", "out needs a value: out=VALUE."),
        (TableCommand, "out=a\0", "out must be the name of a file, got 'a\\x00'."),
    ],
)
def test_a_refusal_says_what_would_do(kind, word, sentence):
    with pytest.raises(UserError) as refused:
        read("x", kind, [word])
    assert str(refused.value).startswith(sentence)


def test_values_have_the_types_of_their_settings_and_the_names_of_parts_and_suites():
    given = read("x", SearchCommand, ["N=7", "private=true", "epsilon=3", "by=tpe", "N=8"])
    assert given == SearchCommand(N=8, private=True, epsilon=3.0, by="tpe")
    bench = read("x", BenchCommand, ["case=a,b", "out=there/x"])
    assert (bench.case, bench.out) == (("a", "b"), Path("there/x"))
    choices = {(kind, f.name): {*get_args(f.type)} for _, kind in KINDS for f in fields(kind)}
    assert choices[SearchCommand, "by"] == {*SAMPLERS}
    assert choices[SearchCommand, "rule"] == {*RULES}
    assert choices[RunAuditCommand, "game"] == {*GAMES, *FOR_CONTENDERS}
    assert choices[BenchCommand, "suite"] == {*SUITES}
    assert AuditCommand().confidence == CONFIDENCE
    assert [w for w in words("bench") if w.startswith("suite=")] == [f"suite={n}" for n in SUITES]
