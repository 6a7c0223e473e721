"""Hydra's `--cfg job` and `--info`: show a run's configuration without running it."""

from collections.abc import Sequence

from dpbench.system.errors import UserError, nearest

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
            value = value if equals else (rest.pop(0) if rest else "")
            if value != "job":
                raise UserError(
                    f"--cfg shows the configuration of a run: --cfg job, not {value!r}."
                )
            flags.add(CONFIG[1])
        elif argument in (*MULTIRUN, INFO):
            flags.add(MULTIRUN[0] if argument in MULTIRUN else argument)
        elif argument.startswith("-"):
            hint = nearest(argument, (*MULTIRUN, *CONFIG, INFO, "--help"))
            raise UserError(f"{argument} is not a flag of run (settings are KEY=VALUE): {hint}")
        else:
            overrides.append(argument)
    return flags, overrides


def configuration(overrides: list[str]) -> str:
    """The composed configuration as YAML, after a table's rules and resolved; UserError for
    overrides that are refused."""
    import yaml

    from dpbench.runs.execution.run_config import RunConfig

    config = {**RunConfig.composed(overrides).plain}
    del config["choices"]
    return yaml.safe_dump(config, sort_keys=False).rstrip("\n")


def information(overrides: list[str]) -> str:
    """The option chosen in each group and its file, and the name that the record would have."""
    from dpbench.runs.config.search_path import added_folders, file_of
    from dpbench.runs.execution.run_config import RunConfig
    from dpbench.system.paths import benchmarks_folder, conf_folder

    config = RunConfig.composed(overrides)
    # A target that replaces an option has no file.
    chosen = {
        group: f"{group}/{option}.yaml" if file_of(group, option) else option
        for group, option in config["choices"].items()
    }
    width = max(map(len, chosen))
    searched = [conf_folder(), benchmarks_folder(), *(folder for folder, _ in added_folders())]
    lines = [f"configuration folder: {folder}" for folder in searched]
    lines += [f"{group:{width}}  {path}" for group, path in chosen.items()]
    return "\n".join([*lines, f"record: {config.path}"])
