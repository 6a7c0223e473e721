"""From the records of a target to its files: table or picture, numbers, records."""

import math
from collections.abc import Mapping

import pandas as pd

from dpbench.config.buildable import TARGET, function
from dpbench.metrics.temperature import CAVEAT
from dpbench.paths import benchmarks_folder
from dpbench.privacy.accountants import claimed
from dpbench.privacy.ledger import from_plain
from dpbench.records.divergence import dropped
from dpbench.records.record import Record, frame
from dpbench.reproduce.figure import picture, remarks
from dpbench.reproduce.figure_claims import claims_blocks, judged_figure
from dpbench.reproduce.target import BUDGET, Target
from dpbench.tables import (
    NO_PLANS,
    PublishedTable,
    Row,
    Statement,
    TableSpec,
    build_table,
    claims_csv,
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

RUN_KEYS = (
    *("settings", "arm", "variants", "scales", "epsilon", "claimed_by", "loss_digits"),
    "group_numbers",
)
"""What a table's YAML says of its runs; the rest is the specification of the table itself."""


def render(
    wanted: Target,
    records: list[Record],
    impossible: Mapping[str, str],
    planned: Mapping[str, Statement] = NO_PLANS,
) -> dict[str, bytes]:
    """The files by suffix, the records included: the same records give the same bytes.

    impossible: why rows have no runs, by name; planned: what would hold of their epsilon.
    """
    figure = wanted.table.get("figure", {})
    if TARGET in figure:
        files = function("table", figure)(wanted, records)
    else:
        make = _figure if "figure" in wanted.table else _table
        files = make(wanted, records, impossible, planned)
    ordered = sorted(records, key=lambda record: record.digest)
    files["records.jsonl"] = "".join(record.json() + "\n" for record in ordered).encode()
    return files


def spec_of(wanted: Target) -> TableSpec:
    """The specification of a target's table; UserError for one that makes no sense."""
    plain = {k: v for k, v in wanted.table.items() if k not in RUN_KEYS}
    said = {"name": wanted.name, "title": wanted.title, "scale_label": wanted.scale_label}
    labels = [condition.label for condition in wanted.conditions]
    return table_spec(plain | said | {"conditions": labels, "claims": wanted.claims})


def _table(
    wanted: Target,
    records: list[Record],
    impossible: Mapping[str, str],
    planned: Mapping[str, Statement],
) -> dict[str, bytes]:
    spec = spec_of(wanted)
    caveats = (CAVEAT,) * any(c.metric == "test/ece_temperature" for c in spec.columns)
    table = build_table(
        spec,
        _runs(wanted, records),
        printed_numbers(wanted, spec),
        epsilon=_printed_epsilons(wanted),
        impossible=impossible,
        notes=(*wanted.notes, *caveats),
        planned=planned,
        claimed_by=_accountant(wanted),
    )
    texts = {"md": to_markdown(table), "csv": to_csv(table), "tex": to_latex(table)}
    if table.claims:
        texts["claims.csv"] = claims_csv(table.claims)
    return {suffix: text.encode() for suffix, text in texts.items()}


def _runs(wanted: Target, records: list[Record]) -> pd.DataFrame:
    """A row for each record, with the condition, the method or arm, and the variant it is of."""
    by = _accountant(wanted)
    return frame(records).assign(
        condition=[wanted.condition_of(record.config) for record in records],
        method=[wanted.method_of(record.config) for record in records],
        dropped=[dropped(record) for record in records],
        variant=[wanted.variant_of(record.config) for record in records],
        **{"privacy/claimed": [_claimed(record.privacy, by) for record in records]},
    )


def _accountant(wanted: Target) -> str:
    """What the table's paper accounts by."""
    return wanted.table.get("claimed_by", "rdp")


def _claimed(privacy: dict, by: str) -> float | None:
    """What the paper claims of a record's ledger, which another table's run may have made."""
    said, recorded = privacy["claimed"], privacy.get("claimed_by", "rdp")
    finite = said is not None and math.isfinite(said)
    # A method that has an accountant of its own keeps it in every table.
    if by == recorded or (said is not None and not finite) or (recorded == "note" and finite):
        return said
    return claimed(from_plain(privacy["ledger"]), privacy["delta"], by)


def _figure(
    wanted: Target,
    records: list[Record],
    impossible: Mapping[str, str],
    planned: Mapping[str, Statement],
) -> dict[str, bytes]:
    table = wanted.table
    drawn = picture(wanted, records, impossible)
    judged = judged_figure(wanted, _runs(wanted, records), records)
    before, after = claims_blocks(judged)
    text = "\n\n".join(
        [
            f"# {wanted.title}",
            f"{table['paper']}. Scale: {wanted.scale_label}. Seeds: {table['seeds']}.",
            *before,
            f"![{wanted.title}]({wanted.stem}.png)",
            "Drawn from private data outside the account; nothing of it is released privately.",
            *(f"## {grid.heading}\n\n{grid_lines(grid)}" for grid in drawn.grids),
            *_reasons(wanted, impossible),
            *remarks(wanted, records),
            *_privacy(wanted, records, planned),
            *after,
            *table["notes"],
            *wanted.notes,
        ]
    )
    csv = drawn.numbers.to_csv(index=False, lineterminator="\n")
    files = {"md": f"{text}\n".encode(), "csv": csv.encode(), "png": drawn.png}
    if judged:
        files["claims.csv"] = claims_csv(judged).encode()
    return files


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
    printed, baseline = _printed_epsilons(wanted), wanted.table["baseline"]
    grid = privacy_grid(rows, printed, baseline, planned, _accountant(wanted))
    return ["## Privacy", grid_lines(grid)]


def printed_numbers(wanted: Target, spec: TableSpec) -> PublishedTable:
    """What the paper printed of the methods and conditions that the table was narrowed to."""
    if spec.published is None:
        return {}
    printed = read_published(benchmarks_folder() / spec.published, wanted.conditions[0].keys)
    rows = {row_name(condition, method) for condition in spec.conditions for method in spec.methods}
    return {cell: number for cell, number in printed.items() if cell[0] in rows}


def _printed_epsilons(wanted: Target) -> dict[str, str]:
    """By condition, what the paper printed: the numbers of a file, what each condition asks for
    where the table's `epsilon` is "budget", or nothing."""
    source, printed = wanted.table["epsilon"], {}
    declared = conditions_of(wanted.table.get("conditions", []))
    others = any(change.startswith("dataset=") for change in wanted.changes)
    for condition in wanted.conditions:
        values = {"dataset": wanted.config["choices"]["dataset"], **dict(condition.values)}
        if source == BUDGET:
            if condition in declared:
                printed[condition.label] = f"{values['privacy.epsilon']}"
        elif source and not others:
            printed[condition.label] = read_epsilon(benchmarks_folder() / source, values["dataset"])
    return printed
