"""The page of the user's own data: what would be trained on, and what that costs in privacy."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import json

from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.learning.data.custom.intake import Intake, intake, rows_of_people
from dpbench.runs.config.compose import before_data
from dpbench.system.files import write_atomically
from dpbench.system.validate import naming

PRIVATE = (
    "**All counts and statistics on this page are exact: no epsilon covers them.** Show it only to "
    "those who may see the data."
)

MOST = 30
"""So many classes and groups are listed."""


def intake_page(overrides: list[str], out: str) -> str:
    """The page of the data that overrides name; written with its facts as NAME.md and NAME.json, if
    `out` is a name."""
    plain = before_data(overrides)
    found = intake(plain["dataset"], plain["users"])
    page = Page(f"What is in {found.source}", [*_blocks(found)]).markdown
    if out:
        path = Path(out)
        write_atomically(path.with_name(f"{path.name}.md"), page.encode(), setting="out")
        write_atomically(
            path.with_name(f"{path.name}.json"),
            json.format(json.encode(found), indent=1) + b"\n",
            setting="out",
        )
    return page


def _blocks(found: Intake) -> Iterator[PageBlock]:
    yield PRIVATE
    yield Grid("", ("what", "how many"), tuple(_counts(found)))
    head = ("column", "type", "missing", "different", "values", "what becomes of it")
    rows = (
        (c.name, c.kind, _share(c.missing, found.rows), f"{c.different:,}", *c[4:])
        for c in found.columns
    )
    yield Grid("Columns", (*head, "read from it"), tuple(rows))
    if found.told:
        yield "## What a run warns of"
        yield found.told
    if found.refused:
        yield "## Why there is no run yet"
        yield found.refused


def _counts(found: Intake) -> Iterator[tuple[str, str]]:
    if found.lines is not None:
        yield "lines", f"{found.lines:,}"
    yield "rows", f"{found.rows:,}"
    if found.test_rows:
        known = f"{found.test_rows:,}, of which {found.known_test_rows:,} are in training, too"
        yield "test rows", known
    yield "copies of other rows", f"{found.copies:,}"
    yield "people", _people(found)
    for what, sizes in (("classes", found.classes), ("groups", found.groups)):
        if sizes:
            listed = ", ".join(f"{name} ({size:,})" for name, size in [*sizes.items()][:MOST])
            yield what, f"{len(sizes):,}: {listed}" + (", ..." if len(sizes) > MOST else "")


def _people(found: Intake) -> str:
    if found.people:
        return f"{len(found.people):,}, {rows_of_people(found.people)}"
    if found.identifiers:
        return (
            f"epsilon is per row, and {', '.join(found.identifiers)} may say whose rows are: set "
            f"users=column {naming('users.column', found.identifiers[0])}"
        )
    return "epsilon is per row, and no column says that people have several"


def _share(count: int, rows: int) -> str:
    return f"{count:,} ({count / rows:.1%})" if count else "0"
