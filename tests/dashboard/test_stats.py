"""What the page computes in the browser, against numpy, scipy and slow obvious references."""

from importlib.resources import files

import numpy as np
import pytest
from scipy import stats

from dpbench.metrics.calibration import equal_width

pytestmark = pytest.mark.slow

T = [float(stats.t(k).ppf(0.975)) for k in range(1, 60)]


@pytest.fixture(scope="module")
def js(chromium):
    """js(expression, argument): what the expression gives with the page's own functions."""
    window = chromium.new_page()
    own = "".join(
        (files("dpbench.dashboard") / "assets" / name).read_text()
        for name in ("stats.js", "state.js", "dom.js")
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


def test_pooled_bins_are_those_of_all_examples_together(js, draw):
    import torch

    from dpbench.metrics.calibration import rank_by_confidence

    halves = [torch.tensor(draw.normal(size=(40, 3))) for _ in range(2)]
    targets = [torch.tensor(draw.integers(0, 3, 40)) for _ in range(2)]
    runs = [
        {"bins": sums(equal_width(rank_by_confidence(*one)))}
        for one in zip(halves, targets, strict=True)
    ]
    expected = sums(equal_width(rank_by_confidence(torch.cat(halves), torch.cat(targets))))
    found = js("pooled(x)", [*runs, {"bins": None}])
    assert np.asarray(found) == pytest.approx(np.asarray(expected))
    assert js("pooled(x)", [{"bins": None}]) is None


def sums(bins):
    columns = (bins.counts, bins.confidences, bins.correct)
    return [list(map(float, line)) for line in zip(*columns, strict=True)]


OPTIONS = {
    "dataset": ["a,b", "c&d=e", "ü"],
    "model": ["m"],
    "method": ["x", "y"],
    "seed": ["0", "10", "2"],
    "status": ["complete"],
    "metric": ["test/a", "test/b"],
}
DEFAULTS = {
    **dict.fromkeys(("dataset", "model", "method", "seed", "status")),
    "metric": "test/a",
    "calibration": "",
    "fairness": "",
    "accountant": "pld",
    "theme": "",
    "run": "",
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
def test_an_address_says_the_state(js, change):
    state = DEFAULTS | change
    sent = {"state": state, "defaults": DEFAULTS, "options": OPTIONS}
    assert js("parsed(hashOf(x.state, x.defaults), x.defaults, x.options)", sent) == state
    assert (js("hashOf(x.state, x.defaults)", sent) == "") == (not change)


@pytest.mark.parametrize("hash_", ["#metric=gone", "#x=1&&=", "#run", "#metric=%E0%A4%A", "#"])
def test_an_address_that_says_nonsense_changes_nothing(js, hash_):
    sent = {"hash": hash_, "defaults": DEFAULTS, "options": OPTIONS}
    assert js("parsed(x.hash, x.defaults, x.options)", sent) == DEFAULTS


def test_numbers_are_offered_in_their_order(js):
    rows = [
        {"dataset": "d", "model": "m", "method": "x", "status": "s", "seed": s} for s in ("10", "2")
    ]
    assert js("offered(x).seed", rows) == ["2", "10"]


def test_a_shown_upper_bound_is_one(js, draw):
    values = [*(10 ** draw.uniform(-6, 4, 200)).tolist(), 8.0, 0.29, 1.1, 2.994, 999.6, 0.0]
    for value, shown in zip(values, js("x.map(atMost)", values), strict=True):
        assert value <= float(shown) <= 1.0101 * value
    assert js("[8, 0.29, 2.994].map(atMost)") == ["8", "0.29", "3"]
    assert js("atMost(Infinity)") == "Infinity"
