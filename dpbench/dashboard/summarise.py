"""From records to what the page compares: one row per run, and how runs belong together."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

import dpbench
from dpbench.dashboard import metrics, privacy
from dpbench.dashboard.settings import differences, group_of, series_of
from dpbench.errors import UserError
from dpbench.records.collect import Found
from dpbench.records.divergence import dropped
from dpbench.records.reading import Unreadable
from dpbench.records.record import Record

LEVEL = 0.95


class Summary:
    """Everything the page shows but the records' own text.

    It grows record by record, and keeps no record: there may be more of them than memory holds.
    command: as of `commands`.
    """

    def __init__(self, command: Callable[[dict], str]):
        self._command = command
        self._rows: list[dict] = []
        self._kinds: dict[str, dict[str, str]] = {}
        # By what is drawn alike, one configuration of each series.
        self._series: dict[tuple, dict[str, dict]] = defaultdict(dict)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, found: Found) -> None:
        """One row more."""
        record = found.record
        row = _row(found) | self._kind(record.config) | _command(record.config, self._command)
        self._series[row["facet"], row["method"]].setdefault(row["series"], record.config)
        self._rows.append(row)

    def _kind(self, config: dict) -> dict[str, str]:
        """What runs that differ by their seed alone have in common."""
        name = json.dumps({**config, "seed": None}, sort_keys=True)
        if name not in self._kinds:
            self._kinds[name] = {"group": group_of(config), "series": series_of(config)}
        return self._kinds[name]

    def data(self, tables: list[dict], unreadable: Sequence[Unreadable]) -> dict:
        """Plain JSON without NaN. To be called once, when all records are there."""
        self._tell_apart()
        names = metrics.sorted_names({name for row in self._rows for name in row["metrics"]})
        for row in self._rows:
            row["metrics"] = [_plain(row["metrics"].get(name)) for name in names]
        self._rows.sort(key=_place)
        return {
            "version": dpbench.__version__,
            "level": LEVEL,
            "t": _student(len(self._rows)),
            "metrics": [metrics.metric_entry(name) for name in names],
            "accountants": privacy.ACCOUNTANTS,
            "rows": self._rows,
            "tables": tables,
            "unreadable": [[one.source, one.why] for one in unreadable],
        }

    def _tell_apart(self) -> None:
        """Give each row the settings in which its series is unlike others of the same name."""
        said = {
            (*key, name): words
            for key, series in self._series.items()
            for name, words in zip(series, differences([*series.values()]), strict=True)
        }
        for row in self._rows:
            row["settings"] = said[row["facet"], row["method"], row["series"]]


def _place(row: dict) -> tuple:
    """By what stands together, then by budget, what has none last."""
    epsilon = row["axis"]["pld"]
    budget = (1, 0.0) if isinstance(epsilon, str) else (0, epsilon)
    names = (row[name] for name in ("facet", "method", "settings"))
    return *names, budget, row["group"], int(row["seed"])


def _row(found: Found) -> dict:
    record, config = found.record, found.record.config
    choices, said = config["choices"], privacy.statement(record.privacy)
    return {
        "id": found.digest,
        **{name: choices[name] for name in ("dataset", "model")},
        "method": _label(config),
        "seed": str(config["seed"]),
        "status": record.status,
        "dropped": dropped(record),
        "facet": _facet(choices, said["adjacency"]),
        **said,
        **_cost(record, said["steps"]),
        "bins": _bins(record.calibration),
        "metrics": record.measured,
        "source": found.source,
    }


def _command(config: dict, command: Callable[[dict], str]) -> dict[str, str | None]:
    """The command that makes a record again, or why none is shown."""
    try:
        return {"command": command(config), "no_command": None}
    except UserError as reason:
        return {"command": None, "no_command": str(reason)}


def _label(config: dict) -> str:
    variant = config["method"].get("variant", "corrected")
    name = config["choices"]["method"]
    return name if variant == "corrected" else f"{name} ({variant})"


def _facet(choices: dict, adjacency: str) -> str:
    """What a picture holds: epsilons of another adjacency cannot stand on the same axis."""
    said = f"{choices['dataset']} · {choices['model']}"
    return said if adjacency == privacy.ADJACENCY else f"{said} · {adjacency}"


def _cost(record: Record, steps: float | None) -> dict:
    """Milliseconds per step over the whole run, where it ran, and how."""
    seconds = record.provenance.get("seconds")
    timed = isinstance(seconds, int | float) and math.isfinite(seconds)
    ran, batch = record.provenance, record.config.get("batch_size")
    how = {
        "engine {}": ran.get("engine"),
        "physical batches of {}": ran.get("physical_batch_size"),
        "{}": ran.get("precision", "float32"),
        "{} thread(s)": ran.get("threads"),
        "diagnostics: {}": record.config["choices"].get("diagnostics", "none"),
    }
    return {
        "ms": 1000 * float(seconds or 0) / steps if timed and steps else None,
        "machine": f"{ran.get('device')} · batches of {batch}",
        "how": [text.format("?" if value is None else value) for text, value in how.items()],
    }


def _bins(calibration: dict) -> list[list[float]] | None:
    """Per bin: examples, sum of confidences, sum of right answers, so that runs can be added."""
    if not calibration:
        return None
    columns = (calibration["bins"][name] for name in ("count", "confidence", "accuracy"))
    return [
        [count, _short(count * confidence), _short(count * accuracy)] if count else [0, 0, 0]
        for count, confidence, accuracy in zip(*columns, strict=True)
    ]


def _student(most: int) -> list[float]:
    """The two-sided quantile of Student's t for 1, 2, ... degrees of freedom, as scipy has it."""
    from scipy import stats

    freedom = np.arange(1, max(2, most))
    return [_short(value) for value in stats.t.ppf((1 + LEVEL) / 2, freedom).tolist()]


def _plain(value: float | None) -> float | str | None:
    """JSON has no NaN: what is not finite goes as a word, what was not measured as null."""
    if value is None or math.isfinite(value):
        return value if value is None else _short(value)
    return str(float(value))


def _short(value: float) -> float:
    """Seven digits, which is what float32 has, and more than a picture shows."""
    return float(f"{value:.7g}")


def written(record: Record) -> str:
    """A record as indented JSON, its lists on one line each; NaN and Infinity as they are."""
    return _indented(json.loads(record.json()), "")


def _indented(node: object, margin: str) -> str:
    if not isinstance(node, dict) or not node:
        return json.dumps(node, ensure_ascii=False)
    inner = margin + "  "
    lines = (f"{inner}{json.dumps(k)}: {_indented(v, inner)}" for k, v in node.items())
    return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
