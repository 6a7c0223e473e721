"""Rerun a table of a paper: what is missing of its runs, then the table beside the printed one."""

import itertools
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from dpbench import config as configuration
from dpbench.errors import UserError, nearest
from dpbench.figures import FigureSpec, Panel, draw, points
from dpbench.methods.method import Inapplicable
from dpbench.progress import counting
from dpbench.resources import benchmarks_folder
from dpbench.results import Record, check_writable, frame, load, record_path, write_whole
from dpbench.runs import is_scientific, once, settle
from dpbench.tables import (
    PublishedTable,
    TableSpec,
    build_table,
    read_epsilon,
    read_published,
    table_spec,
    to_csv,
    to_latex,
    to_markdown,
)

OWN_KEYS = ("settings", "variants", "epsilon", "loss_digits", "group_numbers")
"""What a table's YAML says of its runs; the rest is the specification of the table itself."""


@dataclass(frozen=True)
class Target:
    """A table to rerun: its name, the user's overrides, and its composed configuration."""

    name: str
    overrides: tuple[str, ...]
    config: dict

    @property
    def table(self) -> dict:
        return self.config["table"]

    @property
    def changes(self) -> list[str]:
        """The overrides that make the runs other than the paper's."""
        return [o for o in self.overrides if is_scientific(o) or _rewrites(o)]

    @property
    def scale(self) -> str:
        """What the runs are, in a few words: the paper's, or what was changed."""
        return ", ".join(self.changes) or self.table["scale"]

    @property
    def stem(self) -> str:
        """The name of its files; neither other runs nor fewer take the whole table's place."""
        if self.changes:
            return f"{self.name}-changed"
        return f"{self.name}-part" if any(_narrows(o) for o in self.overrides) else self.name

    def cells(self) -> Iterator[list[str]]:
        """The overrides of every run of the table."""
        for method, seed in itertools.product(self.table["methods"], self.table["seeds"]):
            for variant in self.table.get("variants", {}).get(method, [None]):
                chosen = [f"+table={self.name}", f"method={method}", f"seed={seed}"]
                yield [*chosen, *self.overrides, *([f"method.variant={variant}"] * bool(variant))]


def _narrows(override: str) -> bool:
    return override.lstrip("+~").split("=")[0] in ("table.methods", "table.seeds")


def _rewrites(override: str) -> bool:
    """Whether an override changes what the table itself says."""
    return override.lstrip("+~").startswith("table.") and not _narrows(override)


def target(name: str, overrides: list[str]) -> Target:
    """The table of that name; UserError, with the nearest names, if there is none."""
    known = configuration.options("table")
    if name not in known:
        raise UserError(f"table {name} is unknown: {nearest(name, known)}")
    fixed = [o for o in overrides if o.lstrip("+~").split("=")[0] in ("method", "seed", "table")]
    if fixed:
        raise UserError(f"{fixed[0]} is for the table to choose; use table.methods or table.seeds.")
    config = configuration.compose([f"+table={name}", *overrides])
    for choice in ("methods", "seeds"):
        if not isinstance(config["table"][choice], list):
            raise UserError(f"table.{choice} must be a list: write table.{choice}=[...].")
    return Target(name, tuple(overrides), config)


def reproduce(name: str, overrides: list[str]) -> str:
    """Run what is missing, write `results/tables/NAME.*`, and return the table as Markdown."""
    wanted = target(name, overrides)
    folder = Path(wanted.config["results_dir"])
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
    for overrides in wanted.cells():
        try:
            config, _, _ = settle(overrides)
            paths[record_path(folder, config)] = overrides
        except Inapplicable as reason:
            impossible[reason.method] = str(reason)
    return paths, impossible


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
    return table_spec(plain | {"name": wanted.name, "scale": wanted.scale})


def _table(wanted: Target, records: list[Record], impossible: dict[str, str]) -> dict[str, bytes]:
    spec = _spec(wanted)
    table = build_table(
        spec,
        frame(records),
        _printed_numbers(spec),
        epsilon=_printed_epsilon(wanted),
        impossible=impossible,
        notes=(),
    )
    texts = {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}
    return {suffix: text.encode() for suffix, text in texts.items()}


def _figure(wanted: Target, records: list[Record], impossible: dict[str, str]) -> dict[str, bytes]:
    table = wanted.table
    spec = FigureSpec(
        name=wanted.name,
        title=table["title"],
        scale=wanted.scale,
        x=table["figure"]["x"],
        panels=tuple(Panel(**row) for row in table["figure"]["rows"]),
        methods=tuple(m for m in table["methods"] if m not in impossible),
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


def _printed_numbers(spec: TableSpec) -> PublishedTable:
    """What the paper printed of the methods that the table was narrowed to."""
    if spec.published is None:
        return {}
    printed = read_published(benchmarks_folder() / spec.published)
    return {cell: number for cell, number in printed.items() if cell[0] in spec.methods}


def _printed_epsilon(wanted: Target) -> str | None:
    source = wanted.table["epsilon"]
    dataset = wanted.config["choices"]["dataset"]
    return read_epsilon(benchmarks_folder() / source, dataset) if source else None
