"""How a setting was chosen, as far as the trials in its folder tell."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpbench.comparison.compare.side import (
    AT_EDGE,
    CHOSEN,
    ELSEWHERE,
    Budget,
    BySeed,
    TaskKey,
    Tuning,
    task_of,
)
from dpbench.runs.config.literals import literal
from dpbench.runs.config.search_path import options
from dpbench.runs.config.settings import leaves
from dpbench.runs.config.special_case import special_case
from dpbench.runs.config.table_rules import is_at_edge, numbers
from dpbench.runs.records.digest import setting_of
from dpbench.runs.records.record import Record
from dpbench.system.grouping import grouped


@dataclass(frozen=True)
class Setting:
    """What a run is tried or tested with.

    name: that of `setting_of`. options, texts: of the groups that are chosen for each method, the
    options, and the settings by key. budget: the target epsilon and the noise multiplier.
    batch_size: None for all. trial: of a private search, each of which has a share of the budget.
    """

    name: str
    method: str
    options: tuple[object, ...]
    texts: Mapping[str, str]
    budget: tuple[object, object]
    batch_size: int | None
    trial: object

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Setting":
        """The setting of a record's configuration."""
        choices, privacy = config["choices"], config.get("privacy") or {}
        own = {k: v for k, v in leaves(config) if k.partition(".")[0] in CHOSEN}
        return cls(
            setting_of({**config}),
            choices["method"],
            tuple(choices.get(group) for group in CHOSEN),
            {key: str(literal(value)) for key, value in own.items()},
            (privacy.get("epsilon"), privacy.get("noise_multiplier")),
            config.get("batch_size"),
            config.get("trial"),
        )


Trials = Mapping[TaskKey, Sequence[Setting]]
"""The settings that searches tried, by task, one for each run on a validation split."""


def trials_by_task(records: Iterable[Record]) -> Trials:
    """The settings of the runs tried on a validation split."""
    return grouped((task_of(r), Setting.of(r.config)) for r in records if not r.is_tested)


def number_of(tried: Iterable[Setting]) -> int:
    """How many settings were tried, each once whatever its seeds and budgets."""
    return len({(setting.name, setting.trial) for setting in tried})


def validation_scores(tried: Mapping[Any, BySeed]) -> dict[Any, tuple[int, float]]:
    """What the settings of a search are chosen by, the largest first: the number of their seeds and
    the mean of their scores. tried: the scores by seed, of which more is better.

    A setting with fewer seeds than another was not run again: the best of these is partly the
    luckiest. Finalists count by the seeds that those do not have, if these are half of theirs or
    more, as `dpbench search` counts them: the other seeds have made them finalists.
    """
    earlier = {
        number: {seed for scores in tried.values() if len(scores) < number for seed in scores}
        for number in {len(scores) for scores in tried.values()}
    }
    found = {}
    for name, scores in tried.items():
        number = len(scores)
        final = [score for seed, score in scores.items() if seed not in earlier[number]]
        counted = final if 2 * len(final) >= number else scores.values()
        found[name] = number, statistics.fmean(counted)
    return found


def tuning_of(record: Record, trials: Trials) -> Tuning:
    """How the setting of a run was chosen."""
    is_private = Budget.of([record.statement]).is_private
    return tuned(Setting.of(record.config), trials.get(task_of(record), ()), is_private)


def tuned(own: Setting, tried: Sequence[Setting], is_private: bool) -> Tuning:
    """How a setting was chosen among those tried: by the rules of tables, whose searches have files
    (`Target.tuning`). A budget matters to private runs alone, and an edge where it was tried."""
    if not tried:
        return Tuning(0)
    case = special_case(own.method) if own.method in options("method") else None
    alike = [one.texts for one in tried if one.options == own.options]
    is_chosen = own.texts in alike
    if is_chosen and is_at_edge([own.texts, *alike], numbers(case.texts) if case else {}):
        flaw = AT_EDGE
    else:
        flaw = "" if any(_is_for(own, one, is_private) for one in tried) else ELSEWHERE
    number = number_of(tried)
    if not case:
        return Tuning(number, flaw)
    has_case = any(case.is_that_of(one.texts) for one in tried)
    is_case = case.is_that_of(own.texts)
    return Tuning(
        number, flaw, "" if has_case else case.special_case, case.special_case if is_case else ""
    )


def _is_for(own: Setting, trial: Setting, is_private: bool) -> bool:
    any_budget = not is_private or trial.trial is not None
    return own.batch_size == trial.batch_size and (any_budget or own.budget == trial.budget)
