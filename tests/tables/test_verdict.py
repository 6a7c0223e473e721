import math

import pytest

from dpbench.tables.published import Published
from dpbench.tables.spec import table_spec
from dpbench.tables.verdict import _at_most, published_standard_error, rule, tolerance, verdict


@pytest.fixture
def judged(spec):
    """The verdict on the mean of n runs, with a tolerance of 1."""

    def _judged(ours, error, printed, spec=spec, n=4, close=1.0):
        return verdict(spec, close, ours, error, n, printed)

    return _judged


def test_reproduced_up_to_twice_the_combined_error_and_no_further(judged):
    printed = Published("80.0", "0.4")
    bound = 2 * math.sqrt(0.3**2 + 0.4**2 + 0.05**2)
    assert judged(80 + bound - 1e-6, 0.3, printed) == "reproduced"
    assert judged(80 - bound + 1e-6, 0.3, printed) == "reproduced"
    assert judged(80 + bound + 1e-6, 0.3, printed) == "differs"


def test_close_up_to_the_tolerance_and_no_further(judged):
    printed = Published("80.0", "0.0")
    assert judged(80.11, 0, printed) == "close"
    assert judged(100 * 0.81, 0, printed) == "close"
    assert 0.8 - 0.7 > 0.1  # as floats
    assert _at_most(0.8 - 0.7, 0.1)
    assert not _at_most(0.8 - 0.7, 0.0999)
    assert judged(81.01, 0, printed) == "differs"


def test_a_number_printed_without_spread_still_has_its_rounding(judged):
    assert judged(80.1, 0, Published("80.0", None)) == "reproduced"
    assert judged(80.101, 0, Published("80.0", None)) == "close"
    assert judged(80.101, 0, Published("80", None)) == "reproduced"


def test_fewer_runs_than_the_paper_s_never_reproduce(judged):
    """However exactly they agree: their larger error must not make it easier."""
    printed = Published("80.0", "0.4")
    assert judged(80.0, 0.3, printed, n=4) == "reproduced"
    assert judged(80.0, 0.3, printed, n=3) == "close"
    assert judged(83.0, 5.0, printed, n=3) == "undecided"
    assert judged(83.0, 0.1, printed, n=3) == "differs"


def test_one_run_is_close_or_says_nothing(judged):
    assert judged(80.0, math.nan, Published("80.0", "0.4"), n=1) == "close"
    assert judged(90.0, math.nan, Published("80.0", "0.4"), n=1) == "undecided"


def test_nothing_published_and_no_number(judged):
    assert judged(80.0, 0.1, None) == "-"
    assert judged(math.nan, math.nan, Published("80.0", "0.1")) == "no number"


def test_another_scale_is_never_reproduced(judged, plain):
    spec = table_spec({**plain, "scale_label": "2 of 20 epochs"})
    assert judged(80.0, 0.1, Published("80.0", "0.1"), spec) == "other scale"
    assert "2 of 20 epochs" in rule(spec)


def test_a_printed_standard_deviation_becomes_a_standard_error(judged, plain, spec):
    deviation = table_spec({**plain, "spread": "standard deviation"})
    printed = Published("80.0", "0.8")
    assert published_standard_error(deviation, printed) == 0.4
    assert published_standard_error(spec, printed) == 0.8
    assert "divided by sqrt(4)" in rule(deviation)
    assert judged(80 + 2 * 0.8, 0, printed) == "reproduced"
    assert judged(80 + 2 * 0.8, 0, printed, deviation) == "differs"


CLAIMS = {
    "first": {"better": ["fair"], "than": ["dpsgd"], "in": ["acc_a"]},
    "second": {"better": ["fair"], "than": ["sgd"], "in": ["acc_a"], "under": ["y"]},
}
ABOUT = {"statement": "So.", "source": "page 1"}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        pytest.param("x", 0.8, id="of the pair that a claim compares there"),
        pytest.param("y", 0.3, id="the smallest of several"),
        pytest.param("z", 0.0, id="nothing that is printed, or a tie"),
    ],
)
def test_a_tolerance_is_a_third_of_the_smallest_gap_between_rows_that_a_claim_compares(
    plain, condition, expected
):
    claims = {name: {**claim, **ABOUT} for name, claim in CLAIMS.items()}
    spec = table_spec({**plain, "claims": claims, "conditions": ["x", "y", "z"]})
    printed = {
        (f"{label}, {row}", "acc_a"): Published(value, None)
        for label, row, value in [
            *(("x", "sgd", "90.0"), ("x", "dpsgd", "70.0"), ("x", "fair", "72.4")),
            *(("y", "sgd", "73.3"), ("y", "dpsgd", "70.0"), ("y", "fair", "72.4")),
            *(("z", "dpsgd", "70.0"), ("z", "fair", "70.0")),
        ]
    }
    assert tolerance(spec, printed, condition, spec.columns[0]) == pytest.approx(expected)


def test_no_constant_is_close_to_both_rows_of_a_claim(spec, judged):
    printed = {
        ("dpsgd", "acc_a"): Published("70.0", "0.0"),
        ("fair", "acc_a"): Published("70.5", "0.0"),
    }
    close = tolerance(spec, printed, "", spec.columns[0])
    for constant in (70.0, 70.1, 70.2, 70.25, 70.3, 70.4, 70.5):
        verdicts = [judged(constant, 0, number, close=close) for number in printed.values()]
        assert "differs" in verdicts
