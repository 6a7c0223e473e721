"""What is under way in a results folder: sweeps, their progress and failures, from its files; and
`dpbench report watch=true`, which serves the page to this machine alone, made anew as these change.
"""

import html
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from dpbench.comparison.dashboard.documents import text_in
from dpbench.runs.records.folder import CHECKPOINTS, FAILURES, SWEEPS
from dpbench.runs.training.progress import running_steps
from dpbench.system.errors import UserError, print_message
from dpbench.system.files import files_in

LOOPBACK = "127.0.0.1"

WAITING = """<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>dpbench report</title><pre>{}</pre>"""
"""The page while there is no record."""


def watch(make: Callable[[], str], folder: Path) -> None:
    """Serve a page until interrupted. make, folder: see `WatchServer`."""
    with WatchServer(make, folder) as server:
        print_message(f"the page is at {server.address} until Ctrl-C, for this machine alone.")
        server.serve_forever()


class WatchServer(HTTPServer):
    """The server of one page, at a free port of the loopback interface.

    make: gives the page, or raises UserError. folder: the page is made anew after a change there.
    """

    def __init__(self, make: Callable[[], str], folder: Path):
        super().__init__((LOOPBACK, 0), _Handler)
        self._make, self._folder = make, folder
        self._seen: object = None
        self._page = ""

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/"

    def page(self) -> str:
        """The page of the files as they are."""
        files = (*self._folder.glob("*"), *(self._folder / CHECKPOINTS).glob("*/*"))
        seen = {*_changed(files)}
        if seen != self._seen:
            try:
                self._page = self._make()
            except UserError as reason:
                return WAITING.format(html.escape(str(reason)))
            self._seen = seen
        return self._page

    def handle_error(self, request: Any, address: Any) -> None:
        """No word of a browser that went away before it had the page."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, address)


def _changed(paths: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    for path in paths:
        with suppress(OSError):
            yield path, path.stat().st_mtime_ns


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = 2.0  # seconds: a browser opens connections that it may not use, and others wait

    def do_GET(self) -> None:
        """The page, where this machine is asked by its own address: the name of another site may
        lead here, too, and its scripts must not read the page."""
        asked = f"http://{self.headers['Host']}{self.path}"
        if asked != self.server.address:
            self.send_error(404)
            return
        content = self.server.page().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """No line for a request."""


RECENT = 60.0
"""Seconds after which a run that has written no step is taken for killed."""

OTHERS = "runs of no sweep"


def live(folder: Path, finished: set[str]) -> list[dict]:
    """The sweeps with missing or failed runs, and what else runs: `name`; `done` of `total` runs;
    `running`, the digest of each with its steps and their number; `failed`, why, "" if none did.

    finished: the digests of the runs with a record.
    """
    names = {path.name: path.name for path in files_in(folder / CHECKPOINTS, "*")}
    steps = running_steps(folder, names, time.time() - RECENT)
    running = {step.name: step for step in steps()}
    lists, texts = (
        {path.stem: text_in(path) for path in files_in(folder / name, "*.txt")}
        for name in (SWEEPS, FAILURES)
    )
    sweeps = {name: {*text.split()} for name, text in lists.items()}
    sweeps[OTHERS] = running.keys() - set[str]().union(*sweeps.values())
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "done": len(digests & finished),
            "total": len(digests),
            "running": [running[digest] for digest in sorted(digests & running.keys())],
            "failed": texts.get(name, ""),
        }
        for name in dict.fromkeys((*texts, *sweeps))
        for digests in [sweeps.get(name, set())]
    ]
    return [row for row in rows if row["done"] < row["total"] or row["failed"]]
