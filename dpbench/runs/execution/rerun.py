"""What reruns a record, verified by its digest: a command line, and `dpbench run record=...`."""

import functools
import pickle
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from dpbench.runs.config import buildable
from dpbench.runs.config.chosen_options import option_node
from dpbench.runs.config.compose import compose
from dpbench.runs.config.history import ADDED_TO_METHODS
from dpbench.runs.config.literals import is_plain_key, literal
from dpbench.runs.config.search_path import groups
from dpbench.runs.config.settings import NAMED_GROUPS, OFF_VALUES, SCIENTIFIC
from dpbench.runs.records.collect import collect
from dpbench.runs.records.digest import digest, with_current_names, with_current_options
from dpbench.runs.records.reading import Unreadable, read
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

NAME = re.compile(r"[A-Za-z_][\w./:-]*")

PROVENANCE = ("engine", "threads", "physical_batch_size")
"""Settings of execution that the bits of a record depend on."""

NO_COMMAND = "a setting was removed or changed since; this version cannot reproduce the record."
NO_OPTION = (
    "{} is not an option here: it was removed or changed since, or it belongs to a plug-in that is "
    "not installed, or to a folder that --config-dir has to name."
)


class CommandBuilder:
    """From a record's configuration to `dpbench run ...`: derived, and not stored with the record,
    so that it is safe and correct for every record, also of scripts and earlier versions."""

    def __init__(self) -> None:
        self._defaults = compose([])
        self._constructed = {*SCIENTIFIC} & {*groups()}
        # Groups in conf/ do not depend on each other, so each option is composed once, not in every
        # combination; if that changed, the digest would differ and no command would be shown.
        self._part = functools.cache(_part)
        # Shared by runs that differ only by their seed.
        self._found: dict[str, list[str] | UserError] = {}

    def __call__(self, config: dict) -> str:
        """The command that reruns a record with this configuration; see `overrides`."""
        return shlex.join(["dpbench", "run", *self.overrides(config)])

    def overrides(self, config: dict) -> list[str]:
        """The overrides that rerun a record with this configuration; UserError, with the reason,
        for targets that conf/ does not declare, since a shared record must not make others run
        arbitrary code, and for what the current settings cannot express."""
        seed = self._defaults["seed"]
        with_default_seed = {**config, "seed": seed}
        if (key := repr(with_default_seed)) not in self._found:
            try:
                self._found[key] = self._build(with_current_names(with_default_seed))
            except UserError as reason:
                self._found[key] = reason
        found = self._found[key]
        if isinstance(found, UserError):
            raise UserError(str(found))
        return found if config.get("seed") == seed else [*found, f"seed={config.get('seed')}"]

    def _build(self, config: dict) -> list[str]:
        for group in self._constructed:
            if node := config.get(group):
                buildable.check(group, node)
        default_choices, replaced = self._defaults["choices"], _replaced(config)
        shown = config["choices"] | {group: default_choices[group] for group in replaced}
        options = dict(_options(shown, default_choices))
        base = dict(self._defaults)
        for group, name in options.items():
            base |= self._part(group, name)
        base |= {group: {buildable.TARGET: None} for group in replaced}
        choices = options | replaced | {"dataset": config["choices"]["dataset"]}
        base |= {"choices": default_choices | choices}
        chosen = (f"{group}={name}" for group, name in options.items())
        return [*chosen, *_overrides(config, base)]


def overrides_of(record: Record) -> list[str]:
    """What `dpbench run` needs to make the same record, to the bit where the versions are equal.
    Raises UserError as `CommandBuilder.overrides` does."""
    overrides = CommandBuilder().overrides(record.config)
    recorded = ((name, record.provenance.get(name)) for name in PROVENANCE)
    return [*overrides, *(f"{name}={value}" for name, value in recorded if value is not None)]


def record_named(name: str, folder: Path) -> Record:
    """The record in a file of that path, or of that digest in a results folder; else UserError."""
    path = Path(name)
    if path.suffix == ".json":
        found = read(path)
        if isinstance(found, Unreadable):
            raise UserError(f"record={name}: {found.source} {found.reason}{found.way_out}")
        return found
    records = (entry for entry in collect(folder) if isinstance(entry, Record))
    if record := next((record for record in records if record.digest == name), None):
        return record
    raise UserError(
        f"record={name}: there is no record of that digest in {folder}: give the path of its JSON "
        "file, or the results_dir that has it."
    )


def _replaced(config: dict) -> dict[str, str]:
    """By group, the target that replaces an option and is recorded as the choice; see `compose`."""
    return {
        group: choice
        for group, choice in config["choices"].items()
        if isinstance(config.get(group), dict) and config[group].get(buildable.TARGET) == choice
    }


def _options(choices: dict, defaults: dict) -> Iterator[tuple[str, str]]:
    current = with_current_options(choices)
    current["dataset"] = current["dataset"].partition(":")[0]  # without the name of the user's data
    others = (
        group for group in sorted(defaults) if group in SCIENTIFIC and group not in NAMED_GROUPS
    )
    for group in (*NAMED_GROUPS, *others):
        option = current.get(group, defaults[group])
        if group in NAMED_GROUPS or option != defaults[group]:
            yield group, option


def _part(group: str, name: str) -> dict:
    # Options are file names; a record may contain anything.
    if not NAME.fullmatch(name):
        raise UserError(NO_COMMAND)
    try:
        node = option_node(group, name)
        # Composing leaves out settings of data sets that were added later and are off.
        as_composed = node is None or group == "dataset"
        return {group: compose([f"{group}={name}"])[group] if as_composed else node}
    except UserError as error:
        raise UserError(NO_OPTION.format(f"{group}={name}")) from error


def _overrides(config: dict, base: dict) -> list[str]:
    rebuilt = pickle.loads(pickle.dumps(base))  # in a fifth of the time of a deep copy
    overrides = []
    for key in SCIENTIFIC:
        for path, value in _changes((key,), base.get(key), config.get(key)):
            text = literal(value)
            if text is None:
                raise UserError(NO_COMMAND)
            prefix = "" if _set(rebuilt, path, value) else "+"
            overrides.append(f"{prefix}{'.'.join(path)}={text}")
    if digest(rebuilt) != digest(config):
        raise UserError(NO_COMMAND)
    return overrides


def _changes(path: tuple[str, ...], base, recorded) -> Iterator[tuple[tuple[str, ...], object]]:
    """Path and value of every leaf in which a recorded part differs from the composed one."""
    if base == recorded or (base in OFF_VALUES and recorded in OFF_VALUES):
        return
    if not (isinstance(base, dict) and isinstance(recorded, dict)) or (
        not all(map(is_plain_key, recorded)) and base.keys() <= recorded.keys()
    ):
        yield path, recorded
        return
    for key, value in recorded.items():
        yield from _changes((*path, key), base.get(key), value)
    for key in base.keys() & ADDED_TO_METHODS.keys() - recorded.keys():
        yield from _changes((*path, key), base[key], ADDED_TO_METHODS[key])


def _set(config: dict, path: tuple[str, ...], value) -> bool:
    """Set the value at a path, and return whether there was one before."""
    *parents, last = path
    node = config
    for key in parents:
        node = node[key]
    existed = last in node
    node[last] = value
    return existed
