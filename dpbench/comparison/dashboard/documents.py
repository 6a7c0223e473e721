"""The published pages of a results folder as cards: figures, audits, recounts and other checks."""

import csv
import functools
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from dpbench.comparison.dashboard.privacy import SHOWN
from dpbench.comparison.dashboard.values import finite_number
from dpbench.comparison.tables.data import TableData
from dpbench.runs.records.epsilon import REFUTED, rounded_up
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.reading import text_of
from dpbench.system.files import files_in
from dpbench.system.paths import benchmarks_folder

MOST_LINES = 200
"""The most lines of a CSV file that are numbers to read, and not the points of a figure."""

MOST_BYTES = 6_000_000
"""Of all pictures, before they are compressed."""

CITATION = "citation.yaml"
"""In the folder of a study: its title and its link."""

OTHERS = "Tables of your own"

Card = dict
"""What the page folds: `title`; `tally` and `claims` of a table; `notes`, sentences; `command`;
`image`, the name of a picture; `cloud`, points to draw; `head` and `rows` of a table; `run`, false
where there is nothing of ours."""

BOUNDS = ("audited (own family)", "audited (GDP)", "audited (one run)")
"""The columns of lower bounds, the first of which counts where it has one."""


def card(title: str, **parts: object) -> Card:
    """A card, empty but for the parts."""
    lists = dict.fromkeys(("tally", "claims", "notes", "head", "rows"), ())
    return {"title": title, "run": True, "command": None, **lists, **parts}


def documents(
    folder: Path, pages: Mapping[str, TableData], drawings: Container[str]
) -> dict[str, Card]:
    """The pages that are no tables of cells, by name. drawings: their names."""
    return {
        name: _document(page, folder / TABLES / f"{name}.csv", name if name in drawings else None)
        for name, page in pages.items()
        if not page.cells
    }


def pictures(folder: Path) -> dict[str, str]:
    """The pictures in `tables/*.svg` by name, up to MOST_BYTES, the smallest first."""
    files = filter(Path.is_file, files_in(folder / TABLES, "*.svg"))
    paths = sorted(files, key=lambda path: path.stat().st_size)
    found: dict[str, str] = {}
    size = 0
    for path in paths:
        text = text_of(path)
        if isinstance(text, str) and (size := size + len(text)) <= MOST_BYTES:
            found[path.stem] = text
    return found


AUDIT, FINDINGS = "audit", "findings"
"""The pages of the table of audits, and of what all tables say."""


@dataclass(frozen=True)
class PublishedPages:
    """What a results folder publishes beside records and tables.

    documents: by name. drawings: SVG by name. audited: rows like those of runs.
    """

    documents: Mapping[str, Card]
    searches: Sequence[Card]
    audited: Sequence[dict]
    drawings: Mapping[str, str]

    @property
    def methods(self) -> set[str]:
        """What is drawn of searches and audits, by the name of its method."""
        clouds = (one["cloud"] for one in self.searches if one["cloud"])
        searched = {series["method"] for cloud in clouds for series in cloud["series"]}
        return searched | {row["method"] for row in self.audited}

    def cards(self, tables: Mapping[str, Card]) -> dict[str, list]:
        """All cards by the part of the page that they are in. tables: by name."""
        named = {**tables, **self.documents}
        studies = {name: study_of(name) for name in named}
        checks = {name: self.documents[name] for name in self.documents if not studies[name]}
        audits = [checks.pop(AUDIT)] if AUDIT in checks else []
        found = [checks.pop(FINDINGS)] if FINDINGS in checks else []
        of_study: dict[str, list[Card]] = {}
        for name, one in named.items():
            if studies[name] or name in tables:
                of_study.setdefault(studies[name] or "", []).append(one)
        return {
            "studies": [
                *({"title": card["title"], "link": None, "cards": [card]} for card in found),
                *(citation(name) | {"cards": of_study[name]} for name in sorted(of_study)),
            ],
            "searches": [*self.searches],
            "audits": audits,
            "checks": [*checks.values()],
        }


NOTHING = PublishedPages({}, (), (), {})


def study_of(name: str) -> str | None:
    """The folder of `benchmarks` with which the name of a table begins."""
    study = name.partition("_")[0]
    return study if (benchmarks_folder() / study / CITATION).is_file() else None


@functools.cache
def citation(study: str) -> dict[str, str | None]:
    """The paper that a study is of, with its link; of a study of ours, what it is on.

    "" stands for tables of no study.
    """
    if not study:
        return {"title": OTHERS, "link": None}
    return yaml.safe_load((benchmarks_folder() / study / CITATION).read_text(encoding="utf-8"))


def _document(page: TableData, numbers: Path, drawing: str | None) -> Card:
    head, rows = _grid(numbers)
    notes = [_plain(note) for note in page.notes]
    command = page.command or None
    return card(page.title, notes=notes, command=command, image=drawing, head=head, rows=rows)


def _grid(path: Path) -> tuple[list[str], list[list[str]]]:
    """Head and lines of a CSV file; nothing of one that is missing, damaged or long."""
    lines = [*csv.reader(text_in(path).splitlines())]
    return (lines[0], lines[1:]) if 1 < len(lines) <= MOST_LINES else ([], [])


def text_in(path: Path) -> str:
    """The text of a file; "" of one that is missing or cannot be read."""
    text = text_of(path)
    return text if isinstance(text, str) else ""


def _plain(text: str) -> str:
    """Markdown as a line of plain text."""
    unlinked = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[*`]", "", unlinked).split())


def audited(folder: Path) -> list[dict]:
    """A row for each line of `tables/audit.csv` with a claim and a bound."""
    lines = csv.DictReader(text_in(folder / TABLES / f"{AUDIT}.csv").splitlines())
    return [row for line in lines if (row := _row(line))]


def _row(line: dict[str, str]) -> dict | None:
    claimed, *found = (finite_number(line.get(name) or "") for name in ("claimed", *BOUNDS))
    bound = next((number for number in found if number is not None), None)
    if claimed is None or bound is None:
        return None
    return {
        "id": None,
        "method": line["method"],
        "name": f"{line['method']}, {line['attacked']}",
        "seed": "–",
        "axis": dict.fromkeys(SHOWN, claimed),
        "epsilon": dict.fromkeys(SHOWN, f"{rounded_up(claimed)} by {line['by']}"),
        "audit": {"epsilon": bound, "refuted": claimed if line["verdict"] == REFUTED else None},
    }
