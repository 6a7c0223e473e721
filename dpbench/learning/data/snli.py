"""SNLI: does one sentence follow from another, contradict it, or neither?"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import torch

from dpbench.learning.data.caches import ensure_cached
from dpbench.learning.data.dataset import Data, Split
from dpbench.learning.data.fetch.download import Source, altered_file, fetch, write_member
from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.tokens import Tokens
from dpbench.system.errors import UserError

LABELS = ("entailment", "neutral", "contradiction")
NUMBERS = {"-": -1} | {label: number for number, label in enumerate(LABELS)}
PUBLISHED = 550_152
"""Training pairs in the publishers' file; 785 of them have no gold label."""
LABELLED = 549_367

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
    urls=(),
)


class Pairs(NamedTuple):
    """Pairs of sentences with a gold label, given as its index in LABELS."""

    premises: list[str]
    hypotheses: list[str]
    labels: list[int]


@dataclass(frozen=True)
class Snli:
    """Pairs of English sentences in the publishers' split; the groups are the three classes.

    tokens: the tokenizer. hub: None for the publishers' files, or a name such as `stanfordnlp/snli`
    that the `datasets` library loads from the Hugging Face hub. Pairs without a gold label are left
    out, also of the test set. Source: Bowman et al., EMNLP 2015; protocol: Bu et al. (calibration),
    section 5.5.
    """

    tokens: Tokens
    hub: str | None

    name = "snli"
    task = "classification"
    classes = len(LABELS)
    groups = LABELS
    train_size = LABELLED
    notes = (
        f"The {PUBLISHED - LABELLED} training pairs without a gold label are left out; their "
        "number is published.",
        "The 10,000 pairs of the publishers' development part are left out.",
    )

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, self.tokens.length)

    @property
    def vocabulary(self) -> int:
        return self.tokens.vocabulary

    @property
    def padding(self) -> int:
        return self.tokens.padding

    def load(self, folder: Path, seed: int) -> Data:
        """Read the two files below `folder`, or download them (95 MB), and their tokens, which are
        kept there; the seed is not used.

        Raises UserError if the pairs or the tokenizer are not available.
        """
        if self.hub is not None:
            train, test = (from_hub(self.hub, part) for part in ("train", "test"))
        else:
            unpack(folder)
            train, test = read(folder / TRAIN, PUBLISHED), read(fetch(TEST, folder))
        return Data(self._split(train, folder), self._split(test, folder))

    def _split(self, pairs: Pairs, folder: Path) -> Split:
        classes = torch.tensor(pairs.labels)
        tokens = self.tokens.kept(folder, pairs.premises, pairs.hypotheses)
        return Split(tokens, classes, classes)


def unpack(folder: Path) -> None:
    """Extract the training and test files below `folder` from the publishers' archive."""
    ensure_cached([folder / TRAIN], lambda parts: _extract(folder, parts[0]))
    test = folder / TEST.path
    if not test.exists():
        with ZipFile(fetch(ARCHIVE, folder)) as archive:
            write_member(archive.open(TEST.path), test)


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
        except (ValueError, KeyError, TypeError) as error:
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
