"""SNLI on small files in its layout, with a tokenizer of a few words that really is one of BERT."""

import json
import sys
from dataclasses import replace
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from dpbench.learning.data import snli
from dpbench.learning.data.derive.validation import WithValidation
from dpbench.learning.data.snli import LABELS, PARTS, Snli, from_hub, read
from dpbench.learning.data.splits import held_out_together
from dpbench.learning.data.tokens import Tokens
from dpbench.system.errors import UserError
from dpbench.system.paths import conf_folder

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs", "sleep", "##s", "."]
PAIRS = [
    ("a dog runs.", "a dog sleeps.", "contradiction"),
    ("a dog runs.", "a cat runs", "neutral"),
    ("a dog", "a dog", "-"),
    ("a dog runs.", "a dog.", "entailment"),
]


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def tokens(tmp_path):
    """A WordPiece tokenizer of eleven tokens, saved as published ones are."""
    from transformers import BertTokenizerFast  # which takes a second

    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = BertTokenizerFast(vocab=str(tmp_path / "vocab.txt"), do_lower_case=False)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    return Tokens(str(tmp_path / "tokenizer"), len(WORDS), 12)


@pytest.fixture
def small(tmp_path, tokens, monkeypatch, unchecked):
    """A data folder with the archive of a small SNLI, and the data set."""
    monkeypatch.setitem(PARTS, "train", snli.TrainingPart("training", 8, 6, "train"))
    (tmp_path / "snli_1.0").mkdir()
    with ZipFile(tmp_path / snli.ARCHIVE.path, "w") as archive:
        archive.writestr(snli.TRAIN, lines(PAIRS * 2))
        archive.writestr(snli.TEST.path, lines(PAIRS))
        archive.writestr(snli.DEV.path, lines(PAIRS[:3]))
    return tmp_path, Snli(tokens, hub=None)


def lines(pairs):
    keys = ("sentence1", "sentence2", "gold_label")
    return "".join(json.dumps(dict(zip(keys, pair, strict=True))) + "\n" for pair in pairs)


def test_pairs_are_numbers_of_tokens_cut_at_the_longer_sentence(tokens):
    numbers = tokens.of(["a dog runs."], ["a dog sleeps"])
    assert numbers.shape == (1, 2, 12)
    # [CLS] a dog runs . [SEP] a dog sleep ##s [SEP] [PAD]
    assert numbers[0, 0].tolist() == [2, 5, 6, 7, 10, 3, 5, 6, 8, 9, 3, 0]
    assert numbers[0, 1].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    with pytest.warns(UserWarning, match="1 of 1 texts have more than 12 tokens"):
        numbers = tokens.of(["a dog runs " * 9], ["a dog sleeps"])
    assert numbers[0, 0].tolist()[-5:] == [5, 6, 8, 9, 3], "the shorter one is whole"
    assert (numbers[0, 0] == 0).sum() == 0


def test_pairs_are_coded_alike_in_chunks(tokens, monkeypatch):
    premises, hypotheses, _ = zip(*PAIRS, strict=True)
    whole = tokens.of(premises, hypotheses)
    monkeypatch.setattr("dpbench.data.tokens.CHUNK", 3)
    assert torch.equal(tokens.of(premises, hypotheses), whole)


def test_pairs_without_a_gold_label_are_left_out(small):
    folder, dataset = small
    data = dataset.load(folder, seed=0)
    assert data.test.targets.tolist() == [LABELS.index(g) for *_, g in PAIRS if g != "-"]
    assert len(data.train) == 6
    assert torch.equal(data.test.groups, data.test.targets)
    batch = data.train.at(torch.tensor([1, 4]))
    assert batch.inputs.dtype == torch.int64
    assert batch.inputs.shape == (2, *dataset.shape)
    assert torch.equal(data.train.inputs[:3], data.train.inputs[3:])
    assert not torch.equal(data.train.inputs[0], data.train.inputs[1])


def test_the_development_part_may_be_trained_on(small):
    folder, dataset = small
    dev = replace(dataset, part="dev")
    data = dev.load(folder, seed=0)
    assert (len(data.train), len(data.test), dev.train_size) == (2, 3, 9_842)
    assert "158 development pairs without a gold label" in dev.notes[0]
    assert "pairs of the publishers' training part are left out" in dev.notes[1]
    assert not (folder / snli.TRAIN).exists()
    with pytest.raises(UserError, match="did you mean dev"):
        replace(dataset, part="deve")


def test_pairs_with_one_premise_are_in_one_part_of_a_validation_split(small):
    folder, dataset = small
    rows = [(f"a {word}", "dog", LABELS[k]) for word in WORDS[5:] for k in range(3)]
    with ZipFile(folder / snli.ARCHIVE.path, "w") as archive:
        archive.writestr(snli.TRAIN, lines(rows))
        archive.writestr(snli.TEST.path, lines(PAIRS))
    PARTS["train"] = snli.TrainingPart("training", len(rows), len(rows), "train")
    data = WithValidation(dataset, 0.2).load(folder, seed=0)
    assert (len(data.train), len(data.test)) == (len(rows) - 3, 3)
    assert not {*data.train.people.tolist()} & {*data.test.people.tolist()}


@pytest.mark.data
def test_a_fifth_of_the_development_part_is_held_out_by_premise(snli_folder, tokens, tmp_path):
    pairs = read(snli_folder / snli.DEV.path)
    assert len(pairs.labels) == PARTS["dev"].labelled
    assert len({*pairs.premises}) == 3_319
    _, premises = np.unique(pairs.premises, return_inverse=True)
    for seed in range(5):
        out = held_out_together(premises, 1_968, np.random.default_rng(seed))
        assert out.sum() == 1_968
        assert not {*premises[out]} & {*premises[~out]}


def test_a_training_file_of_another_length_is_refused(small):
    folder, dataset = small
    dataset.load(folder, seed=0)
    (folder / snli.TRAIN).write_text(lines(PAIRS))
    with pytest.raises(UserError, match="truncated or altered"):
        dataset.load(folder, seed=0)


NO_PAIRS = ['{"sentence1": ', '{"sentence1": "a"}', "[" * 100_000, lines([("a", "b", "?")])]


@pytest.mark.parametrize("line", NO_PAIRS, ids=range(len(NO_PAIRS)))
def test_a_line_that_is_no_pair_is_refused(line, tmp_path):
    (tmp_path / "some.jsonl").write_text(line)
    with pytest.raises(UserError, match=r"some\.jsonl is truncated or altered"):
        read(tmp_path / "some.jsonl")


def test_tokenizers_that_are_others_or_cannot_be_had_are_named(tokens):
    with pytest.raises(UserError, match=r"has 11 tokens and padding 0, not 28996 and 0: set"):
        replace(tokens, vocabulary=28_996).of(["a"], ["a"])
    with pytest.raises(UserError, match="tokenizer nobody/nothing is not in"):
        Tokens("nobody/nothing", 11, 12).of(["a"], ["a"])
    with pytest.raises(UserError, match=r"dataset\.hub=nobody/nothing cannot be loaded"):
        from_hub("nobody/nothing", "train")


def test_the_datasets_library_gives_the_same_pairs(small, monkeypatch):
    folder, dataset = small
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
    for part, pairs in (("train", PAIRS * 2), ("test", PAIRS)):
        rows = [{"premise": p, "hypothesis": h, "label": snli.NUMBERS[g]} for p, h, g in pairs]
        path = folder / "hub" / f"{part}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ours = dataset.load(folder, seed=0)
    theirs = replace(dataset, hub=str(folder / "hub")).load(folder / "other", seed=0)
    for one, other in ((ours.train, theirs.train), (ours.test, theirs.test)):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)


def test_without_the_datasets_library_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'dpbench-suite\[hub\]'"):
        from_hub("stanfordnlp/snli", "train")


@pytest.mark.data
def test_the_original_test_file_has_the_published_pairs(snli_folder):
    pairs = read(snli_folder / snli.TEST.path, 10_000)
    assert len(pairs.labels) == 9_824
    assert [pairs.labels.count(k) for k in range(3)] == [3_368, 3_219, 3_237]
    assert pairs.premises[0].startswith("This church choir sings to the masses")


def test_the_configuration_is_that_of_the_paper():
    dataset = instantiate(OmegaConf.load(conf_folder() / "dataset" / "snli.yaml"))
    assert dataset.shape == (2, 128)
    assert dataset.vocabulary == 28_996
    assert dataset.train_size == 550_152 - 785
