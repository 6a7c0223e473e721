"""`+experiment=NAME`: overrides in conf/experiment/NAME.yaml, in the form that Hydra's users know.

The file becomes overrides before anything is composed, so it can do no more than a command line,
nothing downstream knows of it, and records do not depend on it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpbench.runs.config.literals import literal
from dpbench.runs.config.search_path import EXPERIMENTS, file_of, options
from dpbench.runs.config.settings import PATHS, SETTINGS, key_of
from dpbench.runs.config.yaml_files import check_file, read_settings, refuse_resolvers
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

KEY = "experiment"
OVERRIDE, OWN = "override /", "_self_"


def with_experiment(arguments: Sequence[str]) -> list[str]:
    """The arguments with the overrides of an experiment in its place, but for keys that they set
    themselves; unchanged where a sweep names several. UserError for a second one, for an unknown
    one, and for what no file may set."""
    given = [argument for argument in arguments if key_of(argument) == KEY]
    if len(given) > 1 or not all(one.startswith(f"+{KEY}=") for one in given):
        raise UserError(f"{' '.join(given)} is refused: write +experiment=NAME, once.")
    if not given or "," in (name := given[0].partition("=")[2]):
        return list(arguments)
    own = {key_of(argument) for argument in arguments}
    added = [one for one in overrides_of(name) if key_of(one) not in own]
    place = list(arguments).index(given[0])
    return [*arguments[:place], *added, *arguments[place + 1 :]]


def overrides_of(name: str) -> list[str]:
    """The overrides of an experiment: its options, then its values."""
    path = file_of(EXPERIMENTS, one_of(KEY, name, options(EXPERIMENTS)))
    assert path is not None
    check_file(path)
    values = read_settings(path)
    chosen = [*_options(path, values.pop("defaults", []))]
    return [*chosen, *_values(path, values)]


def _options(path: Path, defaults: Any) -> Iterator[str]:
    """The options that a defaults list chooses, by entries such as `override /dataset: adult`."""
    for entry in defaults if isinstance(defaults, list) else [defaults]:
        if entry == OWN:
            continue
        ((key, option),) = entry.items() if isinstance(entry, dict) else [("", entry)]
        group = str(key).removeprefix(OVERRIDE)
        if group == key or not isinstance(option, str):
            raise UserError(
                f"{path}: {entry} is refused: its defaults list chooses options by entries such as "
                "`override /dataset: adult`."
            )
        _check_settable(path, group)
        yield f"{group}={option}"


def _values(path: Path, node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from _values(path, value, f"{name}.")
            continue
        _check_settable(path, name)
        if isinstance(value, str) and "${" in value:
            refuse_resolvers(value, str(path))
            yield f"{name}={value}"
        elif (text := literal(value)) is None:
            raise UserError(f"{path}: {name} must be a number, text, list or mapping.")
        else:
            yield f"{name}={text}"


def _check_settable(path: Path, name: str) -> None:
    """UserError for where and by what a command runs, and for paths: the user's own choice."""
    group, _, key = name.partition(".")
    if group not in SETTINGS or key in PATHS.get(group, ()):
        raise UserError(f"{path} cannot set {name}: give it on the command line.")
