"""Published tables follow from their records; what was changed in them is found."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpbench.cli.main import main
from dpbench.comparison.dashboard import documents
from dpbench.comparison.dashboard.tables import pages
from dpbench.comparison.reproduce.render import render
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.data import json_file
from dpbench.comparison.tables.page import Page
from dpbench.comparison.tables.privacy import NotRun
from dpbench.comparison.verify.command import verify
from dpbench.comparison.verify.records import contradictions
from dpbench.comparison.verify.tables import (
    conflicting_records,
    published_target,
    unsupported_lines,
)
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records import collect
from dpbench.runs.records.collect import readable_records_in
from dpbench.runs.records.reading import parse, read
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError
from dpbench.system.paths import PACKAGE

PUBLISHED = sorted((PACKAGE.parent / "results" / "tables").glob("*.records.jsonl"))

CALIBRATED = (
    *("sign_table1", "sign_delta", "bam_table1", "frontier_table", "frontier_fig1"),
    *("finetune_table1", "reproducibility_table1", "calibration_fig1_images"),
)
"""Their noise follows from budgets, which takes seconds to a minute each."""


def unsupported(path: Path) -> Iterator[str]:
    return unsupported_lines(path, readable_records_in(path))


def records(path: Path) -> list[Record]:
    found = [parse(line, path.name) for line in path.read_text().splitlines()]
    assert all(isinstance(record, Record) for record in found)
    return found


@pytest.mark.sampled(3)
def test_damage_in_a_table_or_record_that_is_named_is_told(folder, record):
    table = folder / "tables" / "misalignment_table4.records.jsonl"
    table.write_text(table.read_text() + "damaged\n")
    run = folder / "runs" / f"{record.digest}.json"
    run.write_text("damaged")
    for name in ("misalignment_table4", record.digest, str(run)):
        _, (problem,) = verify([name, f"results_dir={folder}"])
        assert "is not JSON" in problem.description


@pytest.mark.slow
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name.partition(".")[0])
def test_the_records_of_a_published_table_give_its_numbers(path):
    assert list(unsupported(path)) == []


@pytest.mark.sampled(5)
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


@pytest.mark.parametrize("names", [[], ["bam_lambda"]])
@pytest.mark.parametrize("broken", ["not UTF-8 text", "not a regular file"])
def test_a_file_of_records_that_cannot_be_read_is_one_problem(tmp_path, names, broken):
    page = PUBLISHED[0].with_name("bam_lambda.json")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / page.name).write_text(page.read_text())
    path = tmp_path / "tables" / "bam_lambda.records.jsonl"
    if broken == "not UTF-8 text":
        path.write_bytes(b"\xff")
    else:
        path.symlink_to("nowhere")
    _, (problem,) = verify([*names, f"results_dir={tmp_path}"])
    assert Path(problem.source).name == path.name
    assert f"is {broken}" in problem.description


@pytest.mark.slow
def test_published_tables_agree_on_the_runs_that_they_share():
    assert list(conflicting_records({path: records(path) for path in PUBLISHED})) == []


def published(name: str, folder: Path) -> Path:
    """The records of a table that is copied to the folder with all its files."""
    folder.mkdir(exist_ok=True)
    (lines,) = (path for path in PUBLISHED if path.name.partition(".")[0] == name)
    for path in lines.parent.glob(f"{name}.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder / lines.name


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "suffix", "true", "false"),
    [
        ("misalignment_table5", "csv", "\ndpsgd,loss_a,", "\ndpsgd,loss_b,"),
        ("misalignment_table5", "md", "| 1e-06 | float |", "| 1e-09 | secure |"),
        ("misalignment_table5", "md", "| holds |", "| open |"),
        ("misalignment_table5", "md", "Scale: paper", "Scale: tiny"),
        ("misalignment_table5", "tex", " & 0.3", " & 0.2"),
        ("misalignment_table5", "json", '"ours": 0.3', '"ours": 9.3'),
        ("misalignment_table5", "claims.csv", ",holds,\n", ",refuted,\n"),
        ("misalignment_fig8", "csv", ",dpsgd,female,0,1.", ",dpsgd,female,0,2."),
        ("misalignment_fig8", "claims.csv", ",holds,\n", ",open,\n"),
    ],
)
def test_a_changed_published_text_is_found(name, suffix, true, false, tmp_path):
    copy = published(name, tmp_path)
    changed = tmp_path / f"{name}.{suffix}"
    text = changed.read_text()
    assert true in text
    changed.write_text(text.replace(true, false, 1))
    wrong, lacking = unsupported(copy)
    assert false.strip("\n") in wrong
    assert wrong.startswith("has the line ")
    assert true.strip("\n") in lacking
    assert lacking.startswith("lacks the line ")


@pytest.mark.sampled(3)
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
def test_a_deletion_from_a_published_text_is_found(name, suffix, pattern, tmp_path):
    copy = published(name, tmp_path)
    changed = tmp_path / f"{name}.{suffix}"
    text = re.sub(pattern, "", changed.read_text(), count=1)
    assert text != changed.read_text()
    changed.write_text(text)
    found = [*unsupported(copy)]
    assert found
    assert all(one.startswith("lacks the line ") for one in found)


@pytest.mark.slow
def test_a_text_that_the_records_do_not_give_is_found(tmp_path):
    copy = published("calibration_fig2", tmp_path)
    (tmp_path / "calibration_fig2.claims.csv").write_text("claim,verdict\nany,holds\n")
    (found,) = unsupported(copy)
    assert found == "does not give calibration_fig2.claims.csv, which is beside it."


@pytest.mark.slow
def test_impossible_and_planned_rows_need_no_record(tmp_path):
    target = target_of("misalignment_table5", [])
    stored = [
        r
        for r in records(published("misalignment_table5", tmp_path))
        if r.config["choices"]["method"] != "dpsgd_f"
    ]
    reasons = dict.fromkeys(("adult, dpsgd_f", "dpsgd_f"), "there is no reason.")
    for suffix, content in render(target, stored, NotRun(reasons)).items():
        (tmp_path / f"misalignment_table5.{suffix}").write_bytes(content)
    page, lines = (tmp_path / f"misalignment_table5.{end}" for end in ("md", "records.jsonl"))
    assert "not possible: there is no reason." in page.read_text()
    assert [*unsupported(lines)] == []
    page.write_text(page.read_text().replace("there is no reason.", "there is one."))
    assert [*unsupported(lines)]


@pytest.mark.parametrize(
    ("words", "epsilons", "seeds"),
    [
        (["dataset=cifar10", "table.seeds=[1]"], [1, 2, 10], [1]),
        (["scale=cpu_hour", "table.seeds=[1, 2]"], [10], [1, 2]),
        (
            ["scale=cpu_day", "table.conditions=[{dataset:[cifar10], privacy.epsilon:[1, 3]}]"],
            [1, 3],
            [0, 1, 2],
        ),
        (
            ["epochs=1", "+optimizer.weight_decay=0.01", "table.title='x, y=3'"],
            [1, 2, 10, 1, 2, 10, 10],
            [0, 1, 2],
        ),
        (["epochs=1", "batch_size=8", "dataset=imagenet32"], [10], [0, 1, 2]),
    ],
)
def test_the_target_of_a_page_is_that_of_the_command_at_its_end(words, epsilons, seeds, tmp_path):
    made, path = target_of("bam_table1", words), tmp_path / "tables" / "bam_table1-part.json"
    path.parent.mkdir()
    path.write_bytes(json_file(Page("Table 1", ["A paper."], made.command).data))
    target = published_target(path)
    found = [dict(condition.values)["privacy.epsilon"] for condition in target.conditions]
    assert found == epsilons
    assert target.table.seeds == seeds
    assert target.stem == made.stem
    assert target.config == made.config.changed(results_dir=str(tmp_path))


@pytest.mark.parametrize("command", ["", "dpbench reproduce", "dpbench run 'x", "dpbench run x"])
def test_a_page_without_its_command_is_refused(command, tmp_path):
    path = tmp_path / "bam_table1.json"
    path.write_bytes(json_file(Page("Table 1", [], command).data))
    with pytest.raises(UserError, match="has no command that makes it"):
        published_target(path)


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
    (found,) = unsupported(copy)
    assert found.endswith("is under no condition of bam_table1.")


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["md", "csv", "json"])
def test_records_without_their_page_or_numbers_are_a_problem_in_one_sentence(tmp_path, lost):
    copy = published("misalignment_table5", tmp_path)
    missing = tmp_path / f"misalignment_table5.{lost}"
    missing.unlink()
    sentence = f"cannot be verified: {missing} is not a regular file."
    assert list(unsupported(copy)) == [sentence]
    missing.write_bytes(b"\xff")
    (found,) = unsupported(copy)
    assert found == f"cannot be verified: {missing} is not UTF-8 text."
    for beside in (path for path in tmp_path.iterdir() if path != copy):
        beside.unlink()
    assert list(unsupported(copy)) == []  # as submitted to a challenge


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    results = tmp_path_factory.mktemp("results")
    return read(load_or_run(run_config(["epochs=1", "model=logistic", f"results_dir={results}"])))


@pytest.fixture
def folder(tmp_path, record, monkeypatch):
    """Published tables, one of them at two scales, and a record by itself; all are sound."""
    for check in ("contradictions", "unsupported_lines"):
        monkeypatch.setattr(f"dpbench.verify.command.{check}", lambda *_: [])
    (tmp_path / "tables").mkdir()
    names = ("misalignment_table5", "misalignment_table4", "calibration_systems")
    for path in PUBLISHED:
        if path.name.startswith(names):
            for each in path.parent.glob(f"{path.name.partition('.')[0]}.*"):
                (tmp_path / "tables" / each.name).write_bytes(each.read_bytes())
    record.save(tmp_path)
    return tmp_path


def test_each_file_of_records_is_read_once(folder, monkeypatch):
    read_files, text_of = Counter(), collect.text_of

    def counted(path):
        read_files[path.name] += 1
        return text_of(path)

    monkeypatch.setattr(collect, "text_of", counted)
    for names in ([], ["misalignment_table5"]):
        read_files.clear()
        assert verify([*names, f"results_dir={folder}"])[1] == []
        assert set(read_files.values()) == {1}


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


def test_a_table_that_was_printed_before_its_runs_were_trained_again_is_told(folder):
    table = folder / "tables" / "misalignment_table5.records.jsonl"
    first, second, *others = records(table)
    first.save(folder)
    named = ["misalignment_table5", f"results_dir={folder}"]
    assert verify(named)[1] == []  # the very same
    again = replace(second, metrics={**second.metrics, "test/accuracy": 0.5})
    again.save(folder)
    for names in (named, named[1:]):
        _, (problem,) = verify(names)
        assert problem.source == table.name
        assert problem.description == (
            f"has other metrics than the records in runs/ of 1 of its {2 + len(others)} runs, such "
            f"as {second.digest}: `dpbench reproduce` prints the table from these, unless you "
            "remove them."
        )


def test_what_was_found_is_saved_as_a_page_of_the_report(folder):
    (own,) = (folder / "runs").glob("*.json")
    said, _ = verify([own.stem, f"results_dir={folder}"])
    assert not (folder / "verified.md").exists()
    verify([own.stem, f"results_dir={folder}", "save=true"])
    card = documents.published(folder, pages(folder)[0]).documents["verified"]
    assert card["notes"][0] == said[0].upper() + said[1:]
    assert card["command"] == f"dpbench verify {own.stem} results_dir={folder} save=true"


def test_a_folder_without_records_is_refused_and_not_verified(folder):
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match=r"there is no record in .*empty: make one with dpbench"):
        verify([f"results_dir={folder / 'empty'}"])
    with pytest.raises(UserError, match=f"is inside a results folder: name {folder} instead"):
        verify([f"results_dir={folder / 'runs'}"])


def test_a_name_that_nothing_has_is_refused(folder):
    for name in ("misalignment_table6", "577915c4ed0baaf1", "sign_fig1"):
        with pytest.raises(UserError, match=f"^{name} is neither a record in {folder} nor a table"):
            verify([name, f"results_dir={folder}"])


def test_only_what_is_named_is_complained_about(folder):
    (folder / "runs" / "0123456789abcdef.json").write_text("{")
    assert verify(["misalignment_table4", f"results_dir={folder}"])[1] == []
    (problem,) = verify(["0123456789abcdef", f"results_dir={folder}"])[1]
    assert "0123456789abcdef" in problem.source
