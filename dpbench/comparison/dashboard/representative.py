"""Chooses the setting that represents a method: the only one, by validation, by table, or best."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from dpbench.comparison.compare.side import AT_EDGE, ELSEWHERE, Budget, Side, Tuning, mean_by
from dpbench.comparison.compare.tuning import tuned, validation_scores
from dpbench.comparison.dashboard.run_row import ReportedRun, TableRow, seven_digits
from dpbench.learning.metrics.derived import WORST_GROUP, value_of
from dpbench.learning.metrics.registry import RANKED_BY, metric_of, metrics
from dpbench.learning.metrics.students_t import Estimate, estimate
from dpbench.runs.config.table_file import search_number
from dpbench.runs.records.epsilon import NOT_PRIVATE
from dpbench.system.errors import counted
from dpbench.system.grouping import grouped


class Interval(NamedTuple):
    """A mean and the ends of its interval, to seven digits; None without one.

    over: seeds, searches, or the test examples of one run.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    over: str = ""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed; of several with the same seed, the first.

    searches: of how many the runs have the settings. Then a mean over the seeds of one stands for
    them, as in tables, so that intervals cover search and seed.
    """

    runs: tuple[ReportedRun, ...]
    searches: int = 1

    @property
    def first(self) -> ReportedRun:
        return self.runs[0]

    @property
    def name(self) -> str:
        return self.first.row["group"]

    @property
    def diverged(self) -> int:
        return sum(run.row["status"] != "complete" for run in self.runs)

    def by_seed(self, metric: str) -> dict[str, float]:
        """The metric of each run that measured it, by seed, or of several searches the means by
        search; none if a run diverged."""
        if self.diverged:
            return {}
        if metric == WORST_GROUP:
            worst = {run.row["seed"]: value_of(run.metrics, metric) for run in self.runs}
            values = {seed: value for seed, value in worst.items() if not math.isnan(value)}
        else:
            values = {r.row["seed"]: r.metrics[metric] for r in self.runs if metric in r.metrics}
        if self.searches == 1:
            return values
        return mean_by(lambda seed: search_number(self.searches, int(seed)), values)

    @property
    def unit(self) -> tuple[str, str]:
        """What comparisons take as random, one and several."""
        return ("seed", "seeds") if self.searches == 1 else ("search", "searches")

    def mean(self, metric: str) -> Estimate | None:
        """The metric's mean over seeds; None if a run diverged, or none has measured it."""
        return estimate([*self.by_seed(metric).values()])

    def interval(self, metric: str) -> Interval | None:
        """The metric's mean with its interval; None without a mean."""
        if (mean := self.mean(metric)) is None:
            return None
        if mean.half is not None:
            low, high, over = mean.mean - mean.half, mean.mean + mean.half, self.unit[1]
        else:
            ends = self.first.intervals.get(metric.partition("/")[2])
            if not isinstance(ends, list | tuple):
                return Interval(seven_digits(mean.mean))
            low, high, over = *ends, "test examples"
        if metric_of(metric).unit == "percent":
            low, high = max(low, 0.0), min(high, 1.0)
        return Interval(seven_digits(mean.mean), seven_digits(low), seven_digits(high), over)

    @property
    def milliseconds(self) -> list[float]:
        """Milliseconds per step, mean, least and most, over the runs on the machine of the first
        run; none without times.

        An interval of the mean would say little: the times of a few runs are not near a normal law.
        """
        machine = self.first.row["machine"]
        times = [r.row["ms"] for r in self.runs if r.row["ms"] and r.row["machine"] == machine]
        numbers = [math.fsum(times) / len(times), min(times), max(times)] if times else []
        return [*map(seven_digits, numbers)]

    @property
    def audit(self) -> dict | None:
        """The largest lower bound on epsilon that an audit of a run found; None without one."""
        audits = (audit for run in self.runs if (audit := run.row["audit"]))
        return max(audits, key=lambda audit: audit["epsilon"], default=None)

    @cached_property
    def epsilon(self) -> float | str:
        """The epsilon by PLD, else by RDP, or the reason why there is none."""
        axis = self.first.row["axis"]
        return axis["rdp"] if axis["pld"] == "not computed" else axis["pld"]

    @property
    def is_free(self) -> bool:
        """Whether it is training without privacy."""
        return self.epsilon == NOT_PRIVATE


def groups_of(runs: Iterable[ReportedRun]) -> list[Group]:
    """The groups of runs, each seed once."""
    by_group: dict[str, dict[str, ReportedRun]] = {}
    for run in runs:
        by_group.setdefault(run.row["group"], {}).setdefault(run.row["seed"], run)
    return [Group(tuple(by_seed.values())) for by_seed in by_group.values()]


def ranked_by(groups: Sequence[Group], split: str = "test") -> str:
    """The metric that ranks groups: the first of RANKED_BY that any has measured; "" if none."""
    measured = {name for group in groups for run in group.runs for name in run.metrics}
    return next((f"{split}/{m}" for m in RANKED_BY if f"{split}/{m}" in measured), "")


def offered() -> list[str]:
    """The metrics of the test split that methods may be compared by, in their order."""
    others = (name for name, metric in metrics().items() if metric.better and metric.is_offered)
    return [f"test/{name}" for name in dict.fromkeys((*RANKED_BY, *others))]


@dataclass(frozen=True)
class Candidate:
    """The group of runs that represents a method, in words how it was chosen, and its setting's
    tuning.

    on_test: whether its results on the test set chose it, which flatters. place: the row of a table
    that says how its setting was chosen. alike: all groups with the same setting. fair: whether the
    others were not chosen by a stricter rule. second_searches: the method after others.
    """

    group: Group
    how: str
    tuning: Tuning
    on_test: bool = False
    place: TableRow | None = None
    alike: tuple[Group, ...] = ()
    fair: bool = True
    second_searches: tuple[Group, ...] = ()

    @property
    def method(self) -> str:
        return self.group.first.row["method"]

    @property
    def is_honest(self) -> bool:
        """Whether the method can be ranked by it: not what was chosen at another budget."""
        return not self.on_test and self.tuning.flaw != ELSEWHERE

    @property
    def is_ranked(self) -> bool:
        """Whether the method can be ranked: it has an epsilon, and was chosen like the others, for
        this budget."""
        return self.fair and not isinstance(self.group.epsilon, str)

    def second_sides(self, metric: str) -> list[Side]:
        """The method after other searches."""
        return [self.side(metric, group) for group in self.second_searches if not group.diverged]

    def side(self, metric: str, after: Group | None = None) -> Side:
        """The method as a side of comparisons by a metric; after: its runs after another search."""
        group, factor, place = after or self.group, metric_of(metric).factor, self.place
        return Side(
            self.method,
            {seed: factor * value for seed, value in group.by_seed(metric).items()},
            (Budget(group.epsilon),),
            group.first.shared,
            self.tuning,
            f"{place.table}, {place.row.condition}" if place and place.row.records else "",
        )


def choose(
    tested: Sequence[Group],
    validated: Sequence[Group],
    shared: Mapping[str, int],
    budgets: Mapping[str, int],
) -> Candidate:
    """Choose among the groups of a method. validated: those that evaluated a validation split.
    shared: how many methods each table has among those compared. budgets: how many a curve has."""
    settings, all_tried = ({g.first.setting for g in groups} for groups in (tested, validated))
    tried = [group for group in validated if group.first.setting in settings]
    placed = [(g, place) for g in tested for place in g.first.places if not place.row.again]
    if len(settings) == 1 and not placed:
        which = "of" if settings <= all_tried else "none of the"
        text = f"only one tested, {which} {len(all_tried)} tried on validation"
        how = "only setting" if all_tried <= settings else text
        return _searched(_best(tested), how, validated)
    if tried:
        setting = _best_tried(tried).first.setting
        chosen = [group for group in tested if group.first.setting == setting]
        how = _how(setting, tried, validated, len(settings))
        return _searched(_best(chosen), how, validated)
    if placed:
        group, place = min(placed, key=lambda pair: _order(pair[0], pair[1], shared))
        whole = _all_searches(place, tested) if place.searches > 1 else group
        return Candidate(whole, _of_table(place), place.row.tuning, place=place)
    widths = [budgets[group.first.curve] for group in tested]
    wide = [group for group, width in zip(tested, widths, strict=True) if width == max(widths)]
    if len({group.first.setting for group in wide}) == 1:
        how = f"the one of {len(settings)} tested at most budgets"
        return _searched(_best(wide), how, validated)
    how = f"best of {len(wide)} on the test set"
    return replace(_searched(_best(wide), how, validated), on_test=True)


def _all_searches(place: TableRow, groups: Sequence[Group]) -> Group:
    """The runs of a row of a table, whose settings several searches chose."""
    runs = (run for group in groups for run in group.runs if place in run.places)
    return Group(tuple(runs), place.searches)


def _searched(group: Group, how: str, validated: Sequence[Group]) -> Candidate:
    tried = [trial.first.tried for trial in validated]
    return Candidate(group, how, tuned(group.first.tried, tried, not group.is_free))


def budgets_of(runs: Iterable[ReportedRun]) -> dict[str, int]:
    """The number of budgets of each curve, without trials."""
    of_curves = grouped((run.curve, run.budget) for run in runs if not run.validated)
    return {curve: len({*budgets}) for curve, budgets in of_curves.items()}


def _order(group: Group, place: TableRow, shared: Mapping[str, int]) -> tuple:
    """The first of the rows that a method has in tables: one without a flaw, which does not matter
    for training without privacy; then one that a search chose; then of the table with the most
    methods, the method's own row, with the fewest changes to its file."""
    tuning = place.row.tuning
    return (
        [not group.is_free and ("", AT_EDGE, ELSEWHERE).index(tuning.flaw), not tuning.trials],
        [-shared[place.table], "-" in place.table, "_fig" in place.table, place.table],
        [group.first.row["method"] != place.row.method, group.first.changes, place.row.method],
    )


def _of_table(place: TableRow) -> str:
    """`frontier_table6, dpsgd: 64 trials, by accuracy of the worst group`."""
    row = place.row
    if row.tuning.trials is None:
        return f"{place.table}, {row.method}"
    text = f"{counted(row.tuning.trials, 'trial')}, by {row.chosen_by}"
    return ", ".join(filter(None, (f"{place.table}, {row.method}: {text}", row.tuning.flaw)))


def _how(
    setting: str, tried: Sequence[Group], validated: Sequence[Group], number_tested: int
) -> str:
    """How a setting was chosen on validation. tried: of the validated ones, those also tested."""
    both, all_tried = ({group.first.setting for group in groups} for groups in (tried, validated))
    if _best_tried(validated).first.setting != setting:
        return f"best on validation of {len(both)} tested, of {len(all_tried)} tried"
    if len(all_tried) == 1:
        return f"only one tried on validation, of {number_tested} tested"
    return f"best of {len(all_tried)} on validation"


def _best_tried(groups: Sequence[Group]) -> Group:
    """The best on validation, by the rule of searches; the first if none has been measured."""
    metric = ranked_by(groups, "validation")
    sign = metric_of(metric).sign if metric else 1
    scores = {
        place: {seed: sign * value for seed, value in group.by_seed(metric).items()}
        for place, group in enumerate(groups)
        if group.mean(metric)
    }
    found = validation_scores(scores)
    return groups[max(found, key=found.__getitem__, default=0)]


def _best(groups: Sequence[Group]) -> Group:
    """The best on the test set; the first if none has been measured."""
    metric = ranked_by(groups)
    sign = metric_of(metric).sign if metric else 1
    ranked = [(sign * m.mean, -i, g) for i, g in enumerate(groups) if (m := g.mean(metric))]
    return max(ranked)[2] if ranked else groups[0]
