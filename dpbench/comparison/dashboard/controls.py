"""What the page offers to choose and to filter by, and how methods look in its pictures."""

from collections.abc import Iterable, Mapping, Sequence

from dpbench.comparison.dashboard import privacy
from dpbench.comparison.dashboard.sweeps import in_order
from dpbench.comparison.dashboard.values import arrowed
from dpbench.comparison.tables.figures.looks import looks
from dpbench.runs.records.epsilon import (
    NO_PROOF,
    NOT_COMPUTED,
    NOT_PRIVATE,
    OF_ITS_SEARCH,
    TOO_LITTLE_NOISE,
)

FILTERS = {
    "dataset": "Data set",
    "model": "Model",
    "method": "Method",
    "seed": "Seed",
    "status": "Status",
}
SCALES = {"dataset": "same for a data set", "all": "same for all", "own": "of each picture"}
REASONS = ("ε = 0", NOT_COMPUTED, NO_PROOF, OF_ITS_SEARCH, TOO_LITTLE_NOISE, NOT_PRIVATE)
"""What stands beside the axis of epsilon, in its order."""


def choices(metrics: Sequence[dict], swept: Sequence[dict]) -> dict[str, list[tuple[str, str]]]:
    """The values and texts of each choice, its default first.

    metrics: from `metric_entry`. swept: from `swept_settings`.
    """
    named = [(one["kind"], (one["name"], arrowed(one["title"], one["better"]))) for one in metrics]

    def of(*kinds: str) -> list[tuple[str, str]]:
        return [option for kind, option in named if kind in kinds]

    return {
        "metric": of("utility") + [option for kind, option in named if kind != "utility"],
        "calibration": of("calibration"),
        "fairness": of("fairness"),
        "accountant": [*privacy.SHOWN.items()],
        "axis": [
            ("epsilon", "ε"),
            *((one["name"], "seconds of a run") for one in metrics if one["name"] == "seconds"),
            *((s["name"], s["name"]) for s in swept if s["numeric"]),
        ],
        "scale": [*SCALES.items()],
        "show": [("best", "Best setting per method"), ("all", "All settings")],
        "theme": [("system", "◐ system"), ("light", "☀ light"), ("dark", "☾ dark")],
    }


def of_boards(boards: Iterable[dict]) -> dict[str, list[tuple[str, str]]]:
    """What chooses a board; the page decides where nothing is chosen."""
    names = ("board", "budget", "by")
    return {name: [("", ""), *((one[name], one[name]) for one in boards)] for name in names}


def colours(names: Mapping[str, str]) -> dict:
    """What to tick for a method to be in colour, as a filter that no run depends on."""
    return _filter("focus", "In colour", sorted(names), names, False)


def filters(rows: Sequence[dict], names: Mapping[str, str], swept: Iterable[dict]) -> list[dict]:
    """The filters, each with its name, label, and values with their texts.

    names: of methods, for display. Audits are about no data set and no model.
    """
    found = {name: sorted({r[name] for r in rows} - {None}, key=in_order) for name in FILTERS}
    texts = {"method": names}
    fixed = [
        _filter(name, FILTERS[name], found[name], texts.get(name, {}), False) for name in FILTERS
    ]
    return fixed + [_filter(s["name"], s["name"], s["values"], {}, True) for s in swept]


def _filter(
    name: str, label: str, values: Sequence[str], names: Mapping[str, str], swept: bool
) -> dict:
    options = [(value, names.get(value, value)) for value in values]
    return {"name": name, "label": label, "swept": swept, "options": options}


def page_looks(methods: Iterable[str]) -> dict[str, dict[str, str]]:
    """Colour, as a name of the style sheet, and marker of each method."""
    return {
        method: {"colour": f"c{look.colour}", "mark": look.mark}
        for method, look in looks(methods).items()
    }
