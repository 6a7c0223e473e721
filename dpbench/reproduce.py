"""Rerun a table of a paper: what is missing of its runs, then the table beside the printed one."""

from dataclasses import replace
from pathlib import Path

from dpbench import config as configuration
from dpbench.errors import UserError
from dpbench.figures import FigureSpec, Panel, draw, points
from dpbench.resources import benchmarks_folder
from dpbench.results import Record, check_writable, frame, load, write_whole
from dpbench.runs import tracking_folder
from dpbench.sweeps import Sweep, carry_out, planned
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
from dpbench.tracking import keep_table

OWN_KEYS = ("settings", "variants", "scales", "epsilon", "loss_digits", "group_numbers")
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
    if "figure" not in wanted.table:
        _spec(wanted)
    sweep, impossible = _planned(wanted)
    check_writable(folder / "tables")
    if failures := carry_out(sweep):
        raise UserError(f"{wanted.name} lacks runs: {failures}")
    records = [record for path in sweep.runs if (record := load(path)) is not None]
    files = render(wanted, records, impossible)
    for suffix, content in files.items():
        write_whole(folder / "tables" / f"{wanted.stem}.{suffix}", content)
    trackers = configuration.trackers(wanted.config)
    keep_table(trackers, wanted.stem, files, tracking_folder(wanted.config))
    return files["md"].decode()


def _planned(wanted: Target) -> tuple[Sweep, dict[str, str]]:
    """All runs that can be, and by row of the table why the others cannot be."""
    labels = {tuple(run): c.label for c in wanted.conditions for run in wanted.cells_under(c)}
    sweep = planned(wanted.stem, map(list, labels))
    impossible = {
        row_name(labels[tuple(run)], reason.method): str(reason) for run, reason in sweep.impossible
    }
    return replace(sweep, config=wanted.config, impossible=()), impossible


def _time(wanted: Target, folder: Path) -> str:
    """Measure with `dpbench bench`, which prints its table; where it put table and picture."""
    from dpbench.bench.command import bench

    out = folder / "tables" / wanted.stem
    settings = {**wanted.table["bench"], "device": wanted.config["device"], "out": out}
    bench([f"{key}={value}" for key, value in settings.items()])
    return f"{wanted.title}: table, numbers and picture are in {out}."


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
