"""The table of audits: every method that claims an epsilon, attacked."""

from collections.abc import Iterator, Sequence

from dpbench.audit.audit import REFUTED, Audit, audit
from dpbench.audit.command import DEFAULTS, HEAD, STEPS, contender_audit, line, prepared
from dpbench.config.buildable import settings_of
from dpbench.config.settings import key_of, split_settings
from dpbench.errors import Unavailable
from dpbench.figures.png import png
from dpbench.reproduce.target import Target
from dpbench.tables.grid import Grid
from dpbench.tables.markdown import grid_lines
from dpbench.tables.tidy import csv_text
from dpbench.training.progress import counting

RULES = (
    "Audited: lower bounds of epsilon at 95% confidence. Own family: by the trade-off curves of "
    "the run's own ledger with more or less noise; GDP: by those of Gaussian differential privacy; "
    "one run: by Steinke et al. 2023, who assume nothing of how canaries depend on each other.",
    "Holds: this attack found nothing against the claim. A lower bound can prove a mistake, never "
    "that there is none. Refuted: under the claim such scores have a chance of at most 1e-4.",
    "PLD: the epsilon of the run's ledger. Its paper: what the method's paper would print for this "
    "run, by its own accountant. Its PRV or PLD: what another library says of its own run.",
)

CANARIES, USUAL = {"dpsgd": 100_000, "dp_fedavg": 2_000, "bam_exact": 2_000}, 20_000
"""How many, where each has a coordinate of its own: many for the method that others are compared
with, and few where the gradients of a batch are materialised."""

WIDEST = 35.0
"""The largest epsilon of the picture: bars of larger ones end at its edge."""


def audit_table(target: Target) -> dict[str, bytes]:
    """The files of the table by suffix: a row for each method, variant and claim of its paper."""
    (condition,) = target.conditions
    cells = [
        overrides
        for method in target.table["methods"]
        for overrides in target.cells_of(condition, method)
    ]
    contenders = [row.split() for row in settings_of(target.table["compute"])["contenders"]]
    audits, missing = list[Audit](), list[str]()
    with counting("audits", len(cells) + len(contenders)) as count:
        for overrides in cells:
            audits += _audits(overrides)
            count()
        for row in contenders:
            try:
                audits.append(_of_contender(target, row))
            except Unavailable as reason:
                missing.append(f"Not audited: {reason}")
            count()
    grid = Grid("", HEAD, tuple(map(line, audits)))
    return {
        "md": _page(target, audits, grid, missing).encode(),
        "csv": csv_text(grid.head, grid.rows).encode(),
        "png": png(_picture(audits), target.title),
    }


def _audits(overrides: Sequence[str]) -> Iterator[Audit]:
    """Of a whole run, also against its paper's claim, and of steps by themselves."""
    run, canaries = prepared(list(overrides))
    if not run.method.clip.per_coordinate:
        run, canaries = prepared(list(overrides), str(CANARIES.get(run.method.name, USUAL)))
    first = audit(run, canaries, quiet=True)
    yield first
    if (claim := first.papers_claim) is not None:
        yield first.against(claim)
    if not run.method.users_only:
        yield audit(run, STEPS, game="step", quiet=True)


def _of_contender(target: Target, row: list[str]) -> Audit:
    """The arguments of the audit of another library, with the table's seed and its own settings."""
    settings, overrides = split_settings("audit", DEFAULTS, row)
    (seed,) = target.table["seeds"]
    common = [*target.scale.overrides, *target.overrides]
    changed = [o for o in common if not key_of(o).startswith("table")]
    run = [f"+table={target.name}", f"seed={seed}", *changed, *overrides]
    return contender_audit(settings, run)


def _page(target: Target, audits: Sequence[Audit], grid: Grid, missing: Sequence[str]) -> str:
    refuted = sum(one.verdict == REFUTED for one in audits)
    parts = [
        f"# {target.title}",
        target.table["paper"],
        f"- {len(audits)} claims attacked, {refuted} refuted.",
        f"![{target.title}]({target.stem}.png)",
        grid_lines(grid),
        "## Rules and notes",
        *RULES,
        *target.table["notes"],
        *missing,
    ]
    return "\n\n".join(parts) + "\n"


def _picture(audits: Sequence[Audit]):
    """Lower bounds beside claims, a line for each audit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.5 + 0.28 * len(audits)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(audits), 0, -1)
    claimed = [one.claim.epsilon for one in audits]
    audited = [one.bounds.own for one in audits]
    axes.barh(places, audited, color="tab:blue", label="audited, at least")
    axes.plot(claimed, places, "k|", markersize=12, label="claimed")
    names = [f"{line(one)[0]}, {one.game.name}, {one.claim.source}" for one in audits]
    axes.set_yticks(list(places), names)
    axes.set_xlim(0, min(WIDEST, 1.1 * max(*claimed, *audited, 1.0)))
    axes.set_xlabel("epsilon")
    axes.legend()
    return figure
