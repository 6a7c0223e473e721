"""Runs on a table of people, by whether they are rich."""

from dpbench.runs.execution.prepare import run_of
from dpbench.runs.execution.run_config import run_config


def settings(path, *more):
    return ["dataset=csv", f"dataset.file='{path}'", "dataset.target=rich", *more]


def data_of(path, *more, seed=0):
    run = run_of(run_config(settings(path, *more)))
    return run.dataset, run.dataset.load(path.parent / "unread", seed)
