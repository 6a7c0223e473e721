"""The first view, swept settings, saved files and two runs side by side, in a real browser."""

import itertools
import shutil
from pathlib import Path
from urllib.parse import urlencode

import pytest

from dpbench.comparison.dashboard import command
from dpbench.comparison.dashboard.command import report
from dpbench.comparison.tables.data import CellData, TableData, json_file
from tests.comparison.dashboard.windows import drawn, numbers
from tests.latex import assert_compiles

pytestmark = pytest.mark.slow

DIGITS = "#" + urlencode({"board": "digits · mlp", "budget": "ε 1.00 at δ = 1e-05"})
COMMITTED = Path(__file__).parents[3] / "results/tables"


def board(window):
    """The lines of the first view: method, significance and accuracy."""
    rows = window.locator("#part-board tbody tr").all()
    return {
        row.locator(".method .link").inner_text(): (
            row.locator("td").first.inner_text(),
            row.locator(".standing").inner_text(),
            row.locator(".estimate b").first.inner_text(),
        )
        for row in rows
    }


def test_the_first_view_ranks_the_methods_at_a_budget(path, opened):
    window = opened(path, DIGITS, pictures=False)
    assert board(window) == {
        "DPSGD-F": ("1", "first", "66.0 %"),
        "DP-SGD": ("2", "behind", "64.0 %"),
        "DP-SGD (global)": ("–", "–", "70.0 %"),
        "SGD": ("–", "–", "90.0 %"),
    }
    assert "+2.0 ± 0.0" in window.locator("#part-board .gap").first.inner_text()
    window.locator("#part-board select").nth(1).select_option("ε 4.00 at δ = 1e-05")
    assert board(window)["DP-SGD"] == ("2", "behind", "73.0 %")
    assert "budget=%CE%B5+4.00+at" in window.evaluate("location.hash")
    window.locator("input[name=method][value=dpsgd_f]").uncheck()
    assert "DPSGD-F" not in board(window)


TOO_SMALL = """
    [...document.querySelectorAll("button, select, summary, a")]
        .filter((node) => node.checkVisibility())
        .map((node) => [node.outerHTML.slice(0, 80), node.getBoundingClientRect()])
        .filter(([_, { width, height }]) => height > 0 && (width < 24 || height < 24))
        .map(([text, { width, height }]) => `${text}: ${width} x ${height}`)
"""
"""Whatever is to be tapped and is smaller than the least target of WCAG 2.2, 24 pixels."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("width", "table_by"), [(390, 400), (1280, 500), (1600, 500)])
def test_the_first_view_of_real_results_fits(opened, real_page, tmp_path, width, table_by):
    window = opened(real_page, viewport={"width": width, "height": 1000}, color_scheme="light")
    assert window.evaluate("document.documentElement.scrollWidth") == width
    assert window.locator("#part-board tbody tr").count() >= 5
    assert window.locator("#part-board table").bounding_box()["y"] < table_by
    if width == 390:
        assert window.evaluate(TOO_SMALL) == []
    else:
        assert window.evaluate(
            "(x => x.scrollWidth <= x.clientWidth)(document.querySelector('.board'))"
        )
    views = []
    for scheme in ("light", "dark"):
        window.emulate_media(color_scheme=scheme)
        views.append(window.screenshot(path=tmp_path / f"{scheme}.png"))
    assert min(map(len, views)) > 20_000
    assert views[0] != views[1]


@pytest.fixture(scope="module")
def real_page(tmp_path_factory):
    tables, folder = COMMITTED, tmp_path_factory.mktemp("real")
    (folder / "tables").mkdir()
    for name in ("misalignment_table5", "sign_table1-cpu_hour"):
        shutil.copy(tables / f"{name}.records.jsonl", folder / "tables")
    return report([f"results_dir={folder}", f"out={folder / 'report.html'}"])


@pytest.fixture(scope="module")
def sweep(record_of, page_of):
    """Two learning rates of which one is better, on two seeds, with losses."""
    made = []
    for rate, accuracy, seed in itertools.product((0.1, 0.5), (0.6, 0.62), (0, 1)):
        record = record_of(seed=seed, accuracy=accuracy + rate / 10)
        record.config["optimizer"] = record.config["optimizer"] | {"lr": rate}
        record.history["train/loss"] = [2.0, 1.0 + rate, 0.5 + rate]
        made.append(record)
    return page_of({record.digest: record for record in made}.values())


def test_pictures_show_the_best_setting_or_all(sweep, opened):
    window = opened(sweep, pictures=False)
    assert [line[0] for line in numbers(window)] == ["DP-SGD · lr=0.5"]
    window.locator("input[name=show][value=all]").check()
    assert sorted(line[0] for line in numbers(window)) == ["DP-SGD · lr=0.1", "DP-SGD · lr=0.5"]
    assert "show=all" in window.evaluate("location.hash")


def test_a_swept_setting_is_a_filter_and_an_axis(sweep, opened):
    window = opened(sweep)
    window.locator("#boxes details summary", has_text="Swept settings").click()
    window.locator("input[name='optimizer.lr'][value='0.5']").uncheck()
    assert window.inner_text("#shown") == "2 of 4 runs shown"
    again = opened(sweep, "#axis=optimizer.lr")
    drawn(again, "utility")
    found = again.evaluate("document.querySelector('#part-utility .picture').data.map(t => t.x)")
    assert found == [[0.1, 0.5]]


def test_over_seconds_a_line_has_what_no_quicker_setting_reaches(record_of, page_of, opened):
    """Three settings of one seed: the slowest is worse than the second, so the line ends there."""
    made = [
        record_of(epochs=epochs, accuracy=accuracy, seconds=seconds)
        for epochs, accuracy, seconds in ((1, 0.6, 1.0), (2, 0.8, 3.0), (3, 0.7, 9.0))
    ]
    elsewhere = record_of(method="bam", accuracy=0.9, seconds=0.1)
    elsewhere.provenance["device"] = "another machine"
    window = opened(page_of([*made, elsewhere]), "#axis=seconds")
    drawn(window, "utility")
    found = window.evaluate(
        "[...document.querySelectorAll('#part-utility .picture')]"
        ".map(({data}) => data.map(({x, y}) => [x, y]))"
    )
    assert sorted(found) == [[[[0.1], [90]]], [[[1, 3], [60, 80]]]]


def test_whiskers_end_at_zero_and_a_hundred(record_of, page_of, opened):
    window = opened(page_of([record_of(seed=s, accuracy=a) for s, a in enumerate((0.9, 1.0))]))
    drawn(window, "utility")
    (bars,) = window.evaluate(
        "document.querySelector('#part-utility .picture').data.map(t => [t.y, t.error_y])"
        ".map(([y, e]) => [y[0] - e.arrayminus[0], y[0] + e.array[0]])"
    )
    assert bars[1] == pytest.approx(100)
    assert 0 <= bars[0] < 50


def test_the_table_of_runs_sorts_searches_and_is_saved(path, opened, tmp_path):
    window = opened(path, pictures=False)
    window.locator("#find").fill("adult dpsgd-f")
    assert "1 to 6 of 6" in window.inner_text("#part-runs .pager")
    assert window.inner_text("#hits").startswith("6 runs, ")
    head = window.locator("#part-runs thead button", has_text="accuracy").first
    head.click()
    head.click()
    values = window.locator("#part-runs tbody tr td:nth-child(6)").all_inner_texts()
    assert values == ["76.0 %", "75.0 %", "74.0 %", "67.0 %", "66.0 %", "65.0 %"]
    with window.expect_download() as saved:
        window.locator("#part-runs .tools button", has_text="CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0].startswith("record,data set · model,method,seed,status,test/accuracy")
    assert [line.split(",")[5] for line in lines[1:3]] == ["0.76", "0.75"]
    assert {"batch_size", "epochs", "optimizer.lr", "privacy.delta"} <= {*lines[0].split(",")}
    with window.expect_download() as saved:
        window.locator("#part-runs .tools button", has_text="LaTeX").click()
    text = saved.value.path().read_text()
    assert text.count("\\\\\n") == 7
    assert "76.0 \\%" in text
    assert_compiles(tmp_path, text)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        *(("dpsgd", 27), ("DP-SGD", 15), ("dpsgd_f", 12), ("dpsgd_global", 3)),
        *(("optimizer.lr=", 30), ("adult dpsgd_f seed", 0), ("runs/", 30)),
    ],
)
def test_a_search_finds_what_people_type(path, opened, words, count):
    window = opened(path, pictures=False)
    window.locator("#find").fill(words)
    assert window.inner_text("#hits").startswith(f"{count} runs, ")


def test_a_search_finds_a_digest_and_a_table(opened, real_page):
    window = opened(real_page, pictures=False)
    digest = window.locator("#part-runs tbody .code .link").first.inner_text()
    for words, hits in ((digest, "1 runs"), ("misalignment_table5 fairlens", "20 runs")):
        window.locator("#find").fill(words)
        assert window.inner_text("#hits").startswith(hits)


def test_a_saved_picture_says_its_data_budgets_number_and_command(path, opened):
    window = opened(path)
    drawn(window, "utility")
    for kind, start in {"SVG": b"<svg", "PNG": b"\x89PNG"}.items():
        with window.expect_download() as saved:
            window.locator("#part-utility .exports button", has_text=kind).first.click()
        assert saved.value.suggested_filename == f"accuracy-over-epsilon-digits-mlp.{kind.lower()}"
        content = saved.value.path().read_bytes()
        assert content.startswith(start)
        if kind == "SVG":
            for said in (
                *("accuracy over epsilon, digits · mlp", "ε 1 to 4, δ = 1e-05, n = 3 seeds"),
                *("dpbench report results_dir=", "DPSGD-F"),
            ):
                assert said in content.decode()


def test_a_run_has_its_loss_curve_and_stands_beside_others(sweep, opened):
    window = opened(sweep)
    rows = window.locator("#part-runs tbody button")
    rows.first.click()
    window.wait_for_selector("#detail .picture.loss .main-svg")
    assert window.locator("#chosen").is_hidden()
    for row in (rows.first, rows.nth(1), rows.last):
        window.get_by_role("button", name="Close").click()
        row.click()
        window.get_by_role("button", name="Choose for comparison").click()
    window.get_by_role("button", name="Close").click()
    assert window.inner_text("#chosen b") == "3 chosen"
    window.locator("#chosen").get_by_role("button", name="Compare").click()
    window.wait_for_selector("#detail .picture.loss .main-svg")
    losses = window.evaluate("document.querySelector('#detail .loss').data.map(t => t.y)")
    assert sorted(losses) == [[2, 1.1, 0.6], [2, 1.1, 0.6], [2, 1.5, 1]]
    assert window.locator("#detail thead th").count() == 4
    names = window.locator("#detail tbody td:first-child").all_inner_texts()
    assert names[:2] == ["optimizer.lr", "seed"]
    assert "dataset" not in names
    again = opened(sweep, window.evaluate("location.hash"))
    again.wait_for_selector("#detail .picture.loss .main-svg")
    again.get_by_role("button", name="Close").click()
    again.locator("#chosen").get_by_role("button", name="Clear").click()
    assert again.locator("#chosen").is_hidden()


def test_the_first_view_is_saved_and_names_an_audit_that_refutes(record_of, page_of, opened):
    audit = {"epsilon": 2.5, "confidence": 0.95, "claimed": 0.5, "verdict": "refuted"}
    window = opened(
        page_of([record_of(epsilon=0.5, audit=audit), record_of("dpsgd_f", epsilon=0.5)]),
        pictures=False,
    )
    assert window.inner_text("#part-board .alarm") == "audit: ≥ 2.50 (95 %)"
    with window.expect_download() as saved:
        window.locator("#part-board .exports button", has_text="LaTeX").click()
    text = saved.value.path().read_text()
    assert saved.value.suggested_filename == "methods.tex"
    assert r"method & accuracy $\uparrow$ & minus DP-SGD &" in text
    assert "& DPSGD-F " in text


def test_a_table_is_drawn_when_it_is_first_opened(record_of, folder_of, opened):
    folder = folder_of([record_of()])
    (folder / "tables").mkdir()
    printed = {"row": "dpsgd", "published": "1.5"}
    cells = [
        CellData(column="a", n=0, published_spread="0.1", verdict="not run here", **printed),
        CellData(column="b", ours=2.0, n=1, verdict="differs", **printed),
    ]
    (folder / "tables/own.json").write_bytes(json_file(TableData("Own", cells=cells)))
    window = opened(report([f"results_dir={folder}", f"out={folder / 'r.html'}"]), pictures=False)
    window.locator("#part-tables summary").first.click()
    shown = window.locator("#part-tables .published").first
    shown.wait_for()
    assert shown.locator(".ours").all_inner_texts() == ["–", "2.0 (1)"]
    assert "1 not run here · 1 differs" in window.locator("#part-tables .sub").first.inner_text()
    assert shown.locator("th[scope=row]").inner_text() == "DP-SGD"
    assert "nan" not in window.inner_text("body").lower()


def test_the_headings_of_the_board_sort(path, opened):
    window = opened(path, DIGITS, pictures=False)
    window.locator("#part-board th button", has_text="accuracy").click()
    assert list(board(window)) == ["DP-SGD", "DPSGD-F", "DP-SGD (global)", "SGD"]
    window.locator("#part-board th button", has_text="accuracy").click()
    assert list(board(window)) == ["SGD", "DP-SGD (global)", "DPSGD-F", "DP-SGD"]
    assert window.locator("#part-board th button", has_text="accuracy ↑ ▼").count() == 1
    window.locator("#part-board th button", has_text="method").click()
    assert list(board(window)) == ["DP-SGD", "DP-SGD (global)", "DPSGD-F", "SGD"]
    assert board(window)["DPSGD-F"][:2] == ("1", "first")


def test_a_sorted_heading_keeps_the_focus(path, opened):
    window = opened(path, DIGITS, pictures=False)
    names = list(board(window))
    heading = window.locator("#part-board th button", has_text="method")
    for _ in range(2):
        heading.focus()
        window.keyboard.press("Enter")
    assert window.evaluate("document.activeElement.textContent") == "method ▼"
    assert list(board(window)) == sorted(names, reverse=True)


@pytest.fixture(scope="module")
def one_budget(record_of, page_of):
    """Three methods at one epsilon, of which two coincide, and far from it another data set."""
    accuracies = {"dpsgd": 0.7, "dpsgd_f": 0.7001, "bam": 0.8}
    made = [record_of(method, epsilon=3.1, accuracy=a) for method, a in accuracies.items()]
    return page_of([*made, record_of(dataset="adult", epsilon=1000.0)])


def test_points_lie_at_their_epsilon_and_those_that_coincide_name_each_other(one_budget, opened):
    window = opened(one_budget, "#dataset=digits")
    drawn(window, "utility")
    traces = window.evaluate(
        "document.querySelector('#part-utility .picture').data"
        ".filter(t => t.yaxis !== 'y2').map(t => [t.x, t.hovertext[0]])"
    )
    assert [xs for xs, _ in traces] == [[3.1]] * 3
    texts = {text.partition("<br>")[0]: text for _, text in traces}
    assert "also here: DPSGD-F, accuracy 70.0 %" in texts["DP-SGD"]
    assert "also here: DP-SGD, accuracy 70.0 %" in texts["DPSGD-F"]
    assert "also here" not in texts["BAM"]


PLACES = """
    document.querySelector('#part-utility .picture').data.map(
        ({name, x, y, yaxis, error_y}) => [name, yaxis ?? 'y', x, y, error_y.array])
"""


def test_points_have_true_coordinates_and_differences_their_paired_interval(
    record_of, page_of, opened
):
    """The differences are 2, 3 and 4 points at epsilon 1, and 1 point at epsilon 8."""
    made = [
        record_of(method, seed, epsilon, base + gap)
        for epsilon, gaps in ((1.0, (0.02, 0.03, 0.04)), (8.0, (0.01, 0.01, 0.01)))
        for seed, base in enumerate((0.5, 0.6, 0.7))
        for method, gap in (("dpsgd", 0.0), ("bam", gaps[seed]))
    ]
    window = opened(page_of(made))
    drawn(window, "utility")
    found = {(name, axis): rest for name, axis, *rest in window.evaluate(PLACES)}
    assert [found["DP-SGD", "y"][i] for i in (0, 1)] == [[1, 8], pytest.approx([60, 60])]
    assert [found["BAM", "y"][i] for i in (0, 1)] == [[1, 8], pytest.approx([63, 61])]
    epsilons, gaps, halves = found["BAM", "y2"]
    assert (epsilons, gaps) == ([1, 8], pytest.approx([3, 1]))
    assert halves == pytest.approx([4.3027 / 3**0.5, 0], abs=1e-3)  # Student's quantile, 2 degrees
    assert ("DP-SGD", "y2") not in found


def test_ones_own_sweep_keeps_its_points_beside_a_longer_run(record_of, folder_of, opened):
    """Five epochs at three budgets, three seeds; and one run of twenty epochs at epsilon 3."""
    sweep = [
        record_of(seed=seed, epsilon=epsilon, accuracy=accuracy, epochs=5)
        for epsilon, accuracy in ((1.0, 0.70), (3.0, 0.831), (8.0, 0.85))
        for seed in range(3)
    ]
    folder = folder_of([*sweep, record_of(epsilon=3.0, accuracy=0.9, epochs=20)])
    window = opened(report([f"results_dir={folder}", f"out={folder / 'r.html'}"]))
    drawn(window, "utility")
    ((_, _, epsilons, accuracies, _),) = window.evaluate(PLACES)
    assert (epsilons, accuracies) == ([1, 3, 8], pytest.approx([70, 83.1, 85]))
    window.locator("select[name=budget]").select_option("ε 3.00 at δ = 1e-05")
    assert board(window)["DP-SGD"][2] == "83.1 %"
    chosen = window.locator("#part-board .method .sub").inner_text()
    assert chosen == "the one of 2 tested at most budgets, 3 seeds"
    window.locator("input[name=show][value=all]").check()
    drawn(window, "utility")
    assert len(window.evaluate(PLACES)) == 2


def test_no_line_joins_two_studies_or_protocols_without_privacy(record_of, page_of, opened):
    private = [
        record_of(epsilon=epsilon, accuracy=accuracy, **study)
        for epsilon, accuracy, study in (
            *((1.0, 0.60, {}), (4.0, 0.70, {})),
            *((2.0, 0.80, {"batch_size": 512}), (8.0, 0.85, {"batch_size": 512})),
        )
    ]
    others = [
        record_of("sgd", epsilon=float("inf"), guarantee="none", accuracy=accuracy, epochs=epochs)
        for accuracy, epochs in ((0.9, 20), (0.5, 6))
    ]
    window = opened(page_of([*private, *others]), "#show=all")
    drawn(window, "utility")
    traces, shapes = window.evaluate(
        "(({data, layout}) => [data.filter(t => t.mode === 'lines+markers').map(t => t.y), "
        "layout.shapes.map(s => s.y0)])(document.querySelector('#part-utility .picture'))"
    )
    assert sorted(traces) == [[60, 70], [80, 85]]
    assert shapes == [90]


def test_a_record_without_room_still_shows_its_metrics(record_of, page_of, opened, monkeypatch):
    monkeypatch.setattr(command, "MAX_BYTES", 0)
    window = opened(page_of([record_of(accuracy=0.75)]), pictures=False)
    assert "This file contains full details of 0 runs; of the other 1 only metrics" in (
        window.inner_text("#lead + .how")
    )
    window.locator("#part-runs tbody button").click()
    assert "test/accuracy 75.0 %" in window.inner_text("#detail dl")


def test_the_first_view_begins_with_a_sentence_and_differences_from_the_baseline(path, opened):
    window = opened(path, DIGITS, pictures=False)
    said = window.inner_text("#part-board .answer")
    assert said.startswith(
        "At ε 1.00, digits · mlp, 3 seeds, by accuracy: of 1 other method, 1 is better"
    )
    assert window.locator("#part-board th", has_text="minus DP-SGD").count() == 1
    drawn_differences = window.locator("#part-board td svg[role=img]").all()
    labels = [picture.get_attribute("aria-label") for picture in drawn_differences]
    assert labels[0].startswith("2.0 %, interval from")
    assert labels[1].startswith("0.0 %")


def test_methods_are_compared_by_another_metric_at_the_same_setting(path, opened):
    window = opened(path, DIGITS, pictures=False)
    assert window.locator("select[name=by]").input_value() == "accuracy ↑"
    window.locator("select[name=by]").select_option("ECE ↓")
    said = window.inner_text("#part-board .answer")
    assert ", by ECE: of 1 other method, none is better than DP-SGD, 1 is within 0.5 points" in said
    assert board(window)["DP-SGD"][2] == "5.0 %"
    assert "by=ECE" in window.evaluate("location.hash")


GREY = "[...document.querySelectorAll('#part-board .method use')].map(u => u.classList.value)"


def test_only_the_first_methods_and_those_ticked_are_in_colour(real_page, opened):
    window = opened(real_page)
    before = window.evaluate(GREY)
    assert "fill-grey" not in before
    window.get_by_role("button", name="Only the first in colour").click()
    after = window.evaluate(GREY)
    assert [kind != "fill-grey" for kind in after].count(True) == 4
    assert all(kind in (old, "fill-grey") for kind, old in zip(after, before, strict=True))
    drawn(window, "utility")
    traces = "document.querySelector('#part-utility .picture').data.map(t => t.marker?.color)"
    grey = window.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--grey').trim()"
    )
    assert grey in window.evaluate(traces)
    window.locator("input[name=focus]:not(:checked)").first.check()
    assert [kind != "fill-grey" for kind in window.evaluate(GREY)].count(True) == 5
    window.get_by_role("button", name="All in colour").click()
    assert window.evaluate(GREY) == before
