"""What a check found, in one sentence."""

from typing import NamedTuple

from dpbench.runs.records.epsilon import REFUTED

PASSED, FLAGGED, SKIPPED = "passed", "flagged", "not checked"


class Finding(NamedTuple):
    """A verdict (REFUTED: the claim is false; FLAGGED: see for yourself), and why."""

    verdict: str
    sentence: str = ""


def refuted(sentence: str) -> Finding:
    """The claim is false."""
    return Finding(REFUTED, sentence)


def flagged(sentence: str) -> Finding:
    """This is wrong, or costs accuracy, but the claim may hold."""
    return Finding(FLAGGED, sentence)


def skipped(sentence: str) -> Finding:
    """The check says nothing of such code."""
    return Finding(SKIPPED, sentence)


NOTHING = Finding(PASSED)
