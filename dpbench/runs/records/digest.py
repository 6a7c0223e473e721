"""The digest that names a run: of its scientific settings, the same in all versions. Runs share
other names: those of one group, one curve, one setting, one protocol."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dpbench.runs.config.history import (
    ADDED_TO_METHOD,
    ADDED_TO_METHODS,
    CURRENT_NAMES,
    CURRENT_OPTIONS,
    FIRST_NAMES,
)
from dpbench.runs.config.settings import (
    NAMED_GROUPS,
    PATHS,
    SCIENTIFIC,
    SETTINGS,
    canonical,
    settings_left_out,
)

RECORD_KEYS = frozenset((*SCIENTIFIC, "choices"))
"""The keys of a configuration that a record keeps."""

DIGEST_DEFAULTS = dict(
    sorted({"choices": (), **{key: SETTINGS[key].omitted for key in SCIENTIFIC}}.items())
)
"""The parts of the digest in their order, each with the values at which it is left out."""

_texts: dict[tuple[str, str, str], str] = {}
"""Cache: the JSON of parts by key, method and content, as runs share most of their parts."""

BUDGET = ("epsilon", "noise_multiplier", "accountant")
"""The settings of privacy that say how much noise there is; delta says what an epsilon means."""


def digest(config: dict) -> str:
    """Sixteen hex digits of the scientific part of a plain configuration and its choices."""
    return digest_of_scientific(scientific(config))


def digest_of_scientific(config: dict) -> str:
    """The digest of a configuration returned by `scientific`, as records keep it."""
    choices = {group: config["choices"][group] for group in NAMED_GROUPS}
    settings = config | {"choices": choices}
    texts = (
        f'"{key}": {_text(key, part, choices["method"])}'
        for key, omitted in DIGEST_DEFAULTS.items()
        if (part := settings.get(key)) not in omitted
    )
    return hashlib.sha256(f"{{{', '.join(texts)}}}".encode()).hexdigest()[:16]


def _text(key: str, part: Any, method: str) -> str:
    place = key, method, repr(part)
    if place not in _texts:
        named = _with_names(_named_part(key, part, method), FIRST_NAMES)
        _texts[place] = json.dumps(canonical(named), sort_keys=True)
    return _texts[place]


def _named_part(key: str, part: Any, method: str) -> Any:
    if key in ("model", "features") and isinstance(part, dict):
        omitted = {name for name in ("revision", "checksum") if part.get(name) is None}
        if "checksum" not in omitted:  # which names the weights
            omitted |= {"revision", "package", "hub"}
        if part.get("train") != "lora":
            omitted.add("lora")
        return {k: v for k, v in part.items() if k not in omitted}
    if key == "method":
        defaults = {**ADDED_TO_METHODS, **ADDED_TO_METHOD.get(method, {})}.items()
        return {k: v for k, v in part.items() if (k, v) not in defaults}
    return part


def scientific(config: dict) -> dict:
    """The scientific part of a configuration and its choices, without paths on this machine."""
    settings = {k: v for k, v in config.items() if k in RECORD_KEYS}
    for group in PATHS.keys() & settings.keys():
        if isinstance(part := settings[group], dict):
            omitted = settings_left_out(group, part)
            settings[group] = {k: v for k, v in part.items() if k not in omitted}
    return settings


def with_current_names(node: Any) -> Any:
    """A part of a record's configuration with the current names of its targets."""
    return _with_names(node, CURRENT_NAMES)


def _with_names(node: Any, names: dict[str, str]) -> Any:
    """names: those of modules in targets, by the names that they replace."""
    if isinstance(node, dict):
        return {
            key: _renamed(part, names) if key == "_target_" else _with_names(part, names)
            for key, part in node.items()
        }
    return [_with_names(part, names) for part in node] if isinstance(node, list) else node


def with_current_options(choices: dict[str, str]) -> dict[str, str]:
    """A record's choices with the current names of the options."""
    return {
        group: CURRENT_OPTIONS.get((group, option), option) for group, option in choices.items()
    }


def _renamed(target: Any, names: dict[str, str]) -> Any:
    module, _, name = str(target).rpartition(".")
    return f"{names[module]}.{name}" if module in names else target


def group_of(config: Mapping[str, Any]) -> str:
    """A common name of runs that differ only by their seed and diagnostics."""
    return digest({**config, "seed": None, "diagnostics": None})


def series_of(config: dict) -> str:
    """A common name of the runs of one curve, which differ only by seed, diagnostics and budget."""
    privacy = {k: v for k, v in (config.get("privacy") or {}).items() if k not in BUDGET}
    return digest({**config, "seed": None, "privacy": privacy, "diagnostics": None})


def budget_of(config: dict) -> str:
    """A common name of the runs with one setting of privacy."""
    none = {"choices": dict.fromkeys(NAMED_GROUPS), "method": {}}
    return digest({**none, "privacy": config.get("privacy")})


def setting_of(config: dict) -> str:
    """A common name of the runs of a series at any delta, and of those on a validation split."""
    off = dict.fromkeys(("seed", "privacy", "diagnostics", "validation", "trial"))
    return digest({**config, **off, "score_noise_multiplier": None})


def protocol_of(config: dict, *but: str) -> str:
    """A common name of runs whose methods can be compared: that differ only by method, optimiser,
    seed, diagnostics and budget. but: dotted keys of settings that may differ, too."""
    settings = {**config, **dict.fromkeys(("seed", "privacy", "diagnostics", "optimizer"))}
    settings |= {"method": {}, "choices": {**config["choices"], "method": ""}}
    for key in but:
        group, _, name = key.partition(".")
        settings[group] = {**settings[group], name: None} if name else None
    return digest(settings)
