"""Which configurations are tried next, given how the earlier ones did."""

from collections.abc import Mapping

from dpbench.config.space import Choices, Configuration, Interval, Range, Space
from dpbench.errors import UserError
from dpbench.seeds import numpy_generator

STARTUP = 10
"""Random trials before the tree of Parzen estimators has anything to learn from."""

History = Mapping[Configuration, tuple[float, ...] | None]
"""Configurations in the order in which they were tried, with their scores; None if they failed."""


def random(space: Space, count: int, draw: int, history: History) -> list[Configuration]:
    """All that are left of `count` random configurations, at once: for trials in parallel."""
    return [one for one in space.random(count, draw) if one not in history]


def tpe(space: Space, count: int, draw: int, history: History) -> list[Configuration]:
    """Random configurations first, and then one at a time by Optuna's TPE sampler.

    Bergstra et al., NeurIPS 2011. It sees the first of the scores, and nothing but the history, so
    the same history leads to the same proposal. A repeated proposal gives way to a random one.
    """
    if len(history) < STARTUP:
        return random(space, min(count, STARTUP), draw, history)
    if len(history) >= min(count, space.size):
        return []
    proposed = _by_tpe(space, draw, history)
    if proposed not in history:
        return [proposed]
    return [one for one in space.random(len(history) + 1, draw) if one not in history][:1]


SAMPLERS = {"random": random, "tpe": tpe}


def check_installed(by: str) -> None:
    """UserError where a sampler needs a package that is not there."""
    if by == "tpe":
        _optuna()


def _by_tpe(space: Space, draw: int, history: History) -> Configuration:
    optuna = _optuna()
    seed = int(numpy_generator(draw, f"tpe {len(history)}").integers(2**32))
    sampler = optuna.samplers.TPESampler(n_startup_trials=1, seed=seed)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    laws = {one.key: _law(one) for one in space.ranges}
    for configuration, scores in history.items():
        pairs = zip(space.ranges, configuration, strict=True)
        past = optuna.trial.create_trial(
            params={one.key: _value(one, text) for one, text in pairs},
            distributions=laws,
            value=scores[0] if scores else None,
            state=getattr(optuna.trial.TrialState, "COMPLETE" if scores else "FAIL"),
        )
        study.add_trial(past)
    asked = study.ask(laws).params
    return tuple(_text(one, asked[one.key]) for one in space.ranges)


def _law(one: Range):
    """The same range as one of Optuna's distributions."""
    laws = _optuna().distributions
    if isinstance(one, Choices):
        return laws.CategoricalDistribution(one.values)
    law = laws.IntDistribution if one.integer else laws.FloatDistribution
    return law(one.low, one.high, log=one.log)


def _value(one: Range, text: str) -> str | float:
    if isinstance(one, Choices):
        return text
    return int(text) if one.integer else float(text)


def _text(one: Range, value) -> str:
    return one.write(value) if isinstance(one, Interval) else value


def _optuna():
    try:
        import optuna
    except ImportError as error:
        raise UserError(
            "by=tpe needs Optuna, which is not installed: pip install 'dpbench-suite[search]', "
            "or search by=random."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
