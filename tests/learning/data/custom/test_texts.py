"""Columns of text in tables of the user's own: what becomes of them, and what is refused."""

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from dpbench.learning.data.tokens import Tokens
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.predict import predict
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.release import release
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import load
from dpbench.runs.records.trained_model import load_model, model_file
from dpbench.system.errors import UserError
from tests.alone import printed_alone

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "book", "the", "very"]
ROWS = 40


@pytest.fixture
def tokenizer(tmp_path):
    """A WordPiece tokenizer of a few words, saved as published ones are."""
    from transformers import BertTokenizerFast  # which takes a second

    (tmp_path / "words.txt").write_text("\n".join(WORDS))
    made = BertTokenizerFast(vocab=str(tmp_path / "words.txt"), do_lower_case=False)
    made.save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.fixture
def reviews(tmp_path):
    """A CSV file of reviews: two texts, a number, a group and a target."""
    draw = np.random.default_rng(0)
    good = draw.random(ROWS) < 0.5
    kinds = draw.choice(["film", "book"], ROWS)
    frame = pd.DataFrame(
        {
            "title": [f"the {kind}" for kind in kinds],
            "review": [
                f"very {'good' if g else 'bad'} {k}" for g, k in zip(good, kinds, strict=True)
            ],
            "year": draw.integers(1990, 2020, ROWS),
            "kind": kinds,
            "liked": np.where(good, "yes", "no"),
        }
    )
    path = tmp_path / "reviews.csv"
    frame.to_csv(path, index=False)
    return path


def changed(path, **columns):
    frame = pd.read_csv(path, keep_default_na=False).astype(object)
    for name, value in columns.items():
        frame.loc[2, name] = value
    frame.to_csv(path, index=False)


def settings(path, tokenizer, *others, text="review"):
    return [
        *("dataset=csv", f"dataset.file={path}", "dataset.target=liked", "dataset.length=8"),
        *(f"dataset.text={text}", f"dataset.tokenizer={tokenizer}", *others),
    ]


MODEL = [
    *("model=bert_tiny", "model.vocabulary=11", "model.length=8", "model.hidden=8"),
    *("model.heads=2", "model.intermediate=8", "model.layers=1"),
]


def loaded(arguments):
    return build(compose([*arguments, *MODEL])).dataset.load(None, 0)


def test_texts_are_the_tokens_of_the_tokenizer(reviews, tokenizer):
    data = loaded(settings(reviews, tokenizer, "dataset.group=kind"))
    frame = pd.read_csv(reviews)
    whole = Tokens(str(tokenizer), len(WORDS), 8).of(frame["review"].tolist())
    assert data.train.inputs.dtype is torch.int32
    assert (len(data.train), len(data.test)) == (32, 8)
    ours = torch.cat([data.train.inputs, data.test.inputs])
    assert sorted(ours.flatten(1).tolist()) == sorted(whole.flatten(1).tolist())
    liked = WORDS.index("good")
    assert torch.equal((data.train.inputs[:, 0] == liked).any(1).long(), data.train.targets)
    book = (data.train.inputs[:, 0] == WORDS.index("film")).any(1).long()
    assert torch.equal(book, data.train.groups)


def test_two_texts_are_a_pair(reviews, tokenizer):
    data = loaded(
        settings(reviews, tokenizer, "dataset.length=10", "model.length=10", text="[title,review]")
    )
    tokens, types = data.train.inputs.unbind(1)
    assert torch.equal((tokens == WORDS.index("[SEP]")).sum(1), torch.full((32,), 2))
    assert (types.max(1).values == 1).all()
    assert (tokens[:, :3][:, 1] == WORDS.index("the")).all()


@pytest.mark.slow
def test_a_run_on_texts_says_what_it_was_made_of_and_no_path(reviews, tokenizer, tmp_path):
    arguments = [
        *settings(reviews, tokenizer, "dataset.group=liked"),
        *MODEL,
        *("epochs=2", "batch_size=8", f"results_dir={tmp_path / 'results'}", "save_model=true"),
    ]
    path = load_or_run(run_config(arguments), quiet=True)
    record = load(path)
    assert record.config["dataset"]["vocabulary"] == len(WORDS)
    assert record.config["dataset"]["tokenizer_checksum"].startswith("sha256:")
    assert str(tmp_path) not in path.read_text()
    assert not list((tmp_path / "results").rglob("*.preparation.json"))
    check_classified(model_file(record, tmp_path / "results"), reviews, tokenizer)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tokenizer.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    again = [f"dataset.tokenizer={copy}" if "tokenizer=" in a else a for a in arguments]
    assert digest(compose(again)) == record.digest


def check_classified(path, reviews, tokenizer):
    """A saved model classifies strings, without its tokenizer's folder, as it does tokens."""
    shutil.move(tokenizer, tokenizer.with_name("moved"))
    model = load_model(path)
    shutil.move(tokenizer.with_name("moved"), tokenizer)
    sentences = pd.read_csv(reviews)["review"].tolist()
    tokens = Tokens(str(tokenizer), len(WORDS), 8).of(sentences).long()
    assert model.classify(sentences) == [["no", "yes"][k] for k in model(tokens).argmax(1)]
    for wrong in ([], [1], [("a", "b")], "one text"[:0]):
        with pytest.raises(UserError, match="classifies texts: give a list of them"):
            model.classify(wrong)
    saved = torch.load(path, weights_only=True)
    for changed_ in ({"length": 9}, {"classes": ["no"]}, {"tokenizer": 3}, {"padding": -1}):
        torch.save({**saved, "texts": {**saved["texts"], **changed_}}, path.with_name("other.pt"))
        with pytest.raises(UserError, match="does not fit the model that its settings build"):
            load_model(path.with_name("other.pt"))


@pytest.mark.long
@pytest.mark.parametrize("text", ["review", "[title,review]"])
def test_released_texts_are_predicted_where_there_is_no_dpbench(reviews, tokenizer, tmp_path, text):
    results = tmp_path / "results"
    short = ["dataset.length=10", "model.length=10", "epochs=1", "batch_size=8"]
    arguments = [*settings(reviews, tokenizer, text=text), *MODEL, *short]
    out = release([*arguments, f"results_dir={results}", f"out={tmp_path / 'out'}"])
    assert "- The tokenizer in `preparation.json`: made from" in (out / "PRIVACY.md").read_text()
    shutil.rmtree(tokenizer)
    (path,) = (results / "models").glob("*.pt")
    frame = pd.read_csv(reviews)
    pairs = text != "review"
    texts = [*zip(frame["title"], frame["review"], strict=True)] if pairs else [*frame["review"]]
    assert printed_alone(out, reviews) == load_model(path).classify(texts)
    with pytest.raises(ValueError, match="there is no column review"):
        predict([{"title": "one"}], out)


def test_tables_without_texts_keep_the_settings_and_names_that_they_had(people):
    config = compose(["dataset=csv", f"dataset.file={people}", "dataset.target=rich"])
    assert not config["dataset"].keys() & {"text", "tokenizer", "length", "vocabulary"}


def test_texts_that_are_cut_are_counted(reviews, tokenizer):
    changed(reviews, review="very " * 9 + "good film")
    with pytest.warns(UserWarning, match=r"1 of 40 texts have more than 8 tokens.*longest has 13"):
        loaded(settings(reviews, tokenizer))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded(settings(reviews, tokenizer, "dataset.length=13", "model.length=13"))


@pytest.mark.parametrize("blank", ["", "   "])
def test_blank_texts_are_refused_with_their_row(reviews, tokenizer, blank):
    changed(reviews, review=blank)
    with pytest.raises(UserError, match=r"no text in column review of row 3: .*, or remove it\.$"):
        compose(settings(reviews, tokenizer))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dataset.text=reviews"], "dataset.text=reviews is unknown: did you mean review"),
        (["dataset.text=[title,review,kind]"], "must name one column, or two different ones"),
        (["dataset.text=[title,title]"], "must name one column, or two different ones"),
        (["dataset.text=liked"], "is the target or a group as well"),
        (["dataset.tokenizer=null"], "needs dataset.tokenizer=FOLDER"),
        (["dataset.tokenizer=nowhere"], "dataset.tokenizer=nowhere is not a folder"),
        (["dataset.tokenizer=."], "no tokenizer.json and no vocab.txt"),
        (["dataset.length=0"], "dataset.length"),
        ([f"dataset.tokenizer_checksum=sha256:{'0' * 64}"], "has the checksum sha256:.*leave out"),
        (["dataset.vocabulary=12"], "dataset.vocabulary is 12, but .* has 11"),
        (["dataset.task=regression", "dataset.target=year"], "for classification"),
    ],
)
def test_impossible_texts_are_one_sentence(
    reviews, tokenizer, tmp_path, monkeypatch, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=sentence):
        compose([*settings(reviews, tokenizer), *arguments])


@pytest.mark.parametrize("lengths", ["[64,32]", "[0,32]", "[32,32]"])
def test_lengths_that_do_not_ascend_are_refused(reviews, tokenizer, lengths):
    arguments = settings(reviews, tokenizer, f"dataset.lengths={lengths}")
    with pytest.raises(UserError, match=r"^dataset\.lengths"):
        prepare(run_config([*arguments, *MODEL]))


def test_a_model_without_texts_is_refused(reviews, tokenizer):
    with pytest.raises(UserError, match="has texts of 11 tokens and this model takes no texts"):
        prepare(run_config([*settings(reviews, tokenizer), "model=mlp"]))


@pytest.mark.slow
@pytest.mark.parametrize("option", ["csv", "hub"])
def test_texts_of_people_are_protected_from_any_source(option, reviews, tokenizer, no_cache):
    frame = pd.read_csv(reviews)
    path = reviews.with_suffix(".csv" if option == "csv" else ".parquet")
    frame = frame.assign(author=[f"a{n:02}" for n in np.arange(ROWS) // 2])
    frame.to_csv(path, index=False) if option == "csv" else frame.to_parquet(path)
    words = settings(path, tokenizer, "users=column", "users.column=author")
    if option == "hub":
        words = ["dataset=hub", f"dataset.path={path}", *words[2:]]
    run = build(compose([*words, "model=bert_tiny"]))
    data = run.dataset.load(None, 0)
    assert (run.dataset.people, run.dataset.train_people, run.users.most) == (20, 16, 2)
    assert data.train.inputs.shape[1:] == (2, 8)
    assert not {*data.train.people.tolist()} & {*data.test.people.tolist()}
    assert len(run.users.of(data.train, 0)) == 16
