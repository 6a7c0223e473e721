"""`dpbench report [results_dir=] [out=] [watch=true]`: writes, or serves, a page of all records.

One HTML file contains its styles, scripts, data and records.
"""

import base64
import gzip
import hashlib
import json
import re
import shlex
import warnings
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path

import msgspec

from dpbench.comparison.dashboard.documents import published
from dpbench.comparison.dashboard.summarise import Summary, summary_of
from dpbench.comparison.dashboard.tables import pages, places, tables
from dpbench.comparison.dashboard.watch import live, watch
from dpbench.learning.data.fetch.library import library
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.runs.config.commands import ReportCommand
from dpbench.runs.execution.rerun import CommandBuilder
from dpbench.runs.records.collect import check_results
from dpbench.runs.records.reading import Unreadable
from dpbench.runs.records.record import Record
from dpbench.system.arguments import read
from dpbench.system.errors import UserError, counted
from dpbench.system.files import check_replaceable, write_atomically

SCRIPTS = (
    "stats.js", "address.js", "dom.js", "pictures.js", "files.js", "table.js", "groups.js",
    "curves.js", "sweep.js", "audits.js", "board.js", "cards.js", "runs.js", "detail.js", "page.js",
)  # fmt: skip


def page(data: dict, records: str, contained: str, drawings: Mapping[str, str]) -> str:
    """The HTML, whose Content-Security-Policy allows only these two scripts and no requests.

    data: from `Summary.data`. records: from `RecordTexts.finish`. contained: which records these
    are, as a sentence. drawings: SVG by name.
    """
    plotly, ours = library("plotly.offline", "dpbench report").get_plotlyjs(), script()
    parts = {
        "policy": _policy(plotly, ours),
        "style": _asset("style.css"),
        "library": packed(plotly.encode()),
        "script": ours,
        "data": packed(msgspec.json.encode(data)),  # NaN becomes null
        "records": records,
        "drawings": packed(msgspec.json.encode(drawings)),
        "contained": contained,
        "level": f"{CONFIDENCE:.0%}",
    }
    # In one pass, so that placeholders within the values stay as they are.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def packed(content: bytes) -> str:
    """Gzip in base 64: a third of the bytes, and nothing in it can end an element.

    At level 4, since 6 takes twice the time for a twentieth of the bytes.
    """
    return base64.b64encode(gzip.compress(content, compresslevel=4, mtime=0)).decode()


def _policy(*scripts: str) -> str:
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def script() -> str:
    """The page's own JavaScript: all files, one after the other, in one function."""
    bodies = "\n".join(_asset(name) for name in SCRIPTS)
    return f'"use strict";\n(async () => {{\n{bodies}\n}})();\n'


def _asset(name: str) -> str:
    return (files("dpbench.comparison.dashboard") / "assets" / name).read_text(encoding="utf-8")


MAX_BYTES = 1_500_000
"""After compression: some hundred records with long histories, or thousands with short ones."""

GZIP = 31
"""The `wbits` that make zlib write gzip, which browsers decompress."""


class RecordTexts:
    """A JSON object that maps digests to records.

    Records beyond the limit are left out; the page names their files instead.
    """

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(4, zlib.DEFLATED, GZIP)
        self._bytes = bytearray(self._compressor.compress(b"{"))
        self._separator = b""
        self._kept = self._left_out = 0

    def add(self, record: Record) -> None:
        """Compress a record, unless the limit is reached."""
        if len(self._bytes) >= MAX_BYTES:
            self._left_out += 1
        else:
            self._kept += 1
            entry = b'%s"%s":%s' % (self._separator, record.digest.encode(), strict(record.json()))
            self._bytes += self._compressor.compress(entry)
            self._separator = b","

    def contained(self) -> str:
        """A sentence on which records the page contains whole."""
        if not self._left_out:
            return "This file contains full details of every run."
        return (
            f"This file contains full details of {counted(self._kept, 'run')}; of the other "
            f"{self._left_out:,} only metrics."
        )

    def finish(self) -> str:
        """The texts as gzip in base 64; to be called once."""
        self._bytes += self._compressor.compress(b"}") + self._compressor.flush()
        return base64.b64encode(self._bytes).decode()


NON_FINITE = {"NaN": None, "Infinity": "inf", "-Infinity": "-inf"}
"""What stands for the numbers that Python's json writes by names that JSON does not have."""


def strict(text: str) -> bytes:
    """A record as standard JSON: NaN becomes null, and Infinity a string."""
    return msgspec.json.encode(json.loads(text, parse_constant=NON_FINITE.get))


def report(arguments: list[str]) -> Path | None:
    """Write the page and return its path; with watch=true, serve it until interrupted. UserError if
    there is no record, or if the page cannot be written."""
    values = parse(arguments)
    if values.watch:
        check_results(values.results_dir)  # the page waits for runs
        watch(partial(page_of, values.results_dir, watch=True), values.results_dir)
        return None
    write_atomically(values.out, page_of(values.results_dir).encode(), setting="out")
    return values.out


def page_of(folder: Path, *, watch: bool = False) -> str:
    """The page of a results folder, with one warning for all files that could not be read;
    UserError if there is no record. watch: whether the page asks for itself again from time to
    time."""
    found, damaged = pages(folder)
    texts = RecordTexts()
    summary, unreadable = summary_of(folder, CommandBuilder(), places(found), texts.add)
    unreadable += damaged
    _warn(unreadable)
    others = published(folder, found)
    data = summary.data(tables(found), unreadable, others)
    data["command"] = shlex.join(["dpbench", "report", f"results_dir={folder}"])
    data |= {"live": live(folder, {row["id"] for row in data["rows"]}), "watch": watch}
    contained = " ".join(filter(None, (texts.contained(), summary.hidden)))
    return page(data, texts.finish(), contained, others.drawings)


def report_of(records: Iterable[Record]) -> str:
    """The page that compares these records, without tables of papers."""
    summary, texts = Summary(CommandBuilder()), RecordTexts()
    for record in records:
        if summary.add(record):
            texts.add(record)
    return page(summary.data({}, []), texts.finish(), texts.contained(), {})


def parse(arguments: list[str]) -> ReportCommand:
    """The settings of the command; UserError for invalid arguments."""
    values = read("report", ReportCommand, arguments)
    if values.out.is_dir():
        raise UserError(f"out={values.out} is a folder: name a file in it, e.g. report.html.")
    check_replaceable(values.out)
    return values


def _warn(unreadable: list[Unreadable]) -> None:
    if not unreadable:
        return
    first, *others = unreadable
    more = f", and {len(others)} more, which the page lists" if others else ""
    warnings.warn(f"left out {first.source}, which {first.reason}{more}.", stacklevel=3)
