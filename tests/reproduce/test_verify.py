"""Published records and tables say what follows from each other; what was changed is found."""

import json
import re
import warnings
from pathlib import Path

import pytest

from dpbench.cli.main import main
from dpbench.errors import UserError
from dpbench.execution.run import load_or_run
from dpbench.execution.verify import (
    _epsilons_of_ledger,
    _planned,
    _same_ledger,
    contradictions,
    differences_of_rerun,
    equal,
)
from dpbench.paths import PACKAGE
from dpbench.records.reading import parse, read
from dpbench.records.record import Record, checksum
from dpbench.reproduce.render import render
from dpbench.reproduce.target import target_of
from dpbench.reproduce.verify import (
    conflicting_records,
    published_target,
    unsupported_lines,
    verify,
)

PUBLISHED = sorted((PACKAGE.parent / "results" / "tables").glob("*.records.jsonl"))

CALIBRATED = ("sign_table1", "bam_table1", "frontier_table1", "frontier_table2", "frontier_fig1")
"""Their noise follows from budgets, which takes a minute."""

SMALL = ["epochs=2", "model=logistic", "batch_size=256", "threads=1"]


def records(path: Path) -> list[Record]:
    found = [parse(line, path.name) for line in path.read_text().splitlines()]
    assert all(isinstance(record, Record) for record in found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name.partition(".")[0])
def test_the_records_of_a_published_table_give_its_numbers(path):
    assert list(unsupported_lines(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.long] * path.name.startswith(CALIBRATED))
        for path in PUBLISHED
    ],
    ids=lambda path: path.name.partition(".")[0],
)
def test_published_epsilons_follow_from_their_settings(path):
    assert [found for record in records(path) for found in contradictions(record)] == []


@pytest.mark.slow
def test_published_tables_agree_on_the_runs_that_they_share():
    assert list(conflicting_records(PUBLISHED)) == []


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return read(load_or_run([*SMALL, f"results_dir={tmp_path_factory.mktemp('results')}"]))


def changed(record: Record, part: str, **values) -> Record:
    plain = json.loads(record.json())
    plain[part] |= values
    del plain["checksum"]
    return parse(json.dumps(plain | {"checksum": checksum(plain)}), "changed")


@pytest.mark.parametrize(
    ("part", "values", "what"),
    [
        ("privacy", {"pld": 0.5}, "has pld=0.5, but its ledger gives"),
        ("privacy", {"guarantee": "none"}, "has guarantee=none"),
        ("privacy", {"delta": 0.5}, "has delta=0.5"),
        ("privacy", {"ledger": []}, "has another ledger than its settings"),
        ("privacy", {"arithmetic": "secure"}, "has arithmetic=secure, but its settings give float"),
        ("privacy", {"unit": "user"}, "has unit=user"),
        ("privacy", {"adjacency": "replace one"}, "has adjacency=replace one"),
        ("privacy", {"noise_multiplier": 9.0}, "has noise_multiplier=9.0"),
        ("privacy", {"sample_rate": 1e-9}, "has sample_rate=1e-09"),
        ("privacy", {"steps": 1}, "has steps=1"),
        ("privacy", {"claimed_by": "gdp"}, "has claimed="),
        ("privacy", {"claimed_by": "faith"}, "settings that this version cannot run"),
        ("privacy", {"audit": {"epsilon": 0.1}}, "has the bound of an audit"),
        ("covered", {"metrics": True}, "says that its epsilon covers metrics"),
        ("config", {"epochs": 3}, "has another ledger than its settings"),
        (
            "config",
            {"optimizer": {"_target_": "shutil.rmtree"}},
            "settings that this version cannot run",
        ),
        ("provenance", {"commit": "0123456789ab+"}, "uncommitted changes"),
    ],
)
def test_what_a_record_says_falsely_is_found(record, part, values, what):
    assert any(what in found for found in contradictions(changed(record, part, **values)))


@pytest.mark.parametrize(
    ("group", "name"), [("dataset", "adult"), ("model", "mlp"), ("method", "dpsgd_f")]
)
def test_an_option_that_a_record_does_not_have_the_settings_of_is_found(record, group, name):
    choices = record.config["choices"] | {group: name}
    found = contradictions(changed(record, "config", choices=choices))
    named = f"names {group}={name}, but its settings are of dpbench."
    assert any(one.startswith(named) for one in found)


def test_an_audit_s_ledger_is_not_taken_for_that_of_a_run_on_data(record):
    """A ledger of its own, with the epsilons that follow from it, is what an audit's record has."""
    ledger = json.loads(json.dumps(record.privacy["ledger"]))
    ledger[0]["releases"][0]["mechanism"]["noise_multiplier"] = 10.0
    epsilons = _epsilons_of_ledger({**record.privacy, "ledger": ledger})
    forged = {"ledger": ledger, "audit": {"epsilon": 0.1, "confidence": 0.95}, **epsilons}
    found = [*contradictions(changed(record, "privacy", **forged))]
    assert any("has another ledger than its settings" in one for one in found)
    assert any("has the bound of an audit, but its data are no canaries" in one for one in found)


def test_a_run_that_diverged_has_no_metrics(record):
    """Otherwise a record could have the epsilon of its first step and the metrics of all."""
    plain = json.loads(record.json()) | {"status": "diverged"}
    del plain["checksum"]
    plain["privacy"]["ledger"][0]["times"] = plain["privacy"]["steps"] = 1
    plain["privacy"] |= _epsilons_of_ledger(plain["privacy"])
    forged = parse(json.dumps(plain | {"checksum": checksum(plain)}), "forged")
    assert "diverged, but has metrics that are numbers." in [*contradictions(forged)]
    nothing = changed(forged, "metrics", **dict.fromkeys(plain["metrics"], float("nan")))
    (found,) = (one for one in contradictions(nothing) if "ended" in one or "diverged" in one)
    assert found == "ended after 1 steps, which is not the end of an epoch in its history."


def test_a_run_that_diverged_ended_with_an_epoch_of_its_history(record):
    epoch = record.privacy["steps"] // 2

    def diverged(steps: int, epochs: int) -> list[str]:
        plain = json.loads(record.json()) | {"status": "diverged"}
        del plain["checksum"]
        plain["metrics"] = dict.fromkeys(plain["metrics"], float("nan"))
        plain["history"]["train/loss"] = plain["history"]["train/loss"][:epochs]
        plain["privacy"]["ledger"][0]["times"] = plain["privacy"]["steps"] = steps
        plain["privacy"] |= _epsilons_of_ledger(plain["privacy"])
        forged = parse(json.dumps(plain | {"checksum": checksum(plain)}), "forged")
        return [one for one in contradictions(forged) if "ended after" in one]

    assert diverged(epoch, 1) == []
    assert len(diverged(epoch - 1, 1)) == len(diverged(epoch, 2)) == 1


def test_a_record_on_canaries_is_that_of_an_audit_and_has_no_metrics(record):
    """No settings describe the steps of an audit, so none would bound its ledger."""
    choices = record.config["choices"] | {"dataset": "canaries"}
    found = contradictions(changed(record, "config", choices=choices))
    assert "names canaries as its data, and is no record of an audit." in [*found]


def test_of_an_audit_each_epsilon_is_that_of_its_ledger(tmp_path, capsys, monkeypatch):
    words = ["audit", "canaries=100", "epochs=1", "game=step", f"results_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["dpbench", *words])
    main()
    capsys.readouterr()
    (path,) = (tmp_path / "runs").glob("*.json")
    audited = changed(parse(path.read_text(), "audit"), "provenance", commit="0123456789ab")
    assert list(contradictions(audited)) == []
    (found,) = contradictions(changed(audited, "privacy", pld=0.5))
    assert "has pld=0.5, but its ledger gives" in found


def test_a_record_as_it_was_made_is_sound(record):
    clean = changed(record, "provenance", commit="0123456789ab")
    assert list(contradictions(clean)) == []


@pytest.mark.slow
def test_warnings_of_plans_are_not_repeated(tmp_path):
    weak = [*SMALL, "privacy.delta=0.01", f"results_dir={tmp_path}"]
    with pytest.warns(UserWarning, match="is above 1/n"):
        made = read(load_or_run(weak))
    _planned.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not [found for found in contradictions(made) if "uncommitted" not in found]
        assert list(differences_of_rerun(made)) == []


@pytest.mark.slow
def test_a_run_trained_again_has_the_same_bits_and_a_changed_one_has_not(record):
    assert list(differences_of_rerun(record)) == []
    other = changed(record, "metrics", **{"test/accuracy": 0.5})
    (what,) = differences_of_rerun(other)
    assert what == "has different metrics when retrained."
    other = changed(changed(record, "provenance", torch="1.0"), "history", **{"train/loss": [1.0]})
    (what,) = differences_of_rerun(other)
    assert "torch was 1.0 and is" in what


@pytest.mark.parametrize(
    ("field", "value", "same"),
    [
        ("decays", [0.5, 0.9801], True),  # as another processor may find it
        ("weights", [0.251, 0.1], True),
        ("decays", [0.5, 0.9], False),
        ("decays", [0.5], False),
        ("noise_multiplier", 3.001, False),
    ],
)
def test_a_matrix_that_is_searched_for_may_differ_in_its_last_digits(field, value, same):
    mechanism = {"noise_multiplier": 3.0, "decays": [0.5, 0.98], "weights": [0.25, 0.1]}
    one, other = ([{"times": 4, "releases": [m]}] for m in (mechanism, mechanism | {field: value}))
    assert _same_ledger(one, other) == same


def test_nan_is_the_same_as_nan():
    assert equal({"a": [float("nan"), 1.0]}, {"a": [float("nan"), 1.0]})
    assert not equal({"a": [float("nan"), 1.0]}, {"a": [1.0, 1.0]})
    assert not equal([1.0], [1.0, 2.0])


def published(name: str, folder: Path) -> Path:
    """The records of a table that is copied to the folder with all its files."""
    folder.mkdir(exist_ok=True)
    (lines,) = (path for path in PUBLISHED if path.name.partition(".")[0] == name)
    for path in lines.parent.glob(f"{name}.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder / lines.name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "suffix", "true", "false"),
    [
        ("misalignment_table5", "csv", "\ndpsgd,loss_a,", "\ndpsgd,loss_b,"),
        ("misalignment_table5", "md", "| 1e-06 | float |", "| 1e-09 | secure |"),
        ("misalignment_table5", "md", "| holds |", "| open |"),
        ("misalignment_table5", "tex", " & 0.3", " & 0.2"),
        ("misalignment_table5", "claims.csv", ",holds\n", ",refuted\n"),
        ("misalignment_fig8", "csv", ",dpsgd,female,0,1.", ",dpsgd,female,0,2."),
        ("misalignment_fig8", "claims.csv", ",holds\n", ",open\n"),
    ],
)
def test_what_was_changed_in_a_published_text_is_found(name, suffix, true, false, tmp_path):
    copy = published(name, tmp_path)
    changed = tmp_path / f"{name}.{suffix}"
    text = changed.read_text()
    assert true in text
    changed.write_text(text.replace(true, false, 1))
    wrong, lacking = unsupported_lines(copy)
    assert false.strip("\n") in wrong
    assert wrong.startswith("has the line ")
    assert true.strip("\n") in lacking
    assert lacking.startswith("lacks the line ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "suffix", "pattern"),
    [
        ("misalignment_table5", "claims.csv", r"(?<=\n)(.*\n)+"),
        ("misalignment_table5", "csv", r"(?<=\n)dpsgd,.*\n"),
        ("misalignment_table5", "md", r"\|.*holds.*\n"),
        ("misalignment_table5", "md", r"- \d+ claims:.*\n"),
        ("misalignment_fig8", "md", r"\| [^|]* \| dpsgd \|.*\n"),
        ("calibration_fig1", "md", r"(?m)^\| \d.*\n"),
    ],
)
def test_what_was_deleted_from_a_published_text_is_found(name, suffix, pattern, tmp_path):
    copy = published(name, tmp_path)
    changed = tmp_path / f"{name}.{suffix}"
    text = re.sub(pattern, "", changed.read_text(), count=1)
    assert text != changed.read_text()
    changed.write_text(text)
    found = [*unsupported_lines(copy)]
    assert found
    assert all(one.startswith("lacks the line ") for one in found)


@pytest.mark.slow
def test_a_text_that_the_records_do_not_give_is_found(tmp_path):
    copy = published("calibration_fig2-part", tmp_path)
    (tmp_path / "calibration_fig2-part.claims.csv").write_text("claim,verdict\nany,holds\n")
    (found,) = unsupported_lines(copy)
    assert found == "does not give calibration_fig2-part.claims.csv, which is beside it."


@pytest.mark.slow
def test_of_a_row_that_was_impossible_or_planned_there_is_no_record(tmp_path):
    target = target_of("misalignment_table5", [])
    stored = [
        r
        for r in records(published("misalignment_table5", tmp_path))
        if r.config["choices"]["method"] != "dpsgd_f"
    ]
    impossible = dict.fromkeys(("adult, dpsgd_f", "dpsgd_f"), "there is no reason.")
    for suffix, content in render(target, stored, impossible).items():
        (tmp_path / f"misalignment_table5.{suffix}").write_bytes(content)
    page = (tmp_path / "misalignment_table5.md").read_text()
    assert "not possible: there is no reason." in page
    assert [*unsupported_lines(tmp_path / "misalignment_table5.records.jsonl")] == []


@pytest.mark.parametrize(
    ("stated", "epsilons", "seeds"),
    [
        ("Scale: paper.\n\nIn part: dataset=cifar10 table.seeds=[1].", [1, 2, 10], [1]),
        ("Scale: cpu_hour. Seeds: [1, 2].\n\nIn part: table.seeds=[1, 2].", [10], [1, 2]),
        (
            "Scale: cpu_day, table.conditions=[{dataset:[cifar10], privacy.epsilon:[1, 3]}].",
            [1, 3],
            [0, 1, 2],
        ),
        (
            "Scale: epochs=1, +optimizer.weight_decay=0.01, table.title='x, y=3'.",
            [1, 2, 10, 1, 2, 10, 10],
            [0, 1, 2],
        ),
        ("Scale: epochs=1, batch_size=8.\n\nIn part: dataset=imagenet32.", [10], [0, 1, 2]),
    ],
)
def test_the_target_of_a_page_has_the_runs_that_the_page_names(stated, epsilons, seeds, tmp_path):
    page = tmp_path / "bam_table1-part.md"
    page.write_text(f"# Table 1\n\nA paper. {stated}\n")
    target = published_target(page)
    found = [dict(condition.values)["privacy.epsilon"] for condition in target.conditions]
    assert (found, target.table["seeds"]) == (epsilons, seeds)


@pytest.mark.slow
def test_a_record_that_was_changed_is_a_problem_and_an_exit_status(tmp_path, monkeypatch, capsys):
    copy = published("misalignment_table5", tmp_path / "tables")
    copy.write_text(copy.read_text().replace('"test/accuracy": 0.', '"test/accuracy": 1.', 1))
    said, problems = verify([f"results_dir={tmp_path}"])
    assert any("checksum does not match" in problem.description for problem in problems)
    monkeypatch.setattr("sys.argv", ["dpbench", "verify", f"results_dir={tmp_path}"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert capsys.readouterr().out.splitlines()[-1] == said


@pytest.mark.slow
def test_a_record_of_another_table_is_a_problem_in_one_sentence(tmp_path):
    other = next(path for path in PUBLISHED if path.name.startswith("misalignment_table5"))
    copy = published("bam_table1-cpu_hour", tmp_path)
    (first, *_) = other.read_text().splitlines()
    copy.write_text(f"{copy.read_text()}{first}\n")
    (found,) = unsupported_lines(copy)
    assert found.endswith("is under no condition of bam_table1.")


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["md", "csv"])
def test_records_without_their_page_or_numbers_are_a_problem_in_one_sentence(tmp_path, lost):
    copy = published("misalignment_table5", tmp_path)
    missing = tmp_path / f"misalignment_table5.{lost}"
    missing.unlink()
    sentence = f"cannot be verified: {missing} cannot be read (No such file or directory)."
    assert list(unsupported_lines(copy)) == [sentence]
    missing.write_bytes(b"\xff")
    (found,) = unsupported_lines(copy)
    assert found == f"cannot be verified: {missing} cannot be read (not UTF-8 text)."


@pytest.fixture
def folder(tmp_path, record, monkeypatch):
    """Published tables, one of them at two scales, and a record by itself; all are sound."""
    for check in ("contradictions", "unsupported_lines"):
        monkeypatch.setattr(f"dpbench.reproduce.verify.{check}", lambda _: [])
    (tmp_path / "tables").mkdir()
    names = ("misalignment_table5", "misalignment_table4", "calibration_systems")
    for path in PUBLISHED:
        if path.name.startswith(names):
            for each in path.parent.glob(f"{path.name.partition('.')[0]}.*"):
                (tmp_path / "tables" / each.name).write_bytes(each.read_bytes())
    record.save(tmp_path)
    return tmp_path


def test_tables_and_records_are_verified_by_name(folder):
    def said(*names):
        return verify([*names, f"results_dir={folder}"])[0]

    (own,) = (folder / "runs").glob("*.json")
    assert said(own.stem).startswith("verified 1 record and 0 tables")
    assert said(str(own)).startswith("verified 1 record and 0 tables")
    several = len([*(folder / "tables").glob("calibration_systems*.jsonl")])
    assert several > 1
    assert f"and {several} tables" in said("calibration_systems")
    assert "and 1 table," in said("calibration_systems-part")
    table = folder / "tables" / "misalignment_table5.records.jsonl"
    both = len(table.read_text().splitlines()) + 1
    assert said("misalignment_table5", own.stem).startswith(f"verified {both} records and 1")


def test_a_folder_without_records_is_refused_and_not_verified(folder):
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match=r"there is no record in .*empty: make one with dpbench"):
        verify([f"results_dir={folder / 'empty'}"])
    with pytest.raises(UserError, match=f"is inside a results folder: name {folder} instead"):
        verify([f"results_dir={folder / 'runs'}"])


def test_a_name_that_nothing_has_is_refused(folder):
    with pytest.raises(UserError, match="table6 is neither a table nor a record here: did you"):
        verify(["misalignment_table6", f"results_dir={folder}"])
    for name in ("577915c4ed0baaf1", "results/runs/577915c4ed0baaf1.json"):
        with pytest.raises(UserError, match=f"^no record 577915c4ed0baaf1 is in {folder}/runs or"):
            verify([name, f"results_dir={folder}"])


def test_a_table_without_records_is_told_from_a_word_that_is_none(folder):
    (folder / "tables" / "bam_lemma3.md").write_text("# Lemma 3\n")
    words = r"bam_lemma3 has no records in .*tables .* `dpbench reproduce bam_lemma3 results_dir="
    with pytest.raises(UserError, match=words):
        verify(["bam_lemma3", f"results_dir={folder}"])
    with pytest.raises(
        UserError, match=r"sign_fig1 is not in .*: `dpbench reproduce sign_fig1` makes"
    ):
        verify(["sign_fig1", f"results_dir={folder}"])


def test_only_what_is_named_is_complained_about(folder):
    (folder / "runs" / "0123456789abcdef.json").write_text("{")
    assert verify(["misalignment_table4", f"results_dir={folder}"])[1] == []
    (problem,) = verify(["0123456789abcdef", f"results_dir={folder}"])[1]
    assert "0123456789abcdef" in problem.source
