"""From overrides to a record: what is there already is not run again."""

from pathlib import Path

import torch

from dpbench import config as configuration
from dpbench.checkpoints import Checkpoints, claimed
from dpbench.errors import UserError, positive
from dpbench.results import SCIENTIFIC, check_writable, load, record_path, remove_parts
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
    if config["checkpoint_minutes"] is not None:
        positive("checkpoint_minutes", config["checkpoint_minutes"])
    if not isinstance(config["again"], bool):
        raise UserError(f"again must be true or false, got {config['again']!r}.")
    for name, kinds in (("data_dir", str | None), ("results_dir", str)):
        if not isinstance(config[name], kinds):
            raise UserError(f"{name} must be the name of a folder, got {config[name]!r}.")


def once(overrides: list[str], quiet: bool = False) -> Path:
    """The path of a run's record: the one there is, or, with again=true or none, a new one.

    A run that was interrupted goes on from its last checkpoint, or with again=true from the start;
    one that another process is carrying out is waited for.
    """
    config, run, _ = settle(overrides)
    folder = Path(config["results_dir"])
    path = record_path(folder, config)
    own = folder / "checkpoints" / path.stem
    if config["again"] or own.exists() or load(path) is None:
        check_writable(path.parent)
        with claimed(own, config["checkpoint_minutes"]) as kept:
            remove_parts(path.parent, path.name)
            # The process that was waited for may have made it.
            if config["again"] or load(path) is None:
                _make(config, run, kept, quiet)
            kept.clear()
    return path


def _make(config: dict, run: Run, kept: Checkpoints, quiet: bool) -> None:
    if config["again"]:
        kept.clear()
    if config["threads"]:
        torch.set_num_threads(config["threads"])
    record = fit(run, configuration.data_folder(config), quiet, kept)
    record.save(Path(config["results_dir"]))


def is_scientific(override: str) -> bool:
    """Whether an override changes what a run is, and not only how it is carried out."""
    return override.lstrip("+~").split("=")[0].split(".")[0] in (*SCIENTIFIC, "privacy")
