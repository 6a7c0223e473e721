"""Sentences of film reviews: is what they say of the film good or bad?"""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import torch

from dpbench.learning.data.dataset import lengths_of
from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, fetch
from dpbench.learning.data.tokens import PublishedTexts

ARCHIVE = Source(
    path="vader/hutto_ICWSM_2014.tar.gz",
    checksum="sha256:d5bb07d87474b3eb8d30b4deccbc23f19d742a6c5718fbacc65485b70b95c5fa",
    page="https://github.com/cjhutto/vaderSentiment",
    urls=(
        "https://raw.githubusercontent.com/cjhutto/vaderSentiment/"
        "44fc044cd877310ee8278a0eadf34bcd50d41d06/additional_resources/hutto_ICWSM_2014.tar.gz",
    ),
)
MEMBER = "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt"

LABELS = ("negative", "positive")
UNDECIDED, RATED = 37, 10_568
"""Sentences whose mean rating is 0, which are left out, and all others."""

EVERY = 5
"""One sentence of so many is tested on."""


@dataclass(frozen=True)
class MovieReviews(PublishedTexts):
    """English sentences from reviews of films, positive or negative by the mean of the ratings of
    15 to 29 people; the groups are the two classes.

    tokens: the tokenizer. Source: Hutto and Gilbert, "VADER: a parsimonious rule-based model for
    sentiment analysis of social media text", ICWSM 2014, who had sentences of Pang and Lee rated.
    """

    name = "movie_reviews"
    pairs = False
    groups = LABELS
    train_size = RATED - len(range(0, RATED, EVERY))
    notes = (
        f"The {UNDECIDED} sentences with a mean rating of 0 are left out; their number is "
        "published.",
        f"The publishers' file has no split: each {EVERY}th sentence is tested on.",
    )

    def load(self, folder: Path, seed: int) -> Data:
        """Read the file below `folder`, or download it (2 MB), and its tokens, which are kept
        there; the seed is not used."""
        texts, labels = read(fetch(ARCHIVE, folder))
        classes = torch.tensor(labels)
        everything = Split(
            self.tokens.kept(folder, texts), classes, classes, lengths=lengths_of(self)
        )
        tested = torch.arange(len(classes)) % EVERY == 0
        return Data(everything.take(~tested), everything.take(tested))


def read(archive: Path) -> tuple[list[str], list[int]]:
    """The sentences that are rated above or below 0, and their labels."""
    with tarfile.open(archive) as members:
        file = members.extractfile(MEMBER)
        assert file is not None
        lines = file.read().decode("utf-8-sig").splitlines()
    rows = [line.split("\t") for line in lines]
    rated = [(text, float(mean)) for _, mean, text in rows if float(mean)]
    return [text for text, _ in rated], [int(mean > 0) for _, mean in rated]
