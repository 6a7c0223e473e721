"""`dpbench reproduce calibration_table1` and `calibration_theorem3`: measured on small networks of
our own, nothing is released."""

import torch

from dpbench.config.buildable import settings_of
from dpbench.execution.prepare import build, data_folder
from dpbench.papers.calibration.laboratory import Setup, examine, setup_of
from dpbench.papers.calibration.report import (
    RULE,
    RULE_OF_NOISE,
    SAME,
    claims,
    grids,
    summary,
    to_csv,
)
from dpbench.papers.calibration.scale import own_scale
from dpbench.paths import benchmarks_folder
from dpbench.reproduce.target import Target
from dpbench.tables import Table, read_published, to_latex, to_markdown
from dpbench.training.progress import counting


def measured(wanted: Target) -> dict[str, bytes]:
    """The files by suffix: the table as Markdown, CSV and LaTeX."""
    setup, printed = setup_of(settings_of(wanted.table["compute"])), _printed(wanted)
    run, folder = build(wanted.config), data_folder(wanted.config)
    if wanted.config["threads"]:
        torch.set_num_threads(wanted.config["threads"])
    findings = []
    starts = [*wanted.table["seeds"], *([None] if setup.by_hand else [])]
    with counting("flows", len(setup.flows) * len(starts)) as count:
        for label in setup.flows:
            for seed in starts:
                findings.append(examine(run, setup, label, folder, seed))
                count()
    found = claims(findings, printed, setup.zero)
    table = Table(
        name=wanted.name,
        title=wanted.title,
        introduction=(_introduction(wanted, setup),),
        grids=tuple(grids(found, findings)),
        summary=(summary(found),),
        rules=(RULE, *[RULE_OF_NOISE] * any(claim.name == SAME for claim in found)),
        notes=tuple(wanted.table["notes"]),
        cells=(),
    )
    texts = {"md": to_markdown(table), "csv": to_csv(found), "tex": to_latex(table)}
    return {suffix: text.encode() for suffix, text in texts.items()}


def _printed(wanted: Target):
    return read_published(benchmarks_folder() / wanted.table["published"])


def _introduction(wanted: Target, setup: Setup) -> str:
    choices = wanted.config["choices"]
    return (
        f"{wanted.table['paper']}. {own_scale(wanted)}, on {setup.examples} examples of "
        f"{choices['dataset']}; model: {choices['model']}; seeds: {wanted.table['seeds']}; "
        f"at most {setup.steps} steps of {setup.lr:g}, the kernel every {setup.every}; zero loss: "
        f"{setup.zero:g} of the first. M is the matrix of each clipping, H or HC or sum_r H_r C_r."
    )
