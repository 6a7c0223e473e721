"""How often verdicts are given to comparisons whose truth is known, by simulation."""

from collections import Counter

import numpy as np

from dpbench.comparison.compare.claims import Gap, judge_claim
from dpbench.comparison.compare.pairs import gaps_of
from dpbench.comparison.compare.side import AT_EDGE, Side
from dpbench.comparison.compare.verdict import NO_DOUBTS, Doubts, judge
from dpbench.comparison.tables.runs import Row
from dpbench.learning.metrics.paired_t import paired_test

PAIRS = ("better", "worse", "equivalent", "undecided")
CLAIMS = ("holds", "holds within a margin", "no difference", "fails", "undecided")
EDGE = Doubts(worse=AT_EDGE, equivalent=AT_EDGE)
"""The doubts about a row that was tuned at the edge of its range."""


def drawn(truth, comparisons, seeds, repetitions):
    """Differences [repetition, comparison, seed] in margins, with a standard deviation of one."""
    generator = np.random.default_rng([comparisons, seeds])
    return generator.normal(truth, 1, (repetitions, comparisons, seeds))


def pairs_of(differences):
    """The share of repetitions with any better, and any worse, and of comparisons that are
    equivalent and undecided."""
    verdicts = [[j.verdict for j in judge([paired_test(c, 1) for c in rep])] for rep in differences]
    cells = Counter(verdict for found in verdicts for verdict in found)
    return {
        **{name: np.mean([name in found for found in verdicts]) for name in PAIRS[:2]},
        **{name: cells[name] / differences[..., 0].size for name in PAIRS[2:]},
    }


def claims_of(differences, at_edge=0):
    """The share of repetitions in which a claim of all comparisons has each word, on average or
    not. at_edge: the number of comparisons whose row was tuned at the edge of its range."""
    counts = Counter(_word(rep, at_edge) for rep in differences)
    return {word: counts[word] / len(differences) for word in CLAIMS}


def coverage(searches, seeds, luck, repetitions, by_search=True):
    """How often the 95% interval of the gap of two equal methods contains 0, and its mean width.

    luck: the standard deviation of a method's value between searches; that over seeds is one, half
    of its variance from the split that both methods share. by_search: as tables whose rows have
    several searches are judged; otherwise as if all seeds were independent.
    """
    generator = np.random.default_rng([searches, seeds])
    unit = (lambda seed: seed % searches) if by_search else int
    inside, width = 0, 0.0
    for _ in range(repetitions):
        split = generator.normal(0, 0.5**0.5, searches * seeds)
        sides = []
        for name in "ab":
            lucky = np.tile(generator.normal(0, luck, searches), seeds)
            values = lucky + split + generator.normal(0, 0.5**0.5, searches * seeds)
            runs = [
                {"seed": seed, "status": "complete", "test/accuracy": value}
                for seed, value in enumerate(values)
            ]
            sides.append(Side(name, Row("", name, "", runs, unit).compared("test/accuracy")))
        low, high = paired_test([*gaps_of(*(side.values for side in sides)).values()], 1).interval()
        inside += low <= 0 <= high
        width += (high - low) / repetitions
    return inside / repetitions, width


def _word(repetition, at_edge):
    gaps = [
        Gap(dict(enumerate(row)), doubts=EDGE if number < at_edge else NO_DOUBTS)
        for number, row in enumerate(repetition)
    ]
    return judge_claim(gaps)[0].word
