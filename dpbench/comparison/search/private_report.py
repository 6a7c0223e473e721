"""A private search as Markdown and CSV: what is released, and what it costs."""

import shlex

import pandas as pd

from dpbench.comparison.search.planned_trials import PlannedTrials
from dpbench.comparison.search.private import PrivateSelection
from dpbench.comparison.search.request import SearchRequest
from dpbench.comparison.tables.grid import NO_VALUE, Grid
from dpbench.comparison.tables.page import Block, Page
from dpbench.privacy.guarantee import VOUCHED
from dpbench.runs.config.settings import key_of
from dpbench.runs.config.space import override_texts
from dpbench.runs.records.epsilon import delta_text, marked, rounded_up
from dpbench.runs.records.trained_model import model_path

OF_THE_FILE = ("dataset.checksum", "dataset.file", "dataset.folder", "dataset.path")
"""Settings that the page leaves out: whoever has all of a file but one row could guess that row and
compare the checksum."""

NOTES = (
    "Epsilon of the search covers every training example, whether a trial trained on it or held it "
    "out, and two things: the parameters of the chosen trial, and what stands on this page. An "
    "example is removed by leaving its place empty (zero-out adjacency). The score is released "
    "with noise; a trial is one noisy accuracy and its training, composed.",
    "It does not cover how many trials there were, how long they took, the names of records, which "
    "follow from seed and data, or what records say beside the noisy accuracy: metrics, history "
    "and calibration are exact. Publish the chosen record by `dpbench publish record=DIGEST`, as "
    "the search prints it, and no other one.",
    "With noise=seeded all of this holds for whoever does not know the seed, from which noise and "
    "trials follow; with noise=secure they follow from a key.",
    "Training again, on all training examples, costs its epsilon in addition. An epsilon for "
    "adding or removing an example also holds if the place is left empty, so by basic composition "
    "both together cost the sum of the two epsilons, at the sum of the two deltas.",
)


def render(selected: PrivateSelection) -> dict[str, bytes]:
    """The files by suffix: the same search gives the same bytes."""
    csv = pd.DataFrame([_row(selected)]).to_csv(index=False, lineterminator="\n")
    return {"md": _page(selected).markdown.encode(), "csv": csv.encode()}


def how_to_publish(selected: PrivateSelection) -> str:
    """The commands that publish the chosen record, whose name is on no page, and train on all
    examples; and where the chosen model is. None names the seed, from which the noise follows."""
    if selected.record is None or selected.values is None:
        return ""
    request, digest = selected.planned.request, selected.record.digest
    results = request.config.results
    folder = shlex.quote(f"results_dir={results}")
    lines = [
        f"To publish it: dpbench publish {folder} record={digest}",
        "To train on all examples, whose epsilon adds up: "
        + request.command(selected.values, with_seeds=False),
    ]
    if request.config["save_model"]:
        model = model_path(results, digest, request.config["noise"])
        lines.append(f"The chosen model: {model}. No epsilon covers those of others.")
    return "".join(f"\n{line}\n" for line in lines)


def describe_law(request: SearchRequest) -> str:
    """The law of the number of trials, in words."""
    assert request.repetitions
    law, mean, shape = (getattr(request.repetitions, key) for key in ("law", "mean", "shape"))
    if law == "poisson":
        return f"Poisson with mean {mean:g}"
    if law == "binomial":
        return f"binomial with mean {mean:g} and at most {shape:g}"
    kind = {1: "geometric", 0: "logarithmic"}.get(shape)
    return f"{kind or f'truncated negative binomial of shape {shape:g}'} with mean {mean:g}"


def _page(selected: PrivateSelection) -> Page:
    planned, request = selected.planned, selected.planned.request
    choices = request.config["choices"]
    ranges = ", ".join(f"`{range_.key}={range_.text}`" for range_ in request.space.ranges)
    fixed = " ".join(f"`{o}`" for o in request.settings if key_of(o) not in OF_THE_FILE)
    count = len(planned.candidates)
    blocks: list[Block] = [
        f"Each trial is one of {count} candidates (draw={request.draw}) of {ranges}, drawn "
        f"uniformly and with replacement, with {fixed}. The number of trials is random, "
        f"{describe_law(request)}, and not released.",
        _grid(planned),
        *planned.vouched,
        _chosen(selected),
        *NOTES,
        *([f"On the data: {' '.join(planned.notes)}"] if planned.notes else []),
    ]
    return Page(f"Private search: {choices['dataset']}", blocks)


def _grid(planned: PlannedTrials) -> Grid:
    head = ("", "epsilon", "by", "epsilon (RDP)", "delta")
    level = VOUCHED if planned.vouched else "proven"

    def shown(epsilon: float | None) -> str:
        return NO_VALUE if epsilon is None else marked(rounded_up(epsilon, 3), level)

    rows = (("one trial, with its score", planned.trial), ("the whole search", planned.search))
    return Grid(
        "",
        head,
        tuple(
            (what, shown(cost.epsilon), cost.by.upper(), shown(cost.rdp), delta_text(planned.delta))
            for what, cost in rows
        ),
    )


def _chosen(selected: PrivateSelection) -> str:
    if selected.record is None or selected.values is None or selected.score is None:
        return "The law gave no trial at all, so none is chosen."
    settings = " ".join(f"`{override}`" for override in override_texts(selected.values))
    return (
        f"Chosen, by the highest noisy accuracy on the validation split: {settings}, "
        f"{100 * selected.score:.2f}%."
    )


def _row(selected: PrivateSelection) -> dict:
    """The only row of the CSV file."""
    planned, request = selected.planned, selected.planned.request
    chosen = selected.values or {}
    return {
        **{range_.key: chosen.get(range_.key, NO_VALUE) for range_ in request.space.ranges},
        "noisy_accuracy": selected.score,
        "epsilon/trial": planned.trial.epsilon,
        "epsilon/search": planned.search.epsilon,
        "rdp/trial": planned.trial.rdp,
        "rdp/search": planned.search.rdp,
        "by": planned.search.by,
        "delta": planned.delta,
        "candidates": len(planned.candidates),
        "law": describe_law(request),
    }
