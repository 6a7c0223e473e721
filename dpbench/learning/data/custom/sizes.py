"""How large the user's own tables are, which is known before they are read."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from pandas.io.common import get_handle

from dpbench.system.errors import UserError, counted, first_line

MOST_COLUMNS, MOST_VALUES, MOST_BYTES = 20_000, 10**8, 2**30
"""The largest table that is read unasked: a value takes some 40 bytes at the peak, and a column
half a millisecond."""

CHUNK, LONGEST_LINE = 2**20, 2**26
"""Bytes: read at a time, and of a first line."""


class Size(NamedTuple):
    """The lines, columns and bytes of a table, unpacked, or of as much of it as is counted."""

    lines: int
    columns: int
    bytes: int

    @property
    def is_large(self) -> bool:
        values = self.lines * self.columns
        return self.columns > MOST_COLUMNS or values > MOST_VALUES or self.bytes > MOST_BYTES

    def check(self, what: str) -> None:
        """UserError for a table that is only read if the user says so. what: its setting."""
        if self.is_large:
            raise UserError(
                f"{what} has {counted(self.lines, 'row')} or more of "
                f"{counted(self.columns, 'column')}, "
                f"{self.bytes / 2**20:,.0f} MiB unpacked: set dataset.large=true to read more "
                f"than {MOST_COLUMNS:,} columns, {MOST_VALUES:,} values or "
                f"{MOST_BYTES / 2**20:,.0f} MiB on a machine with enough memory, or give fewer."
            )


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked as pandas does: by its ending. UserError for several files."""
    try:
        handles = get_handle(path, "rb", compression="infer", is_text=False)
    except (ValueError, KeyError, AssertionError) as error:  # of a tar with a link or a folder
        why = first_line(error, "what is in it is no file")
        raise UserError(
            f"{path} has other than one file in it ({why}): unpack it, and give the path of the "
            "table."
        ) from error
    with handles:
        yield handles.handle  # type: ignore[misc]


def size_of(path: Path, separator: str, whole: bool) -> Size:
    """The size of a CSV file; that of its beginning, unless it is asked for the whole, if the file
    is large."""
    with unpacked(path) as stream:
        first = stream.readline(LONGEST_LINE)
        columns, total, feeds, returns = first.count(separator.encode()) + 1, 0, 0, 0
        for chunk in itertools.chain([first], iter(lambda: stream.read(CHUNK), b"")):
            total += len(chunk)
            feeds, returns = feeds + chunk.count(b"\n"), returns + chunk.count(b"\r")
            size = Size(max(feeds, returns), columns, total)
            if size.is_large and not whole:
                break
    return size
