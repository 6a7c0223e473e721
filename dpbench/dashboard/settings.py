"""What tells runs of one method apart: the settings in which they differ, in a few words."""

from collections.abc import Iterator, Sequence

from dpbench.config.settings import ADDED_TO_METHODS, OFF, SCIENTIFIC
from dpbench.records.digest import digest, with_current_options

EXCLUDED = ("seed", "privacy", "diagnostics")
MAX_SETTINGS = 3


def group_of(config: dict) -> str:
    """One name for all runs that differ in nothing but their seed, observed or not."""
    return digest({**config, "seed": None, "diagnostics": None})


def series_of(config: dict) -> str:
    """One name for all runs that differ in nothing but their seed and their budget."""
    return digest({**config, "seed": None, "privacy": None, "diagnostics": None})


def flatten(config: dict) -> dict[str, object]:
    """The scientific settings by dotted key, without seed and budget and what says nothing.

    Nor with diagnostics, which look at a run and leave what it measures alone.
    """
    parts = {key: config.get(key) for key in SCIENTIFIC if key not in EXCLUDED}
    leaves = {key: value for key, value in _leaves(parts) if value not in OFF}
    usual = {f"method.{key}": value for key, value in ADDED_TO_METHODS.items()}
    return {k: v for k, v in leaves.items() if usual.get(k) != v and not k.endswith("_partial_")}


def _leaves(node: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(configs: Sequence[dict]) -> list[str]:
    """For each configuration, the settings in which it is unlike the others; "" where none is.

    Where options of a group tell them apart, those are said, and what they stand for only where it
    differs under the same options.
    """
    settings_of = [flatten(config) for config in configs]
    options = [with_current_options(config["choices"]) for config in configs]
    varying = _varying_keys(settings_of)
    groups = [
        key for key in _varying_keys(options) if any(v.startswith(f"{key}.") for v in varying)
    ]
    others = [key for key in varying if key.partition(".")[0] not in groups]
    parts = [
        _select(o, groups) | _select(f, others) for o, f in zip(options, settings_of, strict=True)
    ]
    alike: dict[str, list[dict[str, object]]] = {}
    for one, settings in zip(parts, settings_of, strict=True):
        alike.setdefault(repr(one), []).append(settings)
    more = {name: _varying_keys(of) for name, of in alike.items()}
    return [
        _text(one | _select(settings, more[repr(one)]))
        for one, settings in zip(parts, settings_of, strict=True)
    ]


def _varying_keys(ones: Sequence[dict]) -> list[str]:
    """The keys whose values differ, but for what only follows from a choice (its constructor)."""
    keys = sorted({key for one in ones for key in one if not key.endswith("_target_")})
    return [key for key in keys if len({repr(one.get(key)) for one in ones}) > 1]


def _select(one: dict, keys: Sequence[str]) -> dict[str, object]:
    return {key: one.get(key) for key in keys}


def _text(settings: dict[str, object]) -> str:
    words = [f"{_short(key)}={_value(value)}" for key, value in settings.items()]
    more = f" and {len(words) - MAX_SETTINGS} more" if len(words) > MAX_SETTINGS else ""
    return ", ".join(words[:MAX_SETTINGS]) + more


def _short(key: str) -> str:
    group, _, name = key.partition(".")
    return name if group in ("method", "optimizer", "diagnostics") and name else key


def _value(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
