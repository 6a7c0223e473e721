"""The rows of the user's own file, and those of a test file of the publisher's own."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from pandas.api.types import is_string_dtype

from dpbench.learning.data.custom.checksums import source_path, verified
from dpbench.learning.data.custom.csv_files import read_file
from dpbench.learning.data.custom.source import Table, TestRows
from dpbench.system.errors import UserError
from dpbench.system.validate import quoted


def read(settings: Mapping[str, Any]) -> Table:
    """The rows of the file that settings name, and then those of its test file; UserError for files
    that are not tables of one kind, and for others than the expected ones."""
    frame, checksum = verified_file(settings, "file", "checksum")
    name, checksums = str(settings["file"]), {"checksum": checksum}
    tested = settings.get("test_file")
    if tested is None:
        return Table(name, frame, checksums)
    what = f"dataset.test_file={tested}"
    test, test_checksum = verified_file(settings, "test_file", "test_checksum")
    if test_checksum == checksum:
        raise UserError(
            f"{what} has the rows that are trained on: give a file of others, or none, to hold out "
            "dataset.test_share of the rows."
        )
    if different := [*frame.columns.symmetric_difference(test.columns, sort=False)]:
        raise UserError(
            f"{what} and dataset.file={name} must have the same columns, but only one of them has "
            f"{quoted(different[0])}."
        )
    if not len(test):
        raise UserError(f"{what} has no rows.")
    texts = tuple(n for n in frame if is_string_dtype(frame[n]) != is_string_dtype(test[n]))
    if texts:  # 01 is a number in one file, and a text where another row has 1A
        frame, _ = verified_file(settings, "file", "checksum", texts)
        test, _ = verified_file(settings, "test_file", "test_checksum", texts)
    rows = pd.concat([frame, test[frame.columns]], ignore_index=True)
    checksums["test_checksum"] = test_checksum
    return Table(name, rows, checksums, TestRows(what, len(test)))


def verified_file(
    settings: Mapping[str, Any], key: str, expected: str, texts: tuple[str, ...] = ()
) -> tuple[pd.DataFrame, str]:
    """The rows of the file that a setting names, and its checksum; UserError for another one than
    the setting `expected` has. texts: columns that are."""
    path = source_path(f"dataset.{key}", settings[key], "file")
    found = verified(f"dataset.{key}", path, settings.get(expected), f"dataset.{expected}")
    return read_file(settings, key, path, texts), found
