"""The records themselves, packed into the page up to a size, and what each says of its run."""

import base64
import json
import zlib

import msgspec

from dpbench.comparison.dashboard.privacy import SHOWN, bound_text
from dpbench.comparison.dashboard.values import DASH, delta_text
from dpbench.comparison.tables.grid import epsilon_text, number
from dpbench.runs.records.collect import StoredRecord
from dpbench.runs.records.divergence import NOT_FINITE, nonfinite_gradients
from dpbench.runs.records.record import Record

MAX_BYTES = 1_500_000
"""After compression: some hundred records with long histories, or thousands with short ones."""

GZIP = 31
"""The `wbits` that make zlib write gzip, which browsers decompress."""


class RecordTexts:
    """A JSON object that maps digests to records.

    Records beyond the limit are left out; the page names their files instead.
    """

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(4, zlib.DEFLATED, GZIP)
        self._bytes = bytearray(self._compressor.compress(b"{"))
        self._separator = b""
        self._kept = self._left_out = 0

    def add(self, stored: StoredRecord) -> None:
        """Compress a record, unless the limit is reached."""
        if len(self._bytes) >= MAX_BYTES:
            self._left_out += 1
        else:
            self._kept += 1
            entry = b'%s"%s":%s' % (self._separator, stored.digest.encode(), strict(stored.text))
            self._bytes += self._compressor.compress(entry)
            self._separator = b","

    def contained(self) -> str:
        """A sentence on which records the page contains whole."""
        if not self._left_out:
            return "This file contains full details of every run."
        return (
            f"This file contains full details of {self._kept:,} runs; of the other "
            f"{self._left_out:,} only metrics."
        )

    def finish(self) -> str:
        """The texts as gzip in base 64; to be called once."""
        self._bytes += self._compressor.compress(b"}") + self._compressor.flush()
        return base64.b64encode(self._bytes).decode()


NON_FINITE = {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}
"""What stands for the numbers that Python's json writes by names that JSON does not have."""


def strict(text: str) -> bytes:
    """A record as standard JSON: NaN becomes null, and Infinity a string."""
    return msgspec.json.encode(json.loads(text, parse_constant=NON_FINITE.get))


def facts(stored: StoredRecord, statement: dict, cost: dict) -> dict[str, str]:
    """statement: from `privacy.statement`. cost: of the row, in milliseconds per step."""
    guarantee = ". ".join(filter(None, (statement["guarantee"], statement["why"])))
    epsilons = epsilon_texts(statement)
    audit = statement["audit"]
    return {
        "epsilon": "; ".join(f"{SHOWN[name]}: {text}" for name, text in epsilons.items()),
        "guarantee": guarantee,
        "on the data": statement["notes"] or DASH,
        "δ": delta_text(statement["delta"]),
        "adjacency": statement["adjacency"],
        "holds in arithmetic": statement["arithmetic"],
        "status": _status(stored.record),
        "time": _time(cost, statement["steps"]),
        "audit": f"at least {bound_text(audit)}" if audit else "none",
        "file": stored.source,
    }


def epsilon_texts(statement: dict) -> dict[str, str]:
    """The epsilon by accountant, marked if it is only claimed, or the reason why there is none."""
    return {
        name: epsilon_text(value, statement["guarantee"])
        for name, value in statement["axis"].items()
    }


def _status(record: Record) -> str:
    count = nonfinite_gradients(record)
    return f"{record.status}; {count} {NOT_FINITE}" if count else record.status


def _time(cost: dict, steps: float | None) -> str:
    if cost["ms"] is None:
        return DASH
    settings = ", ".join((cost["machine"], *cost["execution"]))
    return f"{number(cost['ms'], None)} ms per step of {steps:g} steps; {settings}"
