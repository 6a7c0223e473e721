"""All metrics by name: ours, and those of plug-ins."""

import functools
import pkgutil
import re
import sys
import warnings
from collections import ChainMap
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from itertools import groupby
from operator import attrgetter

from dpbench.learning.metrics import builtin
from dpbench.learning.metrics.metric import Margin, Metric
from dpbench.system.errors import first_line
from dpbench.system.validate import fits, in_words, quoted

GROUP = "dpbench.metrics"
"""Entry points of plug-ins: NAME = "package.module:METRIC"."""

NOISY_ACCURACY = "validation/noisy_accuracy"
"""The metric that private searches select by: the only one on validation that epsilon covers."""

WORST = "worst_group_accuracy"


MODULES = {
    name: {
        key.lower(): value
        for key, value in vars(import_module(f"{builtin.__name__}.{name}")).items()
        if isinstance(value, Metric)
    }
    for _, name, _ in pkgutil.iter_modules(builtin.__path__)
}
"""The metrics of each module of `builtin`, which compute themselves, by the names of constants."""

ACCURACY = Metric("accuracy", "percent", 1, "higher", margin=Margin(0.5))
LOSS = Metric("loss", "nats", 3, "lower", margin=Margin(relative=0.02))
GAP = Metric("accuracy gap between groups", "percent", 1, "lower", "fairness", Margin(1.0))
MCE = Metric(
    "MCE, median of the last ten epochs", "percent", 1, "lower", "calibration", Margin(2.0)
)
ATTACK = Metric("membership advantage, at most", "percent", 2, "lower", "privacy", is_bound=True)
RISK = Metric("excessive risk", "nats", 3, "lower", "fairness", Margin(0.01))
TEMPERATURE = Metric("private temperature", "", 2, None)
COVERAGE = Metric("coverage of prediction sets", "percent", 1, None, "calibration", Margin(0.5))
DERIVED = {
    "noisy_accuracy": replace(ACCURACY, label="accuracy, with noise"),
    "nll_unscaled": replace(LOSS, label="NLL before the private temperature", digits=2),
    "accuracy_unscaled": replace(ACCURACY, label="accuracy before the private temperature"),
    "ece_unscaled": replace(MCE, label="ECE before the private temperature", margin=Margin(0.5)),
    "mce_unscaled": replace(MCE, label="MCE before the private temperature"),
    "mce_last10": MCE,
    "temperature": TEMPERATURE,
    "bias": replace(TEMPERATURE, label="private bias"),
    "coverage": COVERAGE,
    "worst_group_coverage": replace(COVERAGE, label="coverage of the worst group"),
    "set_size": Metric("classes in a prediction set", "", 2, "lower", "calibration"),
    "conformal_threshold": replace(TEMPERATURE, label="private threshold of prediction sets"),
    "membership_advantage": ATTACK,
    "true_positive_rate": replace(ATTACK, label="true positives at 0.1% false ones, at most"),
    "reconstruction": replace(ATTACK, label="reconstruction, at most"),
    "seconds": Metric("seconds", "", 1, "lower", "cost"),
    "privacy_cost": replace(GAP, label="privacy cost"),
    "privacy_cost_gap": replace(GAP, label="privacy cost gap"),
    "excessive_risk": RISK,
    "excessive_risk_gap": replace(RISK, label="excessive risk gap"),
}
"""Computed by other parts than the evaluation of a split; the report does not offer them."""

REGISTRY: Mapping[str, Metric] = {
    "accuracy": ACCURACY,
    "loss": LOSS,
    **ChainMap(*reversed(MODULES.values())),
    WORST: replace(GAP, label="accuracy of the worst group", better="higher"),
    "accuracy_gap": GAP,
    "demographic_parity_difference": replace(GAP, label="demographic parity difference"),
    "equalized_odds_difference": replace(GAP, label="equalised odds difference"),
    **{name: replace(metric, is_offered=False) for name, metric in DERIVED.items()},
}
"""Ours, in display order."""

RANKED_BY = ("accuracy", "r2", "rmse", "mse", "mae", "perplexity", "loss")
"""Methods are ranked by the first of these metrics that was measured."""


def metrics() -> Mapping[str, Metric]:
    """All by name: ours, then those of plug-ins."""
    return {**REGISTRY, **added_metrics()}


def computed(task: str) -> dict[str, Metric]:
    """The metrics of a task that compute themselves."""
    return {name: own for name, own in metrics().items() if own.compute and own.task == task}


def added_metrics() -> Mapping[str, Metric]:
    """The metrics of packages on Python's path; a warning for each that cannot be used."""
    return _added(tuple(sys.path))


@functools.cache
def _added(path: tuple[str, ...]) -> Mapping[str, Metric]:
    found = {}
    entries = sorted(entry_points(group=GROUP), key=attrgetter("name", "value"))
    for name, (entry, *others) in groupby(entries, attrgetter("name")):
        values = f"{entry.value} and {' and '.join(other.value for other in others)}"
        metric = f"{values} have one name" if others else _loaded(entry)
        if isinstance(metric, Metric):
            found[name] = metric
        else:
            warnings.warn(f"the metric {name} is ignored: {metric}.", stacklevel=2)
    return found


def added_packages() -> Mapping[str, str]:
    """The outermost Python package that each metric of a plug-in is in; imports none of them."""
    return _packages(tuple(sys.path))


@functools.cache
def _packages(path: tuple[str, ...]) -> Mapping[str, str]:
    entries = (entry for entry in entry_points(group=GROUP) if entry.name not in REGISTRY)
    return {entry.name: entry.module.partition(".")[0] for entry in entries}


def _loaded(entry: EntryPoint) -> Metric | str:
    if entry.name in REGISTRY:
        return "dpbench has one of this name"
    if not re.fullmatch(r"[a-z]\w*", entry.name):
        return "its name must be a small letter, then letters, digits and _"
    try:
        with redirect_stdout(sys.stderr):
            metric = entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{entry.value} cannot be imported: {type(error).__name__}: {first_line(error)}"
    if not isinstance(metric, Metric) or not callable(metric.compute):
        return f"{entry.value} is not a Metric with a function to compute it"
    for field in fields(metric):
        value = getattr(metric, field.name)
        if field.name != "compute" and not fits(value, field.type):
            return f"its {field.name} must be {in_words(field.type)}, and is {quoted(value)}"
    return metric


@dataclass(frozen=True)
class MetricName:
    """The parts of `split/base/group`; split or group is "" if absent."""

    split: str
    base: str
    group: str

    @property
    def metric(self) -> Metric:
        """The metric; of one that is unknown only the name, of which no direction is better."""
        known = REGISTRY.get(self.base) or added_metrics().get(self.base)
        return known or Metric(self.base or self.split, "", None, None)

    @property
    def is_known(self) -> bool:
        """Whether the registry or a plug-in has the metric."""
        return self.base in metrics()

    @property
    def margin(self) -> Margin:
        """The metric's margin, of a group twice that of all examples where it is an accuracy;
        a share of the value for a metric that is unknown."""
        if self.group and self.base == "accuracy":
            return REGISTRY[WORST].margin
        return self.metric.margin


def metric_of(name: str) -> Metric:
    """The metric of a name."""
    return parse_name(name).metric


def parse_name(name: str) -> MetricName:
    """Parses a name; metrics that compare two runs (`privacy_cost/<group>`) have no split."""
    first, _, rest = name.partition("/")
    if first in REGISTRY:
        return MetricName("", first, rest)
    base, _, group = rest.partition("/")
    return MetricName(first, base, group)
