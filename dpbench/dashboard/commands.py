"""The command line that makes a record again, checked against the record's name."""

import copy
import json
import re
import shlex
from collections.abc import Callable, Iterator

from dpbench.config import buildable
from dpbench.config.compose import compose, groups
from dpbench.config.settings import ADDED_TO_METHODS, OFF, SCIENTIFIC
from dpbench.errors import UserError
from dpbench.records.digest import digest, with_current_names, with_current_options

ALWAYS = ("dataset", "model", "method")
PLAIN = re.compile(r"[A-Za-z_][\w./:-]*")
WORDS = ("null", "true", "false", "inf", "nan")


NO_COMMAND = (
    "a setting has gone or changed since, and no command of this version gives this record."
)


def commands() -> Callable[[dict], str]:
    """command(config): `dpbench run ...` for a record's configuration.

    Raises UserError, with the reason, for a record that asks for more than settings of parts that
    conf/ declares, since somebody who shares it may want it to be run, and where today's settings
    cannot say what the record says.
    """
    usual, parts_of = compose([]), {*SCIENTIFIC} & {*groups()}
    # Groups do not speak of each other in conf/, so an option is composed once, and not with every
    # other; where that were to change, the digest would not come out and no command be shown.
    parts: dict[str, dict | None] = {}
    cache: dict[str, str | UserError] = {}  # runs that differ by their seed alone have one command

    def command(config: dict) -> str:
        alike = with_current_names({**config, "seed": usual["seed"]})
        kind = json.dumps(alike, sort_keys=True)
        if kind not in cache:
            cache[kind] = _command_or_reason(alike)
        found = cache[kind]
        if isinstance(found, UserError):
            raise UserError(str(found))
        seed = config.get("seed")
        return found if seed == usual["seed"] else f"{found} seed={seed}"

    def _command_or_reason(config: dict) -> str | UserError:
        try:
            return _of_kind(config)
        except UserError as reason:
            return reason

    def _of_kind(config: dict) -> str:
        for group in parts_of:
            buildable.check(group, config.get(group))
        options = tuple(_options(config["choices"], usual["choices"]))
        for option in options:
            if option not in parts:
                parts[option] = _part(option)
        found = [part for option in options if (part := parts[option]) is not None]
        if len(found) < len(options):
            raise UserError(NO_COMMAND)
        base = {**usual, **{key: node for part in found for key, node in part.items()}}
        chosen = dict(option.split("=") for option in options)
        return _command(config, base | {"choices": usual["choices"] | chosen}, options)

    return command


def _options(choices: dict, usual: dict) -> Iterator[str]:
    current = with_current_options(choices)
    others = (group for group in sorted(usual) if group in SCIENTIFIC and group not in ALWAYS)
    for group in (*ALWAYS, *others):
        option = current.get(group, usual[group])
        if group in ALWAYS or option != usual[group]:
            yield f"{group}={option}"


def _part(option: str) -> dict | None:
    """What an option puts under its group's name; None if there is no such option."""
    group, _, name = option.partition("=")
    # An option is a file's name; anything else in a record is nobody's option.
    if not PLAIN.fullmatch(name):
        return None
    try:
        return {group: compose([option])[group]}
    except UserError:
        return None


def _command(config: dict, base: dict, options: tuple[str, ...]) -> str:
    made = copy.deepcopy(base)
    overrides = []
    for key in SCIENTIFIC:
        for place, value in _changes((key,), base.get(key), config.get(key)):
            text = hydra_value(value)
            if text is None:
                raise UserError(NO_COMMAND)
            overrides.append(f"{'' if _put(made, place, value) else '+'}{'.'.join(place)}={text}")
    if digest(made) != digest(config):
        raise UserError(NO_COMMAND)
    return shlex.join(["dpbench", "run", *options, *overrides])


def _changes(place: tuple[str, ...], base, wanted) -> Iterator[tuple[tuple[str, ...], object]]:
    """Where a wanted part differs from the composed one, leaf by leaf."""
    if base == wanted or (base in OFF and wanted in OFF):
        return
    if not (isinstance(base, dict) and isinstance(wanted, dict)):
        yield place, wanted
        return
    for key, value in wanted.items():
        yield from _changes((*place, key), base.get(key), value)
    for key in base.keys() & ADDED_TO_METHODS.keys() - wanted.keys():
        yield from _changes((*place, key), base[key], ADDED_TO_METHODS[key])


def _put(made: dict, place: tuple[str, ...], value) -> bool:
    """Set the value, and say whether there was one."""
    *path, last = place
    node = made
    for key in path:
        node = node[key]
    known = last in node
    node[last] = value
    return known


def hydra_value(value: object) -> str | None:
    """A value in Hydra's grammar; None for one that it would not take as it stands."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _hydra_string(value)
    if isinstance(value, list):
        parts = [hydra_value(part) for part in value]
        return None if None in parts else f"[{','.join(map(str, parts))}]"
    if isinstance(value, dict):
        pairs = {key: hydra_value(part) for key, part in value.items()}
        fits = None not in pairs.values() and all(map(PLAIN.fullmatch, pairs))
        return f"{{{','.join(f'{k}:{v}' for k, v in pairs.items())}}}" if fits else None
    return None


def _hydra_string(value: str) -> str | None:
    if PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    # A backslash, a dollar or a quote means something to Hydra; no setting of ours has one.
    return None if re.search(r"[\\$'\n]", value) else f"'{value}'"
