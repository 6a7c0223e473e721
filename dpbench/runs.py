"""From overrides to a record: what is there already is not run again."""

from pathlib import Path

import torch

from dpbench import config as configuration
from dpbench.errors import UserError
from dpbench.lock import exclusive
from dpbench.results import SCIENTIFIC, check_writable, load, make_way, record_path
from dpbench.train import Plan, Run, fit, plan, whole


def settle(overrides: list[str]) -> tuple[dict, Run, Plan]:
    """The configuration, the run and its plan; UserError for all that can be refused by now."""
    config = configuration.compose(overrides)
    check_how(config)
    run = configuration.build(config)
    return config, run, plan(run)


def check_how(config: dict) -> None:
    """Refuse values that say in no sensible way how to carry out a run."""
    for name in ("threads", "jobs"):
        if config[name] is not None:
            whole(name, config[name])
    if not isinstance(config["again"], bool):
        raise UserError(f"again must be true or false, got {config['again']!r}.")
    for name, kinds in (("data_dir", str | None), ("results_dir", str)):
        if not isinstance(config[name], kinds):
            raise UserError(f"{name} must be the name of a folder, got {config[name]!r}.")


def once(overrides: list[str], quiet: bool = False, wait: bool = True) -> Path:
    """The path of a run's record: the one there is, or, with again=true or none, a new one.

    A run that another process is carrying out is waited for, or Busy raised where wait is false.
    """
    config, run, _ = settle(overrides)
    path = record_path(Path(config["results_dir"]), config)
    if config["again"] or load(path) is None:
        check_writable(path.parent)
        with exclusive(path.parents[1] / "checkpoints" / path.stem / "lock", wait):
            # The process that was waited for may have made it.
            if config["again"] or load(path) is None:
                _make(config, run, path, quiet)
    return path


def _make(config: dict, run: Run, path: Path, quiet: bool) -> None:
    if config["threads"]:
        torch.set_num_threads(config["threads"])
    make_way(path)
    fit(run, configuration.data_folder(config), quiet).save(path.parents[1])


def is_scientific(override: str) -> bool:
    """Whether an override changes what a run is, and not only how it is carried out."""
    return override.lstrip("+~").split("=")[0].split(".")[0] in (*SCIENTIFIC, "privacy")
