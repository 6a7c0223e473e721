"""What tells runs of one method apart: the settings in which they differ, in a few words."""

from collections.abc import Iterator, Sequence

from dpbench.results import NOTHING, SCIENTIFIC, UNNAMED_OF_METHODS, digest

NOT_SAID = ("seed", "privacy")
MOST = 3


def group_of(config: dict) -> str:
    """One name for all runs that differ in nothing but their seed."""
    return digest({**config, "seed": None})


def series_of(config: dict) -> str:
    """One name for all runs that differ in nothing but their seed and their budget."""
    return digest({**config, "seed": None, "privacy": None})


def flat(config: dict) -> dict[str, object]:
    """The scientific settings by dotted key, without seed and budget and what says nothing."""
    parts = {key: config.get(key) for key in SCIENTIFIC if key not in NOT_SAID}
    leaves = {key: value for key, value in _leaves(parts) if value not in NOTHING}
    usual = {f"method.{key}": value for key, value in UNNAMED_OF_METHODS.items()}
    return {k: v for k, v in leaves.items() if usual.get(k) != v and not k.endswith("_partial_")}


def _leaves(node: dict, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differences(configs: Sequence[dict]) -> list[str]:
    """For each configuration, the settings in which it is unlike the others; "" where none is."""
    flats = [flat(config) for config in configs]
    keys = sorted({key for one in flats for key in one})
    varied = [key for key in keys if len({repr(one.get(key)) for one in flats}) > 1]
    # What follows from a choice (its constructor, its other settings) would only repeat it.
    said = [key for key in varied if not key.endswith("_target_")] or varied
    return [_said({key: one.get(key) for key in said}) for one in flats]


def _said(settings: dict[str, object]) -> str:
    words = [f"{_short(key)}={_value(value)}" for key, value in settings.items()]
    more = f" and {len(words) - MOST} more" if len(words) > MOST else ""
    return ", ".join(words[:MOST]) + more


def _short(key: str) -> str:
    return key.removeprefix("method.").removeprefix("optimizer.")


def _value(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
