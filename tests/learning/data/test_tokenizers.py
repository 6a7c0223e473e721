"""Fast tokenizers of all kinds: what is public of them, and the tokens that they give."""

import json
import zipfile

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from dpbench.learning.data.tokenizers import Described, described, tokenizer_folder
from dpbench.learning.data.tokens import Tokens
from dpbench.system.errors import UserError
from tests.learning.data.small_tokenizers import KINDS


@pytest.fixture(params=KINDS)
def published(request, tmp_path):
    """A tokenizer as transformers saves it, and its folder."""
    made, special = KINDS[request.param]()
    whole = PreTrainedTokenizerFast(tokenizer_object=made, **special)
    whole.save_pretrained(tmp_path / "tokenizer")
    return whole, tmp_path / "tokenizer"


def test_vocabulary_and_padding_are_read_without_the_library(published):
    whole, folder = published
    assert described(folder) == (len(whole), whole.pad_token_id)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    assert described(folder) == (len(whole), whole.pad_token_id), "by the usual names"


@pytest.mark.parametrize("texts", [(["ab Ba", "c"],), (["ab Ba", "c"], ["b", "d e f"])])
def test_tokens_are_those_of_transformers(published, texts):
    whole, folder = published
    found = Tokens(str(folder), len(whole), 16, whole.pad_token_id).of(*texts)
    theirs = whole(*texts, padding="max_length", max_length=16)["input_ids"]
    assert found[:, 0].tolist() == theirs
    expected = len(texts) - 1
    assert found[:, 1].amax(1).tolist() == [expected] * 2, "the number of the text"
    assert (found[:, 1][found[:, 0] == whole.pad_token_id] == 0).all()


def test_long_texts_are_cut_as_by_transformers(published):
    whole, folder = published
    texts = ["a b c d e f g h"], ["a b"]
    with pytest.warns(UserWarning, match="1 of 1 texts have more than 8 tokens"):
        found = Tokens(str(folder), len(whole), 8, whole.pad_token_id).of(*texts)
    assert (
        found[0, 0].tolist()
        == whole(*texts, truncation="longest_first", max_length=8)["input_ids"][0]
    )


def test_tokens_are_kept_under_a_name_of_texts_and_tokenizer(published, tmp_path, monkeypatch):
    whole, folder = published
    tokens = Tokens(str(folder), len(whole), 8, whole.pad_token_id)
    kept = tokens.kept(tmp_path, ["ab", "c"])
    assert torch.equal(kept, tokens.of(["ab", "c"]))
    tokens.kept(tmp_path, ["a", "bc"])
    files = sorted((tmp_path / "tokens").glob("*.npy"))
    assert len(files) == 4, "tokens and their numbers, of each"
    monkeypatch.setattr(Tokens, "_coded", None)
    assert torch.equal(tokens.kept(tmp_path, ["ab", "c"]), kept)


def test_another_size_or_padding_is_refused_with_the_setting(published):
    whole, folder = published
    for wrong in ((len(whole) + 1, whole.pad_token_id), (len(whole), whole.pad_token_id + 1)):
        with pytest.raises(UserError, match=rf"vocabulary={len(whole)} and \+dataset.tokens.padd"):
            Tokens(str(folder), wrong[0], 8, wrong[1]).of(["a"])


def test_a_tokenizer_without_padding_is_refused(tmp_path):
    words = {"model": {"vocab": {"a": 0}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(UserError, match="has no padding token: give one that has"):
        described(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"model": 1}', "[" * 100_000], ids=range(4))
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=r"has no tokenizer\.json and no vocab\.txt of a tokenizer"):
        described(tmp_path)


def test_a_tokenizer_that_its_library_does_not_know_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"[PAD]": 0, "a": 1}}}')
    with pytest.raises(UserError, match=r"tokenizer\.json is no tokenizer that the library"):
        Tokens(str(tmp_path), 2, 8).of(["a"])


def test_a_tokenizer_may_be_in_an_archive_or_an_installed_package(tmp_path, monkeypatch):
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    package = tmp_path / "site" / "some_words"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('code of the package was run')")
    content = json.dumps({"model": {"vocab": {"[PAD]": 0, "a": 1}}})
    with zipfile.ZipFile(package / "model.zip", "w") as archive:
        archive.writestr("model.safetensors", "")
        archive.writestr("tokenizer.json", content)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for place in ("some_words", str(package / "model.zip")):
        assert described(tokenizer_folder(place)) == Described(2, 0)
    assert tokenizer_folder("nobody") is None
