"""The committed table of audits as rows of the page, which draws them beside audited records."""

import csv
from pathlib import Path

from dpbench.comparison.dashboard.documents import AUDIT, text_in
from dpbench.comparison.dashboard.privacy import SHOWN
from dpbench.comparison.dashboard.values import finite_number
from dpbench.runs.records.epsilon import REFUTED, rounded_up
from dpbench.runs.records.folder import TABLES

BOUNDS = ("audited (own family)", "audited (GDP)", "audited (one run)")
"""The columns of lower bounds, the first of which counts where it has one."""


def audited(folder: Path) -> list[dict]:
    """A row for each line of `tables/audit.csv` with a claim and a bound."""
    lines = csv.DictReader(text_in(folder / TABLES / f"{AUDIT}.csv").splitlines())
    return [row for line in lines if (row := _row(line))]


def _row(line: dict[str, str]) -> dict | None:
    claimed, *found = (finite_number(line.get(name) or "") for name in ("claimed", *BOUNDS))
    bound = next((number for number in found if number is not None), None)
    if claimed is None or bound is None:
        return None
    return {
        "id": None,
        "method": line["method"],
        "name": f"{line['method']}, {line['attacked']}",
        "seed": "–",
        "axis": dict.fromkeys(SHOWN, claimed),
        "epsilon": dict.fromkeys(SHOWN, f"{rounded_up(claimed)} by {line['by']}"),
        "audit": {"epsilon": bound, "refuted": claimed if line["verdict"] == REFUTED else None},
    }
