"""`dpbench reproduce TABLE`: executes the missing runs of a paper's table, then renders it."""

from collections.abc import Mapping

from dpbench.comparison.reproduce.figure import check_figure
from dpbench.comparison.reproduce.power import power_page
from dpbench.comparison.reproduce.render import for_paper, render
from dpbench.comparison.reproduce.target import Target, target_of
from dpbench.comparison.reproduce.target_runs import execute, not_run, plan_runs
from dpbench.runs.config.buildable import function
from dpbench.runs.config.commands import Reproduce
from dpbench.runs.config.settings import split_settings
from dpbench.runs.records.code import is_stale
from dpbench.runs.records.folder import TABLES
from dpbench.runs.training.tracking import log_table
from dpbench.system.errors import UserError, print_message
from dpbench.system.files import check_writable, write_atomically


def reproduce(name: str, overrides: list[str]) -> str:
    """Execute the missing runs, write `results/tables/NAME.*`, and return the table as Markdown.

    At another scale, or with changed settings, NAME has a suffix. With `power=P` nothing is
    executed or written: see `power_page`. With `layout=paper` also writes NAME.paper.*, and returns
    that table.
    """
    own, others = split_settings("reproduce", Reproduce, overrides)
    target = target_of(name, [*others, *([f"scale={own.scale}"] if own.scale else [])])
    paper = _is_for_paper(target, own)
    if own.power:
        return power_page(target, own.power)
    if (compute := target.table.compute) is not None:
        return _compute(target, compute)
    if target.table.figure:
        check_figure(target.table)
    else:
        _ = target.edition  # refuses an invalid table before its runs
    runs = plan_runs(target)
    check_writable(target.config.results / TABLES)
    records, unavailable = execute(runs)
    if stale := sum(map(is_stale, records)):
        print_message(
            f"{stale} of {len(records)} records were produced by a different version of the code; "
            "rerun them with again=stale."
        )
    missing = not_run(runs, unavailable)
    files = render(target, records, missing)
    if paper:
        columns = [column for column in own.columns if column]
        files |= for_paper(target, records, missing, columns)
    _write(target, files)
    log_table(target.config.trackers, target.stem, files, target.config.tracking)
    return files["paper.md" if paper else "md"].decode()


def _is_for_paper(target: Target, own: Reproduce) -> bool:
    """Whether the table is to be laid out for a paper; UserError where there is none to lay out."""
    if own.columns and not own.layout:
        raise UserError(f"columns={','.join(own.columns)} needs layout=paper.")
    if own.layout and not target.table.columns:
        raise UserError(f"{target.name} is not a table of runs, so it has no layout=paper.")
    return bool(own.layout)


def _compute(target: Target, node: dict) -> str:
    """A table that needs no private training, computed by the function that its YAML names."""
    compute = function("table", node)
    check_writable(target.config.results / TABLES)
    files = compute(target)
    _write(target, files)
    return files["md"].decode()


def _write(target: Target, files: Mapping[str, bytes]) -> None:
    stem = target.config.results / TABLES / target.stem
    for suffix, content in files.items():
        write_atomically(stem.with_name(f"{stem.name}.{suffix}"), content)
    print_message(f"written: {stem}.{{{','.join(files)}}}")
