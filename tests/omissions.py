"""What a run of the tests leaves out, and how to get it."""

from collections import Counter


def extra(name):
    """Why a test is skipped that needs an optional dependency of dpbench."""
    return f".venv/bin/pip install -c constraints.txt -e '.[{name}]' has not been run"


def omissions(reports):
    """One line about skipped tests: how many there are, and how many for each reason, most first.

    A reason says how to get what is missing.
    """
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    said = (f"{count}: {reason}" for reason, count in reasons.most_common())
    return f"skipped {reasons.total()} tests ({'; '.join(said)})"
