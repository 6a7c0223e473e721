"""Sentences of film reviews: on a small archive in the publishers' layout, and on their own."""

import io
import os
import tarfile
from pathlib import Path

import pytest
import torch

from dpbench.learning.data import movie_reviews
from dpbench.learning.data.movie_reviews import ARCHIVE, MEMBER, MovieReviews, read
from dpbench.learning.data.tokens import Tokens
from dpbench.system.errors import UserError

LINES = [
    "\ufeff1\t2.27\tA joy, from start to end.",
    "2\t0.0\tA film.",
    *(f"{number}\t{(-1) ** number}.5\ta dull film" for number in range(3, 12)),
]


def archive(folder, lines=LINES):
    path = folder / ARCHIVE.path
    path.parent.mkdir()
    content = "\n".join(lines).encode()
    member = tarfile.TarInfo(MEMBER)
    member.size = len(content)
    with tarfile.open(path, "w:gz") as whole:
        whole.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def letters(tmp_path):
    """A tokenizer of few words, from a folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # which takes a second

    words = {word: number for number, word in enumerate(("[PAD]", "[UNK]", "a", "film", "dull"))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    return Tokens(str(tmp_path / "tokenizer"), len(words), 4)


def test_the_mean_rating_is_the_class_and_a_mean_of_zero_is_none(tmp_path):
    texts, labels = read(archive(tmp_path))
    assert len(texts) == len(LINES) - 1
    assert texts[:2] == ["A joy, from start to end.", "a dull film"]
    assert labels == [1, *(int(number % 2 == 0) for number in range(3, 12))]


@pytest.mark.usefixtures("unchecked")
def test_each_fifth_sentence_is_tested_on(tmp_path, letters):
    archive(tmp_path)
    with pytest.warns(UserWarning, match="1 of 10 texts have more than 4 tokens"):
        data = MovieReviews(letters).load(tmp_path, seed=0)
    assert data.test.inputs[:, 0].tolist() == [[1, 1, 1, 1], [2, 4, 3, 0]]
    assert data.train.inputs.shape == (8, 2, 4)
    assert data.train.targets.tolist() == [0, 1, 0, 1, 1, 0, 1, 0]
    assert torch.equal(data.train.groups, data.train.targets)


def test_another_archive_is_refused(tmp_path, letters):
    archive(tmp_path)
    with pytest.raises(UserError, match=r"hutto_ICWSM_2014\.tar\.gz is truncated or altered"):
        MovieReviews(letters).load(tmp_path, seed=0)


def test_the_original_sentences_are_those_that_are_promised():
    path = Path(os.environ.get("DPBENCH_DATA", "/nowhere")) / ARCHIVE.path
    if not path.exists():
        pytest.skip("the archive is not in $DPBENCH_DATA: dpbench data downloads it")
    _, labels = read(path)
    assert len(labels) == movie_reviews.RATED
    assert [labels.count(k) for k in (0, 1)] == [5_326, 5_242]
