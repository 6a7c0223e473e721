"""Committed tables and figures follow from their records, or are computed again as they are."""

import csv
import re
import shutil
from pathlib import Path
from urllib.error import URLError

import pytest
from PIL import Image

import dpbench
from dpbench.comparison.reproduce.command import reproduce
from dpbench.comparison.reproduce.render import render
from dpbench.comparison.verify.tables import published_target
from dpbench.runs.figures.formats import DPI
from dpbench.runs.records.reading import parse
from dpbench.system.errors import Unavailable

TABLES = Path(__file__).resolve().parents[3] / "results" / "tables"

WITH_RECORDS = sorted(
    path.stem for path in TABLES.glob("*.tex") if path.with_suffix(".records.jsonl").exists()
)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_RECORDS)
def test_a_committed_table_follows_from_its_command_and_its_committed_records(name):
    committed = {path.name.removeprefix(f"{name}."): path for path in TABLES.glob(f"{name}.*")}
    assert {"md", "csv", "tex", "json", "records.jsonl"} <= set(committed)
    lines = committed["records.jsonl"].read_text().splitlines()
    wanted = published_target(committed["json"])
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


@pytest.mark.slow
def test_without_data_again_is_refused_and_the_rest_is_a_table(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise URLError("offline")

    monkeypatch.setattr("dpbench.learning.data.fetch.download.urlopen", refuse)
    (made := tmp_path / "tables").mkdir()
    shutil.copy(TABLES / "misalignment_table5.records.jsonl", made)
    asked = ["table.methods=[sgd,dpsgd]", f"results_dir={tmp_path}", f"data_dir={tmp_path}"]
    assert "(1)" in reproduce("misalignment_table5", [*asked, "table.seeds=[0,20]"])
    with pytest.raises(Unavailable, match=r"dutch_census_2001.arff is missing"):
        reproduce("misalignment_table5", [*asked, "table.seeds=[0]", "again=true"])


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


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("stem", ["misalignment_table5", "misalignment_fig3", "bam_fig2-cpu_hour"])
def test_a_committed_table_is_made_in_a_clone_without_training(stem, tmp_path, monkeypatch):
    """Its records are those that the table asks for today; a test's PNG has fewer pixels."""
    name, _, scale = stem.partition("-")
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    (made := tmp_path / "tables").mkdir()
    shutil.copy(TABLES / f"{stem}.records.jsonl", made)
    dpbench.reproduce(name, scale=scale or "paper", results_dir=tmp_path)
    committed = {path.name for path in TABLES.glob(f"{stem}.*")}
    assert {path.name for path in made.iterdir()} == committed
    for file in (name for name in committed if not name.endswith("png")):
        assert (made / file).read_bytes() == (TABLES / file).read_bytes(), file


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(TABLES.glob("*_fig*.claims.csv")), ids=lambda p: p.name)
def test_the_committed_claims_of_a_figure_follow_from_its_records(path, monkeypatch):
    for module in ("reproduce.render", "benchmarks.calibration.coincidence"):
        monkeypatch.setattr(f"dpbench.{module}.images", lambda figure: {})
    page, data, records = (
        path.with_name(path.name.replace("claims.csv", end))
        for end in ("md", "json", "records.jsonl")
    )
    lines = records.read_text().splitlines()
    files = render(published_target(data), [parse(line, "x") for line in lines])
    assert files["claims.csv"] == path.read_bytes()
    before, ours = (text.partition("\n![")[0] for text in (page.read_text(), files["md"].decode()))
    assert ours == before


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.png")), ids=lambda path: path.stem)
def test_a_committed_picture_is_as_a_paper_prints_it(path):
    with Image.open(path) as picture:
        assert round(picture.info["dpi"][0]) >= DPI
    assert path.with_suffix(".svg").exists()
    assert path.with_suffix(".pdf").exists()
