"""Numbers that are computed from records and tables: the sources `NAME.KIND` of a page."""

import csv
import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "results" / "tables"
PER_CENT = ("accuracy", "ece", "mce")


def records(name: str) -> list[dict]:
    lines = (TABLES / f"{name}.records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def rows(path: Path) -> list[dict[str, str]]:
    lines = path.read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def by_arm(name: str) -> dict[tuple, list[dict]]:
    """The records of each combination of data, method, bound and budget, in the order of seeds."""
    arms = defaultdict(list)
    for record in sorted(records(name), key=lambda r: r["config"]["seed"]):
        config = record["config"]
        key = (
            config["choices"]["dataset"],
            config["choices"]["method"],
            json.dumps(config["method"]),
            str(config["privacy"].get("epsilon")),
        )
        arms[*key, str((config["optimizer"] or {}).get("lr"))].append(record)
    return arms


def of_records(name: str) -> Iterator[tuple[float, str]]:
    """The mean and spread over seeds of what is tested, and the mean paired differences."""
    arms = {key: tested(runs) for key, runs in by_arm(name).items()}
    for (data, method, *_), curves in arms.items():
        for (metric, epoch), values in curves.items():
            words = f"{data} {method} {metric} {'last' if epoch is None else f'epoch {epoch}'}"
            yield float(np.mean(values)), words
            yield float(np.std(values, ddof=min(1, len(values) - 1))), f"{words} spread"
    for (first, a), (second, b) in itertools.permutations(arms.items(), 2):
        for key in a.keys() & b.keys() if first[0] == second[0] else ():
            if key[1] is None and len(a[key]) == len(b[key]):
                words = f"{first[0]} {key[0]} {first[1]}-less-{second[1]}"
                yield float(np.mean(np.subtract(a[key], b[key]))), words


def tested(runs: list[dict]) -> dict[tuple, list[float]]:
    """By metric, and epoch or None for the end: one value of each run, rates in per cent."""
    found = defaultdict(list)
    for run in runs:
        for metric in (*PER_CENT, "loss"):
            scale = 100 if metric in PER_CENT else 1
            found[metric, None].append(scale * run["metrics"][f"test/{metric}"])
            curve = run["diagnostics"].get(f"tested/{metric}", []) if metric == "accuracy" else []
            for epoch, value in enumerate(curve[1:], 1):
                found[metric, epoch].append(scale * value)
    return found


def along(name: str) -> Iterator[tuple[float, str]]:
    """By arm: the mean over all runs of the mean along a run of each diagnostic of steps."""
    for (_, method, *_), runs in by_arm(name).items():
        for key in runs[0]["diagnostics"]:
            if key.startswith("step/"):
                means = [np.nanmean(run["diagnostics"][key]) for run in runs]
                yield float(np.mean(means)), f"{method} {key.removeprefix('step/')}"


def rises(name: str) -> Iterator[tuple[float, str]]:
    """Of the training loss: in how many runs it rises somewhere, the median of the largest rises,
    the mean number of rises, and the largest rise of the mean curve."""
    for key, runs in by_arm(name).items():
        steps = np.array([np.diff(run["diagnostics"]["trained/loss"]) for run in runs])
        largest = steps.max(axis=1)
        words = f"{key[0]} {key[1]} {runs[0]['config']['method'].get('bound')}"
        yield float(sum(rise > 0 for rise in largest)), f"{words} count"
        yield float(np.median(largest)), f"{words} median"
        yield float(np.mean((steps > 0).sum(axis=1))), f"{words} number"
        yield float(steps.mean(axis=0).max()), f"{words} of the mean"


def gaps(name: str) -> Iterator[tuple[float, str]]:
    """Of published means: the gap of each row to `dpsgd`, and its spread if independent."""
    cells = rows(ROOT / "benchmarks" / f"{name}.csv")
    base = {(r["dataset"], r["epsilon"]): r for r in cells if r["method"] == "dpsgd"}
    for row in cells:
        other = base[row["dataset"], row["epsilon"]]
        words = f"{row['dataset']} {float(row['epsilon']):g} {row['method']}"
        yield float(row["value"]) - float(other["value"]), words
        if row["spread"]:
            yield math.hypot(float(row["spread"]), float(other["spread"])), f"{words} spread"


NAMES = {"the note's formula": "note", "at most (RDP)": "RDP", "at most (PLD)": "PLD"}


def account(name: str) -> Iterator[tuple[float, str]]:
    """Of the note's formula, RDP and PLD: each over each other, and its excess in per cent."""
    for row in rows(TABLES / f"{name}.csv"):
        values = {column: float(row[column]) for column in NAMES}
        for a_name, b_name in itertools.permutations(NAMES, 2):
            words = f"{row['run']} {NAMES[a_name]}-over-{NAMES[b_name]}"
            yield values[a_name] / values[b_name], f"{words} times"
            yield 100 * (values[a_name] / values[b_name] - 1), f"{words} excess"


def ratios(name: str) -> Iterator[tuple[float, str]]:
    """A step of each contender over one of `dpsgd`, or of `plain`: time and memory."""
    cells = [r for r in rows(ROOT / "results" / "step_cost" / f"{name}.csv") if r["ms"]]
    for base in (r for r in cells if r["contender"] in ("dpsgd", "plain")):
        for row in (r for r in cells if r["case"] == base["case"]):
            words = f"{row['case']} {row['contender']}-over-{base['contender']}"
            yield float(row["ms"]) / float(base["ms"]), f"{words} time"
            yield float(row["memory_mib"]) / float(base["memory_mib"]), f"{words} memory"


def off_table4(name: str) -> Iterator[tuple[float, str]]:
    """By how many points the accuracies by sex are off those of Table 4, at most."""
    theirs = {
        (r["method"], r["column"]): float(r["ours"])
        for r in rows(TABLES / "misalignment_table4.csv")
    }
    columns = {"male": "acc_a", "female": "acc_b"}
    differences = [
        abs(float(r["accuracy"]) - theirs[r["method"], columns[r["group"]]])
        for r in rows(TABLES / f"{name}.csv")
        if r["group"] in columns
    ]
    yield max(differences), "all"


def losses(name: str) -> Iterator[tuple[float, str]]:
    """By how much the mean test losses are off the mean training losses, at most."""
    differences = [
        abs(
            np.mean(
                [r["metrics"][f"test/loss/{g}"] - r["metrics"][f"train_set/loss/{g}"] for r in runs]
            )
        )
        for runs in by_arm(name).values()
        for g in ("male", "female")
    ]
    yield float(max(differences)), "all"


def differs(name: str) -> Iterator[tuple[float, str]]:
    """How many cells of each row differ from the published ones."""
    cells = rows(TABLES / f"{name}.csv")
    counts = Counter(r["method"] for r in cells if r["verdict"] == "differs")
    fairlens, printed = counts["fairlens"], sum(n for name, n in counts.items() if "lr 1" in name)
    yield float(fairlens), "cells that differ fairlens"
    yield float(printed), "cells that differ lr 1 as printed"
    yield float(counts.total() - fairlens - printed), "cells that differ other"


def least_loss(name: str) -> Iterator[tuple[float, str]]:
    """The least mean loss at a published accuracy: log 2 for each mistake."""
    for row in rows(ROOT / "benchmarks" / f"{name}.csv"):
        if row["column"].startswith("acc"):
            yield (1 - float(row["value"]) / 100) * math.log(2), f"{row['method']} {row['column']}"


def means(name: str) -> Iterator[tuple[float, str]]:
    """The means over both groups of what is published of each."""
    published = {
        (row["method"], row["column"]): float(row["value"])
        for row in rows(ROOT / "benchmarks" / f"{name}.csv")
    }
    for (method, column), value in published.items():
        kind, _, group = column.partition("_")
        if group == "a":
            yield (value + published[method, f"{kind}_b"]) / 2, f"{method} {kind}"


KINDS = {
    f.__name__: f
    for f in (along, rises, gaps, account, ratios, off_table4, losses, differs, least_loss, means)
} | {"records": of_records}
