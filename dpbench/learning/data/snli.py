"""SNLI: does one sentence follow from another, contradict it, or neither?"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import numpy as np
import torch

from dpbench.learning.data.caches import ensure_cached
from dpbench.learning.data.dataset import lengths_of
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, altered_file, fetch, write_member
from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.tokens import PublishedTexts
from dpbench.system.errors import MALFORMED_JSON, UserError
from dpbench.system.validate import one_of

LABELS = ("entailment", "neutral", "contradiction")
NUMBERS = {"-": -1} | {label: number for number, label in enumerate(LABELS)}

ARCHIVE = Source(
    path="snli_1.0/snli_1.0.zip",
    checksum="sha256:afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
    page="https://nlp.stanford.edu/projects/snli/",
    urls=("https://nlp.stanford.edu/projects/snli/snli_1.0.zip",),
)
TRAIN = "snli_1.0/snli_1.0_train.jsonl"
TEST = Source(
    path="snli_1.0/snli_1.0_test.jsonl",
    checksum="md5:2392a35de49893c84b08fb92de6fc5e4",
    page=ARCHIVE.page,
)
DEV = Source(
    path="snli_1.0/snli_1.0_dev.jsonl",
    checksum="md5:b23798a0751d9a3dccac16a232496ca5",
    page=ARCHIVE.page,
)


class TrainingPart(NamedTuple):
    """A part of the publishers' pairs to train on: its name in words, its number of pairs, of those
    with a gold label, and its name on the hub."""

    name: str
    published: int
    labelled: int
    hub: str


PARTS = {
    "train": TrainingPart("training", 550_152, 549_367, "train"),
    "dev": TrainingPart("development", 10_000, 9_842, "validation"),
}


class Pairs(NamedTuple):
    """Pairs of sentences with a gold label, given as its index in LABELS."""

    premises: list[str]
    hypotheses: list[str]
    labels: list[int]


@dataclass(frozen=True)
class Snli(PublishedTexts):
    """Pairs of English sentences in the publishers' split; the groups are the three classes.

    tokens: the tokenizer. part: `train`, or `dev` to train on the publishers' development part,
    where their training file is not to be had. hub: None for the publishers' files, or a name such
    as `stanfordnlp/snli` that the `datasets` library loads from the Hugging Face hub. Pairs without
    a gold label are left out, also of the test set; pairs with one premise are of one person.
    Source: Bowman et al., EMNLP 2015; protocol: Bu et al. (calibration), section 5.5.
    """

    hub: str | None
    part: str = "train"

    name = "snli"
    pairs = True
    groups = LABELS

    def __post_init__(self) -> None:
        one_of("dataset.part", self.part, PARTS)

    @property
    def train_size(self) -> int:
        return PARTS[self.part].labelled

    @property
    def notes(self) -> tuple[str, ...]:
        part, other = PARTS[self.part], PARTS["dev" if self.part == "train" else "train"]
        return (
            f"The {part.published - part.labelled} {part.name} pairs without a gold label are left "
            "out; their number is published.",
            f"The {other.published:,} pairs of the publishers' {other.name} part are left out.",
        )

    def load(self, folder: Path, seed: int) -> Data:
        """Read the two files below `folder`, or download them (95 MB), and their tokens, which are
        kept there; the seed is not used.

        Raises UserError if the pairs or the tokenizer are not available.
        """
        chosen = PARTS[self.part]
        if self.hub is not None:
            train, test = (from_hub(self.hub, part) for part in (chosen.hub, "test"))
        elif self.part == "dev":
            train, test = (read(_original(source, folder)) for source in (DEV, TEST))
        else:
            ensure_cached([folder / TRAIN], lambda parts: _extract(folder, parts[0]))
            train = read(folder / TRAIN, chosen.published)
            test = read(_original(TEST, folder))
        return Data(self._split(train, folder), self._split(test, folder))

    def _split(self, pairs: Pairs, folder: Path) -> Split:
        classes = torch.tensor(pairs.labels)
        tokens = self.tokens.kept(folder, pairs.premises, pairs.hypotheses)
        _, premises = np.unique(pairs.premises, return_inverse=True)
        people = torch.from_numpy(premises)
        return Split(tokens, classes, classes, people=people, lengths=lengths_of(self))


def _original(source: Source, folder: Path) -> Path:
    """A file of the publishers' archive below `folder`, extracted if missing, and verified."""
    if not (folder / source.path).exists():
        with ZipFile(fetch(ARCHIVE, folder)) as archive:
            write_member(archive.open(source.path), folder / source.path)
    return fetch(source, folder)


def _extract(folder: Path, path: Path) -> None:
    with (
        ZipFile(fetch(ARCHIVE, folder)) as archive,
        archive.open(TRAIN) as packed,
        path.open("wb") as out,
    ):
        shutil.copyfileobj(packed, out)


def read(path: Path, rows: int | None = None) -> Pairs:
    """The pairs of a .jsonl file that have a gold label.

    rows: the number of pairs that the file must have, labelled or not. Raises UserError for another
    number.
    """
    with path.open(encoding="utf-8") as lines:
        try:
            pairs = map(json.loads, lines)
            triples = [(p["sentence1"], p["sentence2"], NUMBERS[p["gold_label"]]) for p in pairs]
        except MALFORMED_JSON as error:
            raise altered_file(path, ARCHIVE.address) from error
    if rows is not None and len(triples) != rows:
        raise altered_file(path, ARCHIVE.address)
    return _with_labels(triples)


def from_hub(name: str, part: str) -> Pairs:
    """The pairs of a part that have a gold label, by the `datasets` library.

    name: on the hub, or a folder of files with columns premise, hypothesis and label (-1 for no
    gold label). Raises UserError if the library or the pairs are missing.
    """
    datasets = library("datasets", "dataset.hub")
    try:
        rows = datasets.load_dataset(name, split=part)
        columns = [rows[column] for column in ("premise", "hypothesis", "label")]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"dataset.hub={name} cannot be loaded ({type(error).__name__}): run once with network "
            "access, or leave dataset.hub unset to read the publishers' files."
        ) from error
    return _with_labels(zip(*columns, strict=True))


def _with_labels(rows: Iterable[tuple[str, str, int]]) -> Pairs:
    labelled = [row for row in rows if row[2] >= 0]
    return Pairs(
        [premise for premise, _, _ in labelled],
        [hypothesis for _, hypothesis, _ in labelled],
        [label for _, _, label in labelled],
    )
