"""Columns of text whose next words a language model learns: from the file to what is kept."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from dpbench.benchmarks.exposure.planted_secrets import exposures, exposures_of
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

from dpbench.learning.data.custom.intake import intake
from dpbench.learning.data.derive.mislabelled import Mislabelled
from dpbench.learning.data.tokens import with_predicted
from dpbench.learning.metrics.builtin.language_model import perplexity
from dpbench.learning.models.lora import Adapted
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.release import release
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.adapters import save_adapter
from dpbench.runs.records.reading import load
from dpbench.runs.records.trained_model import load_model, model_file
from dpbench.system.errors import UserError
from tests.learning.data.small_tokenizers import KINDS, LETTERS

NAMES, VERBS = ("anna", "ben", "carl"), ("sees", "hears")
LENGTH, WORDS = 16, 31  # the alphabet, a blank, and special tokens
SIZES = "{model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 31}"
MODEL = ("model=gpt2_tiny", f"model.config={SIZES}")


@pytest.fixture
def tokenizer(tmp_path):
    made, _ = KINDS["characters"]()
    made.add_tokens([" "])
    (tmp_path / "tokenizer").mkdir()
    made.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    return tmp_path / "tokenizer"


@pytest.fixture
def lines(tmp_path):
    """A CSV file with 80 lines of text, and who wrote each."""
    draw = np.random.default_rng(0)
    said = [f"{draw.choice(NAMES)} {draw.choice(VERBS)} {draw.choice(NAMES)}" for _ in range(80)]
    frame = pd.DataFrame({"who": draw.choice(["a", "b"], 80), "line": said})
    frame.to_csv(tmp_path / "lines.csv", index=False)
    return tmp_path / "lines.csv"


def settings(path, tokenizer, *others, text="line"):
    return [
        *("dataset=csv", f"dataset.file={path}", f"dataset.text={text}"),
        *("dataset.task=language_model", f"dataset.tokenizer={tokenizer}"),
        *(f"dataset.length={LENGTH}", *MODEL, *others),
    ]


def test_all_tokens_of_a_text_but_the_first_are_predicted(lines, tokenizer):
    dataset = build(compose(settings(lines, tokenizer, "dataset.group=who"))).dataset
    data = dataset.load(None, 0)
    assert (dataset.classes, dataset.vocabulary, dataset.groups) == (1, WORDS, ("a", "b"))
    sizes = pd.read_csv(lines)["line"].str.len().clip(upper=LENGTH) - 1
    counts = torch.cat([data.train.targets, data.test.targets])
    assert sorted(counts.tolist()) == sorted(sizes)
    tokens, predicted = data.train.inputs.unbind(1)
    assert not predicted[:, 0].any()
    assert torch.equal(predicted[:, 1:] == 1, tokens[:, 1:] != 0)
    assert torch.equal(predicted.sum(1), data.train.targets.int())


def test_of_two_texts_the_second_is_predicted(lines, tokenizer):
    data = build(compose(settings(lines, tokenizer, text="[who,line]"))).dataset.load(None, 0)
    tokens, predicted = data.train.inputs.unbind(1)
    assert torch.equal(predicted[:, 1:] == 1, tokens[:, 1:] != 0)  # the first has one letter
    cut = with_predicted(torch.tensor([[[5, 6, 7, 7, 8, 0], [0, 0, 1, 1, 1, 0]]]), 0, pairs=True)
    assert cut[:, 1].tolist() == [[0, 0, 1, 1, 1, 0]]


def test_a_padding_token_within_a_text_is_a_word_and_at_its_end_is_none():
    inputs = torch.tensor([[[3, 9, 4, 9, 9], [0] * 5], [[9, 9, 9, 9, 9], [0] * 5]])
    assert with_predicted(inputs, 9, pairs=False)[:, 1].tolist() == [[0, 1, 1, 0, 0], [0] * 5]


def test_a_file_with_a_column_of_text_alone_will_do(lines, tokenizer):
    pd.read_csv(lines)[["line"]].to_csv(lines, index=False)
    assert len(build(compose(settings(lines, tokenizer))).dataset.load(None, 0).train) == 64


@pytest.mark.parametrize(
    ("settings_of", "says"),
    [
        (["dataset.target=who"], "is not what dataset.task=language_model predicts, which is"),
        (["dataset.text=null"], r"language_model needs dataset.text=COLUMN"),
        (["dataset.text=lime"], "dataset.text.*lime"),
        (["dataset.group=line"], "dataset.text=line is the target or a group as well"),
        (["dataset.length=1"], "dataset.length must be a whole number from 2"),
        (["model.reduction=max"], "model.reduction"),
        (["dataset.task=classification", "dataset.target=who"], "needs? dataset.task=language_"),
        (["temperature=private"], "needs the logits of classes, and lines is a language model:"),
        (["class_weights=[1]"], "lines is a language model, whose loss has no class_weights"),
        (["head_lr_factor=10"], "a language model gets no new head: leave out head_lr_factor"),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_what_does_not_fit_is_refused(lines, tokenizer, settings_of, says):
    with pytest.raises(UserError, match=says):
        prepare(run_config(settings(lines, tokenizer, "batch_size=16", *settings_of)))


def test_a_classifier_has_no_next_words(lines, tokenizer):
    arguments = settings(lines, tokenizer, "batch_size=16", "model=bert_tiny")
    with pytest.raises(UserError, match=r"predicts the next words.*and no other model has it"):
        prepare(run_config([a for a in arguments if "model.config" not in a]))


def test_a_blank_text_is_refused_by_its_row(lines, tokenizer):
    frame = pd.read_csv(lines)
    frame.loc[2, "line"] = " "
    frame.to_csv(lines, index=False)
    with pytest.raises(UserError, match="no text in column line of row 3"):
        compose(settings(lines, tokenizer))


def test_the_page_of_a_file_says_what_becomes_of_it(lines, tokenizer):
    found = intake(compose(settings(lines, tokenizer))["dataset"], None)
    assert (found.classes, found.refused) == ({}, "")
    assert {column.name: column.becomes for column in found.columns}["line"] == "tokens"


def test_perplexity_is_of_all_tokens_together():
    losses, counts = torch.tensor([[math.log(2)], [3 * math.log(8)]]), torch.tensor([1.0, 3.0])
    assert perplexity(losses, counts) == pytest.approx(2 ** ((1 + 9) / 4))
    assert math.isnan(perplexity(losses[:0], counts[:0]))
    assert perplexity(torch.tensor([[1e6]]), torch.tensor([1.0])) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_private_run_by_adapters_is_kept_with_its_perplexity(
    lines, tokenizer, tmp_path, reduction
):
    results = tmp_path / "results"
    arguments = settings(
        *(lines, tokenizer, "model.train=lora", f"model.reduction={reduction}"),
        *("epochs=2", "batch_size=16", f"results_dir={results}", "save_model=true"),
    )
    record = load(load_or_run(run_config(arguments), quiet=True))
    assert record.config["model"]["reduction"] == reduction
    assert f"its loss is the {reduction} over its tokens" in " ".join(record.privacy["notes"])
    assert record.privacy["guarantee"] == "proven"
    model = load_model(model_file(record, results))
    assert any(isinstance(module, Adapted) for module in model.modules())
    test = build(compose(arguments)).dataset.load(None, 0).test
    losses = model(test.inputs.long()).squeeze(1).detach()
    expected = float((losses.sum() / test.targets.sum()).exp())
    assert record.metrics["test/perplexity"] == pytest.approx(expected, rel=1e-5)
    mean = losses / (test.targets if reduction == "mean" else 1)
    assert record.metrics["test/loss"] == pytest.approx(float(mean.mean()), rel=1e-5)
    (whole,) = model.perplexity(["anna sees ben"])
    assert model.perplexity(["carl", "anna sees ben"])[1] == pytest.approx(whole, rel=1e-5)
    with pytest.raises(UserError, match="this model predicts texts: give a list"):
        model.perplexity([("a", "b")])
    save_adapter(model, tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    with pytest.raises(UserError, match="release has no prediction for a language model"):
        release([*arguments[:-2], f"results_dir={results}", f"out={tmp_path / 'out'}"])


@pytest.mark.slow
def test_gpt2_is_trained_from_its_folder_with_its_tokenizer(lines, tmp_path):
    """Which has no padding token: `<|endoftext|>`, its last, takes the place."""
    words = [*LETTERS, "Ġ", "<|endoftext|>"]
    made = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<|endoftext|>"])
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LENGTH}
    ends = {"bos_token_id": 27, "eos_token_id": 27}
    net = GPT2LMHeadModel(GPT2Config(**sizes, **ends, vocab_size=len(words)))
    net.save_pretrained(tmp_path / "gpt2")
    made.save(str(tmp_path / "gpt2" / "tokenizer.json"))
    arguments = settings(
        *(lines, tmp_path / "gpt2", "model.lora.targets=[c_attn]", "precision=bf16"),
        *("epochs=1", "batch_size=16", f"results_dir={tmp_path}", "save_model=true"),
    )
    arguments = [a for a in arguments if not a.startswith(("model=", "model.config="))]
    arguments += ["model=causal_lm", f"model.weights={tmp_path / 'gpt2'}"]
    record = load(load_or_run(run_config(arguments), quiet=True))
    assert record.config["dataset"]["padding"] == 27
    assert record.config["model"]["config"]["vocab_size"] == len(words)
    assert any("are taken to be public" in note for note in record.privacy["notes"])
    model = load_model(model_file(record, tmp_path))
    one, same = model.perplexity(["anna sees", "anna sees<|endoftext|><|endoftext|>"])
    assert one == pytest.approx(same)


# Secrets


def test_secrets_are_random_tokens_where_the_text_had_some(lines, tokenizer):
    base = build(compose(settings(lines, tokenizer))).dataset
    dataset = Mislabelled(base, 20)
    data, other = dataset.load(None, 0), dataset.load(None, 1)
    tokens, predicted = data.targets.examples.inputs.unbind(1)
    assert torch.equal(data.targets.examples.inputs, other.targets.examples.inputs)
    assert torch.equal(tokens[:, 1:] != 0, predicted[:, 1:] == 1)
    assert torch.equal(predicted.sum(1).float(), data.targets.examples.targets)
    assert tokens[predicted == 1].unique().numel() > WORDS - 3  # texts have 12 letters
    assert len(data.train) == 64 - 20 + int(data.targets.included.sum())
    assert dataset.notes[-1].startswith("20 training examples have random tokens")


def test_exposure_is_of_the_rank_among_candidates():
    candidates = np.arange(7.0)
    found = exposures_of(np.array([-1.0, 0.0, 6.5, 3.5]), candidates)
    np.testing.assert_allclose(found, [3, 2, 0, 3 - math.log2(5)])


@pytest.mark.slow
def test_a_model_without_privacy_exposes_secrets_and_a_private_one_does_not(
    lines, tokenizer, tmp_path
):
    mean, most = {}, math.nan
    for method in ("sgd", "dpsgd"):
        arguments = settings(
            *(lines, tokenizer, "mislabelled=32", "optimizer=adam", "optimizer.lr=0.02"),
            *(f"method={method}", "epochs=40", "batch_size=16", f"results_dir={tmp_path}"),
            *("privacy=eps1", "model.config.n_embd=32"),
        )
        record = load(load_or_run(run_config(arguments), quiet=True))
        mean[method] = exposures(record).mean()
        most = math.log2(33 - sum(record.diagnostics["target/included"]))
    assert mean["sgd"] > 0.9 * most > 2.5
    assert mean["dpsgd"] < 2.2  # 1.4 by chance
    del record.diagnostics["target/loss"]
    with pytest.raises(UserError, match="run it with mislabelled=N"):
        exposures(record)
