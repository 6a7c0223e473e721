"""Committed tables and figures follow from their records, or are computed again as they are."""

import csv
import re
from pathlib import Path

import pytest
from PIL import Image

from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.published import published_target
from dpbench.comparison.reproduce.render import render
from dpbench.comparison.reproduce.target import target_of
from dpbench.runs.config.compose import compose
from dpbench.runs.figures.formats import DPI
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import parse

TABLES = Path(__file__).resolve().parents[3] / "results" / "tables"

WITH_RECORDS = sorted(
    path.stem for path in TABLES.glob("*.tex") if path.with_suffix(".records.jsonl").exists()
)


@pytest.mark.sampled(15)
@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_RECORDS)
def test_a_committed_table_follows_from_its_command_and_its_committed_records(name):
    committed = {path.name.removeprefix(f"{name}."): path for path in TABLES.glob(f"{name}.*")}
    assert {"md", "csv", "tex", "records.jsonl"} <= set(committed)
    lines = committed["records.jsonl"].read_text().splitlines()
    wanted = published_target(committed["md"])
    assert wanted.stem == name
    files = render(wanted, [parse(line, "x") for line in lines])
    assert set(files) == set(committed)
    for suffix, path in committed.items():
        assert files[suffix] == path.read_bytes(), path.name


def test_every_committed_table_beside_printed_numbers_opens_with_their_verdicts():
    judged = 0
    for path in (path for path in TABLES.glob("*.csv") if path.with_suffix(".tex").exists()):
        with path.open() as file:
            cells = list(csv.DictReader(file))
        if number := sum(
            bool(cell.get("published"))
            and cell.get("n", "0") != "0"
            and cell["verdict"] != "not judged"
            for cell in cells
        ):
            opening = path.with_suffix(".md").read_text().splitlines()[2]
            verdicts = rf"(\d+ of|Not the paper's runs:) {number} printed numbers"
            assert re.match(verdicts, opening), path.name
            judged += 1
    assert judged > 5


LENGTHY = ("recount", "sampling_laws", "sign_fig1")
ON_WINES = ("calibration_table1", "calibration_theorem3", "bam_lemma3")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "sign_table2",
        *(pytest.param(name, marks=pytest.mark.long) for name in (*LENGTHY, *ON_WINES)),
    ],
)
def test_tables_without_training_reproduce_the_committed_bytes(name, tmp_path, request):
    """Numbers may differ in their last digit, as machines do; what is not a number may not."""
    needs = ["regression_folder"] * (name in ON_WINES)
    data = [f"data_dir={request.getfixturevalue(folder)}" for folder in needs]
    reproduce(name, [f"results_dir={tmp_path}", *data])
    made = [path for path in (tmp_path / "tables").iterdir() if path.suffix in (".md", ".csv")]
    assert {path.suffix for path in made} >= {".md", ".csv"}
    for path in made:
        assert_agree(path.read_text(), (TABLES / path.name).read_text())


def assert_agree(ours, committed):
    number = r"-?\d+(?:\.\d+)?(?:e[-+]\d+)?"
    assert re.sub(number, "#", ours) == re.sub(number, "#", committed)
    found, there = ([float(x) for x in re.findall(number, text)] for text in (ours, committed))
    assert found == pytest.approx(there, rel=2e-3, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["misalignment_table4", "misalignment_table5"])
def test_a_committed_table_has_all_its_runs_at_the_paper_s_settings(name):
    """The records are those that the table asks for today, each once."""
    lines = (TABLES / f"{name}.records.jsonl").read_text().splitlines()
    asked = {digest(compose(overrides)) for overrides in target_of(name, []).cells()}
    assert sorted(parse(line, "x").digest for line in lines) == sorted(asked)


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(TABLES.glob("*_fig*.claims.csv")), ids=lambda p: p.name)
def test_the_committed_claims_of_a_figure_follow_from_its_records(path, monkeypatch):
    for module in ("reproduce.render", "papers.calibration.coincidence"):
        monkeypatch.setattr(f"dpbench.{module}.images", lambda figure: {})
    page, records = (
        path.with_name(path.name.replace("claims.csv", end)) for end in ("md", "records.jsonl")
    )
    lines = records.read_text().splitlines()
    files = render(published_target(page), [parse(line, "x") for line in lines])
    assert files["claims.csv"] == path.read_bytes()
    before, ours = (text.partition("\n![")[0] for text in (page.read_text(), files["md"].decode()))
    assert ours == before


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.png")), ids=lambda path: path.stem)
def test_a_committed_picture_is_as_a_paper_prints_it(path):
    with Image.open(path) as picture:
        assert round(picture.info["dpi"][0]) >= DPI
    assert path.with_suffix(".svg").exists()
    assert path.with_suffix(".pdf").exists()
