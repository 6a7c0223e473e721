"""The records themselves, packed into the page up to a size."""

import base64
import json
import zlib

import msgspec

from dpbench.runs.records.collect import StoredRecord

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
