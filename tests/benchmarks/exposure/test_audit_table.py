"""The table of audits: its rows, its files, and how it goes on after an interrupt."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from dpbench.benchmarks.exposure import audit_table as table

from dpbench.audit.game import on_canaries
from dpbench.audit.request import prepare_audit
from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.config.buildable import settings_of
from dpbench.runs.config.commands import RunAuditCommand
from dpbench.runs.config.settings import split_settings
from dpbench.runs.training.plan import plan


@pytest.mark.long
def test_every_row_of_the_table_can_be_attacked():
    target = target_of("audit", [])
    rows = [
        overrides
        for method in target.table.methods
        for overrides in target.cells_of(target.conditions[0], method)
    ]
    for overrides in rows:
        run, _ = prepare_audit([*overrides, "epochs=1"], 200)
        bands = run.method.noise.bands or 1
        run = replace(run, batch_size=100 // bands)
        assert plan(on_canaries(run, 200)).steps == 2 * bands
    assert len(rows) == len(target.table.methods) + 2
    for row in settings_of(target.table.compute)["rows"]:
        settings, overrides = split_settings("audit", RunAuditCommand, row.split())
        prepare_audit(overrides, settings.canaries, settings.game)


@pytest.mark.slow
def test_the_table_has_a_row_for_each_attack_and_claim(monkeypatch, tmp_path):
    monkeypatch.setattr(table, "CANARIES_OF_OTHERS", 1000)
    monkeypatch.setattr(table, "STEPS", 200)
    methods = ["table.methods=[dpsgd_quantile]", "table.compute.rows=[]"]
    page = reproduce("audit", [*methods, "epochs=1", f"results_dir={tmp_path}"])
    assert "- 2 claims attacked, 0 refuted." in page
    assert page.count("| dpsgd_quantile | run | 1000 |") == 1
    # At a sampling rate of 1, as the notes say: 4.887 is the epsilon of the sum alone.
    assert page.count("| dpsgd_quantile | step | 200 | 1 | 4.891 | PLD |") == 1
    files = {path.suffix for path in tmp_path.glob("tables/audit*")}
    assert files == {".md", ".csv", ".json", ".png", ".svg", ".pdf"}


@pytest.mark.slow
def test_an_interrupted_table_goes_on_with_the_attacks_that_are_missing(monkeypatch, tmp_path):
    row = table.AuditRow(("dpsgd",) * len(table.COLUMNS), "dpsgd", 2.0, 1.0, False)
    attacked = []

    def attack(task):
        attacked.append(task.overrides[1])
        if len(attacked) == 2:
            raise KeyboardInterrupt
        return [row]

    monkeypatch.setattr(table.AuditTask, "rows", attack)
    methods = ["table.methods=[disk,doppler]", "table.compute.rows=[]"]
    asked = [*methods, f"results_dir={tmp_path}"]
    with pytest.raises(KeyboardInterrupt):
        reproduce("audit", asked)
    assert "- 2 claims attacked, 0 refuted." in reproduce("audit", asked)
    assert attacked == [f"method={name}" for name in ("disk", "doppler", "doppler")]
    monkeypatch.setattr(table, "code", lambda: "changed")
    reproduce("audit", asked)
    assert len(attacked) == 5


def test_a_row_of_which_an_attack_shows_less_than_half_has_its_sentence():
    target = target_of("audit", [])
    table_csv = (Path(__file__).parents[3] / "results" / "tables" / "audit.csv").read_text("utf-8")
    weak = {r["method"] for r in csv.DictReader(table_csv.splitlines()) if ratio_of(r) < 0.5}
    assert {e for e in weak if not any(n.startswith(f"{e}: ") for n in target.table.notes)} == set()


def ratio_of(row: dict[str, str]) -> float:
    return float(row["audited / claimed"])


def test_an_attack_is_named_by_what_it_attacks_and_not_by_how_it_is_executed():
    words = ("+table=audit", "seed=7", "method=disk")
    names = {
        table.AuditTask(words + more).digest
        for more in [(), ("jobs=2",), ("engine.name=vmap",), ("table.methods=[disk]",)]
    }
    assert len(names) == 1
    # The last two are what is composed anyway, where an audit would choose something else.
    as_composed = [("batch_size=256",), ("optimizer.lr=0.5",)]
    composed = table.run_config(words)
    assert (composed["batch_size"], composed["optimizer"]["lr"]) == (256, 0.5)
    others = [("epochs=1",), ("privacy.epsilon=3",), ("method=doppler",), *as_composed]
    names |= {table.AuditTask(words + more).digest for more in others}
    assert len(names) == 6
