from dpbench.comparison.tables.privacy import privacy_grid, privacy_of
from dpbench.comparison.tables.runs import Row

SAID = {"rdp": 6.5, "pld": 5.13, "gdp": 1.25, "claimed": 6.5, "delta": 1e-6, "arithmetic": "float"}
PLAN = {**SAID, "guarantee": "proven", "why": "Gaussian.", "steps": 9}


def test_a_row_with_missing_requirements_shows_its_plan_and_the_reason():
    rows = [Row("snli", method, "corrected") for method in ("dpsgd", "sgd", "bam")]
    (line,) = privacy_grid(privacy_of(rows, {"snli": "1.25"}, "sgd", {"snli, dpsgd": PLAN})).rows
    assert line[:6] == ("snli, dpsgd", "1.25", "6.50", "6.50", "5.13", "1.25")
    assert line[6:8] == ("1e-06", "float")
    assert line[-1] == "Gaussian. Not run: as planned."
    assert privacy_of(rows, {}, "sgd") == []


def test_the_head_says_what_the_paper_accounts_by():
    rows, plans = [Row("a", "dpsgd", "corrected")], {"a, dpsgd": PLAN}
    assert "reasoning (GDP)" in privacy_grid(privacy_of(rows, {}, "sgd", plans), "gdp").head[2]


def test_epsilons_that_are_only_claimed_say_so():
    plan = {**PLAN, "guarantee": "claimed"}
    rows = [Row("a", "own", "corrected")]
    (line,) = privacy_grid(privacy_of(rows, {}, "sgd", {"a, own": plan})).rows
    assert line[3:6] == ("6.50 (claimed)", "5.13 (claimed)", "1.25 (claimed)")
    assert line[8] == "claimed"


def test_a_bound_that_is_not_there_is_said_to_be_and_never_infinite():
    plan = {**PLAN, "pld": None}
    rows = [Row("a", "dpsgd", "corrected")]
    (line,) = privacy_grid(privacy_of(rows, {}, "sgd", {"a, dpsgd": plan})).rows
    assert line[3:6] == ("6.50", "not computed", "1.25")
