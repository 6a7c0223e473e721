"""How often picked seeds make equal methods seem different: the rates in docs/verdicts.md."""

import re

import numpy as np
import pytest
from scipy import stats

from dpbench.comparison.compare.verdict import judge
from dpbench.learning.metrics.paired_t import paired_test
from dpbench.system.paths import conf_folder

REPETITIONS, RUN, SHOWN, MARGIN = 2000, 10, 3, 0.5

OURS = np.random.default_rng(0).normal(0, MARGIN, (REPETITIONS, RUN))
BASELINE = np.random.default_rng(1).normal(0, MARGIN, (REPETITIONS, RUN))
"""Accuracies of two equal methods, by repetition and seed."""

CHOSEN = {
    "the first three": np.tile(np.arange(SHOWN), (REPETITIONS, 1)),
    "all ten": np.tile(np.arange(RUN), (REPETITIONS, 1)),
    "the best three of ten of the new method": np.argsort(-OURS, axis=1)[:, :SHOWN],
    "the three of ten with the largest gains": np.argsort(BASELINE - OURS, axis=1)[:, :SHOWN],
}
"""The seeds that are shown, of both methods."""


def rates(seeds):
    """How often the new method seems better: by standard deviations that do not overlap, by a
    paired t-test, and by the verdict here."""
    rows = np.arange(REPETITIONS)[:, None]
    ours, others = OURS[rows, seeds], BASELINE[rows, seeds]
    apart = ours.mean(1) - ours.std(1, ddof=1) > others.mean(1) + others.std(1, ddof=1)
    t_test = (stats.ttest_rel(ours, others, axis=1).pvalue < 0.05) & (ours.mean(1) > others.mean(1))
    judged = [judge([paired_test(gains, MARGIN)])[0] for gains in ours - others]
    verdicts = [found.verdict == "better" for found in judged]
    return [f"{100 * np.mean(found):.1f}%" for found in (apart, t_test, verdicts)]


def printed():
    text = (conf_folder().parent / "docs" / "verdicts.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]+%) \| ([\d.]+%) \| ([\d.]+%) \|$", text, re.MULTILINE)
    return {name: rates for name, *rates in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_the_page_states_the_rates(name):
    assert printed()[name] == rates(CHOSEN[name])
