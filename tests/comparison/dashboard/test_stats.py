"""What the page computes in the browser, against numpy, scipy and slow obvious references."""

from importlib.resources import files

import numpy as np
import pytest
from scipy import stats

pytestmark = pytest.mark.slow

T = [float(stats.t(k).ppf(0.975)) for k in range(1, 60)]


@pytest.fixture(scope="module")
def js(chromium):
    """js(expression, argument): what the expression gives with the page's own functions."""
    window = chromium.new_page()
    own = "".join(
        (files("dpbench.dashboard") / "assets" / name).read_text()
        for name in ("stats.js", "address.js")
    )

    def evaluate(expression, argument=None):
        return window.evaluate(f"(x) => {{ {own}\nreturn {expression}; }}", argument)

    yield evaluate
    window.close()


@pytest.fixture
def draw():
    return np.random.default_rng(0)


@pytest.mark.parametrize("n", [2, 3, 5, 50])
def test_mean_and_interval_are_those_of_scipy(js, draw, n):
    values = draw.normal(3, 2, n)
    runs = [{"status": "complete", "v": v} for v in values.tolist()]
    found = js("summary(x.runs, (r) => r.v, x.t)", {"runs": runs, "t": T})
    low, high = stats.t(n - 1, values.mean(), stats.sem(values)).interval(0.95)
    assert found["n"] == n
    assert found["mean"] == pytest.approx(values.mean())
    assert found["half"] == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(
    ("values", "statuses", "n", "mean"),
    [
        ([1, 3, None], ["complete"] * 3, 2, 2.0),
        ([1], ["complete"], 1, 1.0),
        ([1, "nan"], ["complete"] * 2, 2, None),
        ([1, "inf"], ["complete"] * 2, 2, None),
        ([1, 3], ["complete", "diverged"], 2, None),
        ([None], ["complete"], 0, None),
    ],
)
def test_what_diverged_or_is_no_number_takes_the_mean_away(js, values, statuses, n, mean):
    runs = [{"status": s, "v": v} for s, v in zip(statuses, values, strict=True)]
    found = js("summary(x.runs, (r) => r.v, x.t)", {"runs": runs, "t": T})
    assert (found["n"], found["mean"]) == (n, mean)
    assert (found["half"] is None) == (n < 2 or mean is None)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_front_is_what_no_other_point_beats(js, draw, better):
    sign = 1 if better == "higher" else -1
    for _ in range(30):
        xy = draw.integers(0, 6, (8, 2)).tolist()
        points = [{"x": x, "y": y} for x, y in xy]
        found = js("front(x.points, x.better)", {"points": points, "better": better})
        beaten = [
            any(a <= x and sign * b >= sign * y and (a, b) != (x, y) for a, b in xy) for x, y in xy
        ]
        expected = sorted({(x, y) for (x, y), worse in zip(xy, beaten, strict=True) if not worse})
        assert [(p["x"], p["y"]) for p in found] == expected


OFFERED = {
    "filters": {"dataset": ["a,b", "c&d=e", "ü"], "method": ["x", "y"], "seed": ["0", "2", "10"]},
    "choices": {"metric": ["test/a", "test/b"], "theme": ["", "dark"], "fairness": []},
}
DEFAULTS = {"dataset": None, "method": None, "seed": None} | {
    "metric": "test/a",
    "theme": "",
    "fairness": "",
}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"dataset": ["a,b", "ü"]},
        {"dataset": ["c&d=e"], "method": [], "metric": "test/b"},
        {"theme": "dark", "seed": ["10"]},
    ],
)
def test_an_address_says_the_view(js, change):
    sent = {"view": DEFAULTS | change, "offered": OFFERED}
    assert js("viewOf(addressOf(x.view, x.offered), x.offered)", sent) == sent["view"]
    assert (js("addressOf(x.view, x.offered)", sent) == "") == (not change)


@pytest.mark.parametrize("address", ["#metric=gone", "#x=1&&=", "#run", "#metric=%E0%A4%A", "#"])
def test_an_address_that_says_nonsense_changes_nothing(js, address):
    assert js("viewOf(x.address, x.offered)", {"address": address, "offered": OFFERED}) == DEFAULTS
