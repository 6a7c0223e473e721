"""The table of audits: every method that has an epsilon, attacked."""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import msgspec
import torch

from dpbench.audit.audit import COLUMNS, AuditResult, audit, audit_grid
from dpbench.audit.peers.contenders import contender_audit
from dpbench.audit.request import CHOSEN, STEPS, check_for_contender, prepare_audit
from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page
from dpbench.runs.config.buildable import settings_of
from dpbench.runs.config.commands import RunAuditCommand
from dpbench.runs.config.settings import is_scientific, key_of, split_settings
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.figures.formats import images, legend_below, paper_figure, symbol, titled
from dpbench.runs.records.epsilon import REFUTED, USUAL
from dpbench.runs.records.folder import AUDITS
from dpbench.runs.records.reading import text_of
from dpbench.runs.training.provenance import code, installed_version
from dpbench.system.errors import Unavailable
from dpbench.system.files import check_writable, write_atomically
from dpbench.system.progress import counting

RULES = (
    "Audited: lower bounds of epsilon at 95% confidence. Own family: by the trade-off curves of "
    "the run's ledger with more or less noise; GDP: by those of Gaussian differential privacy; one "
    "run: by Steinke et al. 2023, who do not assume that canaries are independent. The first two "
    "are bounds only if the mechanism belongs to that family, which a refuted one need not.",
    "Not refuted: this attack found nothing against the claim. A lower bound can prove that a "
    "claim is wrong, but never that it is right. Refuted: under the claim such scores have a "
    "probability of at most 1e-4.",
    f"Epsilons: {USUAL}, or per user where a method protects users; Poisson batches, unless the "
    "row says that they are shuffled.",
    "PLD: the epsilon of the run's ledger. Its paper: the epsilon that the method's paper would "
    "print for this run, by its accountant. Its PRV or PLD: that of another library's accountant.",
)

CANARIES_OF_METHODS, CANARIES_OF_OTHERS = {"dpsgd": 100_000, "dp_fedavg": 10_000}, 20_000
"""Numbers of canaries that do not share coordinates, by method: many for the baseline, and few
where all updates of a batch are trained."""

STEPS_OF_METHODS = {"dp_signlosgd": 20_000}
"""Numbers of steps, by method: more than usual where epsilon is small."""

ATTACKED = ("torch", "numpy", "opacus", "jax", "jax_privacy")
"""The packages whose versions are part of an audit's digest."""

SHOWN = (0.1, 100.0)
"""The ends of the axis of epsilon in the picture."""

MOST_LINES = 30
"""Audits below each other; more are in two columns."""

LOOKS = {False: ("#0072b2", "audited, at least"), True: ("#d55e00", "audited, at least: refuted")}
"""Colour and label by whether the claim is refuted."""


@dataclass(frozen=True)
class AuditRow:
    """One audit in the table: its cells, its label in the picture, and its two epsilons."""

    cells: tuple[str, ...]
    label: str
    claimed: float
    audited: float
    refuted: bool


@dataclass(frozen=True)
class AuditTask:
    """What to audit: the overrides of a run, and the settings of its only audit; None for all
    audits of a method."""

    overrides: tuple[str, ...]
    only: RunAuditCommand | None = None

    @property
    def digest(self) -> str:
        """Sixteen hex digits that depend on the task, this code, and the packages in ATTACKED."""
        run = run_config(self.overrides).digest
        chosen = sorted({*map(key_of, self.overrides)} & {*CHOSEN})
        versions = {name: installed_version(name) for name in ATTACKED}
        only = self.only and msgspec.structs.asdict(self.only)
        text = json.dumps([run, chosen, only, code(), versions], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def rows(self) -> "RowsOrReason":
        """The rows, or the reason why there are none."""
        try:
            if self.only is None:
                return list(map(_row, _audits(self.overrides)))
            return [_row(_only_audit(self.only, list(self.overrides)))]
        except Unavailable as reason:
            return f"Not audited: {reason}"


def audit_table(target: Target) -> dict[str, bytes]:
    """The files of the table by suffix: a row for each method, variant and epsilon of its paper,
    and for the audits in `rows`, of other libraries and games."""
    (condition,) = target.conditions
    tasks = [
        AuditTask(tuple(overrides))
        for method in target.table.methods
        for overrides in target.cells_of(condition, method)
    ]
    rows = settings_of(target.table.compute or {})["rows"]
    tasks += [_of_row(target, row.split()) for row in rows]
    folder, again = target.config.results / AUDITS, target.config["again"] is True
    check_writable(folder)
    answers = _in_processes(partial(_load_or_attack, folder, again), tasks, target.config["jobs"])
    made = [row for answer in answers if not isinstance(answer, str) for row in answer]
    missing = [answer for answer in answers if isinstance(answer, str)]
    grid = Grid("", tuple(COLUMNS), tuple(row.cells for row in made))
    return {
        **_page(target, made, grid, missing).files,
        "csv": grid.csv.encode(),
        **images(titled(_picture(made), target.title)),
    }


RowsOrReason = list[AuditRow] | str
"""The rows of a task, or the reason why there are none."""


def _load_or_attack(folder: Path, again: bool, task: AuditTask) -> RowsOrReason:
    """The rows of a task, read from the file that an interrupted table has left, if any."""
    path = folder / f"{task.digest}.json"
    if not again and (rows := finished_rows(path)) is not None:
        return rows
    answer = task.rows()
    if not isinstance(answer, str):
        write_atomically(path, json.dumps([asdict(row) for row in answer]).encode())
    return answer


def finished_rows(path: Path) -> list[AuditRow] | None:
    """The rows in a file; None if there is none, or it is damaged: then the attack is repeated."""
    text = text_of(path)
    try:
        plain = json.loads(text) if isinstance(text, str) else None
        return msgspec.convert(plain, list[AuditRow])
    except (ValueError, RecursionError):
        return None


def _in_processes(
    answer_of: Callable[[AuditTask], RowsOrReason], tasks: Sequence[AuditTask], jobs: int
) -> list[RowsOrReason]:
    """The answers to the tasks, in order, computed in `jobs` processes."""
    with ExitStack() as stack:
        count = stack.enter_context(counting("audits", len(tasks)))
        mapped: Callable = map
        if jobs > 1:
            threads = max(1, (os.cpu_count() or 1) // jobs)
            pool = ProcessPoolExecutor(
                jobs, get_context("spawn"), torch.set_num_threads, (threads,)
            )
            mapped = stack.enter_context(pool).map
        answers = []
        for answer in mapped(answer_of, tasks):
            answers.append(answer)
            count()
        return answers


def _row(result: AuditResult) -> AuditRow:
    nominal, game = result.nominal, result.game
    label = _label(game.attacked, game.name, nominal.source)
    epsilons = nominal.epsilon, result.bounds.family
    return AuditRow(audit_grid("", [result]).rows[0], label, *epsilons, result.verdict == REFUTED)


def _label(attacked: str, name: str, source: str) -> str:
    """What is attacked, without versions, and whether the claim is its paper's."""
    by = ", its paper" if source.startswith("its paper") else ""
    without = re.sub(r" \d+(\.\d+)+", "", attacked)
    return f"{without}, {name}{by}"


def _audits(overrides: Sequence[str]) -> Iterator[AuditResult]:
    """The audits of a whole run, of the epsilon of its method's paper, and of single steps."""
    run, canaries = prepare_audit(list(overrides))
    if not run.method.clip.sensitivity.per_coordinate:
        run, canaries = prepare_audit(
            list(overrides), CANARIES_OF_METHODS.get(run.method.name, CANARIES_OF_OTHERS)
        )
    first = audit(run, canaries, quiet=True)
    yield first
    if (stated := first.of_paper) is not None:
        yield first.against(stated)
    if not run.method.users_only and run.method.noise.bands == 1:
        number = STEPS_OF_METHODS.get(run.method.name, STEPS)
        single, steps = prepare_audit(list(overrides), number, "step")
        yield audit(single, steps, game="step", quiet=True)


def _only_audit(settings: RunAuditCommand, overrides: list[str]) -> AuditResult:
    """One audit, given the arguments of `dpbench audit`."""
    if settings.contender:
        return contender_audit(settings, overrides)
    run, canaries = prepare_audit(overrides, settings.canaries, settings.game)
    return audit(run, canaries, game=settings.game, quiet=True)


def _of_row(target: Target, row: list[str]) -> AuditTask:
    """The audit of a row of its own settings, with the table's seed."""
    settings, overrides = split_settings("audit", RunAuditCommand, row)
    (seed,) = target.table.seeds
    common = [*target.scale.overrides, *target.overrides]
    changed = [o for o in common if is_scientific(o)]
    if settings.contender:
        check_for_contender(settings.contender, changed)
    run = [f"+table={target.name}", f"seed={seed}", *changed, *overrides]
    return AuditTask(tuple(run), settings)


def _page(target: Target, rows: Sequence[AuditRow], grid: Grid, missing: Sequence[str]) -> Page:
    refuted = sum(row.refuted for row in rows)
    return target.page(
        target.table.paper,
        [f"{len(rows)} claims attacked, {refuted} refuted."],
        target.image,
        grid,
        "## Rules and notes",
        *RULES,
        *target.table.notes,
        *missing,
    )


def _picture(rows: Sequence[AuditRow]):
    """Lower bounds beside nominal epsilons, a line for each audit."""
    half = math.ceil(len(rows) / 2) if len(rows) > MOST_LINES else len(rows)
    parts = [part for part in (rows[:half], rows[half:]) if part]
    figure = paper_figure(len(parts), 1.4 + 0.16 * half)
    axes = figure.subplots(1, len(parts), sharex=True, squeeze=False)[0]
    for axis, part in zip(axes, parts, strict=True):
        _lines(axis, part)
    legend_below(figure, axes)
    return figure


def _lines(axis, rows: Sequence[AuditRow]) -> None:
    """Claimed and audited epsilons of some audits on a logarithmic axis, an arrow where one is
    beyond its ends."""
    low, high = SHOWN
    for place, row in enumerate(rows):
        claimed, audited = (min(high, max(low, value)) for value in (row.claimed, row.audited))
        axis.plot([audited, claimed], [place, place], color="0.8", linewidth=1, zorder=1)
        axis.plot(claimed, place, "k|", markersize=7, label="claimed")
        color, label = LOOKS[row.refuted]
        beyond = ">" if row.audited > high else "<" if row.audited < low else ""
        axis.plot(audited, place, "o", color=color, markersize=4, label=label)
        if beyond:
            axis.plot(audited, place, beyond, color=color, markersize=7)
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set(xscale="log", xlim=SHOWN, xlabel=symbol("epsilon"))
    axis.grid(axis="x", alpha=0.3)
