"""Pictures of swept settings, of points at a budget, and of two runs side by side, in a browser."""

import itertools

import pytest

from dpbench.comparison.dashboard import command
from dpbench.comparison.dashboard.command import report
from tests.comparison.dashboard.windows import board, drawn, numbers

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("budgets", [(1.0,), (1.0, 4.0)])
def test_many_methods_stand_side_by_side_where_there_is_one_budget(
    record_of, page_of, opened, budgets
):
    methods = ("dpsgd", "dpsgd_f", "bam", "disk", "doppler", "slaclip", "dp_mf")
    made = [
        record_of(method, seed, epsilon)
        for method in methods
        for seed in (0, 1)
        for epsilon in budgets
    ]
    window = opened(page_of(made))
    drawn(window, "utility")
    picture = "document.querySelector('#part-utility .picture')"
    places = window.evaluate(f"{picture}.data.filter(t => t.yaxis !== 'y2').map(t => t.x)")
    if len(budgets) == 1:
        (places,) = zip(*places, strict=True)
        assert len({*places}) == len(methods)
        assert max(places) < 1.6 * min(places)
    else:
        assert places == [list(budgets)] * len(methods)
    title = window.evaluate(f"{picture}.layout.xaxis.title.text")
    assert title.endswith("side by side") == (len(budgets) == 1)


def test_whiskers_end_at_zero_and_a_hundred(record_of, page_of, opened):
    window = opened(page_of([record_of(seed=s, accuracy=a) for s, a in enumerate((0.9, 1.0))]))
    drawn(window, "utility")
    (bars,) = window.evaluate(
        "document.querySelector('#part-utility .picture').data.map(t => [t.y, t.error_y])"
        ".map(([y, e]) => [y[0] - e.arrayminus[0], y[0] + e.array[0]])"
    )
    assert bars[1] == pytest.approx(100)
    assert 0 <= bars[0] < 50


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
