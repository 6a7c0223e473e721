"""CSV files by lines, which a paper's author, a stranger or a full disk may have written."""

import csv
import io
from collections.abc import Sequence

from dpbench.system.errors import UserError


def csv_rows(text: str, name: str) -> list[list[str]]:
    """The fields of each line that is not empty, the header first; UserError for no CSV file."""
    try:
        return [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise UserError(f"{name} is not a CSV file: {error}.") from error


def csv_lines(text: str, name: str, columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """The lines by column; UserError for a file without these columns, or whose lines have not as
    many fields as the header."""
    head, *rows = csv_rows(text, name) or [[]]
    if not {*columns} <= {*head}:
        raise UserError(f"{name} must have the columns {', '.join(columns)}.")
    if any(len(row) != len(head) for row in rows):
        raise UserError(f"{name} has a line with more or fewer fields than the header.")
    return [dict(zip(head, row, strict=True)) for row in rows]
