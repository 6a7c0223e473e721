"""The published pages of a results folder as cards: figures, audits, recounts and other checks."""

import csv
import functools
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from dpbench.comparison.tables.page import MADE_BY
from dpbench.runs.records.folder import TABLES
from dpbench.runs.records.reading import text_of
from dpbench.system.files import files_in
from dpbench.system.paths import benchmarks_folder

MOST_LINES = 200
"""The most lines of a CSV file that are numbers to read, and not the points of a figure."""

MOST_BYTES = 6_000_000
"""Of all pictures, before they are compressed."""

README = "README.md"

OTHERS = "Tables of your own"

Card = dict
"""What the page folds: `title`; `tally` and `claims` of a table; `notes`, sentences; `command`;
`image`, the name of a picture; `cloud`, points to draw; `head` and `rows` of a table; `run`, false
where there is nothing of ours."""


def card(title: str, **parts: object) -> Card:
    """A card, empty but for the parts."""
    lists = dict.fromkeys(("tally", "claims", "notes", "head", "rows"), ())
    return {"title": title, "run": True, "command": None, **lists, **parts}


def documents(folder: Path, others: Container[str], drawings: Container[str]) -> dict[str, Card]:
    """The pages in `tables/*.md` and beside it, by name, but for others. drawings: their names."""
    pages = [*files_in(folder / TABLES, "*.md"), *files_in(folder, "*.md")]
    named = {page.stem: page for page in pages if page.stem not in others and page.name != README}
    return {name: _document(page, name in drawings) for name, page in named.items()}


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
class Published:
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


NOTHING = Published({}, (), (), {})


def study_of(name: str) -> str | None:
    """The folder of `benchmarks` with which the name of a table begins."""
    study = name.partition("_")[0]
    return study if (benchmarks_folder() / study / README).is_file() else None


CITATION = re.compile(r"(.+?\*.+?\*, [^.(]*\d{4})", re.DOTALL)
LINK = re.compile(r"\]\((https://[^)\s]+)\)")


@functools.cache
def citation(study: str) -> dict[str, str | None]:
    """The paper that a study is of, with its link; of a study of ours, its first sentence.

    "" stands for tables of no study.
    """
    if not study:
        return {"title": OTHERS, "link": None}
    text = (benchmarks_folder() / study / README).read_text(encoding="utf-8")
    paragraph = text.split("\n\n")[1]
    cited, link = CITATION.match(paragraph), LINK.search(paragraph)
    title = cited[1] if cited else re.split(r"(?<=[.:])\s", paragraph)[0]
    return {"title": _plain(title).rstrip(":"), "link": link[1] if link else None}


def _document(page: Path, drawn: bool) -> Card:
    lines = text_in(page).splitlines()
    title = lines[0].removeprefix("# ") if lines else page.stem
    # The lines before the first heading, table or picture.
    opening = takewhile(lambda line: not line.startswith(("#", "|", "![")), lines[1:])
    made = lines[-1] if lines and lines[-1].startswith(MADE_BY) else ""
    head, rows = _grid(page.with_suffix(".csv"))
    return card(
        title,
        notes=[_plain(line.removeprefix("- ")) for line in opening if line.startswith("- ")],
        command=made.removeprefix(MADE_BY).strip("`") or None,
        image=page.stem if drawn else None,
        head=head,
        rows=rows,
    )


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
