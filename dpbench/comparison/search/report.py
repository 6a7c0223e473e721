"""A search as page, CSV and data: all trials, the best first, and the one chosen by the rule; and
several independent searches of one space as a page: what each chose, and what luck is worth."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from dpbench.comparison.search.request import SearchRequest
from dpbench.comparison.search.selection import (
    ACCURACY,
    BY_LOSS,
    ECE,
    LOSS,
    WORST_GROUP,
    Trial,
    budgets,
    expected_best,
    is_regression,
    ranked,
)
from dpbench.comparison.search.start import NUMBER
from dpbench.comparison.tables.data import SearchData, json_file
from dpbench.comparison.tables.grid import NO_VALUE, Grid, epsilon_text, with_spread
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.learning.metrics.paired_t import paired_test
from dpbench.privacy.statement import ACCOUNTANTS, UPPER_BOUNDS, AccountantName
from dpbench.runs.config.space import Interval, Range
from dpbench.runs.config.special_case import START
from dpbench.runs.config.table_rules import outer_end
from dpbench.runs.records.epsilon import largest_epsilon, legend
from dpbench.runs.records.record import Record
from dpbench.system.errors import counted
from dpbench.system.grouping import grouped
from dpbench.system.validate import spelled_number

NOTES = (
    "Validation examples are drawn from the training set by the seed of a run; no test metric was "
    "computed. Where a data set draws its test set by seed too, the examples that one seed tests "
    "on are among those that another seed trains on and validates by.",
    "The epsilon is that of one run of a trial. The chosen run trains on more examples, so its "
    "sampling rate and steps, and with given noise its epsilon, are others.",
)

EPSILONS = {name: f"epsilon ({ACCOUNTANTS[name].label})" for name in UPPER_BOUNDS}
"""The columns of epsilons by accountant: the tighter one last, which `dpbench run` prints, too."""

FINAL = {"stage": "final"}
"""The mark of a finalist's line in the CSV file."""

OF_FEWER = "The mean over all ways to draw so many of these trials (Dodge et al. 2019)"

FEWEST = 8
"""The fewest trials from which the best of fewer is estimated."""

NONE_CHOSEN = "No trial has numbers for every seed, so none is chosen."


def render(
    request: SearchRequest, trials: Sequence[Trial], finals: Sequence[Trial] = ()
) -> dict[str, bytes]:
    """The files by suffix: the same records give the same bytes. finals: the finalists with their
    final seeds, from which the choice is made if there are any."""
    rule = request.rule
    ordered, last = (
        [*ranked(each, rule), *(trial for trial in each if trial.failures)]
        for each in (trials, finals)
    )
    chosen = next((trial for trial in last or ordered if not trial.failures), None)
    rows = [*(_row(trial) | FINAL for trial in last), *map(_row, ordered)]
    if start := request.start:
        rows = [row | {START: start.mark} if row["trial"] == NUMBER else row for row in rows]
    ranges = request.space.ranges
    data = SearchData(
        choices=request.choices,
        ranges={range_.key: range_.text for range_ in ranges},
        rule=request.options.rule,
        chosen=chosen.number if chosen else None,
        ends=at_edge(chosen, ordered, ranges, request.special) if chosen else [],
    )
    blocks: list[PageBlock] = [
        *_introduction(request, data, ordered),
        *(_finals(request, last) if last else ()),
        _grid(request, ordered),
        _choice(request, chosen) if chosen else NONE_CHOSEN,
        *data.ends,
        *_luck(request, ordered),
        f"The privacy cost of this selection ({counted(len(ordered), 'trial')}) is not in epsilon.",
        *filter(None, [legend(r.statement for trial in ordered for r in trial.records)]),
        *NOTES,
    ]
    return {
        "md": Page(f"Search: {', '.join(data.choices.values())}", blocks).markdown.encode(),
        "csv": pd.DataFrame(rows).to_csv(index=False, lineterminator="\n").encode(),
        "json": json_file(data),
    }


def _introduction(
    request: SearchRequest, data: SearchData, trials: Sequence[Trial]
) -> Iterator[str]:
    ranges = ", ".join(f"`{key}={text}`" for key, text in data.ranges.items())
    settings = " ".join(f"`{o}`" for o in request.settings)
    number, options = counted(len(trials), "trial"), request.options
    yield (
        f"{number} (by={options.by}, draw={options.draw}) of {ranges}, each with seed "
        f"{', '.join(request.seeds)} and {settings}."
    )
    if request.start:
        yield request.start.description
    yield from _extended(request, trials)
    rule = BY_LOSS if is_regression(trials) else request.rule.description
    yield f"Rule `{options.rule}`: {rule}. Spread: standard deviation over seeds."


def _extended(request: SearchRequest, trials: Sequence[Trial]) -> list[str]:
    later = [trial for trial in trials if trial.number > request.count]
    if not later:
        return []
    ends = []
    for range_ in request.space.ranges:
        if isinstance(range_, Interval):
            tried = [float(trial.values[range_.key]) for trial in later]
            if min(tried) < range_.low or max(tried) > range_.high:
                ends.append(f"`{range_.key}` {min(tried):g} to {max(tried):g}")
    return [
        f"The trials after the first {request.count} were added beyond ends at which the best one "
        f"lay, {request.extend} at a time: {', '.join(ends)}."
    ]


def _finals(request: SearchRequest, finals: Sequence[Trial]) -> list[PageBlock]:
    seeds = ", ".join(request.final_seeds)
    return [
        f"## Finalists\n\nThe best {counted(len(finals), 'trial')} again with seeds {seeds}, by "
        "whose mean the choice is made: the best of many trials with one seed is partly the "
        "luckiest.",
        _grid(request, finals),
        "## All trials",
    ]


def _luck(request: SearchRequest, trials: Sequence[Trial]) -> list[PageBlock]:
    if not (best := best_of_fewer(request, trials)):
        return []
    cells = [(str(k), f"{value:.2f}") for k, value in best.items()]
    return [fewer_trials(request, cells), f"{OF_FEWER}: compare methods at equal numbers."]


def best_of_fewer(request: SearchRequest, trials: Sequence[Trial]) -> dict[int, float]:
    """The best value, in points, that fewer trials would have found, by their number; empty where
    trials are not independent or have no accuracy."""
    drawn = [trial for trial in trials if NUMBER < trial.number <= request.count]  # at random
    values = [100 * trial.mean(scored(request)) for trial in drawn if not trial.failures]
    if request.options.by != "random" or len(values) < FEWEST or any(map(math.isnan, values)):
        return {}
    return {k: expected_best(values, k) for k in budgets(len(values))}


def scored(request: SearchRequest) -> str:
    """The accuracy, of all or of the worst group, that a search is about."""
    return WORST_GROUP if request.rule.metric == WORST_GROUP else ACCURACY


def fewer_trials(request: SearchRequest, cells: Sequence[tuple[str, str]]) -> Grid:
    """The grid of what fewer trials would have found."""
    name = "accuracy of the worst group" if scored(request) == WORST_GROUP else "accuracy"
    head = ("trials", f"expected best validation {name} (%)")
    return Grid("Fewer trials", head, tuple(cells))


def _choice(request: SearchRequest, trial: Trial) -> str:
    command = request.command(trial.values)
    return f"Chosen: trial {trial.number}. On all training examples and the test set:\n\n" + (
        f"```sh\n{command}\n```"
    )


def at_edge(
    chosen: Trial,
    trials: Sequence[Trial],
    ranges: Sequence[Range],
    special: Mapping[str, float] | None = None,
) -> list[str]:
    """A sentence for each number of the chosen trial that is at an end of what was tried, or in the
    outer tenth of its range, which tables excuse by. special: the numbers that make the method its
    special case, which was tried, too."""
    outer = {range_.key: range_ for range_ in ranges if isinstance(range_, Interval)}
    values = [trial.values for trial in (chosen, *trials)]
    notes = []
    for key, text in chosen.values.items():
        at, constant = spelled_number(text), (special or {}).get(key)
        if at == constant:
            continue
        if key in outer and (end := outer_end([float(other[key]) for other in values], constant)):
            notes.append(
                f"`{key}={text}` is at the {end} end of what was tried of `{outer[key].text}`: "
                "extend the range there (extend=16), or make more trials."
            )
            continue
        tried = {spelled_number(other[key]) for other in values} - {constant}
        numbers = sorted(number for number in tried if not isinstance(number, str))
        if len(numbers) < max(2, len(tried)) or at in numbers[1:-1]:
            continue
        lowest = at == numbers[0]
        if constant is not None and (constant < numbers[0 if lowest else -1]) == lowest:
            continue
        end, beyond = ("smallest", "below") if lowest else ("largest", "above")
        notes.append(
            f"`{key}={text}` is the {end} value of {len(tried)} that were tried: the best may be "
            f"{beyond} it."
        )
    return notes


def _grid(request: SearchRequest, ordered: Sequence[Trial]) -> Grid:
    metrics = {} if is_regression(ordered) else {ACCURACY: "accuracy (%)"}
    if metrics and request.rule.metric == WORST_GROUP:
        metrics[WORST_GROUP] = "worst group (%)"
    keys = (range_.key for range_ in request.space.ranges)
    head = ["trial", *keys, *metrics.values(), "loss", "n", *EPSILONS.values(), "delta", "failed"]
    rows = [
        (
            str(trial.number),
            *trial.values.values(),
            *(_number(trial, metric, 100, 2) for metric in metrics),
            _number(trial, LOSS, 1, 4),
            str(len(trial.outcomes) - len(trial.failures)),
            *(shown_epsilon(trial, accountant) for accountant in EPSILONS),
            trial.terms.text_of_delta if trial.terms else "",
            _reasons(trial),
        )
        for trial in ordered
    ]
    return Grid("", tuple(head), tuple(rows))


def _number(trial: Trial, metric: str, factor: int, digits: int) -> str:
    mean, spread = factor * trial.mean(metric), factor * trial.spread(metric)
    return "" if math.isnan(mean) else with_spread(mean, spread, digits)


def shown_epsilon(trial: Trial, accountant: AccountantName) -> str:
    """The largest epsilon of its runs by `rdp` or `pld`, or why they have none; "" without runs."""
    if not trial.records:
        return ""
    shown = largest_epsilon((record.privacy for record in trial.records), accountant)
    # Runs of a trial differ only in their seed, so one guarantee is that of all.
    guarantee = trial.records[0].privacy["guarantee"]
    return epsilon_text(shown, guarantee)


def _reasons(trial: Trial) -> str:
    reasons = grouped((reason, seed) for seed, reason in trial.failures.items())
    return "; ".join(f"seed {', '.join(seeds)}: {reason}" for reason, seeds in reasons.items())


def _row(trial: Trial) -> dict:
    return {
        "trial": trial.number,
        **trial.values,
        "n": len(trial.outcomes) - len(trial.failures),
        **{name: trial.mean(name) for name in (ACCURACY, LOSS)},
        **{f"{name}/spread": trial.spread(name) for name in (ACCURACY, LOSS)},
        **{name: trial.mean(name) for name in (WORST_GROUP, ECE)},
        **{f"privacy/{accountant}": trial.epsilon(accountant) for accountant in EPSILONS},
        **(trial.terms._asdict() if trial.terms else {}),
        "failed": _reasons(trial),
        "records": " ".join(record.digest for record in trial.records),
    }


class Searched(NamedTuple):
    """A search that was made: its trials, the best of them again with their final seeds, if that
    was asked for, and its page."""

    request: SearchRequest
    trials: Sequence[Trial]
    finals: Sequence[Trial]
    text: str

    @property
    def records(self) -> list[Record]:
        """Those of all of its runs."""
        return [record for trial in (*self.trials, *self.finals) for record in trial.records]

    @property
    def chosen(self) -> list[Trial]:
        return ranked(self.finals or self.trials, self.request.rule)[:1]


def page_of_several(searches: Sequence[Searched]) -> Page:
    """The page of at least two searches."""
    request = searches[0].request
    keys = [range_.key for range_ in request.space.ranges]
    values = [100 * trial.mean(scored(request)) for one in searches for trial in one.chosen]
    blocks: list[PageBlock] = [
        f"{len(searches)} independent searches, each with other draws, other seeds and so other "
        "validation splits. A table whose `searches` is as many takes the choices of all.",
        _choices(searches, keys),
        *([_chance(values)] if len(values) > 1 and all(map(math.isfinite, values)) else []),
        *_fewer_trials_of(searches),
    ]
    return Page(f"Searches: {', '.join(request.choices.values())}", blocks)


def _choices(searches: Sequence[Searched], keys: Sequence[str]) -> Grid:
    score, rows = scored(searches[0].request), []
    for search, trial in [(one, trial) for one in searches for trial in one.chosen]:
        numbers = ((100, 2, score), (1, 4, LOSS), (100, 2, ECE))
        texts = (f"{scale * trial.mean(name):.{digits}f}" for scale, digits, name in numbers)
        shown = (text.replace("nan", NO_VALUE) for text in texts)
        rows.append((search.request.name, str(trial.number), *trial.values.values(), *shown))
    head = ("search", "trial", *keys, f"{score} (%)", LOSS, ECE)
    return Grid("What each chose", head, tuple(rows))


def _chance(values: Sequence[float]) -> str:
    test = paired_test(values, 0.0)
    low, high = test.interval()
    return (
        f"The chosen settings score {test.mean:.2f} on average, with a standard deviation of "
        f"{test.deviation:.2f} between the {test.n} searches (95% interval of "
        f"the mean {low:.2f} to {high:.2f})."
    )


def _fewer_trials_of(searches: Sequence[Searched]) -> list[PageBlock]:
    curves = [best_of_fewer(one.request, one.trials) for one in searches]
    shared = [count for count in curves[0] if all(count in curve for curve in curves)]
    cells = []
    for count in shared:
        test = paired_test([curve[count] for curve in curves], 0.0)
        low, high = test.interval()
        cells.append((str(count), f"{test.mean:.2f} [{low:.2f}, {high:.2f}]"))
    if not cells:
        return []
    return [
        fewer_trials(searches[0].request, cells),
        f"{OF_FEWER}, averaged over the searches, with its 95% interval by Student's t.",
    ]
