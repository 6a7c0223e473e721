"""How an epsilon is written."""

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpbench.runs.records.epsilon import (
    NO_PROOF,
    NOT_COMPUTED,
    NOT_PRIVATE,
    TOO_LITTLE_NOISE,
    USUAL,
    Terms,
    delta_text,
    epsilon_or_reason,
    legend,
    percent_rounded_up,
    rounded_down,
    rounded_up,
)


@given(st.floats(0, 1e6), st.integers(0, 4))
def test_a_written_bound_is_a_bound(epsilon, digits):
    # Of the shortest decimal of the float: 1.1 is 1.1.
    value = Fraction(repr(epsilon))
    up, down = (Fraction(write(epsilon, digits)) for write in (rounded_up, rounded_down))
    assert down <= value <= up
    if value >= Fraction(1, 10**digits):
        assert up - down in (0, Fraction(1, 10**digits))
    else:
        assert down == 0
        assert up - value <= max(value / 10, Fraction(1, 10**6))


@given(st.floats(1e-300, 1), st.integers(1, 7))
def test_a_written_delta_is_one_at_which_the_epsilon_holds(delta, digits):
    value, written = Fraction(repr(delta)), Fraction(delta_text(delta, digits))
    assert value <= written <= value * (1 + Fraction(10) ** (1 - digits))


@pytest.mark.parametrize(
    ("delta", "six", "three"),
    [
        (1e-05, "1e-05", "1e-05"),
        (1 / 45222, "2.21132e-05", "2.22e-05"),  # 2.21131e-05 and 2.21e-05 to the nearest
        (1 / 60000, "1.66667e-05", "1.67e-05"),
        (9.9999999e-06, "1e-05", "1e-05"),
        (0.05, "0.05", "0.05"),
    ],
)
def test_a_delta_is_rounded_up(delta, six, three):
    assert (delta_text(delta), delta_text(delta, 3)) == (six, three)
    terms = Terms(delta, "example", False, "Poisson batches", "proven")
    assert terms.text(["delta"]) == f"delta {six}"


@given(st.floats(0, 1))
def test_a_bound_in_percent_is_a_bound(bound):
    value, written = 100 * Fraction(repr(bound)), Fraction(percent_rounded_up(bound)[:-1])
    assert value <= written <= value * Fraction(101, 100) + Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("epsilon", "up", "down"),
    [
        (0.00072, "0.00072", "0.00"),
        (0.0012345, "0.0013", "0.00"),
        (0.0101, "0.02", "0.01"),
        (2.994, "3.00", "2.99"),
        (8.0, "8.00", "8.00"),
        (1.1, "1.10", "1.10"),
        (1e-9, "0.000001", "0.00"),
        (999999.991, "1000000.00", "999999.99"),
        (1234500.0, "1.24e+6", "1.23e+6"),
        (9.999e26, "1.00e+27", "9.99e+26"),
        (1.7e308, "1.70e+308", "1.70e+308"),
    ],
)
def test_two_decimals_are_written_and_more_of_a_small_bound(epsilon, up, down):
    assert (rounded_up(epsilon), rounded_down(epsilon)) == (up, down)


def test_infinite_epsilons_are_shown_in_words_and_batches_with_turns_are_cyclic():
    assert [rounded_up(value) for value in (math.inf, math.nan)] == ["inf", "nan"]
    ledger = [{"sampling": {"law": "Poisson", "rate": 0.1, "cycle": 4}}]
    assert Terms.of(stated(ledger=ledger)).batches == "cyclic Poisson batches"


@pytest.mark.parametrize(
    ("guarantee", "value", "expected"),
    [
        ("proven", 2.5, 2.5),
        ("approximate", 2.5, 2.5),
        ("claimed", 2.5, 2.5),
        ("none", 2.5, NO_PROOF),
        ("none", math.inf, NOT_PRIVATE),
        ("proven", math.inf, TOO_LITTLE_NOISE),
        ("proven", math.nan, NOT_COMPUTED),
        ("proven", -1.0, NOT_COMPUTED),
        ("proven", None, NOT_COMPUTED),
        ("proven", "2.5", NOT_COMPUTED),
        ("proven", True, NOT_COMPUTED),
    ],
)
def test_what_is_shown_in_place_of_epsilon(guarantee, value, expected):
    assert epsilon_or_reason({"guarantee": guarantee, "rdp": value}, "rdp") == expected


def stated(law="Poisson", epsilon=1.0, delta=1e-5, **more):
    """A privacy statement whose batches have this law."""
    terms = {"unit": "example", "adjacency": "add or remove one example", "guarantee": "proven"}
    ledger = [{"times": 1, "sampling": {"law": law}, "releases": []}]
    return {"rdp": epsilon, "pld": None, "delta": delta, "ledger": ledger, **terms, **more}


def test_a_legend_has_the_terms_of_all_epsilons_and_of_nothing_else():
    usual = "per example, add-or-remove adjacency, Poisson batches, proven."
    assert legend([stated(), stated()]) == f"Epsilons: delta 1e-05, {usual}"
    assert usual.startswith(USUAL)
    none = stated("Shuffled", guarantee="none")
    assert legend([stated(), none, stated(delta=1e-6, epsilon=math.inf)]) == legend([stated()])
    assert legend([none]) == legend([]) == ""
    user = stated("Allocation", unit="user", adjacency="zero out one user", guarantee="claimed")
    assert legend([stated(), user]) == (
        "Epsilons: delta 1e-05, per example or per user, add-or-remove adjacency or zero-out "
        "adjacency, Poisson batches or randomly allocated batches, claimed or proven."
    )


@pytest.mark.parametrize(
    "ledger", [[], [{}], [{"sampling": None}], [{"sampling": {"law": ["Poisson"]}}]]
)
def test_batches_that_a_ledger_does_not_name_are_unknown(ledger):
    assert Terms.of(stated(ledger=ledger)).batches == "unknown batches"


TABLES = Path(__file__).parents[3] / "results" / "tables"
WITHOUT_NOISE = "misalignment_table1"
"""The page whose epsilons are all infinite."""


def test_every_page_with_an_epsilon_has_its_terms():
    pages = {path.stem: path.read_text() for path in TABLES.glob("*.md")}
    shown = {s for s, text in pages.items() if re.search(r"^\|.*(epsilon|claimed) ", text, re.M)}
    assert len(shown) > 25
    for stem in shown - {WITHOUT_NOISE}:
        assert re.search("(add-or-remove|zero-out) adjacency", pages[stem]), stem
