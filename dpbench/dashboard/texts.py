"""The records' own texts, packed into the page for as long as there is room."""

import base64
import json
import zlib

from dpbench.dashboard.summarise import written
from dpbench.records.record import Record

ROOM = 1_500_000
"""Packed bytes: of some hundred records with long histories, or some thousand with short ones."""

GZIP = 31
"""How zlib is told to write gzip's format, which browsers unpack."""


class Texts:
    """A JSON object of texts by digest. Of records that come when there is no room left, the page
    only says in which file they are."""

    def __init__(self, room: int = ROOM):
        self._room, self._packer = room, zlib.compressobj(9, zlib.DEFLATED, GZIP)
        self._packed = bytearray(self._packer.compress(b"{"))
        self._between = ""

    def add(self, digest: str, record: Record) -> None:
        """Pack a record, if there is room."""
        if len(self._packed) < self._room:
            entry = f"{self._between}{json.dumps(digest)}: {json.dumps(written(record))}"
            self._packed += self._packer.compress(entry.encode())
            self._between = ","

    def packed(self) -> str:
        """Gzip in base 64. To be called once."""
        self._packed += self._packer.compress(b"}") + self._packer.flush()
        return base64.b64encode(self._packed).decode()
