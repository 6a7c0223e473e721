"""`dpbench audit [KEY=VALUE ...]`: an attack on the epsilon of a run."""

import json
from collections.abc import Mapping
from pathlib import Path

from dpbench.audit.audit import GAMES, AuditResult, audit, audit_grid, record_of
from dpbench.audit.code.door import audit_code, is_of_code
from dpbench.audit.game import RunGame
from dpbench.audit.peers.contenders import contender_audit
from dpbench.audit.request import FOR_CONTENDERS, prepare_audit
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.runs.config.commands import RunAuditCommand
from dpbench.runs.config.settings import split_settings
from dpbench.runs.records.epsilon import REFUTED
from dpbench.system.files import check_writable
from dpbench.system.validate import one_of


def run_audit(arguments: list[str]) -> tuple[str, bool]:
    """Audit a run or code of one's own: what to print, and whether that code is refuted."""
    if not is_of_code(arguments):
        return _of_run(arguments), False
    report, path = audit_code(arguments)
    line = json.dumps(report.plain | {"page": str(path)})
    return f"{report.page}\n{line}", report.verdict == REFUTED


def _of_run(arguments: list[str]) -> str:
    """Attack one run, save its record, and return the table and one JSON object."""
    settings, overrides = split_settings("audit", RunAuditCommand, arguments)
    game = one_of("game", settings.game, FOR_CONTENDERS if settings.contender else GAMES)
    if settings.contender:
        result = contender_audit(settings, overrides)
        summary = {"contender": settings.contender, **result.plain}
        return _page(result, summary)
    run, canaries = prepare_audit(overrides, settings.canaries, game)
    folder = Path(run.config["results_dir"])
    check_writable(folder)
    result = audit(run, canaries, settings.claim, settings.confidence, game)
    if not isinstance(result.game, RunGame):
        return _page(result, {"attacked": result.game.attacked, **result.plain})
    path = record_of(result).save(folder)
    summary = {"method": run.method.name, **result.plain, "record": str(path)}
    return _page(result, summary)


def _page(result: AuditResult, summary: Mapping[str, object]) -> str:
    blocks: list[PageBlock] = [audit_grid("", [result]), result.sentence, json.dumps(summary)]
    return Page("", blocks).markdown.rstrip()
