"""Reads records, if they are complete, of this schema, and of the run that their name says."""

import functools
import json
import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec

from dpbench.learning.metrics.registry import NOISY_ACCURACY, REGISTRY, parse_name
from dpbench.privacy.statement import Statement
from dpbench.runs.records.record import SCHEMA, Record, checksum, sha256
from dpbench.system.errors import UserError, warn

T = TypeVar("T")

MAX_BYTES = 2**28
"""The most bytes of a file of records, a thousand times those of a long run: a sparse file of any
size costs nothing on disk, and ten times its size in memory."""


class Unreadable(NamedTuple):
    """A file, or a line of one, that is not a valid record. reason: the end of a sentence.
    other_version: whether another version of dpbench may read it."""

    source: str
    reason: str
    other_version: bool = False

    @property
    def way_out(self) -> str:
        """The end of the sentence in a command that needs the record."""
        if self.other_version:
            return ": read it with the version of dpbench that wrote it, or leave it out."
        return ": copy it again from where it was made, or leave it out."


ADJACENCIES = ("add or remove one ", "zero out one ")
"""How statements of ours begin to say what adjacent data sets differ by."""

ROUNDING = 1e-6
"""By which a mean in float32 may exceed 1."""

MAX_DEPTH = 40
"""The most nested brackets of a record: deeper ones exceed what Python's own readers bear."""

Name = Annotated[str, msgspec.Meta(pattern=r"^(?!\.{0,2}$)[^/\\\x00-\x1f]{1,255}$")]
"""A single component of a path: trackers name folders by the options of a record."""

PartSettings = dict[str, object]


class ChosenOptions(msgspec.Struct):
    """The options chosen in the groups that are in the digest."""

    dataset: Name
    model: Name
    method: Name


class Config(msgspec.Struct):
    """The fields of a configuration that readers of records rely on."""

    choices: ChosenOptions
    method: PartSettings
    seed: int | None  # None in published records
    dataset: PartSettings = {}
    model: PartSettings = {}
    privacy: PartSettings | None = None
    epochs: int = 1
    batch_size: int | None = None
    validation: float | None = None


class Provenance(msgspec.Struct):
    """The fields of a provenance that are computed with."""

    seconds: float | None = None
    peak_memory_mib: float | None = None
    threads: int | None = None
    physical_batch_size: int | None = None
    built: dict[str, dict[str, str]] = {}
    metrics: dict[str, str] = {}


BinCount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class BinColumns(msgspec.Struct):
    """The bins of a reliability diagram: three columns of one length."""

    count: list[BinCount]
    confidence: list[float]
    accuracy: list[float]

    def __post_init__(self) -> None:
        if not len(self.count) == len(self.confidence) == len(self.accuracy):
            raise ValueError("columns of different lengths")


class HistogramCounts(msgspec.Struct):
    """Numbers of examples per cell."""

    confidence: list[BinCount]
    true_class: list[BinCount]


class Calibration(msgspec.Struct):
    """See `dpbench.metrics.reliability`."""

    bins: BinColumns
    histogram: HistogramCounts
    interval: dict[str, float | tuple[float, float]] = {}
    temperature: dict[str, float | str] = {}


class RecordSchema(msgspec.Struct):
    """The schema of records that this version reads; see `dpbench.records.record.Record`."""

    config: Config
    metrics: dict[str, float]
    privacy: Statement
    provenance: Provenance
    status: Literal["complete", "diverged"]
    schema: int
    history: dict[str, list[float]] = {}
    diagnostics: dict[str, list[float]] = {}
    calibration: Calibration | msgspec.UnsetType = msgspec.UNSET
    covered: dict[str, bool] = {}

    def __post_init__(self) -> None:
        if not 0 < (delta := self.privacy["delta"]) < 1:
            raise ValueError(f"delta {delta} is not between 0 and 1")
        if not self.privacy.get("adjacency", ADJACENCIES[0]).startswith(ADJACENCIES):
            raise ValueError("another adjacency than ours, whose epsilons cannot be compared")
        for name, value in self.metrics.items():
            if _is_fraction(name) and (value < 0 or value > 1 + ROUNDING):
                raise ValueError(f"{name} {value} is not between 0 and 1")


@functools.cache
def _is_fraction(name: str) -> bool:
    """Whether a metric of ours is a share of examples or the like, shown in percent; noise may take
    it beyond."""
    base = parse_name(name).base
    return base in REGISTRY and REGISTRY[base].unit == "percent" and name != NOISY_ACCURACY


def load(path: Path) -> Record | None:
    """The record `<digest>.json`, or None if there is no valid one."""
    entry = read(path)
    return entry if isinstance(entry, Record) else None


def read(path: Path, source: str = "") -> Record | Unreadable:
    """The record `<digest>.json`, or why it is not valid. source: what the file is called, by
    default its name."""
    source, text = source or path.name, text_of(path)
    if isinstance(text, Unreadable):
        return text._replace(source=source)
    record = parse(text, source)
    if isinstance(record, Record) and record.digest != path.stem:
        return Unreadable(source, f"is the record of another run, {record.digest}")
    return record


def text_of(path: Path) -> str | Unreadable:
    """The text of a regular file; nothing else is opened, as reading a pipe may never end."""
    try:
        if not path.is_file():
            return Unreadable(path.name, "is not a regular file")
        if path.stat().st_size > MAX_BYTES:
            return Unreadable(path.name, f"has more than {MAX_BYTES // 2**20} MiB, and is not read")
        return path.read_bytes().decode()  # in half the time of read_text
    except OSError as error:
        return Unreadable(path.name, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return Unreadable(path.name, "is not UTF-8 text")


def required(found: T | Unreadable, path: Path, way_out: str = ".") -> T:
    """What was read from a file; UserError, with the end of its sentence, where nothing was."""
    if isinstance(found, Unreadable):
        raise UserError(f"{path} {found.reason}{way_out}")
    return found


def parse(text: str, source: str) -> Record | Unreadable:
    """The record in a text, or why it is not valid."""
    try:
        return _validate(json.loads(text), text, source)
    except json.JSONDecodeError as error:
        what = error.msg.lower().removesuffix(" at")  # as of a string that is cut off
        return Unreadable(source, f"is not JSON: {what} at character {error.pos}")
    except msgspec.ValidationError as error:
        return Unreadable(source, f"is not a record: {error}"[:200])
    except (ValueError, RecursionError):
        return Unreadable(source, "is not JSON that Python can parse")
    except (AttributeError, KeyError, TypeError) as error:  # of a configuration without a digest
        return Unreadable(source, f"is not a record: {type(error).__name__} in its digest")


def _validate(plain: object, text: str, source: str) -> Record | Unreadable:
    if not isinstance(plain, dict):
        return Unreadable(source, "is not a record: not an object")
    if (schema := plain.get("schema")) != SCHEMA:
        reason = f"is of schema {schema!r:.20}, and this version reads {SCHEMA}"
        return Unreadable(source, reason, isinstance(schema, int))
    if _is_deeper(plain, MAX_DEPTH):
        return Unreadable(source, f"is not a record: more than {MAX_DEPTH} nested brackets")
    if "\\ud" in text.lower():
        json.dumps(plain, ensure_ascii=False).encode()  # raises for half a character
    signed = "checksum" in plain
    if signed and not _has_checksum(plain, text, plain.pop("checksum")):
        return Unreadable(source, "is damaged: its checksum does not match")
    if not signed and plain.get("covered"):  # the first records have neither
        return Unreadable(source, "is damaged: it has no checksum")
    if unknown := sorted(plain.keys() - {*RecordSchema.__struct_fields__}):
        reason = f"has the field {unknown[0]!r:.40}, which this version of dpbench does not know"
        return Unreadable(source, f"{reason}; if a later one wrote it, update dpbench", True)
    msgspec.convert(plain, RecordSchema)
    msgspec.convert(plain["config"]["choices"], dict[str, Name])
    record = Record(**plain, signed=signed, source=source)
    _ = record.digest  # raises for a configuration without a digest
    return record


def _is_deeper(node: dict | list, depth: int) -> bool:
    level = [node]
    while level and depth:
        contents = (node.values() if isinstance(node, dict) else node for node in level)
        level = [part for parts in contents for part in parts if isinstance(part, dict | list)]
        depth -= 1
    return bool(level)


def _has_checksum(plain: dict, text: str, expected: object) -> bool:
    """Whether a record, given without its checksum field, has the expected checksum. The text of a
    record as we write it, less the checksum, is what was hashed: it is tried first, as that is
    faster than serialising the record."""
    hashed = text.strip().replace(f'"checksum": "{expected}", ', "", 1)
    return sha256(hashed) == expected or checksum(plain) == expected


def set_aside_invalid(path: Path) -> None:
    """Warn of an invalid file at a record's path: a damaged one is left to be overwritten; one of
    another version, maybe the only result of a long run, is renamed to `DIGEST.json.kept`."""
    if not path.exists() or isinstance(entry := read(path), Record):
        return
    kept = ""
    if entry.other_version:
        backup = path.with_name(f"{path.name}.kept")
        os.replace(path, backup)
        kept = f" it is kept as {backup.name}, and"
    warn(f"the record {path} {entry.reason}:{kept} the run is repeated.")
