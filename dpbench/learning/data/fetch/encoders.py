"""Networks for texts, as a config.json of transformers describes them."""

from collections.abc import Mapping
from typing import Any

import torch

from dpbench.learning.data.fetch.library import library
from dpbench.system.errors import UserError, first_line
from dpbench.system.validate import quoted

CLASSIFIERS = "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING"

MAX_LAYERS = 1000
"""The most layers of an encoder: more than any has, and few enough to be built in seconds."""

NOT_SIZES = ("id2label", "label2id", "num_labels", "problem_type", "dtype", "architectures")
"""Keys of a config.json that say nothing of the encoder."""


def encoder_config(
    config: Mapping[str, Any] | None, dropout: float | None, group: str = "model"
) -> Any:
    """The settings of an encoder in transformers; see `network_config`. group: of the settings that
    should have named one, where there is no config, for messages."""
    if config is None:
        raise UserError(
            f"{group}=text needs an encoder: set {group}.package, {group}.weights (a folder) or "
            f"{group}.hub and {group}.revision."
        )
    return network_config(config, dropout, CLASSIFIERS, "encoder with a classification head")


def network_config(
    config: Mapping[str, Any], dropout: float | None, networks: str, kind_of: str
) -> Any:
    """The settings of a network in transformers; UserError for what describes none.

    config: the content of a config.json, of which nothing else is read than what transformers has
    for that kind of network. dropout: in all layers; None for that of the config. networks: the
    name of the mapping in transformers that has the class of each kind, and kind_of: of what.
    """
    auto = library("transformers.models.auto.configuration_auto")
    heads = getattr(library("transformers"), networks)
    kind = str(config.get("model_type"))
    if kind not in auto.CONFIG_MAPPING or auto.CONFIG_MAPPING[kind] not in heads:
        raise UserError(
            f"config.model_type={quoted(config.get('model_type'))} is no {kind_of} in transformers."
        )
    known = auto.CONFIG_MAPPING[kind]().to_dict()
    kept = {key: value for key, value in config.items() if key in known and key not in NOT_SIZES}
    if dropout is not None:
        kept |= {key: dropout for key in known if "dropout" in key or key.endswith("_pdrop")}
    try:
        sizes = auto.CONFIG_MAPPING[kind](**kept)
        if not 0 < sizes.num_hidden_layers <= MAX_LAYERS:
            raise ValueError(f"it has {sizes.num_hidden_layers} layers")
        with torch.device("meta"):  # which uses no memory
            heads[type(sizes)](sizes)
        return sizes
    except Exception as error:  # each kind has checks of its own
        raise UserError(
            f"config describes no {kind}: {first_line(error, type(error).__name__)}."
        ) from error
