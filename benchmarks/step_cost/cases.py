"""Benchmark cases: models and batches."""

from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import Architecture
from dpbench.runs.config.buildable import TARGET, build
from dpbench.runs.config.space import SEARCH
from dpbench.runs.config.yaml_files import read_settings
from dpbench.system.errors import UserError
from dpbench.system.paths import conf_folder


class CannotBeTimed(Exception):
    """Why a contender cannot run a case on this machine, as the end of a sentence."""


@dataclass(frozen=True)
class Case:
    """A model and a batch of synthetic examples, in float32.

    model: an option of conf/model, with `changes` to its settings. shape: that of one input, which
    is standard normal; with a `vocabulary` the input is (2, T): token ids below it, and token
    types. compiled: whether compiled steps are among the default contenders. epoch: unless it is 0,
    batches have sizes drawn from a Poisson law of mean `batch_size`, as in training, and a visit is
    the first so many steps of a new run, to which half of the sizes are new.
    """

    name: str
    model: str
    shape: tuple[int, ...]
    classes: int
    batch_size: int
    changes: dict[str, Any] = field(default_factory=dict)
    vocabulary: int | None = None
    compiled: bool = False
    epoch: int = 0

    def build(self, device: torch.device) -> nn.Module:
        """A new model with the same weights in every process, and without dropout.

        Raises CannotBeTimed if it cannot be built.
        """
        architecture: Architecture = from_conf("model", self.model, self.changes)
        torch.manual_seed(0)
        try:
            model = architecture.build(self.shape, self.classes)
        except (ImportError, UserError) as error:
            raise CannotBeTimed(f"model={self.model} cannot be built: {error}") from error
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # contenders would draw different masks and disagree
        return model.to(device).train()

    def batches(self, device: torch.device) -> list[Batch]:
        """The batches of the steps, over and over; the first has `batch_size` examples."""
        if not self.epoch:
            return [self.batch(device)]
        sizes = [self.batch_size, *np.random.default_rng(1).poisson(self.batch_size, self.epoch)]
        whole = self.batch(device, examples=max(sizes))
        return [whole.each(itemgetter(slice(size))) for size in sizes]

    def batch(self, device: torch.device, examples: int | None = None, seed: int = 1) -> Batch:
        """The same batch in every process; `examples` of it if given."""
        draw = torch.Generator().manual_seed(seed)
        size = examples or self.batch_size
        if self.vocabulary:
            inputs = torch.randint(1, self.vocabulary, (size, *self.shape), generator=draw)
            inputs[:, 1] = 0  # one sentence and no padding, which is token 0
        else:
            inputs = torch.randn(size, *self.shape, generator=draw)
        targets = torch.randint(0, self.classes, (size,), generator=draw)
        groups = torch.zeros(size, dtype=torch.int64)
        return Batch(inputs, targets, groups).each(lambda t: t.to(device))


def from_conf(group: str, name: str, changes: dict[str, Any]) -> Any:
    """The object that conf/GROUP/NAME.yaml describes, built without Hydra; CannotBeTimed if it
    cannot be built."""
    settings = settings_of(group, name)
    if settings is None:
        raise CannotBeTimed(f"{group}={name} is not available yet")
    if TARGET not in settings:
        raise CannotBeTimed(f"{group}={name} cannot be built: its file has no {TARGET}")
    try:
        return build(group, settings | changes)
    except UserError as error:
        raise CannotBeTimed(f"{group}={name} cannot be built: {error}") from error


def settings_of(group: str, name: str) -> dict[str, Any] | None:
    """The settings in conf/GROUP/NAME.yaml; None without the file, UserError for a broken one."""
    path = conf_folder() / group / f"{name}.yaml"
    settings = read_settings(path) if path.exists() else None
    return settings and {key: value for key, value in settings.items() if key != SEARCH}


ADULT, DUTCH, MNIST, CIFAR = (98,), (59,), (1, 28, 28), (3, 32, 32)
PLAIN = {"weight_standardisation": False}  # not every library supports it
IMAGENET = (3, 224, 224)
RANDOM = {"pretrained": False}  # takes the same time without a download
NO_WEIGHTS = dict.fromkeys(("package", "checksum")) | RANDOM
UNPACKED = {"normalization": None, "image_size": 64, **NO_WEIGHTS}
BERT_MINI = {"layers": 4, "hidden": 256, "heads": 4, "intermediate": 1024}
BERT_BASE = {"dropout": 0.0, **RANDOM}
ALL_LAYERS = {"train": "all", **BERT_BASE}

STEP = {
    "cpu": (
        Case("dutch_logistic", "logistic", DUTCH, 2, 256),
        Case("adult_mlp", "mlp", ADULT, 2, 256),
        Case("adult_mlp_poisson", "mlp", ADULT, 2, 256, epoch=92),
        Case("mnist_sample_convnet", "sample_convnet", MNIST, 10, 256),
        Case("mnist_sample_convnet_poisson", "sample_convnet", MNIST, 10, 256, epoch=50),
        Case("mnist_cnn_tanh", "cnn_tanh", MNIST, 10, 256),
        Case("resnet9_w32", "resnet9", CIFAR, 10, 32, {"width": 32, **PLAIN}),
        Case("wrn16_4", "wrn16_4", CIFAR, 10, 16, PLAIN),
        Case("vit_tiny", "vit_tiny", IMAGENET, 10, 16),
        Case("bert_4_layers", "bert_tiny", (2, 64), 3, 16, BERT_MINI, vocabulary=30522),
        Case("bert_tiny_poisson", "bert_tiny", (2, 64), 3, 64, vocabulary=30522, epoch=50),
    ),
    "cuda": (
        Case("adult_mlp", "mlp", ADULT, 2, 256, compiled=True),
        Case("resnet9_w64", "resnet9", CIFAR, 10, 256, {"width": 64, **PLAIN}),
        Case("wrn16_4", "wrn16_4", CIFAR, 10, 256),
        Case("vit_base", "vit_base", IMAGENET, 10, 32, RANDOM),
        Case("bert_base", "bert_base", (2, 128), 3, 32, BERT_BASE, vocabulary=28996),
        Case("bert_base_all_layers", "bert_base", (2, 128), 3, 32, ALL_LAYERS, vocabulary=28996),
    ),
    "counted": (
        Case("dutch_logistic", "logistic", DUTCH, 2, 256),
        Case("adult_mlp", "mlp", ADULT, 2, 256),
        Case("resnet9_w64", "resnet9", CIFAR, 10, 256, {"width": 64, **PLAIN}),
        Case("scattering_cnn", "scattering_cnn", (243, 8, 8), 10, 2100),
        Case("tempered_cnn", "tempered_cnn", CIFAR, 10, 2100),
        Case("wrn16_4", "wrn16_4", CIFAR, 10, 256, PLAIN),
        Case("vit_tiny", "vit_tiny", IMAGENET, 10, 64),
        Case("bert_4_layers", "bert_tiny", (2, 64), 3, 64, BERT_MINI, vocabulary=30522),
    ),
}

TRAINED = ("head", "biases_and_head", "norms_and_head", "lora", "last_block_and_head", "all")
"""The parts of a pre-trained network that are timed, as `model.train` names them."""

PARTS = tuple(
    replace(case, name=f"{case.name}_{part}", changes={**case.changes, "train": part})
    for case in (
        Case("efficientnet_lite0", "efficientnet_lite0", (3, 64, 64), 10, 16, UNPACKED),
        Case("vit_tiny", "vit_tiny", IMAGENET, 10, 4),
        Case("bert_tiny", "bert_tiny", (2, 64), 3, 16, vocabulary=30522),
        Case("minilm", "minilm", (2, 64), 3, 8, NO_WEIGHTS, vocabulary=30522),
    )
    for part in TRAINED
)

DEPTHS = (1, 2, 4, 8, 16)
DEPTH = tuple(Case(f"mlp_{n}", "mlp", ADULT, 2, 256, {"widths": (256,) * n}) for n in DEPTHS)
