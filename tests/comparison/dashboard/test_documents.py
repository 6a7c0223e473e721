"""What a results folder publishes beside records and tables: pages, pictures, searches, audits."""

import shutil
from pathlib import Path

import pytest

from dpbench.comparison.dashboard.documents import (
    OTHERS,
    audited,
    citation,
    pictures,
    published,
    searches,
)
from dpbench.comparison.dashboard.tables import pages
from dpbench.comparison.tables.data import SearchData, json_file
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page
from dpbench.system.paths import benchmarks_folder
from tests.plugin_files import write

COMMITTED = Path(__file__).parents[3] / "results"
PAGE = Page(
    "A title",
    [
        "A paper.",
        ["**One** of [two](x.md) `things`.", "Another."],
        Grid("Numbers", ("x",), (("1",),)),
        ["No note."],
    ],
    "dpbench reproduce NAME",
)
DATA = json_file(PAGE.data).decode()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tables").mkdir()
    for name in ("audit.csv", "audit.json", "recount.csv", "recount.json"):
        shutil.copy(COMMITTED / "tables" / name, tmp_path / "tables")
    shutil.copytree(
        COMMITTED / "search",
        tmp_path / "search",
        ignore=lambda _, names: [name for name in names if "frontier_table1-dutch" not in name],
    )
    return tmp_path


def test_a_page_is_a_card_with_its_notes_its_command_and_its_picture(tmp_path):
    numbers = {"tables/bam_fig9.svg": "", "tables/bam_fig9.csv": "x,y\n1,2\n"}
    write(tmp_path, numbers | {"tables/bam_fig9.json": DATA})
    one = published(tmp_path, pages(tmp_path)[0]).documents["bam_fig9"]
    assert one["title"] == "A title"
    assert one["notes"] == ["One of two things.", "Another."]
    assert one["command"] == "dpbench reproduce NAME"
    assert (one["image"], one["head"], one["rows"]) == ("bam_fig9", ["x", "y"], [["1", "2"]])


def test_points_of_a_figure_are_no_table_and_damaged_files_no_card(tmp_path):
    points = "x,y\n" + "1,2\n" * 500
    write(tmp_path, {"tables/a.json": DATA, "tables/a.csv": points, "tables/c.csv": points})
    (tmp_path / "tables/b.json").write_bytes(b"\xff")
    (tmp_path / "tables/b.svg").symlink_to("nowhere")
    assert pictures(tmp_path) == {}
    found = published(tmp_path, pages(tmp_path)[0]).documents
    assert found["a"]["rows"] == []
    assert found.keys() == {"a"}
    (tmp_path / "tables/a.csv").write_text("x\n" + "9" * 200_000 + "\n")
    assert published(tmp_path, pages(tmp_path)[0]).documents["a"]["rows"] == []


def test_findings_and_groups_of_papers_come_first_with_citation_and_link(folder):
    write(folder, {"tables/bam_fig9.json": DATA})
    PAGE.write(folder / "checked.md")
    cards = published(folder, pages(folder)[0]).cards({"own": {"title": "Own"}})
    (own, bam) = cards["studies"]
    assert (own["title"], own["link"], own["cards"]) == (OTHERS, None, [{"title": "Own"}])
    assert bam["title"].startswith("Moritz Knolle, Robert Dorfman, ")
    assert bam["title"].endswith("Estimator Bias in Private SGD, 2023")
    assert bam["link"] == "https://arxiv.org/abs/2308.12018"
    assert [one["title"] for one in cards["checks"]] == ["Printed epsilons, recounted", "A title"]
    rows = (folder / "tables/audit.csv").read_text().splitlines()[1:]
    assert len(cards["audits"][0]["rows"]) == len(rows)
    Page("Findings", ["What all say."]).write(folder / "findings.md")
    first = published(folder, pages(folder)[0]).cards({})["studies"][0]
    assert first["title"] == "Findings"
    assert [card["title"] for card in first["cards"]] == ["Findings"]


@pytest.mark.parametrize("study", [path.parent for path in benchmarks_folder().glob("*/README.md")])
def test_a_study_has_a_citation_whose_link_is_in_its_readme(study):
    cited = citation(study.name)
    assert cited.keys() == {"title", "link"}
    assert cited["title"]
    assert (cited["link"] or "") in (study / "README.md").read_text()


def test_audits_are_drawn_by_their_first_bound_and_refuted_ones_say_by_what(folder):
    rows = {row["name"]: row for row in audited(folder)}
    assert rows["dpsgd, run"]["audit"] == {"epsilon": 2.19, "refuted": None}
    assert rows["dpsgd (paper), step"]["audit"] == {"epsilon": 15.752, "refuted": 5.222}
    assert rows["dpsgd (paper), step"]["epsilon"]["pld"] == "5.23 by its paper"
    for text in ("method,claimed\nx,many\n", "claimed,audited (GDP)\n1,1\n", "9" * 200_000):
        (folder / "tables/audit.csv").write_text(text)
        assert audited(folder) == []


def test_a_search_is_a_cloud_of_its_trials_and_says_what_it_chose(folder):
    (one,) = searches(folder)
    assert one["title"] == "frontier_table1: dutch, logistic, 725 trials"
    assert (one["cloud"]["x"], one["cloud"]["y"]) == ("optimizer.lr", "accuracy (validation), %")
    assert one["cloud"]["log"]
    clouds = {series["method"]: series["points"] for series in one["cloud"]["series"]}
    rows = {row[0]: row[1:] for row in one["rows"]}
    assert rows.keys() >= {"bam", "bam, space", "dpsgd_psac", "dpsgd_tanh", "sgd"}
    assert len(clouds["bam"]) == int(rows["bam"][0]) == 20
    assert rows["bam"][1] in {text.partition(": ")[2] for _, _, text in clouds["bam"]}
    assert all(0 < accuracy < 100 for points in clouds.values() for _, accuracy, _ in points)


def test_a_search_over_methods_is_a_cloud_of_each_and_no_model_is_a_method(tmp_path):
    head = "trial,method,optimizer.lr,n,validation/accuracy,validation/loss"
    lines = [head, "1,bam,0.5,1,0.9,1", "3,dpsgd,0.1,1,0.8,1", "2,dpsgd,0.5,1,0.7,1"]
    ranges = {"method": "bam,dpsgd", "optimizer.lr": "0.1,0.5"}
    found = searched({"dataset": "digits", "model": "mlp"}, ranges)
    write(tmp_path, {"search/digits-x.csv": "\n".join([*lines, ""]), "search/digits-x.json": found})
    (one,) = searches(tmp_path)
    assert one["title"] == "digits: digits, mlp, 3 trials"
    assert one["rows"] == [["bam, x", "1", "lr 0.5", "90.0 %"], ["dpsgd, x", "2", "–", "–"]]
    points = {series["method"]: len(series["points"]) for series in one["cloud"]["series"]}
    assert points == {"bam, x": 1, "dpsgd, x": 2}


def test_the_search_of_a_regression_is_drawn_by_its_loss(tmp_path):
    lines = "trial,optimizer.lr,n,validation/accuracy,validation/loss\n1,0.5,1,,0.25\n2,1,1,,0.5\n"
    choices = {"dataset": "wine", "model": "mlp", "method": "bam"}
    found = searched(choices, {"optimizer.lr": "0.5,1"})
    write(tmp_path, {"search/wine-x.csv": lines, "search/wine-x.json": found})
    (one,) = searches(tmp_path)
    assert one["cloud"]["y"] == "loss (validation)"
    assert one["rows"] == [["bam, x", "2", "lr 0.5", "0.25"]]


def searched(choices, ranges):
    return json_file(SearchData(choices, ranges, "best_validation", 1, [])).decode()


FOUND = searched({"dataset": "digits", "model": "mlp", "method": "dpsgd"}, {"lr": "1,2"})
OVER_METHODS = searched({"dataset": "digits", "model": "mlp"}, {"lr": "1,2"})
TRIALS = "trial,lr,n,validation/accuracy,validation/loss\n1,1,1,0.5,1\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", FOUND),
        ("trial,n\n", FOUND),
        ("a,b\n1,2\n", FOUND),
        (TRIALS, FOUND[:-9]),
        (TRIALS, OVER_METHODS),  # without a column of methods
        (TRIALS + "2,2\n", FOUND),
        (TRIALS + "9" * 200_000 + ",2,1,0.5,1\n", FOUND),  # more than csv reads
    ],
)
def test_what_is_no_search_is_no_card(tmp_path, text, found):
    write(tmp_path, {"search/x.csv": text, "search/x.json": found})
    assert searches(tmp_path) == []
