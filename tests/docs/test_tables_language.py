"""docs/tables_language.md names every key of a table, and no others."""

import re
from dataclasses import fields
from typing import Any, get_args

import pytest
import yaml

from dpbench.config.rules import RULE, TYPES
from dpbench.figures.lines import Panel
from dpbench.reproduce.target import Scale
from dpbench.system.paths import conf_folder
from dpbench.tables.claims.spec import HINTS, RELATIONS
from dpbench.tables.spec import Column
from tests.docs.test_pages import DOCS

PAGE = DOCS / "tables_language.md"
ROW = re.compile(r"^\| `(\S+)` \| `([^`]+)` \| .+ \| `([^`]+)` \(\[[\w.]+\]\(([^)]+)\)\) \|$", re.M)
ROWS = {key: (kind, example, path) for key, kind, example, path in ROW.findall(PAGE.read_text())}
BY_REGISTRY = {"columns.factor", "columns.better", "columns.margin"}
"""What metrics/registry.py says of every metric that a table of ours has."""

FILES = sorted((conf_folder() / "table").rglob("*.yaml"))


def nested(what: str, names) -> set[str]:
    return {f"{what}.{name}" for name in names}


def names_of(part: type) -> list[str]:
    return [field.name for field in fields(part) if field.name != "name"]


def known() -> set[str]:
    """Every key that the code reads."""
    return {
        *TYPES,
        *nested("settings", RULE),
        *nested("scales", names_of(Scale)),
        *nested("columns", names_of(Column)),
        *nested("claims", [*HINTS, *RELATIONS]),
        *nested("figure.panels", names_of(Panel)),
    }


def used(path) -> set[str]:
    """The keys that a file has in its table, or in a part of one: nested ones after a dot."""
    read, folder = yaml.safe_load(path.read_text()), path.parent.name
    if folder in ("columns", "claims"):
        return within({folder: read})
    return within(read.get("table", {}))


def within(table: dict) -> set[str]:
    figure = table.get("figure", {})
    parts: dict[str, Any] = {
        "settings": table.get("settings", []),
        **{key: table.get(key, {}).values() for key in ("scales", "columns", "claims")},
    }
    if isinstance(figure.get("panels"), list):
        parts["figure.panels"] = figure["panels"]
    inner = {f"{what}.{key}" for what, of in parts.items() for one in of for key in one}
    return {*table, *nested("figure", figure), *inner}


def test_the_page_names_every_key_that_the_code_reads_and_no_others():
    assert {*ROWS} == known()
    assert len(ROW.findall(PAGE.read_text())) == len(ROWS)


def test_every_line_of_the_page_s_tables_is_understood():
    lines = [x for x in PAGE.read_text().splitlines() if x.startswith("| `")]
    assert len(lines) == len(ROWS) > 40


@pytest.mark.slow
def test_every_key_of_a_file_is_on_the_page_and_every_key_of_the_page_in_a_file():
    by_file = {path: used(path) for path in FILES}
    assert {path.name: keys - {*ROWS} for path, keys in by_file.items() if keys - {*ROWS}} == {}
    assert {*ROWS} - set().union(*by_file.values()) == BY_REGISTRY


def said(hint: Any) -> str:
    """A type as the page writes it: a pipe would end a cell."""
    text = str(hint) if get_args(hint) else hint.__name__
    return text.replace("typing.", "").replace(" | None", " or null").replace(" | ", " or ")


def test_the_page_gives_the_types_that_are_checked():
    checked = {**TYPES, **{f"claims.{key}": hint for key, hint in HINTS.items()}}
    assert {key: ROWS[key][0] for key in checked} == {k: said(hint) for k, hint in checked.items()}


def test_the_examples_are_lines_of_their_files_and_have_their_keys():
    in_line = {k for k in ROWS if k not in ("scales", "scales.overrides", "conditions")}
    assert [k for k in sorted(in_line) if k.rpartition(".")[2] not in ROWS[k][1]] == []
    assert [k for k, (_, line, path) in ROWS.items() if line not in (DOCS / path).read_text()] == []
