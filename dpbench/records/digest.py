"""The name of a run: a digest of what makes it what it is, in every version of the suite."""

import hashlib
import json
from typing import Any

from dpbench.config.settings import (
    ADDED_TO_METHOD,
    ADDED_TO_METHODS,
    PATHS,
    SCIENTIFIC,
    SETTINGS,
)

FIRST_NAMES = {
    "dpbench.training.budget": "dpbench.privacy",
    "dpbench.mechanism.schedules": "dpbench.schedules",
    **{
        f"dpbench.data.derive.{name}": f"dpbench.data.{name}"
        for name in ("augmentation", "normalization", "unbalanced", "users")
    },
}
"""Modules whose parts a configuration builds, and their names when the first records were made."""

CURRENT_NAMES = {first: current for current, first in FIRST_NAMES.items()}

CURRENT_OPTIONS = {("schedule", "mixup"): "bound_switch"}
"""Options under another name than in the first records: the digest has none of these groups."""


def digest(config: dict) -> str:
    """Sixteen hex digits of the scientific part of a plain configuration and its choices."""
    chosen = {group: config["choices"][group] for group in ("dataset", "model", "method")}
    known = scientific(config)
    parts = {key: known.get(key) for key in SCIENTIFIC}
    parts["model"] = _weights_by_one_name(parts["model"])
    usual = {**ADDED_TO_METHODS, **ADDED_TO_METHOD.get(chosen["method"], {})}.items()
    parts["method"] = {k: v for k, v in config["method"].items() if (k, v) not in usual}
    named = {k: part for k, part in parts.items() if part not in SETTINGS[k].omitted}
    science = _plain(named) | {"choices": chosen}
    return hashlib.sha256(json.dumps(science, sort_keys=True).encode()).hexdigest()[:16]


def scientific(config: dict) -> dict:
    """The scientific part of a configuration and its choices, without anybody's paths."""
    kept = {k: v for k, v in config.items() if k in (*SCIENTIFIC, "choices")}
    for group in PATHS.keys() & kept.keys():
        if isinstance(part := kept[group], dict):
            kept[group] = {k: v for k, v in part.items() if k not in PATHS[group]}
    return kept


def with_current_names(node: Any) -> Any:
    """A part of a record's configuration with the names that its parts have today."""
    if isinstance(node, dict):
        return {
            key: _renamed(part, CURRENT_NAMES) if key == "_target_" else with_current_names(part)
            for key, part in node.items()
        }
    return [with_current_names(part) for part in node] if isinstance(node, list) else node


def with_current_options(choices: dict[str, str]) -> dict[str, str]:
    """A record's choices with the names that options have today."""
    return {
        group: CURRENT_OPTIONS.get((group, option), option) for group, option in choices.items()
    }


def _weights_by_one_name(model):
    """The model with its weights named once, by checksum or else by revision, or not at all."""
    if not isinstance(model, dict):
        return model
    unsaid = [key for key in ("revision", "checksum") if model.get(key) is None]
    if "checksum" not in unsaid:
        unsaid.append("revision")
    return {key: value for key, value in model.items() if key not in unsaid}


def _plain(value):
    """The value with 1.0 written as 1, since both mean the same run, and parts by first names."""
    if isinstance(value, dict):
        return {
            key: _renamed(part, FIRST_NAMES) if key == "_target_" else _plain(part)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _renamed(target: Any, names: dict[str, str]) -> Any:
    module, _, name = str(target).rpartition(".")
    return f"{names[module]}.{name}" if module in names else target
