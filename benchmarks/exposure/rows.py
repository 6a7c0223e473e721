"""The rows of a figure of realistic attacks: nominal epsilon, white box and black box, by method.

White box: one run with inserted canaries; the attacker sees all noisy sums. Black box: shadow runs
on random halves of mislabelled targets; the attacker sees only the losses of the final models.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpbench.audit.inference import LowerBounds, Scores, bounds, gdp_epsilon, one_run_epsilon
from dpbench.comparison.reproduce.command import execute, plan_runs
from dpbench.comparison.reproduce.target import Target
from dpbench.learning.metrics.students_t import CONFIDENCE
from dpbench.privacy.guarantee import BOUNDS
from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.record import Record
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError
from dpbench.system.grouping import grouped
from dpbench.system.progress import counting
from dpbench.system.validate import integer

from .membership import Exposure, Shadows, by_earlier_runs, confidences, exposure, leave_one_out
from .white_box import WhiteBox, play_white_box

ALL_GROUPS = "all"


@dataclass(frozen=True)
class ExposureSettings:
    """The settings of the figure: the number of canaries in each white-box run."""

    canaries: int

    def __post_init__(self) -> None:
        integer("table.compute.canaries", self.canaries, least=100)


@dataclass(frozen=True)
class ExposureRow:
    """One method, on one group or on all.

    accuracy: on the test set, the mean of the shadow runs. white: lower bounds of the white-box
    attack, None for methods without noise. black: lower bounds of the black-box attack, by GDP and
    by one run. canaries, mislabelled: how well membership of canaries, and of mislabelled targets,
    is inferred.
    """

    method: str
    group: str
    accuracy: float
    claimed: float
    white: LowerBounds | None
    black: tuple[float, float]
    canaries: Exposure | None
    mislabelled: Exposure


def exposure_rows(
    target: Target, records: Mapping[str, Sequence[Record]], canaries: int
) -> list[ExposureRow]:
    """The rows of both attacks on every method. records: the shadow runs by method."""
    rows: list[ExposureRow] = []
    with counting("attacks", len(records)) as count:
        for method, runs in records.items():
            rows += _rows_of(target, method, runs, canaries)
            count()
    return rows


def shadow_runs(target: Target) -> dict[str, list[Record]]:
    """The records of each method's shadow runs; missing ones are trained, as a sweep."""
    if len(target.table.seeds) < 4:
        raise UserError("table.seeds: an attack by shadow runs needs at least four runs.")
    runs = plan_runs(target)
    found, unavailable = execute(runs)
    if unavailable:
        raise UserError(f"{target.stem} lacks runs: {next(iter(unavailable.values()))}")
    rows = {path.stem: row for path, row in runs.rows.items()}
    return grouped((rows[record.digest], record) for record in found)


def _rows_of(
    target: Target, method: str, records: Sequence[Record], canaries: int
) -> Iterator[ExposureRow]:
    """Both attacks on one method: for all examples, and for the groups of the table."""
    (condition,) = target.conditions
    config = run_config([*next(target.cells_of(condition, method)), "mislabelled=null"])
    run = run_of(config)
    white = play_white_box(run, config.data_folder, canaries) if run.method.private else None
    black = black_box(records)
    for name in (ALL_GROUPS, *map(str, target.table.groups)):
        group = None if name == ALL_GROUPS else run.dataset.groups.index(name)
        metric = "test/accuracy" if group is None else f"test/accuracy/{name}"
        accuracies = [record.metrics[metric] for record in records]
        yield ExposureRow(
            method=method,
            group=name,
            accuracy=float(np.mean(accuracies)),
            claimed=_claimed(records[0]),
            white=None if white is None else _white_bounds(white, group, run),
            black=_black_bounds(black, group, run),
            canaries=None if white is None else _exposure_of_canaries(white, group),
            mislabelled=exposure(*black.all_runs(group)),
        )


def _exposure_of_canaries(white: WhiteBox, group: int | None) -> Exposure:
    scores = white.for_group(group)
    return exposure(scores.values[np.newaxis], scores.included[np.newaxis])


def _claimed(record: Record) -> float:
    privacy = record.privacy
    epsilon = privacy["pld"] if privacy["guarantee"] in BOUNDS else privacy["claimed"]
    return math.inf if epsilon is None else epsilon


def _white_bounds(white: WhiteBox, group: int | None, run: Run) -> LowerBounds:
    return bounds(white.for_group(group), white.ledger, run.privacy.delta, CONFIDENCE, run.seed)


@dataclass(frozen=True)
class BlackBox:
    """Scores of targets whose groups are [m]: of all runs, each attacked by all others [R, m], and
    of the later runs, attacked by earlier ones [R - R//2, m]; included [R, m] bool."""

    groups: np.ndarray
    included: np.ndarray
    by_others: np.ndarray
    by_earlier: np.ndarray

    def all_runs(self, group: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Scores and coins of all runs, for one group or all."""
        return self._of(self.by_others, group)

    def later_runs(self, group: int | None) -> Scores:
        """Scores of the later runs, for bounds of epsilon."""
        scores, included = self._of(self.by_earlier, group)
        return Scores(scores.ravel(), included.ravel())

    def _of(self, scores: np.ndarray, group: int | None) -> tuple[np.ndarray, np.ndarray]:
        chosen = np.full(len(self.groups), True) if group is None else self.groups == group
        return scores[:, chosen], self.included[-len(scores) :, chosen]


def black_box(records: Sequence[Record]) -> BlackBox:
    """The black-box attack on each group separately, since groups are known and differ."""
    columns = {
        name: np.array([record.diagnostics[f"target/{name}"] for record in records])
        for name in ("loss", "group", "included")
    }
    groups = columns["group"][0].astype(int)
    shadows = Shadows(confidences(columns["loss"]), columns["included"] == 1)
    by_others = np.zeros_like(shadows.confidences)
    by_earlier = np.zeros((len(records) - len(records) // 2, len(groups)))
    for group in np.unique(groups):
        members = shadows.targets(groups == group)
        by_others[:, groups == group] = leave_one_out(members)
        by_earlier[:, groups == group] = by_earlier_runs(members)
    return BlackBox(groups, shadows.included, by_others, by_earlier)


def _black_bounds(black: BlackBox, group: int | None, run: Run) -> tuple[float, float]:
    """Lower bounds by GDP and by one run, which need no ledger."""
    halves, delta = black.later_runs(group).halves(run.seed), run.privacy.delta
    return gdp_epsilon(*halves, delta, CONFIDENCE), one_run_epsilon(*halves, delta, CONFIDENCE)
