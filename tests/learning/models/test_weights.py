"""Pre-trained weights from files: what is loaded, what is refused, and what a run is named by."""

import hashlib
import json
import random
from contextlib import suppress
from dataclasses import replace

import huggingface_hub
import pytest
import timm
import torch
from safetensors.torch import save_file

from dpbench.comparison.reproduce.target import target_of
from dpbench.learning.data.fetch.published_weights import (
    tensors_of,
    verified_checksum,
    weights_file,
)
from dpbench.learning.models.bert import Bert
from dpbench.learning.models.timm_network import TimmNetwork
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import load
from dpbench.runs.records.record import Record
from dpbench.system.errors import UserError

VIT = TimmNetwork("test_vit", pretrained=True, image_size=32, train="all")
BERT = Bert(
    "tiny", pretrained=True, layers=1, hidden=8, heads=2, intermediate=16, vocabulary=50,
    length=12, dropout=0.0, train="all",
)  # fmt: skip
SHAPE, CLASSES = (3, 32, 32), 4
OTHER = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def nothing_from_the_hub(monkeypatch):
    def refuse(*arguments, **settings):
        raise AssertionError("a file was at hand")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)


@pytest.fixture(scope="module")
def published():
    """A tiny ViT of ten classes, as somebody might publish it."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return timm.create_model("test_vit", num_classes=10, img_size=32, dynamic_img_size=False)


@pytest.fixture
def file(published, tmp_path):
    save_file(published.state_dict(), tmp_path / "tiny.safetensors")
    return tmp_path / "tiny.safetensors"


def sha256(path):
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_vit_has_the_weights_of_a_local_file_and_a_new_head(published, tmp_path, suffix):
    path = tmp_path / f"tiny.{suffix}"
    (save_file if suffix == "safetensors" else torch.save)(published.state_dict(), path)
    model = replace(VIT, weights=str(path)).build(SHAPE, CLASSES)
    assert model.checksum == sha256(path)
    model.net.head = published.head
    images = torch.rand(2, *SHAPE)
    torch.testing.assert_close(model(images), published((images - 0.5) / 0.5))
    assert "state_dict" not in model.net.pretrained_cfg


def test_a_checksum_is_compared_with_the_file_even_if_it_changed(file):
    asked = replace(VIT, weights=str(file), checksum=sha256(file))
    assert asked.build(SHAPE, CLASSES).checksum == sha256(file)
    with pytest.raises(UserError, match=f"has the checksum {sha256(file)}, but model.checksum"):
        replace(asked, checksum=OTHER).build(SHAPE, CLASSES)
    before = verified_checksum([file], None, "model")
    file.write_bytes(file.read_bytes() + b"\0")
    assert verified_checksum([file], None, "model") == sha256(file) != before


def test_the_hub_is_asked_for_the_pinned_revision_and_its_file_is_checked_too(file, monkeypatch):
    asked = []

    def download(repository, name, revision):
        asked.append((repository, name, revision))
        return str(file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    pinned = replace(VIT, name="test_vit.r160_in1k", revision="abc")
    assert pinned.build(SHAPE, CLASSES).checksum == sha256(file)
    assert asked == [("timm/test_vit.r160_in1k", "model.safetensors", "abc")]
    with pytest.raises(UserError, match=r"model.checksum is sha256:000"):
        replace(pinned, checksum=OTHER).build(SHAPE, CLASSES)


def test_the_paper_s_vit_is_pinned_and_another_revision_is_another_run():
    model = compose(["model=vit_base"])["model"]
    assert model["name"].partition(".")[2] == "augreg2_in21k_ft_in1k"
    assert len(model["revision"]) == 40
    assert int(model["revision"], 16)
    assert (model["weights"], model["checksum"]) == (None, None)
    base = compose(["model=vit_base"])
    assert digest(compose(["model=vit_base", "model.revision=main"])) != digest(base)
    bert = compose(["model=bert_base", "dataset=snli"])
    bare = {k: v for k, v in bert["model"].items() if k not in ("weights", "checksum")}
    assert digest({**bert, "model": bare}) == digest(bert), "older records keep their names"


class Hostile:
    """What runs a command when pickle loads it."""

    def __reduce__(self):
        return (print, ("a stranger's code",))


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path, capsys):
    path = tmp_path / "hostile.pt"
    torch.save({"weight": Hostile()}, path)
    with pytest.raises(UserError, match="contains no weights that are safe to read"):
        tensors_of(path)
    assert "stranger" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.pt", b""),
        ("text.pt", b"weights"),
        ("passwords.pt", b"root:x:0:0:root:/root:/bin/bash\n"),
        ("short.safetensors", b"\x08\0\0"),
        ("text.safetensors", b"weights of a model"),
    ],
)
def test_invalid_files_of_weights_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="contains no weights that are safe to read"):
        tensors_of(tmp_path / name)


def test_files_without_a_state_dict_are_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(UserError, match="contains no state dict"):
        tensors_of(tmp_path / "a.pt")


def test_weights_of_another_network_are_refused(tmp_path):
    save_file({"some.weight": torch.ones(2)}, tmp_path / "a.safetensors")
    with pytest.raises(UserError, match=r"has no weights for test_vit: it lacks .* and \d+ more"):
        replace(VIT, weights=str(tmp_path / "a.safetensors")).build(SHAPE, CLASSES)


def test_weights_of_other_sizes_are_refused(tmp_path, published):
    state = published.state_dict() | {"norm.weight": torch.ones(3)}
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(UserError, match="weights of test_vit do not fit a model of these sizes"):
        replace(VIT, weights=str(tmp_path / "a.safetensors")).build(SHAPE, CLASSES)


def test_weights_that_are_not_there_are_refused_before_any_work(tmp_path):
    for place, what in (
        (tmp_path / "a.pt", "not a file"),
        (tmp_path, "a folder without model.saf"),
    ):
        with pytest.raises(UserError, match=f"model.weights={place} is {what}"):
            compose(["model=vit_base", f"model.weights={place}"])
    with pytest.raises(UserError, match="the name of a file"):
        weights_file("")


@pytest.mark.parametrize("changed", [{"weights": "a.pt"}, {"checksum": OTHER}])
@pytest.mark.parametrize("model", [VIT, BERT])
def test_random_weights_have_no_file(model, changed):
    with pytest.raises(UserError, match=r"needs model.pretrained=true"):
        replace(model, pretrained=False, **changed)


@pytest.mark.parametrize("checksum", ["", "zzz", "md5:0", OTHER + "0", OTHER.upper()])
@pytest.mark.parametrize("model", [VIT, BERT])
def test_invalid_checksums_are_refused(model, checksum):
    with pytest.raises(UserError, match="write sha256: and 64 hex digits"):
        replace(model, checksum=checksum)


@pytest.mark.slow
def test_no_damage_to_a_file_is_an_exception(published, tmp_path):
    """Bytes at random places of a file of weights: it is read, or refused in one sentence."""
    whole, draw = tmp_path / "whole.pt", random.Random(0)
    torch.save(published.norm.state_dict(), whole)
    for _ in range(200):
        content = bytearray(whole.read_bytes())
        for _ in range(3):
            content[draw.randrange(len(content))] = draw.randrange(256)
        damaged = tmp_path / "damaged.pt"
        damaged.write_bytes(
            content[: draw.randrange(len(content))] if draw.random() < 0.3 else content
        )
        with suppress(UserError):
            tensors_of(damaged)


# What names a run


def test_one_file_in_two_places_is_one_run_and_another_file_is_another(file, tmp_path):
    copy, other = tmp_path / "copy.safetensors", tmp_path / "other.safetensors"
    copy.write_bytes(file.read_bytes())
    save_file({"a": torch.ones(1)}, other)
    made = [compose(["model=vit_base", f"model.weights={p}"]) for p in (file, copy, other)]
    names = [digest(config) for config in made]
    assert names[0] == names[1] != names[2]
    assert made[0]["model"]["checksum"] == sha256(file)
    from_hub = compose(["model=vit_base", f"model.checksum={sha256(file)}"])
    assert digest(from_hub) == names[0], "the same weights, wherever they are from"
    assert digest(compose(["model=vit_base"])) not in names


def test_no_record_holds_the_path(file):
    config = compose(["model=vit_base", f"model.weights={file}"])
    record = Record(config, {}, {}, {}, "complete")
    assert str(file) not in record.json()
    assert record.config["model"]["checksum"] == sha256(file)
    assert record.digest == digest(config)


@pytest.mark.slow
def test_a_run_says_the_checksum_of_its_weights(file, tmp_path):
    tiny = [
        *("dataset=digits", "model=vit_base", "model.name=test_vit", "model.image_size=32"),
        *("model.revision=null", f"model.weights={file}", "epochs=1", "batch_size=256"),
        *("model.train=last_block_and_head", f"results_dir={tmp_path / 'results'}"),
    ]
    path = load_or_run(run_config(tiny), quiet=True)
    record = load(path)
    assert record.provenance["weights"] == record.config["model"]["checksum"] == sha256(file)
    assert str(file) not in json.dumps(json.loads(path.read_text()))


# BERT


def test_a_bert_has_the_weights_of_a_folder_and_a_new_head(tmp_path):
    body = replace(BERT, pretrained=False).build((2, 10), 3).net.bert
    body.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    for place in (tmp_path, file):
        model = replace(BERT, weights=str(place)).build((2, 10), 2)
        assert model.checksum == sha256(file)
        for name, parameter in body.named_parameters():
            assert torch.equal(model.net.bert.get_parameter(name), parameter), name
    with pytest.raises(UserError, match=r"model.checksum is sha256"):
        replace(BERT, weights=str(tmp_path), checksum=OTHER).build((2, 10), 2)


@pytest.fixture
def bert_with(tmp_path):
    """bert_with(tensors): the network of a folder with those tensors."""

    def build(tensors):
        save_file(tensors, tmp_path / "model.safetensors")
        return replace(BERT, weights=str(tmp_path)).build((2, 10), 2).net

    return build


@pytest.fixture
def tensors():
    """Those of a tiny BERT of three classes, as somebody might publish it."""
    return replace(BERT, pretrained=False).build((2, 10), 3).net.state_dict()


@pytest.mark.parametrize(
    ("kept", "lacks"),
    [
        (lambda key: False, "bert.embeddings.LayerNorm.bias and 22 more"),
        (lambda key: "layer.0." not in key, "bert.encoder.layer.0.attention.output.*and 15 more"),
        (lambda key: "pooler" not in key, "bert.pooler.dense.bias and 1 more"),
        (lambda key: key != "bert.pooler.dense.bias", r"bert.pooler.dense.bias\."),
    ],
)
def test_a_bert_that_lacks_more_than_its_head_is_refused_by_name(bert_with, tensors, kept, lacks):
    part = {key: tensor for key, tensor in tensors.items() if kept(key)}
    with pytest.raises(
        UserError, match=f"has no weights for the network of these sizes: it lacks {lacks}"
    ):
        bert_with(part | {"some.weight": torch.ones(2)})


def test_what_the_hub_gives_of_a_bert_has_to_be_whole(tmp_path, tensors, monkeypatch):
    def download(repository, name, revision):
        assert (repository, name, revision) == ("tiny", "model.safetensors", None)
        return tmp_path / name

    del tensors["bert.pooler.dense.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(UserError, match=r"has no weights .* it lacks bert.pooler.dense.bias\."):
        BERT.build((2, 10), 2)


def test_a_bert_of_other_sizes_is_refused_by_name(bert_with, tensors):
    layer = {key.replace("r.0", "r.1"): t.clone() for key, t in tensors.items() if "r.0" in key}
    for other in ({"bert.pooler.dense.bias": torch.ones(3)}, layer):
        with pytest.raises(
            UserError, match=rf"not fit a model of these sizes \({min(other)}\): set"
        ):
            bert_with(tensors | other)


def test_a_bert_gets_the_head_of_its_classes_and_full_precision(bert_with, tensors):
    net = bert_with({key: tensor.half() for key, tensor in tensors.items()})
    assert {parameter.dtype for parameter in net.parameters()} == {torch.float32}
    assert net.classifier.out_features == 2
    torch.testing.assert_close(net.bert.pooler.dense.bias, tensors["bert.pooler.dense.bias"])


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_damaged_weights_of_a_bert_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"weights")
    with pytest.raises(UserError, match="contains no weights that are safe to read"):
        replace(BERT, weights=str(tmp_path)).build((2, 10), 2)


@pytest.mark.slow
def test_a_page_says_which_weights_were_chosen_and_not_where_they_are(file):
    wanted = target_of("calibration_table2", ["dataset=cifar10", f"model.weights={file}"])
    assert f"model.checksum={sha256(file)}" in wanted.scale_label
    assert str(file) not in wanted.title + wanted.scale_label
    overrides = next(wanted.cells_of(wanted.conditions[0], "small_r"))
    assert compose(overrides)["model"]["checksum"] == sha256(file)
