"""Hydra's `--cfg job` and `--info`: show a run's configuration without running it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpbench.system.errors import UserError, nearest
from dpbench.system.validate import one_of, shown

if TYPE_CHECKING:
    from dpbench.runs.execution.run_config import RunConfig

MULTIRUN = ("-m", "--multirun")
CONFIG = ("-c", "--cfg")
INFO = "--info"
PACKAGE = ("-p", "--package")
RESOLVE = "--resolve"

ELSEWHERE = {
    "--config-name": "+experiment=NAME",
    "-cn": "+experiment=NAME",
    "--config-path": "--config-dir DIR",
    "-cp": "--config-dir DIR",
    "--shell-completion": 'eval "$(dpbench --completion bash)"',
    "-sc": 'eval "$(dpbench --completion bash)"',
    "--experimental-rerun": "the command of a record, which dpbench report shows",
    "--hydra-help": "dpbench run --help",
}
"""Flags of Hydra's, with what does the same here."""


def split_flags(arguments: Sequence[str]) -> tuple[set[str], list[str]]:
    """The flags among the arguments of a run, and its overrides.

    `--cfg job` counts as one flag, and so does `--package=NAME`. UserError for other flags, other
    values of `--cfg`, and what only goes with it.
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
        elif name in PACKAGE:
            value = value if equals else (rest.pop(0) if rest else "")
            flags.add(f"{PACKAGE[1]}={value}")
        elif argument in (*MULTIRUN, INFO, RESOLVE):
            flags.add(MULTIRUN[0] if argument in MULTIRUN else argument)
        elif argument.startswith("-"):
            if name in ELSEWHERE:
                raise UserError(f"{name} is not a flag of run: use {ELSEWHERE[name]}.")
            hint = nearest(argument, (*MULTIRUN, *CONFIG, INFO, *PACKAGE, RESOLVE, "--help"))
            raise UserError(f"{argument} is not a flag of run (settings are KEY=VALUE): {hint}")
        else:
            overrides.append(argument)
    if CONFIG[1] not in flags and (
        alone := [f for f in flags if f.startswith((*PACKAGE, RESOLVE))]
    ):
        raise UserError(f"{alone[0]} goes with --cfg job.")
    return flags, overrides


def configuration(overrides: list[str], flags: set[str]) -> str:
    """The composed configuration as YAML, after a table's rules and resolved, or with
    `--package=NAME` a part of it; UserError for overrides that are refused, and unknown parts."""
    import yaml

    config: Any = dict(_of_one_run(overrides).plain)
    del config["choices"]
    for package in (flag.partition("=")[2] for flag in flags if flag.startswith(PACKAGE[1])):
        for key in package.split("."):
            known = config if isinstance(config, dict) else {}
            config = known[one_of("--package", key, known)]
    return yaml.safe_dump(config, sort_keys=False).removesuffix("...\n").rstrip("\n")


def information(overrides: list[str]) -> str:
    """The option chosen in each group and its file, and the name that the record would have."""
    from dpbench.runs.config.search_path import added_folders, file_of
    from dpbench.system.paths import benchmarks_folder, conf_folder

    config = _of_one_run(overrides)
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


def _of_one_run(overrides: list[str]) -> "RunConfig":
    """The configuration; UserError for overrides of several runs, even with -m."""
    from dpbench.runs.config.overrides import parse
    from dpbench.runs.execution.run_config import RunConfig

    for override in parse(overrides):
        if override.is_sweep_override():
            key, line = override.key_or_group, shown(str(override.input_line))
            raise UserError(
                f"{line} names several runs, and --cfg and --info show one: give {key} one value, "
                f"or for a list {key}=[...]."
            )
    return RunConfig.composed(overrides)
