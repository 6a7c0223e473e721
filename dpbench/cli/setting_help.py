"""What one setting means, for `dpbench help COMMAND KEY`: as the YAML file says that has it."""

from itertools import takewhile
from textwrap import indent

from dpbench.runs.config.search_path import file_of, groups, options
from dpbench.runs.config.settings import key_of
from dpbench.system.errors import UserError, nearest
from dpbench.system.paths import conf_folder
from dpbench.system.validate import shown


def meaning(word: str) -> str:
    """The default of a setting of runs, and what is said of it; UserError for an unknown one."""
    key = key_of(word) if "=" in word else word
    group, _, name = key.partition(".")
    _, settings = (conf_folder() / "config.yaml").read_text(encoding="utf-8").split("\n\n", 1)
    if group not in groups():
        if text := about(key, settings):
            return text
        known = [
            *groups(),
            *(line.partition(":")[0] for line in settings.splitlines() if ": " in line),
        ]
        raise UserError(f"{shown(key)} is not a setting: {nearest(key, known)}")
    if not name:
        return (
            f"{group}: one of {', '.join(options(group))}; `dpbench list {group}` describes them."
        )
    files = {option: file_of(group, option) for option in options(group)}
    found = {
        f"{group}={option}": text
        for option, path in files.items()
        if path and (text := about(name.partition(".")[0], path.read_text(encoding="utf-8")))
    }
    if not found:
        raise UserError(
            f"no option of {group} has the setting {shown(name)}: `dpbench list {group}` "
            "describes them."
        )
    return "\n".join(f"{option}\n{indent(text, '    ')}" for option, text in found.items())


def about(key: str, settings: str) -> str:
    """The comment above a key of a YAML text, and its lines; "" without the key."""
    lines = settings.splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith(f"{key}:")]
    if not places:
        return ""
    above = takewhile(lambda line: line.startswith("#"), reversed(lines[: places[0]]))
    below = takewhile(lambda line: line.startswith(" "), lines[places[0] + 1 :])
    return "\n".join([*reversed([*above]), lines[places[0]], *below])
