"""The user's own rows as their source has them, before any of them is encoded."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

Encoded = tuple[str, Path | BytesIO]
"""An encoded image, with its name in messages."""


FOLDER = "class folder"
"""The column of the folder that an image is in."""


class TestRows(NamedTuple):
    """The rows of a publisher's test file or part, which are the last of a table."""

    name: str
    number: int

    def first(self, marked: np.ndarray | pd.Series) -> str:
        """The first row of a table that is marked [n] bool, as its own file counts it."""
        place = int(np.flatnonzero(marked)[0])
        within = place - (len(marked) - self.number)
        return f"row {place + 1}" if within < 0 else f"row {within + 1} of {self.name}"


NO_TEST = TestRows("", 0)
"""Of a table without such rows."""


class OwnTable(NamedTuple):
    """Rows of any source: of a file, of a folder of images, or of the `datasets` library.

    name: in messages. checksums: by setting. classes: the names of the target's values 0, 1, ...,
    where the source has them. images: the encoded image of each row, if rows are images.
    """

    name: str
    frame: pd.DataFrame
    checksums: dict[str, str]
    test: TestRows = NO_TEST
    classes: tuple[str, ...] = ()
    images: Iterable[Encoded] = ()
