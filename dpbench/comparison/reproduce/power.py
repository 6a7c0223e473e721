"""`dpbench reproduce TABLE power=P`: how many seeds would decide its comparisons, and the cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dpbench.comparison.reproduce.render import judged_claims
from dpbench.comparison.reproduce.target import Target
from dpbench.comparison.reproduce.target_runs import mean_seconds, table_records
from dpbench.comparison.tables.claims.comparisons import JudgedClaim, RowComparison
from dpbench.comparison.tables.claims.grids import gap_text
from dpbench.comparison.tables.conditions import row_name
from dpbench.comparison.tables.grid import Grid, counted, number
from dpbench.comparison.tables.page import Page
from dpbench.comparison.tables.verdict import UNDECIDED
from dpbench.learning.metrics.paired_t import LEVEL, MOST_SEEDS, paired_test
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

HEAD = ("claim", "row", "than", "in", "our gap [95% interval] (seeds)", "margin", "seeds", "hours")
NEVER = f"more than {MOST_SEEDS}"


class SeedPlan(NamedTuple):
    """An undecided comparison of a claim, and the seeds that would decide it; None for too many."""

    claim: str
    comparison: RowComparison
    seeds: int | None

    @property
    def rows(self) -> list[str]:
        """The names of the rows that need these seeds."""
        c = self.comparison
        return [row_name(c.condition, row) for row in (c.row, c.than) if isinstance(row, str)]


def power_page(target: Target, power: float) -> str:
    """The undecided comparisons of a table as Markdown, each with the number of seeds that decides
    it with that probability, and what the missing runs cost.

    It takes the measured gaps and spreads for the true ones, and nothing is run. Raises UserError
    for a table without claims, and where none of its runs has a record.
    """
    if not target.claims:
        raise UserError(f"{target.name} makes no claims that seeds could decide.")
    records = _records(target)
    plans = list(_plans(judged_claims(target, records), power))
    costs = mean_seconds((target.row_of(record.config), record) for record in records)
    grid = Grid("Undecided comparisons", HEAD, tuple(_line(plan, costs) for plan in plans))
    blocks = [
        _total(plans, costs),
        grid if plans else "",
        "Seeds: the least number that shows a gap, or that it is smaller than the margin, with "
        f"this probability, if the true gap and spread are those measured, at {100 * LEVEL:g}% "
        "divided by the number of comparisons of the claim. Few seeds measure a spread badly: plan "
        "for more, and fix the number before looking. Hours: of the runs of both rows that are "
        "missing, at the seconds of those recorded.",
    ]
    return Page(f"{target.title}: seeds for a power of {100 * power:g}%", blocks).markdown


def _records(target: Target) -> list[Record]:
    tables = table_records(target)
    runs = [run_config(cell) for cell in target.cells()]
    found = (load(run.path) or tables.get(run.digest) for run in runs)
    records = [record for record in found if record]
    if not records:
        raise UserError(
            f"{target.config.results} has no run of {target.name} to measure a spread by: "
            f"`{target.command}` makes them, and `table.seeds=[0,1,2]` only some."
        )
    return records


def _plans(claims: Iterable[JudgedClaim], power: float) -> Iterator[SeedPlan]:
    for judged in claims:
        undecided = (c for c in judged.comparisons if c.verdict == UNDECIDED and not c.reason)
        for comparison in undecided:
            seeds = paired_test(
                [*comparison.in_favour(comparison.gaps).values()], 1.0
            ).seeds_needed(power, LEVEL / len(judged.comparisons))
            yield SeedPlan(judged.claim.name, comparison, seeds)


def _line(plan: SeedPlan, costs: Mapping[str, float]) -> tuple[str, ...]:
    c = plan.comparison
    missing = 0 if plan.seeds is None else max(0, plan.seeds - len(c.gaps))
    hours = missing * sum(costs.get(row, 0) for row in plan.rows) / 3600
    return (
        plan.claim,
        row_name(c.condition, c.row),
        str(c.than),
        c.quantity.name,
        gap_text(c),
        number(c.margin, None),
        NEVER if plan.seeds is None else str(plan.seeds),
        "-" if plan.seeds is None else number(hours, None),
    )


def _total(plans: Sequence[SeedPlan], costs: Mapping[str, float]) -> str:
    """What it costs to decide all comparisons that can be, with runs that several share."""
    if not plans:
        return "No comparison with runs is undecided."
    missing: dict[str, int] = {}
    for plan in plans:
        more = 0 if plan.seeds is None else plan.seeds - len(plan.comparison.gaps)
        missing |= {row: max(missing.get(row, 0), more) for row in plan.rows}
    hours = sum(costs.get(row, 0) * runs for row, runs in missing.items()) / 3600
    hopeless = sum(plan.seeds is None for plan in plans)
    rest = f" {counted(hopeless, 'comparison')} would need {NEVER} seeds." if hopeless else ""
    return (
        f"{counted(len(plans), 'comparison')} undecided. Deciding {len(plans) - hopeless} takes "
        f"{counted(sum(missing.values()), 'more run')}, {number(hours, None)} hours in all.{rest}"
    )
