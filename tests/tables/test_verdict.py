import math

from toy_table import PLAIN

from dpbench.tables import Published, table_spec
from dpbench.tables.verdict import published_standard_error, rule, verdict

SPEC = table_spec(PLAIN)
COLUMN = SPEC.columns[0]


def judged(ours, error, printed, spec=SPEC):
    return verdict(spec, COLUMN, ours, error, printed)


def test_reproduced_up_to_twice_the_combined_error_and_no_further():
    printed = Published("80.0", "0.4")
    bound = 2 * math.sqrt(0.3**2 + 0.4**2 + 0.05**2)
    assert judged(80 + bound - 1e-6, 0.3, printed) == "reproduced"
    assert judged(80 - bound + 1e-6, 0.3, printed) == "reproduced"
    assert judged(80 + bound + 1e-6, 0.3, printed) == "differs"


def test_close_up_to_the_tolerance_and_no_further():
    printed = Published("80.0", "0.0")
    assert judged(80.11, 0, printed) == "close"
    assert judged(100 * 0.81, 0, printed) == "close"
    assert judged(81.01, 0, printed) == "differs"


def test_a_number_printed_without_spread_still_has_its_rounding():
    assert judged(80.1, 0, Published("80.0", None)) == "reproduced"
    assert judged(80.101, 0, Published("80.0", None)) == "close"
    assert judged(80.101, 0, Published("80", None)) == "reproduced"


def test_one_run_is_never_reproduced():
    assert judged(80.0, math.nan, Published("80.0", "0.4")) == "close"


def test_nothing_published_and_no_number():
    assert judged(80.0, 0.1, None) == "-"
    assert judged(math.nan, math.nan, Published("80.0", "0.1")) == "no number"


def test_another_scale_is_never_reproduced():
    spec = table_spec({**PLAIN, "scale": "2 of 20 epochs"})
    assert judged(80.0, 0.1, Published("80.0", "0.1"), spec) == "smaller scale"
    assert "2 of 20 epochs" in rule(spec)


def test_a_printed_standard_deviation_is_divided_by_the_root_of_the_papers_runs():
    spec = table_spec({**PLAIN, "spread": "standard deviation"})
    printed = Published("80.0", "0.8")
    assert published_standard_error(spec, printed) == 0.4
    assert published_standard_error(SPEC, printed) == 0.8
    assert "divided by sqrt(4)" in rule(spec)
    assert judged(80 + 2 * 0.8, 0, printed) == "reproduced"
    assert judged(80 + 2 * 0.8, 0, printed, spec) == "differs"


def test_the_rule_names_every_tolerance():
    assert "close if within 1 (acc_a, pi_ab)" in rule(SPEC)
