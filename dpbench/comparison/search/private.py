"""`dpbench search private=true`: a random number of trials, and one epsilon for the whole search.

Algorithm 1 of Papernot and Steinke (ICLR 2022): a trial trains one of a list of candidates, drawn
uniformly with replacement, with its own noise; its score is the noisy accuracy on the validation
split. Only the best is released: neither the others nor their number.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch

from dpbench.comparison.search.planned_trials import PlannedTrials, plan_trials
from dpbench.comparison.search.request import SearchRequest
from dpbench.comparison.tables.grid import NO_VALUE, Grid
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.learning.metrics.registry import NOISY_ACCURACY
from dpbench.privacy.guarantee import VOUCHED
from dpbench.privacy.private_selection import Repetitions
from dpbench.runs.config.settings import key_of
from dpbench.runs.config.space import override_texts
from dpbench.runs.execution.attempt import record_of
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.execution.sweep import launching
from dpbench.runs.records.epsilon import delta_text, marked, rounded_up
from dpbench.runs.records.folder import SEARCH
from dpbench.runs.records.reading import required, text_of
from dpbench.runs.records.record import Record, sha256
from dpbench.runs.records.trained_model import model_path
from dpbench.step.mechanism.streams import CipherStream, Stream, secure, seeded, uniforms
from dpbench.system.errors import UserError
from dpbench.system.files import write_atomically
from dpbench.system.lock import exclusive

PRIVATE_MODE = 0o600

KEY_NEEDED = (
    "with another key other trials are drawn and another choice is released, so restore the file; "
    "without it the search begins again under another name=, and has its epsilon a second time."
)
"""What a refusal says of a key that cannot be used."""

MASK = 2**64 - 1


class PrivateSelection(NamedTuple):
    """What a private search releases: the values of the chosen candidate, by key, and the record of
    its trial; neither where no trial was drawn, which a Poisson law allows."""

    planned: PlannedTrials
    values: Mapping[str, str] = {}
    record: Record | None = None

    @property
    def score(self) -> float | None:
        return self.record.metrics[NOISY_ACCURACY] if self.record else None


def select(request: SearchRequest) -> PrivateSelection:
    """Run the search; UserError before any trial for one that cannot be private, and where a trial
    fails: then nothing is released, and the same command resumes the search."""
    planned = plan_trials(request)
    request, candidates = planned.request, planned.candidates
    assert request.repetitions
    trials = draw_trials(stream_of(request), request.repetitions, len(candidates))
    runs = [request.trial_run(candidates[c], token) for c, token in trials]
    with _released_once(request, runs):
        records = _records(request, runs)
    if not records:
        return PrivateSelection(planned)
    best = best_of([record.metrics[NOISY_ACCURACY] for record in records])
    values = request.space.values(candidates[trials[best][0]])
    return PrivateSelection(planned, values, records[best])


def draw_trials(stream: Stream, repetitions: Repetitions, candidates: int) -> list[tuple[int, str]]:
    """The trials, in a number drawn from its law: the uniform index of a candidate, and a random
    name, which does not reveal the number of trials."""
    count = repetitions.number(uniforms(stream, 1).item())
    places = [int(uniform * candidates) for uniform in uniforms(stream, count).tolist()]
    names = [f"{bits & MASK:016x}" for bits in stream.bits(count).tolist()]
    return list(zip(places, names, strict=True))


def best_of(scores: Sequence[float]) -> int:
    """The place of the trial that is released: of the highest noisy score."""
    return max(range(len(scores)), key=scores.__getitem__)


def stream_of(request: SearchRequest) -> Stream:
    """The stream that draws the number of trials and the candidates; no run draws from it.

    With noise=secure it follows from a key, in a file beside the report that only its owner can
    read, so that an interrupted search continues with the same trials.
    """
    if request.config["noise"] != "secure":
        return seeded("search", int(request.seeds[0]), request.identity, torch.device("cpu"))
    path = key_path(request)
    # Of two processes that begin at once each would release a choice of its own.
    with exclusive(path.with_suffix(".lock")):
        if not path.exists():
            _write_key(path, secure().state_dict()["key"])
        return CipherStream(bytes.fromhex(_read_key(path)))


@contextmanager
def _released_once(request: SearchRequest, runs: Sequence[RunConfig]) -> Iterator[None]:
    """The context of trials that a choice is made from, which a file notes where noise cannot be
    drawn again; UserError for a second choice, from other trials than the first."""
    if request.config["noise"] != "secure":
        yield
        return
    note = key_path(request).with_suffix(".released")
    if note.exists() and any(run.is_missing() for run in runs):
        raise UserError(
            f"the search {request.name} has released its choice, and trials of it have no record "
            "any more: another choice, from trials with other noise, has an epsilon of its own. "
            "Restore their records, or search under another name=."
        )
    yield
    write_atomically(note, b"", PRIVATE_MODE)


def _write_key(path: Path, key: str) -> None:
    write_atomically(path, f"{key} {_checksum(path, key)}\n".encode(), PRIVATE_MODE)


def _read_key(path: Path) -> str:
    """The key of a search in hex digits; UserError for a file that is not as it was written.

    The first keys have no checksum. They are accepted, since their trials have spent their epsilon
    and could not be resumed otherwise, and get one.
    """
    text = required(text_of(path), path, f": {KEY_NEEDED}")
    key, _, checksum = text.rstrip("\n").partition(" ")
    if not re.fullmatch("[0-9a-f]{64}", key) or (checksum and checksum != _checksum(path, key)):
        raise UserError(f"{path} is damaged: {KEY_NEEDED}")
    if not checksum:
        _write_key(path, key)
    return key


def _checksum(path: Path, key: str) -> str:
    """Of a key and the name of its file: the key of another search is none of this one."""
    return sha256(f"{path.name} {key}")


def key_path(request: SearchRequest) -> Path:
    """The file with the key of a search with noise=secure, which is as sensitive as the data."""
    return request.config.results / SEARCH / f"{request.name}.{request.identity}.key"


def _records(request: SearchRequest, runs: Sequence[RunConfig]) -> list[Record]:
    records: dict[int, Record] = {}
    with launching(request.config, "trials", len(runs)) as outcomes:
        for index, outcome in outcomes(runs):
            record = record_of(outcome)
            if isinstance(record, str):
                raise UserError(f"a trial could not be run, so nothing is released: {record}")
            records[index] = record
    return [records[index] for index in range(len(runs))]


OF_THE_FILE = (
    *("dataset.checksum", "dataset.labels_checksum", "dataset.test_checksum"),
    *("dataset.file", "dataset.folder", "dataset.path"),
)
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


def released_files(selected: PrivateSelection) -> dict[str, bytes]:
    """The files by suffix: the same search gives the same bytes."""
    csv = pd.DataFrame([_row(selected)]).to_csv(index=False, lineterminator="\n")
    return {"md": _page(selected).markdown.encode(), "csv": csv.encode()}


def how_to_publish(selected: PrivateSelection) -> str:
    """The commands that publish the chosen record, whose name is on no page, and train on all
    examples; and where the chosen model is. None names the seed, from which the noise follows."""
    if selected.record is None:
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
    blocks: list[PageBlock] = [
        f"Each trial is one of {count} candidates (draw={request.options.draw}) of {ranges}, drawn "
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
    level = VOUCHED if planned.vouched else "proven"

    def shown(epsilon: float | None) -> str:
        return NO_VALUE if epsilon is None else marked(rounded_up(epsilon, 3), level)

    costs = {"one trial, with its score": planned.trial, "the whole search": planned.search}
    rows = (
        (what, shown(cost.epsilon), cost.by.upper(), shown(cost.rdp), delta_text(planned.delta))
        for what, cost in costs.items()
    )
    return Grid("", ("", "epsilon", "by", "epsilon (RDP)", "delta"), tuple(rows))


def _chosen(selected: PrivateSelection) -> str:
    if selected.score is None:
        return "The law gave no trial at all, so none is chosen."
    settings = " ".join(f"`{override}`" for override in override_texts(selected.values))
    return (
        f"Chosen, by the highest noisy accuracy on the validation split: {settings}, "
        f"{100 * selected.score:.2f}%."
    )


def _row(selected: PrivateSelection) -> dict:
    planned, request = selected.planned, selected.planned.request
    ranges = request.space.ranges
    return {
        **{range_.key: selected.values.get(range_.key, NO_VALUE) for range_ in ranges},
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
