"""Runs on a table of people, by whether they are rich."""

from dpbench.execution.prepare import run_of


def settings(path, *more):
    return ["dataset=csv", f"dataset.file='{path}'", "dataset.target=rich", *more]


def data_of(path, *more, seed=0):
    _, run = run_of(settings(path, *more))
    return run.dataset, run.dataset.load(path.parent / "unread", seed)
