"""Assembles the page: one HTML file that contains its styles, scripts, data and records."""

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files

import msgspec

from dpbench.learning.data.fetch.library import library
from dpbench.learning.metrics.students_t import CONFIDENCE

SCRIPTS = (
    "stats.js", "address.js", "dom.js", "pictures.js", "files.js", "table.js", "groups.js",
    "coincident.js", "curves.js", "sweep.js", "reliability.js", "costs.js", "audits.js", "board.js",
    "cards.js", "runs.js", "detail.js", "page.js",
)  # fmt: skip


def page(data: dict, records: str, contained: str, drawings: Mapping[str, str]) -> str:
    """The HTML. data: from `Summary.data`. records: from `RecordTexts.finish`. contained: which
    records these are, as a sentence. drawings: SVG by name.

    The page's Content-Security-Policy allows only these two scripts and no requests, so nothing in
    a record can be executed.
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
