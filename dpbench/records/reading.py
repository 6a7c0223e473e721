"""Records as they are read: believed only where they are whole, well-formed and their own."""

import json
import os
import warnings
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from dpbench.records.digest import digest
from dpbench.records.record import SCHEMA, Record, checksum


class Unreadable(NamedTuple):
    """A file, or a line of one, that gave no record, and why."""

    source: str
    why: str


class ChosenOptions(msgspec.Struct):
    """The option chosen in each group that names a run."""

    dataset: str
    model: str
    method: str


class Config(msgspec.Struct):
    """What everything that reads a record relies on of its configuration."""

    choices: ChosenOptions
    method: dict
    seed: int | None  # None where the record was published


class PrivacyStatement(msgspec.Struct):
    """The statement of a ledger; see `dpbench.training.budget.statement`."""

    guarantee: Literal["proven", "approximate", "none"]
    why: str
    delta: float
    noise_multiplier: float
    steps: int
    ledger: list[dict]
    rdp: float | None
    pld: float | None
    gdp: float | None
    claimed: float | None
    note: float | None = None


class BinColumns(msgspec.Struct):
    """Of a reliability diagram: three columns of one length."""

    count: list[int]
    confidence: list[float]
    accuracy: list[float]

    def __post_init__(self) -> None:
        if not len(self.count) == len(self.confidence) == len(self.accuracy):
            raise ValueError("columns of different lengths")


class Histogram(msgspec.Struct):
    """Examples per cell."""

    confidence: list[int]
    true_class: list[int]


class Calibration(msgspec.Struct):
    """See `dpbench.metrics.reliability`."""

    bins: BinColumns | None = None
    histogram: Histogram | None = None
    interval: dict[str, float | tuple[float, float]] = {}
    temperature: dict[str, float | str] = {}


class RecordSchema(msgspec.Struct, forbid_unknown_fields=True):
    """What a record must be for this version to read it; see `dpbench.records.record.Record`."""

    config: Config
    metrics: dict[str, float]
    privacy: PrivacyStatement
    provenance: dict
    status: Literal["complete", "diverged"]
    schema: int
    history: dict[str, list[float]] = {}
    diagnostics: dict[str, list[float]] = {}
    calibration: Calibration | None = None
    covered: dict[str, bool] = {}


def load(path: Path) -> Record | None:
    """The record at a path, or None if there is none that is whole, of this schema and of the run
    that the path names."""
    found = read(path)
    return found if isinstance(found, Record) else None


def read(path: Path) -> Record | Unreadable:
    """The record `<digest>.json`, or why it is none."""
    text = text_of(path)
    record = parse(text, path.name) if isinstance(text, str) else text
    if isinstance(record, Record) and record.digest != path.stem:
        return Unreadable(path.name, f"is the record of another run, {record.digest}")
    return record


def text_of(path: Path) -> str | Unreadable:
    """What a regular file holds; nothing else is opened, as a pipe would never end."""
    try:
        if not path.is_file():
            return Unreadable(path.name, "is no file")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        return Unreadable(path.name, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return Unreadable(path.name, "is no text")


def parse(text: str, source: str) -> Record | Unreadable:
    """The record that a text is, or why it is none."""
    try:
        plain = json.loads(text)
        return _record(plain, source)
    except json.JSONDecodeError as error:
        return Unreadable(source, f"is not whole: {error.msg.lower()} at character {error.pos}")
    except msgspec.ValidationError as error:
        return Unreadable(source, f"is no record: {error}"[:200])
    except (ValueError, RecursionError):
        return Unreadable(source, "is no JSON that can be read")


def _record(plain: object, source: str) -> Record | Unreadable:
    if not isinstance(plain, dict):
        return Unreadable(source, "is no record: not an object")
    if (schema := plain.get("schema")) != SCHEMA:
        return Unreadable(source, f"is of schema {schema!r:.20}, and this version reads {SCHEMA}")
    signed = "checksum" in plain
    if signed and plain.pop("checksum") != checksum(plain):
        return Unreadable(source, "is damaged: its checksum is of another content")
    msgspec.convert(plain, RecordSchema)
    record = Record(**plain, signed=signed)
    digest(record.config)  # which raises for a configuration that cannot be named
    return record


def set_aside_invalid(path: Path) -> None:
    """Warn of an invalid file at a record's path, and set aside one of another schema.

    A damaged file is left to be overwritten. A record of another schema may be all that is left of
    a long run, and is renamed to `DIGEST.json.schemaN`.
    """
    if not path.exists() or isinstance(found := read(path), Record):
        return
    schema = _schema(path)
    if schema in (None, SCHEMA):
        warnings.warn(f"the record {path} {found.why}: its run is made again.", stacklevel=2)
        return
    aside = path.with_name(f"{path.name}.schema{schema}")
    os.replace(path, aside)
    warnings.warn(
        f"the record {path} is of schema {schema} and not {SCHEMA}: it is kept as {aside.name} and "
        "its run is made again.",
        stacklevel=2,
    )


def _schema(path: Path) -> int | None:
    text = text_of(path)
    try:
        schema = json.loads(text)["schema"] if isinstance(text, str) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return schema if isinstance(schema, int) else None
