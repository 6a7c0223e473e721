"""The name of the data of a run: only runs of one name are tested on the same examples."""

from collections.abc import Iterator, Mapping
from typing import Any

from dpbench.runs.config.chosen_options import option_node
from dpbench.runs.config.settings import leaves

SHORT = 6
"""The digits of a checksum by which two versions of a file are told apart."""

NAMED_OTHERWISE = (
    *("target", "checksum", "revision", "_target_"),
    *("name", "rows", "features", "classes", "groups", "test_rows"),
    *("user", "people"),
)
"""Settings of a data set that its name begins with, or that follow from its option or files."""

OF_FEATURES = ("categorical", "drop", "missing")
"""Settings of a data set that change what a model sees of its examples."""


def data_name(config: Mapping[str, Any]) -> str:
    """The data set of a configuration; in brackets what is predicted, and the settings of examples,
    labels, groups and users that are not those of the option's file."""
    name, settings = config["choices"]["dataset"], config.get("dataset") or {}
    target, version = settings.get("target"), _version(settings.get("checksum"))
    words = [*([target] if target else []), *_changes(name, settings), *_of_training(config)]
    aside = f"({', '.join(map(str, words))})" if words else ""
    return " ".join(filter(None, (name, version, aside)))


def _changes(name: str, settings: Mapping[str, Any]) -> Iterator[str]:
    option = option_node("dataset", name.partition(":")[0]) or {}
    default = dict(leaves(option))
    for key, value in leaves(settings):
        if key not in (*NAMED_OTHERWISE, *OF_FEATURES) and value != default.get(key):
            yield _text(key, value)


def _of_training(config: Mapping[str, Any]) -> Iterator[str]:
    """What is done to the examples after they are loaded."""
    if wrong := config.get("mislabelled"):
        yield _text("mislabelled", wrong)
    if users := config.get("users"):
        yield from (_text(key, value) for key, value in leaves({"users": users}))


def _text(key: str, value: object) -> str:
    """`test_share=0.5`, `users=iid`."""
    name = key.removesuffix("._target_")
    if name != key:
        return f"{name}={str(value).rpartition('.')[2]}"
    if key.endswith("checksum"):
        return f"{key}={_version(value)}"
    return f"{key}={value:.12g}" if isinstance(value, float) else f"{key}={value}"


def _version(checksum: object) -> str:
    return str(checksum).removeprefix("sha256:")[:SHORT] if checksum else ""
