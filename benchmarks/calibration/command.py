"""`dpbench reproduce calibration_table1` and `calibration_theorem3`: measurements on small networks
without private training."""

import torch

from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.tables.published import read_published
from dpbench.comparison.tables.table import ResultTable
from dpbench.runs.execution.prepare import run_of
from dpbench.system.progress import counting

from .laboratory import FlowSettings, examine
from .report import RULE, RULE_OF_NOISE, SAME, claims, grids, summary, to_csv


def measured(target: Target) -> dict[str, bytes]:
    """The files by suffix: the table as Markdown, CSV and LaTeX."""
    setup, printed = target.computed_by(FlowSettings), read_published(target.published)
    run, folder = run_of(target.config), target.config.data_folder
    if target.config["threads"]:
        torch.set_num_threads(target.config["threads"])
    findings = []
    starts = [*target.table.seeds, *([None] if setup.by_hand else [])]
    with counting("flows", len(setup.flows) * len(starts)) as count:
        for label in setup.flows:
            for seed in starts:
                findings.append(examine(run, setup, label, folder, seed))
                count()
    checked = claims(findings, printed, setup.zero)
    with_noise = any(claim.name == SAME for claim in checked)
    table = ResultTable(
        name=target.name,
        title=target.title,
        introduction=(_introduction(target, setup),),
        grids=tuple(grids(checked, findings)),
        summary=(summary(checked),),
        rules=(RULE, RULE_OF_NOISE) if with_noise else (RULE,),
        notes=tuple(target.table.notes),
        cells=(),
        command=target.command,
    )
    return table.files(to_csv(checked))


def _introduction(target: Target, setup: FlowSettings) -> str:
    choices = target.config["choices"]
    return (
        f"{target.table.paper}. {target.own_scale}, on {setup.examples} examples of "
        f"{choices['dataset']}; model: {choices['model']}; seeds: {target.table.seeds}; "
        f"at most {setup.steps} steps of {setup.lr:g}, the kernel every {setup.every}; zero loss: "
        f"{setup.zero:g} of the first. M is the matrix of each clipping, H or HC or sum_r H_r C_r."
    )
