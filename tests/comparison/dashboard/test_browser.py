"""The page in a real browser: drawn, filtered, keyboard, phone, paper, and no word to anybody."""

import itertools
import json
import re

import numpy as np
import pytest
from scipy import stats

from tests.comparison.dashboard.windows import drawn, numbers, shown_record, wait_for_pictures

pytestmark = pytest.mark.slow

METHODS = ("sgd", "dpsgd", "dpsgd_f", "dpsgd_global")


def test_every_picture_is_drawn_and_every_part_says_its_question(path, opened):
    window = opened(path)
    # digits: 2 methods x 2 budgets on the axis, sgd and dpsgd_global beside it; adult: 2 x 2; and
    # below each the differences of one method to the other at 2 budgets.
    assert drawn(window, "utility") == 4 + 2 + 4 + 2 * 2
    assert "No audited record" in window.inner_text("#part-audit")
    parts = window.locator("section").count()
    assert window.locator("section .how summary", has_text="How to read").count() == parts
    asked = window.locator("section .question").all_inner_texts()
    assert [text.endswith("?") for text in asked] == [True] * parts


def test_no_proof_is_never_on_the_axis_of_epsilon(path, opened):
    window = opened(path, "#dataset=digits&method=sgd&method=dpsgd_global")
    drawn(window, "utility")
    traces = window.evaluate(
        "document.querySelector('#part-utility .picture').data.map(t => [t.xaxis, t.x.length])"
    )
    assert sorted(traces) == [["x2", 1], ["x2", 1]]
    assert {line[1] for line in numbers(window)} == {"no proof", "not private"}
    assert window.locator("#part-utility").get_by_text("ε = 1.00", exact=True).count() == 0


def test_a_guarantee_that_is_only_claimed_is_marked_and_on_no_front(record_of, page_of, opened):
    made = [
        record_of(epsilon=epsilon, accuracy=0.6 + epsilon / 10, guarantee="claimed")
        for epsilon in (1.0, 2.0)
    ]
    window = opened(page_of(made))
    drawn(window, "utility")
    assert {tuple(line[1:4:2]) for line in numbers(window)} == {
        ("ε = 1.00 (claimed)", "claimed"),
        ("ε = 2.00 (claimed)", "claimed"),
    }
    traces = "document.querySelector('#part-utility .picture').data"
    (symbols,) = window.evaluate(f"{traces}.map(t => t.marker?.symbol)")
    assert all(symbol.endswith("-open") for symbol in symbols)


def test_seeds_that_are_filtered_out_leave_mean_and_interval(path, opened, records):
    window = opened(path, "#dataset=digits&method=dpsgd", pictures=False)
    values = [0.63, 0.64, 0.65]
    half = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) / np.sqrt(3)
    assert numbers(window)[0][4] == f"64.0 % ± {100 * half:.1f} % (3)"
    window.locator("input[name=seed][value='2']").uncheck()
    half = stats.t.ppf(0.975, 1) * np.std(values[:2], ddof=1) / np.sqrt(2)
    assert numbers(window)[0][4] == f"63.5 % ± {100 * half:.1f} % (2)"
    window.locator("input[name=seed][value='1']").uncheck()
    assert numbers(window)[0][4] == "63.0 % (1)"
    assert "seed=0" in window.evaluate("location.hash")
    window.locator("input[name=seed][value='0']").uncheck()
    assert "No run passes the filters" in window.inner_text("#part-utility")
    window.get_by_role("button", name="Show all runs").click()
    assert window.inner_text("#shown") == f"{len(records)} of {len(records)} runs shown"


def test_a_run_that_was_made_again_to_be_observed_counts_once(record_of, page_of, opened):
    made = [record_of(seed=seed, accuracy=0.6 + seed / 10) for seed in (0, 1, 1)]
    made[2].config["diagnostics"] = {"every": 10}
    made[2].config["choices"]["diagnostics"] = "bias"
    assert made[1].digest != made[2].digest
    window = opened(page_of(made), pictures=False)
    assert window.inner_text("#shown") == "3 of 3 runs shown"
    assert [line[4][:6] + line[4][-4:] for line in numbers(window)] == ["65.0 % (2)"]


def test_a_filter_keeps_its_runs(path, opened):
    window = opened(path, pictures=False)
    kept = {
        ("dataset", "adult"): 12,
        ("model", "mlp"): 30,
        ("method", "dpsgd"): 12,
        ("seed", "1"): 10,
    }
    for (name, value), number in kept.items():
        window.locator(f"fieldset:has(input[name={name}]) button", has_text="none").click()
        assert window.inner_text("#shown").startswith("0 of"), name
        window.locator(f"input[name={name}][value='{value}']").check()
        assert window.inner_text("#shown").startswith(f"{number} of"), name
        window.locator("#reset").click()


def test_a_link_shows_the_same_view(path, opened):
    window = opened(path, pictures=False)
    window.locator("#part-utility select").first.select_option("test/loss")
    window.locator("#part-utility select").nth(1).select_option("rdp")
    window.locator("input[name=method][value=sgd]").uncheck()
    again = opened(path, window.evaluate("location.hash"), pictures=False)
    assert again.locator("#part-utility select").first.input_value() == "test/loss"
    assert numbers(again) == numbers(window)
    assert {line[1] for line in numbers(again)} >= {"ε = 1.10", "ε = 4.40"}
    again.evaluate("location.hash = '#metric=test/accuracy&seed=0&bogus=1&run=%E0'")
    again.locator("#shown", has_text="10 of").wait_for()


def test_a_point_leads_to_its_record_and_its_command(path, opened, records):
    window = opened(path, "#dataset=digits&method=dpsgd")
    drawn(window, "utility")
    window.evaluate("""() => {
        const picture = document.querySelector('#part-utility .picture');
        const point = picture.data.find((trace) => trace.customdata);
        picture.emit('plotly_click', {points: [{customdata: point.customdata[0]}]});
    }""")
    found = shown_record(window)
    assert found["digest"] == records[0].digest
    assert found["record"] == json.loads(records[0].json().replace("NaN", "null"))
    assert found["command"].startswith("dpbench run dataset=digits model=mlp method=dpsgd ")
    window.get_by_role("button", name="1", exact=True).click()
    assert shown_record(window)["record"]["config"]["seed"] == 1
    window.keyboard.press("Escape")
    window.wait_for_selector("#detail", state="hidden")
    window.wait_for_url(lambda url: "run=" not in url)


def test_a_real_click_on_a_marker_opens_its_record(path, opened):
    window = opened(path, "#dataset=adult&method=dpsgd")
    drawn(window, "utility")
    box = window.locator("#part-utility path.point").first.bounding_box()
    window.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    window.wait_for_selector("#part-utility .hoverlayer .hovertext")
    window.mouse.down()
    window.mouse.up()
    assert shown_record(window)["record"]["config"]["choices"]["dataset"] == "adult"


def test_the_keyboard_does_all_of_it(path, opened):
    window = opened(path)
    window.keyboard.press("Tab")
    assert window.evaluate("document.activeElement.id") == "skip"
    window.keyboard.press("Enter")
    assert window.evaluate("document.activeElement.id") == "main"
    window.locator("input[name=dataset][value=adult]").focus()
    window.keyboard.press("Space")
    assert window.inner_text("#shown").startswith("18 of")
    assert window.evaluate("document.activeElement.value") == "adult"
    window.locator("#part-utility .numbers summary").first.focus()
    window.keyboard.press("Enter")
    window.locator("#part-utility .numbers table").first.wait_for()
    window.keyboard.press("Tab")
    window.keyboard.press("Tab")
    window.keyboard.press("Enter")
    window.wait_for_selector("#detail[open]")
    before = window.evaluate("document.activeElement.className")
    window.keyboard.press("Enter")
    window.wait_for_selector("#detail", state="hidden")
    assert (before, window.evaluate("document.activeElement.className")) == ("close", "link")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_needs_no_sideways_scrolling(path, opened, width):
    window = opened(path, viewport={"width": width, "height": 800}, is_mobile=True, has_touch=True)
    drawn(window, "utility")
    wide = "document.documentElement.scrollWidth <= innerWidth && innerWidth"
    assert window.evaluate(wide) == width
    assert not window.locator("#boxes").is_visible()
    window.locator("#part-runs tbody button").first.click()
    shown_record(window)
    assert window.evaluate(wide) == width
    assert window.evaluate("detail.scrollWidth <= detail.clientWidth")


def test_on_paper_all_pictures_are_there_and_the_controls_are_not(path, opened, tmp_path):
    window = opened(path, color_scheme="dark")
    dark = window.evaluate("getComputedStyle(document.body).color")
    window.evaluate("dispatchEvent(new Event('beforeprint'))")
    window.emulate_media(media="print")
    wait_for_pictures(window)
    fits = """[...document.querySelectorAll('.picture')].every(p =>
        p.querySelector('.main-svg').getBoundingClientRect().width <= p.clientWidth + 1)"""
    assert window.evaluate(fits)
    assert window.evaluate("getComputedStyle(document.body).color") != dark
    assert not window.locator("aside").is_visible()
    assert not window.locator("#places").is_visible()
    assert len(sheets := window.pdf(format="A4")) > 20_000
    assert len(re.findall(rb"/Type\s*/Page\b", sheets)) <= 4


def test_dark_is_dark_and_the_choice_of_colours_changes_it(path, opened):
    window = opened(path, color_scheme="dark", pictures=False)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = window.evaluate(ground)
    assert window.locator("#theme").input_value() == "system"
    window.locator("#theme").select_option("light")
    assert window.evaluate(ground) != dark
    window.locator("#theme").select_option("dark")
    assert window.evaluate(ground) == dark
    assert "theme=dark" in window.evaluate("location.hash")


def test_a_diverged_run_takes_the_mean_away_and_is_named(record_of, page_of, opened):
    runs = [record_of(seed=s, accuracy=0.5 + 0.1 * s) for s in (0, 1)]
    nan = float("nan")
    runs.append(record_of(seed=2, accuracy=nan, ece=nan, status="diverged", bins=False))
    window = opened(page_of(runs), pictures=False)
    assert numbers(window)[0][4] == "no mean: 1 diverged"
    assert "1 of 3 diverged" in window.inner_text("#part-utility .notes")
    window.locator("input[name=status][value=diverged]").uncheck()
    assert numbers(window)[0][4].startswith("55.0 % ±")
    assert window.locator("#part-utility .notes button").count() == 0


def test_a_claim_that_an_audit_refutes_is_named_and_no_other(record_of, page_of, opened):
    def audited(seed: int, epsilon: float, bound: float, verdict: str):
        audit = {"epsilon": bound, "confidence": 0.95, "claimed": epsilon, "verdict": verdict}
        return record_of(seed=seed, epsilon=epsilon, audit=audit)

    sound, lucky = audited(0, 3.0, 1.0, "not refuted"), audited(1, 2.0, 2.1, "not refuted")
    window = opened(page_of([sound, lucky, audited(2, 0.5, 2.5, "refuted")]))
    assert drawn(window, "audit") == 3
    named = window.locator("#part-audit .alarm button").all_inner_texts()
    assert named == ["DP-SGD (claimed ε = 0.5): at least 2.5"]


def test_the_canaries_of_an_audit_are_no_data_set(record_of, page_of, opened):
    audit = {"epsilon": 1.0, "confidence": 0.95}
    attacked = record_of("dpsgd_f", audit=audit, accuracy=float("nan"), bins=False)
    attacked.config["choices"] = attacked.config["choices"] | {
        "dataset": "canaries",
        "model": "linear",
    }
    attacked.metrics.clear()
    window = opened(page_of([attacked, record_of()]))
    assert "1 data set\n" in window.inner_text("#lead")
    assert "canaries" not in window.inner_text("#part-board")
    offered = window.locator("input[name=dataset]").evaluate_all("all => all.map(i => i.value)")
    assert offered == ["digits"]
    window.locator("input[name=dataset]").uncheck()
    assert drawn(window, "audit") == 1
    assert "canaries" not in window.inner_text("#part-board")
    assert window.inner_text("#shown") == "1 of 2 runs shown"


def test_what_a_record_says_is_never_markup_or_code(record_of, page_of, opened):
    bad = "<b>x</b></script><img src=x onerror=alert(1)><script>alert(2)</script><b>&amp;$'`\\"
    named = bad.replace("/", "").replace("\\", "")  # the name of an option is part of paths
    record = record_of(seed=0)
    choices = record.config["choices"] | {"dataset": named, "model": named, "method": named}
    record.config["choices"] = choices
    record.config["sampler"] = bad
    record.privacy["why"] = record.provenance["device"] = bad
    record.privacy["adjacency"] = f"zero out one {bad}"
    record.metrics[f"test/{bad}"] = 0.5
    window = opened(page_of([record, record_of(seed=1)]))
    drawn(window, "utility")
    window.locator("#part-utility select").first.select_option(f"test/{bad}")
    window.locator("#part-runs tbody button").first.click()
    assert shown_record(window)["record"]["config"]["choices"]["method"] == named
    assert "No command" in window.inner_text("#detail")
    assert window.locator("img").count() == 0
    assert window.locator("b b").count() == 0
    assert window.locator("h3", has_text="onerror=alert(1)").count() > 0


def test_files_left_out_are_listed(spoiled, opened):
    from dpbench.comparison.dashboard.command import report

    with pytest.warns(UserWarning, match="left out"):
        path = report([f"results_dir={spoiled}", f"out={spoiled / 'r.html'}"])
    files = opened(path, pictures=False).inner_text("#part-unreadable")
    for name in ("truncated.json", "older.json", "empty.json", "list.json", "bytes.json"):
        assert name in files
    assert "t.records.jsonl, line 2" in files


def test_a_thousand_runs_answer_at_once(record_of, page_of, opened):
    made = itertools.product(("digits", "adult"), METHODS[1:], range(1, 34), range(5))
    records = [record_of(m, s, e / 4, 0.5 + e / 100, d) for d, m, e, s in made]
    assert len(records) == 990
    window = opened(page_of(records))
    window.locator("input[name=seed][value='4']").uncheck()
    assert window.inner_text("#shown") == "792 of 990 runs shown"
    assert numbers(window)[0][4].endswith("(4)")
    assert window.locator("#part-runs tbody tr").count() == 50
