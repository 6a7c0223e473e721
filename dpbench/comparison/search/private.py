"""`dpbench search private=true`: a random number of trials, and one epsilon for the whole search.

Algorithm 1 of Papernot and Steinke (ICLR 2022). The candidates are a list drawn without looking at
data. A trial trains one of them, drawn uniformly with replacement, with its own noise. Its score is
the noisy accuracy on the validation split, which is in the ledger of the trial. Only the best trial
is released: neither the others nor their number.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from dpbench.comparison.search.planned_trials import PlannedTrials, plan_trials
from dpbench.comparison.search.request import SearchRequest
from dpbench.learning.metrics.registry import NOISY_ACCURACY
from dpbench.privacy.private_selection import Repetitions
from dpbench.runs.execution.attempt import record_of
from dpbench.runs.execution.run_config import RunConfig
from dpbench.runs.execution.sweep import launching
from dpbench.runs.records.folder import SEARCH
from dpbench.runs.records.reading import Unreadable, text_of
from dpbench.runs.records.record import Record, sha256
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


@dataclass(frozen=True)
class PrivateSelection:
    """What a private search releases.

    values: those of the chosen candidate, by key; like record, None where no trial was drawn, which
    a Poisson law allows.
    """

    planned: PlannedTrials
    values: Mapping[str, str] | None
    record: Record | None

    @property
    def score(self) -> float | None:
        return self.record.metrics[NOISY_ACCURACY] if self.record else None


def select(request: SearchRequest) -> PrivateSelection:
    """Run the search.

    Raises UserError before any trial for a search that cannot be private, and where a trial fails:
    then nothing is released, and the same command resumes the search.
    """
    planned = plan_trials(request)
    request, candidates = planned.request, planned.candidates
    assert request.repetitions
    trials = draw_trials(stream_of(request), request.repetitions, len(candidates))
    records = _records(request, [request.trial_run(candidates[c], token) for c, token in trials])
    if not records:
        return PrivateSelection(planned, None, None)
    best = best_of([record.metrics[NOISY_ACCURACY] for record in records])
    chosen = request.space.values(candidates[trials[best][0]])
    return PrivateSelection(planned, chosen, records[best])


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


def _write_key(path: Path, key: str) -> None:
    write_atomically(path, f"{key} {_checksum(path, key)}\n".encode(), PRIVATE_MODE)


def _read_key(path: Path) -> str:
    """The key of a search in hex digits; UserError for a file that is not as it was written.

    The first keys have no checksum. They are accepted, since their trials have spent their epsilon
    and could not be resumed otherwise, and get one.
    """
    text = text_of(path)
    if isinstance(text, Unreadable):
        raise UserError(f"{path} {text.reason}: {KEY_NEEDED}")
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
    """The record of each trial; finished trials are not repeated."""
    records: dict[int, Record] = {}
    with launching(request.config, "trials", len(runs)) as outcomes:
        for index, outcome in outcomes(runs):
            record = record_of(outcome)
            if isinstance(record, str):
                raise UserError(f"a trial could not be run, so nothing is released: {record}")
            records[index] = record
    return [records[index] for index in range(len(runs))]
