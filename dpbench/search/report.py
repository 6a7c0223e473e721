"""A search as Markdown and CSV: every trial, the best first, and what was chosen by which rule."""

import math
from collections.abc import Callable, Sequence

import pandas as pd

from dpbench.search.request import SearchRequest
from dpbench.search.selection import ACCURACY, LOSS, RULES, Trial, ranked
from dpbench.tables.grid import Grid
from dpbench.tables.markdown import grid_lines

NOTES = (
    "Validation examples are drawn from the training set by the seed of a run; no test metric was "
    "computed. Where a data set draws its test set by seed too, the examples that one seed tests "
    "on are among those that another seed trains on and validates by.",
    "The epsilon is that of one run of a trial. The chosen run trains on more examples, so its "
    "sampling rate and steps, and with given noise its epsilon, are others.",
)


def render(asked: SearchRequest, trials: Sequence[Trial]) -> dict[str, str]:
    """The texts by suffix: the same records give the same bytes."""
    best = ranked(trials, RULES[asked.rule])
    ordered = [*best, *(trial for trial in trials if trial.failures)]
    csv = pd.DataFrame([_measured(asked, trial) for trial in ordered])
    return {
        "md": "\n\n".join(_parts(asked, ordered, best[:1])) + "\n",
        "csv": csv.to_csv(index=False, lineterminator="\n"),
    }


def _parts(asked: SearchRequest, ordered: Sequence[Trial], chosen: Sequence[Trial]) -> list[str]:
    choices = asked.config["choices"]
    keys = [one.key for one in asked.space.ranges]
    fixed = [g for g in ("dataset", "model", "method") if g not in keys]
    count = f"{len(ordered)} trials" if len(ordered) != 1 else "1 trial"
    return [
        f"# Search: {', '.join(choices[group] for group in fixed)}",
        f"{count} (by={asked.by}, draw={asked.draw}) of "
        + ", ".join(f"`{one.key}={one.text}`" for one in asked.space.ranges)
        + f", each with seed {', '.join(asked.seeds)} and {' '.join(map(_code, asked.settings))}.",
        f"Rule `{asked.rule}`: {RULES[asked.rule].says}. Spread: standard deviation over seeds.",
        grid_lines(_grid(keys, ordered)),
        *[_choice(asked, trial) for trial in chosen],
        *(() if chosen else ("No trial has numbers for every seed, so none is chosen.",)),
        f"The privacy cost of this selection ({count}) is not in epsilon.",
        *NOTES,
    ]


def _code(text: str) -> str:
    return f"`{text}`"


def _choice(asked: SearchRequest, trial: Trial) -> str:
    command = asked.command(trial.overrides)
    return f"Chosen: trial {trial.number}. On all training examples and the test set:\n\n" + (
        f"```sh\n{command}\n```"
    )


def _grid(keys: list[str], ordered: Sequence[Trial]) -> Grid:
    head = ["trial", *keys, "accuracy (%)", "loss", "n", "epsilon (RDP)", "failed"]
    rows = [
        (
            str(trial.number),
            *(o.split("=", 1)[1] for o in trial.overrides),
            _number(trial, ACCURACY, lambda value: f"{100 * value:.2f}"),
            _number(trial, LOSS, lambda value: f"{value:.4f}"),
            str(len(trial.outcomes) - len(trial.failures)),
            _epsilon(trial),
            _why(trial),
        )
        for trial in ordered
    ]
    return Grid("", tuple(head), tuple(rows))


def _number(trial: Trial, metric: str, write: Callable[[float], str]) -> str:
    if trial.failures or math.isnan(trial.mean(metric)):
        return ""  # regression has no accuracy
    spread = trial.spread(metric)
    return write(trial.mean(metric)) + ("" if math.isnan(spread) else f" ± {write(spread)}")


def _epsilon(trial: Trial) -> str:
    if not trial.records:
        return ""
    return "no proof" if trial.epsilon is None else f"{trial.epsilon:.2f}"


def _why(trial: Trial) -> str:
    """Each reason once, with the seeds that it is the reason of."""
    reasons: dict[str, list[str]] = {}
    for seed, why in trial.failures.items():
        reasons.setdefault(why, []).append(seed)
    return "; ".join(f"seed {', '.join(seeds)}: {why}" for why, seeds in reasons.items())


def _measured(asked: SearchRequest, trial: Trial) -> dict:
    """A trial as one row of the CSV file; fractions and nats."""
    return {
        "trial": trial.number,
        **dict(o.split("=", 1) for o in trial.overrides),
        "n": len(trial.outcomes) - len(trial.failures),
        **{name: trial.mean(name) for name in (ACCURACY, LOSS)},
        **{f"{name}/spread": trial.spread(name) for name in (ACCURACY, LOSS)},
        "privacy/rdp": trial.epsilon,
        "failed": _why(trial),
        "records": " ".join(record.digest for record in trial.records),
    }
