"""Rerun a table of a paper: what is missing of its runs, then the table beside the printed one."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pandas as pd

from dpbench.errors import Unavailable
from dpbench.methods.method import Inapplicable
from dpbench.metrics.temperature import CAVEAT
from dpbench.ntk import coincidence
from dpbench.pictures import diverged, picture
from dpbench.privacy import statement
from dpbench.progress import counting
from dpbench.resources import benchmarks_folder
from dpbench.results import Record, check_writable, frame, load, record_path, write_whole
from dpbench.runs import once, settle
from dpbench.tables import (
    NO_PLANS,
    PublishedTable,
    Row,
    Statement,
    TableSpec,
    build_table,
    conditions_of,
    grid_lines,
    privacy_grid,
    read_epsilon,
    read_published,
    row_name,
    table_spec,
    to_csv,
    to_latex,
    to_markdown,
)
from dpbench.targets import Target, target
from dpbench.train import Plan, Run

OWN_KEYS = ("settings", "arm", "variants", "scales", "epsilon", "loss_digits", "group_numbers")
"""What a table's YAML says of its runs; the rest is the specification of the table itself."""


def reproduce(name: str, overrides: list[str]) -> str:
    """Run what is missing, write `results/tables/NAME.*`, and return the table as Markdown.

    At another scale than the paper's, or with changes, NAME says so. A figure of times is measured
    anew, by the benchmark that it names.
    """
    wanted = target(name, overrides)
    folder = Path(wanted.config["results_dir"])
    if "bench" in wanted.table:
        return _time(wanted, folder)
    if "ntk" in wanted.table:
        return _measure(wanted, folder)
    if "figure" not in wanted.table:
        _spec(wanted)
    cells, impossible = _settle_all(wanted, folder)
    check_writable(folder / "tables")
    missing = {p: cell for p, cell in cells.items() if wanted.config["again"] or load(p) is None}
    lacking = _without_weights(missing.values())
    ready = [cell for cell in missing.values() if cell.row not in lacking]
    lacking |= run_all(ready, wanted.config["jobs"])
    records = [record for path in cells if (record := load(path)) is not None]
    if lacking and not records:
        raise Unavailable(f"{name}: {next(iter(lacking.values()))}")
    planned = {cell.row: cell.privacy for cell in missing.values() if cell.row in lacking}
    files = render(wanted, records, impossible | lacking, planned)
    for suffix, content in files.items():
        write_whole(folder / "tables" / f"{wanted.stem}.{suffix}", content)
    return files["md"].decode()


@dataclass(frozen=True)
class Cell:
    """One run of a table: the row that it belongs to, its overrides, and what they make."""

    row: str
    overrides: list[str]
    run: Run
    plan: Plan

    @property
    def privacy(self) -> Statement:
        """What is known of its epsilon before it is run."""
        plan = self.plan
        return statement(plan.ledger, plan.method, self.run.privacy.delta, plan.noise_multiplier)


def _settle_all(wanted: Target, folder: Path) -> tuple[dict[Path, Cell], dict[str, str]]:
    """Every run that can be, by the path of its record, and why the others cannot be."""
    cells, impossible = {}, {}
    for condition, method in itertools.product(wanted.conditions, wanted.table["methods"]):
        row = row_name(condition.label, method)
        for overrides in wanted.cells_of(condition, method):
            try:
                config, run, planned = settle(overrides)
                cells[record_path(folder, config)] = Cell(row, overrides, run, planned)
            except Inapplicable as reason:
                impossible[row] = str(reason)
    return cells, impossible


def _without_weights(missing: Iterable[Cell]) -> dict[str, str]:
    """By row, why pre-trained weights that it needs are not to be had: known before any data."""
    reasons: dict[tuple, str | None] = {}
    lacking = {}
    for cell in missing:
        run = cell.run
        if not getattr(run.model, "pretrained", False):
            continue
        what = (run.model, run.dataset.shape, run.dataset.classes)
        if what not in reasons:
            reasons[what] = _why_not(what)
        if reason := reasons[what]:
            lacking[cell.row] = reason
    return lacking


def _why_not(what: tuple) -> str | None:
    model, shape, classes = what
    try:
        model.build(shape, classes)
    except Unavailable as reason:
        return str(reason)
    return None


def _time(wanted: Target, folder: Path) -> str:
    """Measure with `dpbench bench`, which prints its table; where it put table and picture."""
    from dpbench.bench.command import bench

    out = folder / "tables" / wanted.stem
    settings = {**wanted.table["bench"], "device": wanted.config["device"], "out": out}
    bench([f"{key}={value}" for key, value in settings.items()])
    return f"{wanted.title}: table, numbers and picture are in {out}."


def _measure(wanted: Target, folder: Path) -> str:
    """Measure in the laboratory of the tangent kernel, which trains nothing."""
    from dpbench.ntk.command import measured

    check_writable(folder / "tables")
    files = measured(wanted)
    for suffix, content in files.items():
        write_whole(folder / "tables" / f"{wanted.stem}.{suffix}", content)
    return files["md"].decode()


def run_all(missing: list[Cell], jobs: int) -> dict[str, str]:
    """Make all runs, in this process or in several, each with one thread then.

    By row, why runs lack data that this machine neither has nor gets.
    """
    lacking = {}
    with counting("runs", len(missing)) as count:
        for cell, make in _attempts(missing, jobs):
            try:
                make()
            except Unavailable as reason:
                lacking[cell.row] = str(reason)
            count()
    return lacking


def _attempts(missing: list[Cell], jobs: int) -> Iterator[tuple[Cell, Callable[[], object]]]:
    """Each run with what makes it, or waits for it; a failure ends those not yet begun."""
    if jobs == 1:
        for cell in missing:
            # Two bars at once would write over each other.
            yield cell, partial(once, cell.overrides, quiet=len(missing) > 1)
        return
    # Spawned, because a forked process inherits torch's thread pools without their threads.
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _end_with, (os.getpid(),)) as pool:
        done = {pool.submit(once, ["threads=1", *c.overrides], True): c for c in missing}
        for future in as_completed(done):
            if future.exception() and not isinstance(future.exception(), Unavailable):
                pool.shutdown(cancel_futures=True)
            yield done[future], future.result


def _end_with(parent: int) -> None:
    """Let this worker end when its parent is gone: a killed sweep must not train on unseen."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def render(
    wanted: Target,
    records: list[Record],
    impossible: Mapping[str, str],
    planned: Mapping[str, Statement] = NO_PLANS,
) -> dict[str, bytes]:
    """The files by suffix, the records included: the same records give the same bytes.

    impossible: why rows have no runs, by name; planned: what would hold of their epsilon.
    """
    if wanted.table.get("figure", {}).get("kind") == "coincidence":
        files = coincidence.files(wanted, records)
    else:
        make = _figure if "figure" in wanted.table else _table
        files = make(wanted, records, impossible, planned)
    ordered = sorted(records, key=lambda record: record.digest)
    files["records.jsonl"] = "".join(record.json() + "\n" for record in ordered).encode()
    return files


def _spec(wanted: Target) -> TableSpec:
    plain = {k: v for k, v in wanted.table.items() if k not in OWN_KEYS}
    said = {"name": wanted.name, "title": wanted.title, "scale": wanted.scale}
    labels = [condition.label for condition in wanted.conditions]
    return table_spec(plain | said | {"conditions": labels})


def _table(
    wanted: Target,
    records: list[Record],
    impossible: Mapping[str, str],
    planned: Mapping[str, Statement],
) -> dict[str, bytes]:
    spec = _spec(wanted)
    table = build_table(
        spec,
        _runs(wanted, records),
        _printed_numbers(wanted, spec),
        epsilon=_printed_epsilons(wanted),
        impossible=impossible,
        notes=(CAVEAT,) * any(c.metric == "test/ece_temperature" for c in spec.columns),
        planned=planned,
    )
    texts = {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}
    return {suffix: text.encode() for suffix, text in texts.items()}


def _runs(wanted: Target, records: list[Record]) -> pd.DataFrame:
    """A row for each record, with the condition and the method, or arm, that it is of."""
    return frame(records).assign(
        condition=[wanted.condition_of(record.config) for record in records],
        method=[wanted.method_of(record.config) for record in records],
    )


def _figure(
    wanted: Target,
    records: list[Record],
    impossible: Mapping[str, str],
    planned: Mapping[str, Statement],
) -> dict[str, bytes]:
    table = wanted.table
    data, drawn = picture(wanted, records, impossible)
    text = "\n\n".join(
        [
            f"# {wanted.title}",
            f"{table['paper']}. Scale: {wanted.scale}. Seeds: {table['seeds']}.",
            f"![{wanted.title}]({wanted.stem}.png)",
            "Drawn from private data outside the account; nothing of it is released privately.",
            *_reasons(wanted, impossible),
            *diverged(wanted, records),
            *_privacy(wanted, records, planned),
            *table["notes"],
        ]
    )
    csv = data.to_csv(index=False, lineterminator="\n")
    return {"md": f"{text}\n".encode(), "csv": csv.encode(), "png": drawn}


def _reasons(wanted: Target, impossible: Mapping[str, str]) -> list[str]:
    """Why rows are not there; a table of arms says of which."""
    if "arm" not in wanted.table:
        return list(impossible.values())
    rows: dict[str, list[str]] = {}
    for row, reason in impossible.items():
        rows.setdefault(reason, []).append(row)
    return [f"No runs of {'; '.join(of)}: {reason}" for reason, of in rows.items()]


def _privacy(wanted: Target, records: list[Record], planned: Mapping[str, Statement]) -> list[str]:
    """Every epsilon of a figure whose paper printed one, as under a table."""
    if "epsilon" not in wanted.table:
        return []
    runs = _runs(wanted, records)
    rows = [
        Row(label, arm, "corrected", runs[(runs["condition"] == label) & (runs["method"] == arm)])
        for label in [condition.label for condition in wanted.conditions]
        for arm in wanted.table["methods"]
    ]
    grid = privacy_grid(rows, _printed_epsilons(wanted), wanted.table["baseline"], planned)
    return ["## Privacy", grid_lines(grid)]


def _printed_numbers(wanted: Target, spec: TableSpec) -> PublishedTable:
    """What the paper printed of the methods and conditions that the table was narrowed to."""
    if spec.published is None:
        return {}
    printed = read_published(benchmarks_folder() / spec.published, wanted.conditions[0].keys)
    rows = {row_name(condition, method) for condition in spec.conditions for method in spec.methods}
    return {cell: number for cell, number in printed.items() if cell[0] in rows}


def _printed_epsilons(wanted: Target) -> dict[str, str]:
    """By condition: the budget, where that is what the table varies, or what the paper printed."""
    source, printed = wanted.table["epsilon"], {}
    declared = conditions_of(wanted.table.get("conditions", []))
    others = any(change.startswith("dataset=") for change in wanted.changes)
    for condition in wanted.conditions:
        values = {"dataset": wanted.config["choices"]["dataset"], **dict(condition.values)}
        if "privacy.epsilon" in values and condition in declared:
            printed[condition.label] = f"{values['privacy.epsilon']}"
        elif source and not others:
            printed[condition.label] = read_epsilon(benchmarks_folder() / source, values["dataset"])
    return printed
