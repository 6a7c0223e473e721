"""From a plain configuration to the run, the launcher and the trackers that it describes."""

import functools
from dataclasses import replace
from typing import Any, get_type_hints

from dpbench.learning.data.derive.calibration import PURPOSES, WithCalibration
from dpbench.learning.data.derive.features import Features, with_features
from dpbench.learning.data.derive.mislabelled import Mislabelled
from dpbench.learning.data.derive.normalization import Normalization
from dpbench.learning.data.derive.validation import WithValidation
from dpbench.privacy.guarantee import DEFAULT_PAPER_ACCOUNTANT
from dpbench.runs.config import buildable
from dpbench.runs.config.search_path import groups
from dpbench.runs.config.settings import SETTINGS, check_optimizer
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.records.code import built_by_plugins
from dpbench.runs.training.budget import Privacy
from dpbench.runs.training.plan import Plan, plan
from dpbench.runs.training.run import Run
from dpbench.system.errors import UserError

COUNTED = "class_count_noise_multiplier"

WITHOUT_EFFECT = ("optimizer",)
"""Groups on which no epsilon depends, as their parts only see what is released; diagnostics see the
step and the training examples."""


def prepare(config: RunConfig) -> tuple[Run, Plan]:
    """The run and its plan; UserError for all that can be refused in advance."""
    run = run_of(config)
    return run, plan(run)


def run_of(config: RunConfig, frozen: bool = False) -> Run:
    """The run, without the plan, which may take seconds of accounting. frozen: whether its
    parameters are meant to stand still, as in an audit of one step."""
    if not frozen:
        check_optimizer(config["optimizer"])
    return build(config.plain)


def build(config: dict) -> Run:
    """The run that a plain configuration describes; UserError for unsuitable values."""
    parts: dict[str, Any] = _with_numbers({key: config.get(key) for key in SETTINGS})
    for group in parts.keys() & {*groups()}:
        parts[group] = buildable.build_as(_types_of_groups()[group], group, parts[group])
    parts["graph"] = parts["engine"].get("graph", False)
    parts["engine"] = parts["engine"].get("name")
    dataset = parts["dataset"]
    if features := parts.pop("features"):
        dataset = with_features(dataset, features, parts["device"])
        if parts["augmentation"] or isinstance(parts["normalization"], Normalization):
            raise UserError(
                "features are computed once, before training: set augmentation=none, and "
                "normalization=private or none."
            )
    for purpose in PURPOSES:
        if fit := parts[purpose]:
            dataset = WithCalibration(dataset, fit.share, purpose)
    if (share := parts.pop("validation")) is not None:
        dataset = WithValidation(dataset, share)
    if (number := parts.pop("mislabelled")) is not None:
        dataset = Mislabelled(dataset, number)
    parts["dataset"] = dataset
    if authors := _authors(config):
        method = parts["method"]
        parts["method"] = replace(method, basis=method.basis.vouched_by(authors))
    paper_accountant = config.get("table", {}).get("claimed_by", DEFAULT_PAPER_ACCOUNTANT)
    return Run(**parts, paper_accountant=paper_accountant, config=config)


def _with_numbers(parts: dict[str, Any]) -> dict[str, Any]:
    """The settings with a number for noise that is given as a share of the budget."""
    budget = buildable.build_as(Privacy, "privacy", parts["privacy"])
    normalization = parts["normalization"]
    if isinstance(normalization, dict):
        normalization = {
            key: budget.noise_of_share(f"normalization.{key}", value)
            for key, value in normalization.items()
        }
    counted = budget.noise_of_share(COUNTED, parts[COUNTED])
    return {**parts, "normalization": normalization, COUNTED: counted}


def _authors(config: dict) -> str:
    """The plug-ins with parts that a run's epsilon relies on, or ""."""
    built = built_by_plugins(config).items()
    return ", ".join(
        sorted({p["package"] for path, p in built if path.split(".")[0] not in WITHOUT_EFFECT})
    )


@functools.cache
def _types_of_groups() -> dict[str, Any]:
    """The type of the part that each group builds. `Run` has no fields for two of them: an engine
    is passed by name, and features are part of the data set."""
    return get_type_hints(Run) | {"engine": dict[str, Any], "features": Features | None}
