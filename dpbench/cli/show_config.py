"""Hydra's `--cfg job` and `--info`: show a run's configuration without running it."""

from collections.abc import Sequence

from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import shown

MULTIRUN = ("-m", "--multirun")
CONFIG = ("-c", "--cfg")
INFO = "--info"


def split_flags(arguments: Sequence[str]) -> tuple[set[str], list[str]]:
    """The flags among the arguments of a run, and its overrides.

    `--cfg job` counts as one flag. UserError for other flags, and other values of `--cfg`.
    """
    flags, overrides, rest = set[str](), [], list(arguments)
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.partition("=")
        if name in CONFIG:
            flags.add(_config_flag(value if equals else (rest.pop(0) if rest else "")))
        elif argument in (*MULTIRUN, INFO):
            flags.add(MULTIRUN[0] if argument in MULTIRUN else argument)
        elif argument.startswith("-"):
            known = (*MULTIRUN, *CONFIG, INFO, "--help")
            hint = nearest(argument, known)
            raise UserError(f"{argument} is not a flag of run (settings are KEY=VALUE): {hint}")
        else:
            overrides.append(argument)
    return flags, overrides


def _config_flag(value: str) -> str:
    if value != "job":
        raise UserError(f"--cfg shows the configuration of a run: --cfg job, not {value!r}.")
    return CONFIG[1]


def configuration(overrides: list[str]) -> str:
    """The composed configuration as YAML, after a table's rules; UserError for overrides that are
    refused."""
    import yaml

    config = _of_one_run(overrides)
    del config["choices"]
    return yaml.safe_dump(config, sort_keys=False).rstrip("\n")


def information(overrides: list[str]) -> str:
    """The option chosen in each group and its file, and the name that the record would have."""
    from dpbench.config.search_path import folders
    from dpbench.records.digest import digest

    config = _of_one_run(overrides)
    chosen = {group: _source(group, option) for group, option in config["choices"].items()}
    width = max(map(len, chosen))
    lines = [f"configuration folder: {folder}" for folder, _ in folders()]
    lines += [f"{group:{width}}  {path}" for group, path in chosen.items()]
    return "\n".join([*lines, f"record: {config['results_dir']}/runs/{digest(config)}.json"])


def _of_one_run(overrides: list[str]) -> dict:
    """The composed configuration; UserError for overrides of several runs, even with -m."""
    from dpbench.config.compose import compose
    from dpbench.config.overrides import parse

    for override in parse(overrides):
        if override.is_sweep_override():
            key, line = override.key_or_group, shown(str(override.input_line))
            raise UserError(
                f"{line} names several runs, and --cfg and --info show one: give {key} one value, "
                f"or for a list {key}=[...]."
            )
    return compose(overrides)


def _source(group: str, option: str) -> str:
    """The file of an option, or the name of the target that replaces an option."""
    from dpbench.config.search_path import file_of

    return f"{group}/{option}.yaml" if file_of(group, option) else option
