"""The settings in which runs of one method differ, in a few words."""

from collections.abc import Mapping, Sequence

from dpbench.runs.config.history import ADDED_TO_METHOD, ADDED_TO_METHODS, ADDED_TO_PARTS
from dpbench.runs.config.settings import OFF_VALUES, SCIENTIFIC, SETTINGS, leaves, varying_keys
from dpbench.runs.records.digest import with_current_options
from dpbench.system.grouping import grouped

EXCLUDED = ("seed", "privacy", "diagnostics")
MAX_SETTINGS = 3

DEFAULTS = {
    **{f"method.{key}": value for key, value in ADDED_TO_METHODS.items()},
    **{key: setting.omitted[-1] for key, setting in SETTINGS.items() if any(setting.omitted)},
}
"""The values that `flatten` leaves out, but for those that say that something is off."""


def flatten(config: dict) -> dict[str, object]:
    """The scientific settings by dotted key, without those that are off or EXCLUDED.

    Diagnostics are excluded because they do not change the metrics of a run. Of the budget, delta
    is kept, at which epsilons are stated.
    """
    parts = {key: config.get(key) for key in SCIENTIFIC if key not in EXCLUDED}
    parts["privacy"] = {"delta": (config.get("privacy") or {}).get("delta")}
    every = _left_out(config) | dict(leaves(parts))
    settings = {key: value for key, value in every.items() if value not in OFF_VALUES}
    return {
        key: value
        for key, value in settings.items()
        if DEFAULTS.get(key) != value and not key.endswith("_partial_")
    }


def value_of(settings: Mapping[str, object], key: str) -> object:
    """The value of a setting, of those that `flatten` leaves out too; None if it is off."""
    return settings.get(key, DEFAULTS.get(key))


def _left_out(config: dict) -> dict[str, object]:
    """The settings by dotted key that parts were given later and records leave out."""
    targets = {group: (config.get(group) or {}).get("_target_") for group in ("dataset", "model")}
    added: dict[str, Mapping[str, object]] = {
        "method": ADDED_TO_METHOD.get(config["choices"]["method"], {}),
        **{group: ADDED_TO_PARTS.get(str(target), {}) for group, target in targets.items()},
    }
    return {f"{group}.{key}": value for group, part in added.items() for key, value in part.items()}


def differences(configs: Sequence[dict]) -> list[str]:
    """For each configuration, the settings in which it differs from the others, or "".

    If the options of a group differ, the option is named, and its settings only if they differ
    between configurations with the same options.
    """
    flat = [flatten(config) for config in configs]
    options = [with_current_options(config["choices"]) for config in configs]
    varying = varying_keys(flat)
    chosen = [key for key in varying_keys(options) if key not in EXCLUDED]
    groups = [key for key in chosen if any(v.startswith(f"{key}.") for v in varying)]
    others = [key for key in varying if key.partition(".")[0] not in groups]
    parts = [
        _select(choices, groups) | _select(settings, others)
        for choices, settings in zip(options, flat, strict=True)
    ]
    same_parts = grouped(zip(map(repr, parts), flat, strict=True))
    more = {key: varying_keys(settings) for key, settings in same_parts.items()}
    return [
        _text(part | _select(settings, more[repr(part)]))
        for part, settings in zip(parts, flat, strict=True)
    ]


def _select(settings: Mapping[str, object], keys: Sequence[str]) -> dict[str, object]:
    return {key: value_of(settings, key) for key in keys}


def _text(settings: dict[str, object]) -> str:
    words = [f"{_short(key)}={_text_of(value)}" for key, value in settings.items()]
    more = f" and {len(words) - MAX_SETTINGS} more" if len(words) > MAX_SETTINGS else ""
    return ", ".join(words[:MAX_SETTINGS]) + more


def _short(key: str) -> str:
    group, _, name = key.partition(".")
    return name if group in ("method", "optimizer", "privacy") and name else key


def _text_of(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
