"""The records' own texts, packed into the page for as long as there is room."""

import base64
import json
import zlib

from dpbench.dashboard.summarise import record_text
from dpbench.records.record import Record

ROOM = 1_500_000
"""Compressed bytes: some hundred records with long histories, or some thousand with short ones."""

GZIP = 31
"""The `wbits` that make zlib write gzip, which browsers decompress."""


class Texts:
    """A JSON object that maps digests to the records' texts.

    Records that come when there is no room left are not in it, and the page names their files.
    """

    def __init__(self, room: int = ROOM):
        self._room, self._compressor = room, zlib.compressobj(9, zlib.DEFLATED, GZIP)
        self._bytes = bytearray(self._compressor.compress(b"{"))
        self._separator = ""

    def add(self, digest: str, record: Record) -> None:
        """Compress a record's text, if there is room."""
        if len(self._bytes) < self._room:
            entry = f"{self._separator}{json.dumps(digest)}: {json.dumps(record_text(record))}"
            self._bytes += self._compressor.compress(entry.encode())
            self._separator = ","

    def finish(self) -> str:
        """Gzip in base 64. To be called once."""
        self._bytes += self._compressor.compress(b"}") + self._compressor.flush()
        return base64.b64encode(self._bytes).decode()
