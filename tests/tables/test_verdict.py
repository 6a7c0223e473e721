import math

import pytest

from dpbench.tables import Published, table_spec
from dpbench.tables.verdict import published_standard_error, rule, verdict


@pytest.fixture
def judged(spec):
    """The verdict on a number of the first column."""

    def _judged(ours, error, printed, spec=spec):
        return verdict(spec, spec.columns[0], ours, error, printed)

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
    assert judged(81.01, 0, printed) == "differs"


def test_a_number_printed_without_spread_still_has_its_rounding(judged):
    assert judged(80.1, 0, Published("80.0", None)) == "reproduced"
    assert judged(80.101, 0, Published("80.0", None)) == "close"
    assert judged(80.101, 0, Published("80", None)) == "reproduced"


def test_one_run_is_never_reproduced(judged):
    assert judged(80.0, math.nan, Published("80.0", "0.4")) == "close"


def test_nothing_published_and_no_number(judged):
    assert judged(80.0, 0.1, None) == "-"
    assert judged(math.nan, math.nan, Published("80.0", "0.1")) == "no number"


def test_another_scale_is_never_reproduced(judged, plain):
    spec = table_spec({**plain, "scale": "2 of 20 epochs"})
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


def test_the_rule_names_every_tolerance(spec):
    assert "close if within 1 (acc_a, pi_ab)" in rule(spec)
