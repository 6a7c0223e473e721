"""The verdicts on printed epsilons, against other accountants and against changed numbers."""

import csv
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from dpbench.benchmarks.claims.printed import read_printed
from dpbench.benchmarks.claims.recount import LOOSE_MARGIN, PLD_MARGIN, judge, recount_one
from dpbench.benchmarks.claims.report import WORDS, summary
from opacus.accountants import PRVAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from dpbench.privacy.accountants import lower_bound, moments, rdp
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.records.epsilon import rounded_up
from dpbench.system.paths import PACKAGE, benchmarks_folder

PRINTED = {entry.id: entry for entry in read_printed(benchmarks_folder() / "claims" / "claims.csv")}
COMMITTED = PACKAGE.parent / "results" / "tables" / "recount.csv"
ROWS = {row["claim"]: row for row in csv.DictReader(COMMITTED.read_text().splitlines())}
BOUNDED = [n for n, row in ROWS.items() if row["RDP"] != "-" and not PRINTED[n].flaw]

ROUNDED = 0.0101
"""The committed bounds are rounded up to two decimals."""


def bounds(name):
    return [float(ROWS[name][column]) for column in ("RDP", "PLD")]


def test_the_committed_table_has_every_epsilon_as_it_is_printed():
    assert list(ROWS) == list(PRINTED)
    for name, entry in PRINTED.items():
        assert (ROWS[name]["printed"], ROWS[name]["where"]) == (entry.printed, entry.where)


@pytest.mark.parametrize(
    "name", ["misalignment-adult-adapt", "calibration-wine", "tf-mnist-1", "verticalfl-0.5"]
)
def test_a_row_is_what_the_committed_table_says(name):
    found = recount_one(PRINTED[name])
    assert found.ruling == ROWS[name]["verdict"]
    assert [*map(rounded_up, (found.rdp, found.pld))] == [f"{bound:.2f}" for bound in bounds(name)]


@pytest.mark.parametrize("name", BOUNDED)
def test_the_verdict_turns_with_the_printed_number(name):
    entry, (least, most) = PRINTED[name], sorted(bounds(name))

    def verdict(epsilon, own=None):
        return judge(replace(entry, printed=f"{epsilon:.9f}"), (least, most), own)["verdict"]

    assert verdict(least * (1 - 2 * PLD_MARGIN)) == "too small"
    assert verdict(least) == verdict(most) == verdict(most * (1 + LOOSE_MARGIN / 2)) == "holds"
    assert verdict(most * 1.5) == "loose"
    assert verdict(most * 1.5, own=least) == "does not follow"
    assert verdict(least / 2, own=least / 9) == "too small"
    assert judge(replace(entry, flaw="why"), (least, most), None)["verdict"] == "does not follow"


def test_a_number_is_held_to_its_printed_digits_and_the_percentage_is_of_what_is_spent():
    entry = replace(PRINTED["tf-mnist-60"], printed="1.0", sampler="poisson")
    small = judge(entry, (2.0, 2.2), None)
    assert (small["verdict"], small["share"]) == ("too small", pytest.approx(0.5))
    large = judge(replace(entry, printed="3.0"), (2.0, 2.2), None)
    assert (large["verdict"], large["share"]) == ("loose", pytest.approx(0.5))
    entry = PRINTED["tf-mnist-60"]
    for printed, verdict in (("2.3", "holds"), ("2.30", "too small"), ("2", "too small")):
        assert judge(replace(entry, printed=printed), (2.32, 2.5), None)["verdict"] == verdict


GAUSSIAN_TOO_SMALL = [
    name
    for name, row in ROWS.items()
    if row["verdict"].startswith("too small") and PRINTED[name].mechanism == "gaussian"
]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", GAUSSIAN_TOO_SMALL)
def test_what_is_called_too_small_lies_below_a_lower_bound_of_what_is_spent(name):
    """Opacus' PRV accountant (Gopi et al. 2021) has bounds on both sides."""
    entry = PRINTED[name]
    accountant = PRVAccountant()
    sigma = entry.noise_multiplier / math.sqrt(entry.layers)
    accountant.history = [(sigma, entry.rate, entry.steps)]
    errors = {"eps_error": 0.01, "delta_error": entry.delta / 1000}
    losses = accountant._get_dprv(**errors)
    least, _, most = losses.compute_epsilon(entry.delta, errors["delta_error"], 0.01)
    assert entry.epsilon + entry.rounding < least < float(ROWS[name]["PLD"]) < most


@pytest.mark.parametrize("name", ["sign-adult-0.25", "sign-adult-0.5", "sign-mnist-0.25"])
def test_the_formula_of_the_sign_note_lies_below_what_is_surely_spent(name):
    entry = PRINTED[name]
    assert entry.epsilon < lower_bound(entry.ledger, entry.delta)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gdp-mnist-clt-20", "de-cifar10", "handcrafted-linear-mnist"])
def test_accounts_are_those_of_dp_accounting(name):
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    entry = PRINTED[name]
    noise = dp_accounting.GaussianDpEvent(entry.noise_multiplier)
    event = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(entry.rate, noise), entry.steps
            ),
            *(dp_accounting.GaussianDpEvent(sigma) for sigma in entry.single_queries),
        ]
    )
    for accountant, kind, near in ((RdpAccountant(), "RDP", 0.02), (PLDAccountant(), "PLD", 4e-3)):
        theirs = accountant.compose(event).get_epsilon(entry.delta)
        assert float(ROWS[name][kind]) == pytest.approx(theirs, rel=near, abs=ROUNDED)


def test_all_examples_in_every_step_or_a_pass_without_amplification_are_one_gaussian():
    entry = PRINTED["calibration-wine"]
    mu = math.sqrt(entry.steps) / entry.noise_multiplier

    def excess(epsilon):
        above, below = (norm.cdf(sign * mu / 2 - epsilon / mu) for sign in (1, -1))
        return above - math.exp(epsilon) * below - entry.delta

    assert float(ROWS[entry.id]["PLD"]) == pytest.approx(brentq(excess, 0, 50), abs=ROUNDED)
    entry = PRINTED["tf-mnist-60"]
    (step, passes), *_ = entry.unamplified.entries
    assert (step.sampling.rate, passes) == (1.0, 60)
    assert float(ROWS[entry.id]["shuffled, at most"]) > 10 * float(ROWS[entry.id]["PLD"])


def test_the_conversion_of_2017_is_its_closed_form_and_what_libraries_printed_until_2021():
    sigma, delta = 4.0, 1e-5
    ledger = Ledger().after(Step(Poisson(1.0), (Release("x", GaussianMechanism(sigma)),)))
    # min over a of a/(2 sigma^2) + log(1/delta)/(a - 1)
    closed = 1 / (2 * sigma**2) + math.sqrt(2 * math.log(1 / delta)) / sigma
    assert moments(ledger, delta) == pytest.approx(closed, rel=1e-3)
    assert moments(ledger, delta) > rdp(ledger, delta)
    # All but those of the earliest README of Opacus, which are of other batches.
    named = [n for n, c in PRINTED.items() if c.accountant == "moments" and "early" not in n]
    gaps = [abs(float(ROWS[n]["own"]) / PRINTED[n].epsilon - 1) for n in named]
    assert len(named) > 25
    assert np.mean(np.array(gaps) < 0.005) > 0.8
    assert max(gaps) < 0.05


def test_the_summary_counts_every_epsilon_once():
    found = [recount_one(PRINTED[name]) for name in ("bam-cifar-10-1", "tf-mnist-10")]
    assert summary(found) == ["2 printed epsilons: 1 is loose, 1 cannot be recounted."]
    assert summary(2 * found) == ["4 printed epsilons: 2 are loose, 2 cannot be recounted."]


def test_the_page_counts_what_the_committed_table_has():
    page = (benchmarks_folder() / "claims" / "README.md").read_text()
    (line,) = [e for e in page.splitlines() if e.startswith(f"{len(PRINTED)} printed epsilons: ")]
    said = [row["verdict"] for row in ROWS.values()]
    counts = [sum(one.startswith(verdict) for one in said) for verdict in WORDS]
    assert [int(number) for number in re.findall(r"\d+", line)] == [len(PRINTED), *counts]
