"""The page: one HTML file with its styles, its scripts, its data and its records inside."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files

SCRIPTS = ("stats.js", "state.js", "dom.js", "pictures.js", "panels.js", "tables.js", "detail.js",
           "page.js")  # fmt: skip


def page(data: dict, records: Mapping[str, str]) -> str:
    """The HTML. data: as of `summarise`; records: the text of every record by its digest.

    A policy in the page lets nothing run but the two scripts written here, and nothing be fetched,
    so what a record says cannot become code whatever it says.
    """
    library, own = _plotly(), _own()
    parts = {
        "policy": _policy(library, own),
        "style": _asset("style.css"),
        "library": library,
        "script": own,
        "data": inert(data),
        "records": _packed(records),
    }
    # In one pass: what is put in is not looked through again.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("page.html"))


def inert(data: object) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _packed(records: Mapping[str, str]) -> str:
    """Gzip in base 64: records repeat each other, and are only opened one at a time."""
    packed = gzip.compress(json.dumps(dict(records)).encode(), mtime=0)
    return base64.b64encode(packed).decode()


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    # HTML reads a carriage return as a new line, and the hash is of what HTML reads.
    return get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")


def _own() -> str:
    bodies = "\n".join(_asset(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{bodies}\n}})();\n'


def _asset(name: str) -> str:
    return (files("dpbench.report") / "assets" / name).read_text(encoding="utf-8")
