"""`dpbench bench suite=table`: the times of whole commands."""

import subprocess

import pytest
from dpbench.benchmarks.step_cost.command import bench, parse
from dpbench.benchmarks.step_cost.report import read
from dpbench.benchmarks.step_cost.whole_commands import (
    BASELINE,
    COMMANDS,
    TimedRun,
    markdown,
    measure,
    rows,
)

from dpbench.system.errors import UserError

ARGUMENTS = ("suite=table", "device=cpu")


@pytest.mark.long
def test_commands_are_measured_in_turns_beside_the_import_of_torch(tmp_path, capsys):
    bench([*ARGUMENTS, "case=list", "repeats=2", f"out={tmp_path}"])
    (path,) = tmp_path.glob("table_*.csv")
    data = read(path).set_index("case")
    assert list(data.index) == [BASELINE, "list"]
    assert (data["repeats"] == 2).all()
    assert (data["seconds"] > 0).all()
    assert (data["cpu_seconds"] > 0).all()
    assert data.loc[BASELINE, "ratio"] == 1
    assert data.loc["list", "command"] == "dpbench list"
    assert "| list |" in capsys.readouterr().out
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_command_that_fails_gives_its_reason_and_is_not_repeated():
    refused = TimedRun("refused", ("run", "modle=mlp"))
    data = rows(measure([TimedRun(BASELINE, ("-c", "pass")), refused], 2), "here")
    assert list(data["repeats"]) == [2, 0]
    assert "modle is not a setting" in markdown(data)


def test_a_finished_run_finds_its_record_and_a_new_one_finds_none(monkeypatch):
    lines = []

    def run(line, **_):
        lines.append(line)
        return subprocess.CompletedProcess(line, 0, "", "")

    monkeypatch.setattr("dpbench.benchmarks.step_cost.whole_commands.subprocess.run", run)
    by_name = {command.name: command for command in COMMANDS}
    finished, anew = measure([by_name["finished run"], by_name["run epochs=1"]], 2)
    assert [len(one.seconds) for one in (finished, anew)] == [2, 2]
    first, *turns = (line[-1] for line in lines)
    assert first.startswith("results_dir=")
    assert turns[0] == turns[2] == first
    assert len({first, turns[1], turns[3]}) == 3


def test_commands_have_names_of_their_own_and_unknown_ones_are_refused():
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    with pytest.raises(UserError, match="has no contenders"):
        parse([*ARGUMENTS, "contender=plain"]).commands()
    with pytest.raises(UserError, match="case=lsit is unknown: did you mean list"):
        parse([*ARGUMENTS, "case=lsit"]).commands()
