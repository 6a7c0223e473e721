"""Rerun a table of a paper: what is missing of its runs, then the table beside the printed one."""

import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from dpbench.figures import FigureSpec, Panel, draw, points
from dpbench.methods.method import Inapplicable
from dpbench.progress import counting
from dpbench.resources import benchmarks_folder
from dpbench.results import Record, check_writable, frame, load, record_path, write_whole
from dpbench.runs import once, settle
from dpbench.sign_epsilons import sign_epsilons
from dpbench.sign_errors import sign_errors
from dpbench.tables import (
    PublishedTable,
    TableSpec,
    build_table,
    conditions_of,
    read_epsilon,
    read_published,
    row_name,
    table_spec,
    to_csv,
    to_latex,
    to_markdown,
)
from dpbench.targets import Target, target

OWN_KEYS = ("settings", "variants", "scales", "epsilon", "loss_digits", "group_numbers")
"""What a table's YAML says of its runs; the rest is the specification of the table itself."""


COMPUTED = {"sign_errors": sign_errors, "sign_epsilons": sign_epsilons}
"""Tables and figures that take no training, by the key of their YAML that says what is in them."""


def reproduce(name: str, overrides: list[str]) -> str:
    """Run what is missing, write `results/tables/NAME.*`, and return the table as Markdown.

    At another scale than the paper's, or with changes, NAME says so. A figure of times is measured
    anew, by the benchmark that it names.
    """
    wanted = target(name, overrides)
    folder = Path(wanted.config["results_dir"])
    if "bench" in wanted.table:
        return _time(wanted, folder)
    if computed := COMPUTED.keys() & wanted.table.keys():
        return _compute(wanted, folder, computed.pop())
    if "figure" not in wanted.table:
        _spec(wanted)
    paths, impossible = _settle_all(wanted, folder)
    check_writable(folder / "tables")
    missing = [o for path, o in paths.items() if wanted.config["again"] or load(path) is None]
    run_all(missing, wanted.config["jobs"])
    records = [record for path in paths if (record := load(path)) is not None]
    files = render(wanted, records, impossible)
    for suffix, content in files.items():
        write_whole(folder / "tables" / f"{wanted.stem}.{suffix}", content)
    return files["md"].decode()


def _settle_all(wanted: Target, folder: Path) -> tuple[dict[Path, list[str]], dict[str, str]]:
    """The record path of every run that can be, and why the others cannot be."""
    paths, impossible = {}, {}
    for condition in wanted.conditions:
        for overrides in wanted.cells_under(condition):
            try:
                config, _, _ = settle(overrides)
                paths[record_path(folder, config)] = overrides
            except Inapplicable as reason:
                impossible[row_name(condition.label, reason.method)] = str(reason)
    return paths, impossible


def _time(wanted: Target, folder: Path) -> str:
    """Measure with `dpbench bench`, which prints its table; where it put table and picture."""
    from dpbench.bench.command import bench

    out = folder / "tables" / wanted.stem
    settings = {**wanted.table["bench"], "device": wanted.config["device"], "out": out}
    bench([f"{key}={value}" for key, value in settings.items()])
    return f"{wanted.title}: table, numbers and picture are in {out}."


def _compute(wanted: Target, folder: Path, kind: str) -> str:
    """What follows from settings alone, without any training."""
    check_writable(folder / "tables")
    files = COMPUTED[kind](wanted)
    for suffix, content in files.items():
        write_whole(folder / "tables" / f"{wanted.stem}.{suffix}", content)
    return files["md"].decode()


def run_all(missing: list[list[str]], jobs: int) -> None:
    """Make all runs, in this process or in several, each with one thread then."""
    with counting("runs", len(missing)) as count:
        if jobs == 1:
            for overrides in missing:
                # Two bars at once would write over each other.
                once(overrides, quiet=len(missing) > 1)
                count()
            return
        # Spawned, because a forked process inherits torch's thread pools without their threads.
        context = get_context("spawn")
        with ProcessPoolExecutor(jobs, context, _end_with, (os.getpid(),)) as pool:
            done = [pool.submit(once, ["threads=1", *overrides], True) for overrides in missing]
            for future in as_completed(done):
                if future.exception():
                    pool.shutdown(cancel_futures=True)
                future.result()
                count()


def _end_with(parent: int) -> None:
    """Let this worker end when its parent is gone: a killed sweep must not train on unseen."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def render(wanted: Target, records: list[Record], impossible: dict[str, str]) -> dict[str, bytes]:
    """The files by suffix, the records included: the same records give the same bytes."""
    make = _figure if "figure" in wanted.table else _table
    files = make(wanted, records, impossible)
    ordered = sorted(records, key=lambda record: record.digest)
    files["records.jsonl"] = "".join(record.json() + "\n" for record in ordered).encode()
    return files


def _spec(wanted: Target) -> TableSpec:
    plain = {k: v for k, v in wanted.table.items() if k not in OWN_KEYS}
    said = {"name": wanted.name, "title": wanted.title, "scale": wanted.scale}
    labels = [condition.label for condition in wanted.conditions]
    return table_spec(plain | said | {"conditions": labels})


def _table(wanted: Target, records: list[Record], impossible: dict[str, str]) -> dict[str, bytes]:
    spec = _spec(wanted)
    table = build_table(
        spec,
        frame(records).assign(condition=[wanted.condition_of(r.config) for r in records]),
        _printed_numbers(wanted, spec),
        epsilon=_printed_epsilons(wanted),
        impossible=impossible,
        notes=(),
    )
    texts = {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}
    return {suffix: text.encode() for suffix, text in texts.items()}


def _figure(wanted: Target, records: list[Record], impossible: dict[str, str]) -> dict[str, bytes]:
    table = wanted.table
    spec = FigureSpec(
        name=wanted.name,
        title=wanted.title,
        scale=wanted.scale,
        x=table["figure"]["x"],
        x_scale=table["figure"].get("x_scale", "linear"),
        panels=tuple(Panel(**row) for row in table["figure"]["rows"]),
        methods=tuple(m for m in table["methods"] if not _never(wanted, m, impossible)),
        groups=dict(zip(table["groups"], table["group_numbers"], strict=True)),
    )
    data = points(spec, records)
    text = "\n\n".join(
        [
            f"# {spec.title}",
            f"{table['paper']}. Scale: {spec.scale}. Seeds: {table['seeds']}.",
            f"![{spec.title}]({wanted.stem}.png)",
            "Drawn from private data outside the account; nothing of it is released privately.",
            *impossible.values(),
            *table["notes"],
        ]
    )
    csv = data.to_csv(index=False, lineterminator="\n")
    return {"md": f"{text}\n".encode(), "csv": csv.encode(), "png": draw(spec, data)}


def _never(wanted: Target, method: str, impossible: dict[str, str]) -> bool:
    """Whether a method is impossible under every condition."""
    return all(row_name(condition.label, method) in impossible for condition in wanted.conditions)


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
    for condition in wanted.conditions:
        values = {"dataset": wanted.config["choices"]["dataset"], **dict(condition.values)}
        if "privacy.epsilon" in values and condition in declared:
            printed[condition.label] = f"{values['privacy.epsilon']}"
        elif source:
            printed[condition.label] = read_epsilon(benchmarks_folder() / source, values["dataset"])
    return printed
