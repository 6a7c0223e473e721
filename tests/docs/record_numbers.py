"""The numbers that a source gives: the files in results/ and benchmarks/ of one name.

A source is written `NAME`, `NAME.KIND` (computed: see derived_numbers.py) or either with
`[word other|another]`: only the numbers beside which all these words stand. The words of a
number are those of its row and what it is: `ours`, `spread`, `published`, `difference` (of ours and
the published), `A-less-B` (of two rows of a column), `column` and the name of its column, and of
the line of a figure `average`, `first`, `last`, `least`, `largest`, or `x` and where it is.
"""

import csv
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from tests.docs.derived_numbers import KINDS

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "results" / name for name in ("tables", "search", "step_cost")]
MANY = 100
NUMBER = re.compile(r"(?<![\w./-])[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w/]|\.\d|-\w)")
SOURCE = re.compile(r"([\w/-]+)(?:\.(\w+))?(?:\[(.*)\])?")


@dataclass(frozen=True)
class Given:
    """A number, the words beside it, and whether it is a spread or the difference of two rows."""

    value: float
    words: frozenset[str]
    spread: bool = False
    difference: bool = False


def given_by(value: float, text: str, **kind: bool) -> Given:
    """A number and its words, in small letters; the parts of a word with hyphens count as well."""
    words = re.findall(r"[\w*.-]+", text.lower())
    return Given(value, frozenset([*words, *(p for w in words for p in w.split("-"))]), **kind)


@cache
def names() -> tuple[str, ...]:
    """The names of all sources."""
    return tuple(path.stem for folder in FOLDERS for path in folder.glob("*.md"))


@cache
def given(source: str) -> tuple[Given, ...]:
    """The numbers of a source."""
    name, kind, words = SOURCE.fullmatch(source).groups()
    numbers = computed(name, kind) if kind else of_files(name)
    wanted = [set(word.split("|")) for word in (words or "").lower().split()]
    found = tuple(n for n in numbers if all(n.words & choice for choice in wanted))
    assert found, f"{source} gives no number"
    return found


@cache
def computed(name: str, kind: str) -> tuple[Given, ...]:
    return tuple(given_by(e, s, spread="spread" in s.split()) for e, s in KINDS[kind](name))


@cache
def of_files(name: str) -> tuple[Given, ...]:
    paths = [path for folder in FOLDERS for path in folder.glob(f"{name}.*")]
    paths += [path for path in [ROOT / "benchmarks" / f"{name}.csv"] if path.exists()]
    assert paths, f"no source {name}"
    return tuple(itertools.chain.from_iterable(map(of_file, paths)))


def of_file(path: Path) -> Iterator[Given]:
    if path.suffix == ".md":
        yield from of_page(path.read_text())
    elif path.suffix == ".csv":
        lines = (line for line in path.read_text().splitlines() if not line.startswith("#"))
        yield from of_rows(list(csv.DictReader(lines)))


def of_page(text: str) -> Iterator[Given]:
    """The numbers of the tables of a rendered page, and of the verdicts at its head."""
    heading, columns = "", []
    for line in text.partition("\n## Rules")[0].replace("\\|", "").splitlines():
        if line.startswith("#"):
            heading, columns = line, []
        elif line.startswith("- "):
            yield from of_text(line, f"{heading} {line}")
        elif line.startswith("|") and not columns:
            columns = line.split("|")
        elif line.startswith("|"):
            for column, cell in zip(columns, line.split("|"), strict=True):
                yield from of_text(cell, f"page {heading} {line} column {column}")


def of_text(text: str, words: str) -> Iterator[Given]:
    """The numbers in a text, but for the numbers of runs in brackets."""
    text = re.sub(r"\(\d+\)", "", text)
    for match in NUMBER.finditer(text):
        spread = text[: match.start()].rstrip().endswith("±")
        yield given_by(float(match[0].replace(",", "")), words, spread=spread)


def of_rows(rows: list[dict]) -> Iterator[Given]:
    keys = rows[0].keys() if rows else set()
    if {"line", "x", "mean"} <= keys:
        yield from of_lines(rows)
    elif "ours" in keys:
        yield from of_cells(rows)
    elif len(rows) < MANY:
        yield from of_columns(rows)


def of_columns(rows: list[dict]) -> Iterator[Given]:
    for row in rows:
        words = " ".join(v for v in row.values() if v and not v.startswith("ours, after"))
        for key, cell in row.items():
            if (value := number(cell)) is not None:
                rate = 100 if "accuracy" in key and value <= 1 else 1
                yield given_by(rate * value, f"{words} column {key}", spread=key == "spread")


def number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def of_lines(rows: list[dict]) -> Iterator[Given]:
    lines: dict[str, list[tuple[str, float]]] = {}
    for row in (row for row in rows if row["mean"]):
        words = " ".join(row.get(k, "") for k in ("condition", "panel", "method", "arm", "line"))
        lines.setdefault(words, []).append((row["x"], float(row["mean"])))
    for words, line in lines.items():
        values = [value for _, value in line]
        yield given_by(float(np.mean(values)), f"{words} average")
        yield given_by(values[0], f"{words} first")
        yield given_by(values[-1], f"{words} last")
        yield given_by(min(values), f"{words} least")
        yield given_by(max(values), f"{words} largest")
        for x, value in line:
            yield given_by(value, f"{words} x {x}")


def of_cells(rows: list[dict]) -> Iterator[Given]:
    for row in rows:
        words = f"{row.get('condition', '')} {row['method']} {row['column']}"
        for key in ("ours", "spread", "published", "published_spread", "difference"):
            if (value := number(row[key])) is not None:
                yield given_by(value, f"{words} {key}", spread="spread" in key)
    measured = [row for row in rows if number(row["ours"]) is not None]
    for a, b in itertools.permutations(measured, 2):
        if (a.get("condition"), a["column"]) == (b.get("condition"), b["column"]):
            words = f"{a.get('condition', '')} {a['column']} {a['method']}-less-{b['method']}"
            yield given_by(float(a["ours"]) - float(b["ours"]), words, difference=True)
