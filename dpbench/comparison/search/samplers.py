"""Samplers propose the next configurations, given the scores of the earlier ones."""

from collections.abc import Mapping

from dpbench.runs.config.space import Choices, Configuration, Interval, Range, Space
from dpbench.system.errors import UserError
from dpbench.system.seeds import numpy_generator

STARTUP = 10
"""Random trials before the tree-structured Parzen estimator has anything to learn from."""

History = Mapping[Configuration, tuple[float, ...] | None]
"""Configurations in the order of their trials, with their scores; None if they failed."""


def random(space: Space, count: int, draw: int, history: History) -> list[Configuration]:
    """Those of `count` random configurations that are not in the history, to run in parallel."""
    return [c for c in space.random(count, draw) if c not in history]


def tpe(space: Space, count: int, draw: int, history: History) -> list[Configuration]:
    """Random configurations first, then one at a time by Optuna's TPE sampler (Bergstra et al.,
    NeurIPS 2011), which is rebuilt from the history with the first of the scores: the same history
    leads to the same proposal. A repeated proposal is replaced by a random one."""
    if len(history) < STARTUP:
        return random(space, min(count, STARTUP), draw, history)
    if len(history) >= min(count, space.size):
        return []
    proposed = _by_tpe(space, draw, history)
    if proposed not in history:
        return [proposed]
    return [c for c in space.random(len(history) + 1, draw) if c not in history][:1]


SAMPLERS = {"random": random, "tpe": tpe}


def check_installed(by: str) -> None:
    """UserError where a sampler needs a package that is not installed."""
    if by == "tpe":
        _optuna()


def _by_tpe(space: Space, draw: int, history: History) -> Configuration:
    optuna = _optuna()
    seed = int(numpy_generator(draw, f"tpe {len(history)}").integers(2**32))
    sampler = optuna.samplers.TPESampler(n_startup_trials=1, seed=seed)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    distributions = {range_.key: _distribution(range_) for range_ in space.ranges}
    for configuration, scores in history.items():
        pairs = zip(space.ranges, configuration, strict=True)
        trial = optuna.trial.create_trial(
            params={range_.key: _value(range_, text) for range_, text in pairs},
            distributions=distributions,
            value=scores[0] if scores else None,
            state=getattr(optuna.trial.TrialState, "COMPLETE" if scores else "FAIL"),
        )
        study.add_trial(trial)
    proposal = study.ask(distributions).params
    return tuple(_text(range_, proposal[range_.key]) for range_ in space.ranges)


def _distribution(range_: Range):
    distributions = _optuna().distributions
    if isinstance(range_, Choices):
        return distributions.CategoricalDistribution(range_.values)
    kind = distributions.IntDistribution if range_.integer else distributions.FloatDistribution
    return kind(range_.low, range_.high, log=range_.log)


def _value(range_: Range, text: str) -> str | float:
    if isinstance(range_, Choices):
        return text
    return int(text) if range_.integer else float(text)


def _text(range_: Range, value) -> str:
    return range_.write(value) if isinstance(range_, Interval) else value


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
