"""The records of a results folder, and what lies there that is none."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from dpbench.errors import UserError
from dpbench.results import SCHEMA, Record

REQUIRED = ("config", "metrics", "privacy", "provenance", "status")


@dataclass(frozen=True)
class Found:
    """A record, and the file it comes from, as a path within the results folder."""

    record: Record
    source: str


@dataclass(frozen=True)
class Unreadable:
    """A file, or a line of one, that gave nothing, and why."""

    source: str
    why: str


@dataclass(frozen=True)
class Collected:
    """The records by digest, each once, and what could not be read."""

    found: tuple[Found, ...]
    unreadable: tuple[Unreadable, ...]


def collect(folder: Path) -> Collected:
    """What `runs/*.json` and `tables/*.records.jsonl` hold; where both have a run, the former.

    Raises UserError where there is no such folder, or no record in it.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: set results_dir to where the records are.")
    read = [*_runs(folder), *_tables(folder)]
    by_digest: dict[str, Found] = {}
    for one in read:
        if isinstance(one, Found):
            by_digest.setdefault(one.record.digest, one)
    unreadable = tuple(one for one in read if isinstance(one, Unreadable))
    if not by_digest:
        raise UserError(_nothing(folder, unreadable))
    return Collected(tuple(by_digest[key] for key in sorted(by_digest)), unreadable)


def _nothing(folder: Path, unreadable: tuple[Unreadable, ...]) -> str:
    broken = f" but {_first(unreadable)}" if unreadable else ""
    return (
        f"there is no record in {folder}{broken}: make one with dpbench run, or set results_dir "
        "to where the records are."
    )


def _first(unreadable: tuple[Unreadable, ...]) -> str:
    return f"{len(unreadable)} that cannot be read, as {unreadable[0].source}"


def _runs(folder: Path) -> Iterator[Found | Unreadable]:
    for path in sorted((folder / "runs").glob("*.json")):
        source = f"runs/{path.name}"
        text = _text(path)
        yield text if isinstance(text, Unreadable) else parse(text, source)


def _tables(folder: Path) -> Iterator[Found | Unreadable]:
    for path in sorted((folder / "tables").glob("*.records.jsonl")):
        source = f"tables/{path.name}"
        text = _text(path)
        if isinstance(text, Unreadable):
            yield text
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield parse(line, f"{source}, line {number}")


def _text(path: Path) -> str | Unreadable:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        return Unreadable(f"{path.parent.name}/{path.name}", f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return Unreadable(f"{path.parent.name}/{path.name}", "is no text")


def parse(text: str, source: str) -> Found | Unreadable:
    """The record that a text is, or why it is none."""
    try:
        plain = json.loads(text)
    except json.JSONDecodeError as error:
        return Unreadable(source, f"is not whole: {error.msg.lower()} at character {error.pos}")
    except (ValueError, RecursionError):
        return Unreadable(source, "is no JSON that can be read")
    fault = _fault(plain)
    return Unreadable(source, fault) if fault else Found(Record(**plain), source)


def _fault(plain: object) -> str | None:
    """Why a parsed JSON is no record of this version, or None."""
    if not isinstance(plain, dict):
        return "is no record: not an object"
    if (schema := plain.get("schema")) != SCHEMA:
        return f"is of schema {schema!r:.20}, and this version reads {SCHEMA}"
    if missing := [name for name in REQUIRED if name not in plain]:
        return f"is no record: it has no {missing[0]}"
    if unknown := sorted(plain.keys() - {field.name for field in fields(Record)}):
        return f"is from another version: {unknown[0]!r:.40} is unknown here"
    return next((why for fits, why in _expectations(plain) if not fits), None)


def _expectations(plain: dict) -> Iterator[tuple[bool, str]]:
    """What the page relies on, in an order in which each may rely on those before it."""
    for name in ("config", "metrics", "privacy", "provenance", "history", "diagnostics"):
        yield isinstance(plain.get(name, {}), dict), f"is no record: its {name} are no object"
    yield isinstance(plain["status"], str), "is no record: its status is no text"
    config, privacy = plain["config"], plain["privacy"]
    for name in ("choices", "method"):
        yield isinstance(config.get(name), dict), f"is no record: config has no {name}"
    for name in ("dataset", "model", "method"):
        chosen = config["choices"].get(name)
        yield isinstance(chosen, str), f"is no record: config.choices names no {name}"
    yield type(config.get("seed")) is int, "is no record: config has no seed"
    yield all(map(_is_number, plain["metrics"].values())), "is no record: a metric is no number"
    yield isinstance(privacy.get("guarantee"), str), "is no record: privacy has no guarantee"
    yield _is_calibration(plain.get("calibration", {})), "is no record: its calibration is broken"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_calibration(kept: object) -> bool:
    """Whether there is nothing, or bins of as many counts, confidences and accuracies."""
    if not isinstance(kept, dict) or not kept:
        return kept == {}
    bins = kept.get("bins")
    columns = [bins.get(n) if isinstance(bins, dict) else None for n in BIN_COLUMNS]
    lists = [column for column in columns if isinstance(column, list)]
    same = len(lists) == len(columns) and len({len(column) for column in lists}) == 1
    return same and all(_is_number(value) for column in lists for value in column)


BIN_COLUMNS = ("count", "confidence", "accuracy")
