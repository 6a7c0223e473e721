import csv
import io

import pytest
from dpbench.benchmarks.calibration.flow import Flow
from dpbench.benchmarks.calibration.laboratory import FlowRun
from dpbench.benchmarks.calibration.properties import Properties
from dpbench.benchmarks.calibration.report import (
    MONOTONE,
    PROPERTIES,
    SYMMETRIC,
    ZERO,
    claims,
    grids,
    summary,
    to_csv,
)

from dpbench.comparison.tables.published import Published

FINE = Properties(asymmetry=0.0, quadratic=0.1, eigenvalue=0.1, imaginary=0.0)
ALL_FALLEN = [1.0, 0.5, 0.1, 0.001, 0.0001]
STILL_FALLING = [1.0, 0.8, 0.6, 0.4, 0.2]
HARDLY_BEGUN = [1.0, 0.99, 0.98, 0.97, 0.96]
STANDING = [1.0, 0.9, 0.5, 0.301, 0.3]


def finding(kernel=FINE, cosine=1.0, losses=ALL_FALLEN, seed=0, label="some"):
    cosines = [1.0] * (len(losses) - 1) + [cosine]
    flow = Flow(losses, [-1.0] * 5, cosines, [0.0] * 5, [FINE, kernel], [FINE, FINE])
    return FlowRun(label, seed, flow, (0.2, 0.1))


def printed(yes, labels=("some",)):
    return {(x, name): Published(str(int(yes)), None) for x in labels for name in PROPERTIES}


def verdicts(findings, yes):
    return {claim.name: claim.verdict for claim in claims(findings, printed(yes), 1e-3)}


BAD = {
    SYMMETRIC: finding(Properties(0.1, 0.1, 0.1, 0.0)),
    "quadratic form": finding(Properties(0.0, -0.1, 0.1, 0.0)),
    "eigenvalues": finding(Properties(0.0, 0.1, -0.1, 0.0)),
    MONOTONE: finding(cosine=-0.1),
    ZERO: finding(losses=STANDING),
}


def test_a_guarantee_that_nothing_but_rounding_speaks_against_holds():
    assert set(verdicts([finding(), finding(seed=1)], yes=True).values()) == {"holds"}
    assert set(verdicts([finding(), finding(seed=1)], yes=False).values()) == {"not seen"}
    tiny = finding(Properties(1e-12, -1e-12, -1e-12, 0.0), cosine=-1e-12)
    assert set(verdicts([tiny], yes=True).values()) == {"holds"}
    both = [finding(losses=STANDING), finding(losses=STILL_FALLING)]
    assert verdicts(both, yes=False)[ZERO] == "shown"


@pytest.mark.parametrize("name", PROPERTIES)
def test_one_place_of_one_seed_is_enough_against_a_property(name):
    both = [finding(), BAD[name]]
    assert verdicts(both, yes=True) == dict.fromkeys(PROPERTIES, "holds") | {name: "fails"}
    assert verdicts(both, yes=False) == dict.fromkeys(PROPERTIES, "not seen") | {name: "shown"}


@pytest.mark.parametrize(
    ("name", "worst"), list(zip(PROPERTIES, [0.1, -0.1, -0.1, -0.1, 0.3], strict=True))
)
def test_the_worst_number_is_kept(name, worst):
    found = {claim.name: claim for claim in claims([BAD[name], finding()], printed(True), 1e-3)}
    assert found[name].worst == worst


@pytest.mark.parametrize("losses", [STILL_FALLING, HARDLY_BEGUN])
def test_a_loss_that_still_falls_leaves_the_limit_open(losses):
    assert verdicts([finding(), finding(losses=losses)], yes=True)[ZERO] == "open"
    assert verdicts([finding(), finding(losses=losses)], yes=False)[ZERO] == "open"


def test_tables_have_a_row_for_each_clipping_and_each_claim():
    findings = [finding(), finding(label="other", losses=STANDING), finding(seed=1)]
    found = claims(findings, printed(True, ("some", "other")), 1e-3)
    top, numbers, besides = grids(found, findings)
    assert top.rows == (("some", *["yes: holds"] * 5), ("other", *["yes: holds"] * 4, "yes: fails"))
    assert len(numbers.rows) == 10
    assert [row[:5] for row in besides.rows] == [
        ("some", "0", "4", "1", "0.0001"),
        ("other", "0", "4", "1", "0.3"),
        ("some", "1", "4", "1", "0.0001"),
    ]
    assert all(len(row) == len(grid.head) for grid in (top, numbers, besides) for row in grid.rows)
    lines = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert lines[-1] == {
        "clipping": "other", "property": ZERO, "published": "yes", "worst": "0.3",
        "unit": "largest last loss / first loss", "verdict": "fails",
    }  # fmt: skip


def test_how_often_the_loss_rose_is_counted_in_places():
    (line,) = grids(claims([BAD[MONOTONE]], printed(True), 1e-3), [BAD[MONOTONE]])[2].rows
    assert line[5] == "20.0%"


def test_the_summary_counts_in_plain_english_and_names_what_fails():
    def said(findings, yes):
        return summary(claims(findings, printed(yes), 1e-3))

    assert said([finding()], True) == "5 claims: 5 hold."
    assert said([BAD[ZERO]], True) == "5 claims: 4 hold, 1 fails (some: zero loss)."
    assert said([BAD[MONOTONE], BAD[ZERO]], True) == (
        "5 claims: 3 hold, 2 fail (some: monotone loss, some: zero loss)."
    )
    assert said([BAD[ZERO]], False) == "5 claims: 1 shown, 4 not seen."
    (one,) = claims([finding()], printed(True), 1e-3)[:1]
    assert summary([one]) == "1 claim: 1 holds."
