"""Files of pre-trained weights: their checksums and their tensors.

A run is identified by the checksum of its weights, not by their path.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from dpbench.data.fetch.library import library
from dpbench.errors import UserError
from dpbench.system.files import cached_digest_of
from dpbench.validate import path_of, quoted

NAMES = ("model.safetensors", "pytorch_model.bin")
"""The names of weights files in a folder; the first one that exists is used."""


def named_by_content(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model's settings with the checksum of its weights, if they are a file or folder.

    Raises UserError if it does not exist or its checksum differs from the configured one.
    """
    named = dict(model)
    if named.get("weights") is not None:
        named["checksum"] = verified_checksum(weights_file(named["weights"]), named.get("checksum"))
    return named


def check_weights(pretrained: bool, weights: object, checksum: str | None) -> None:
    """UserError for a malformed checksum, and for weights of a model with random initialisation."""
    if checksum is not None and not re.fullmatch("sha256:[0-9a-f]{64}", checksum):
        raise UserError(
            f"model.checksum={quoted(checksum)} is not valid: write sha256: and 64 hex digits."
        )
    if not pretrained and (weights, checksum) != (None, None):
        what = "weights" if weights is not None else "checksum"
        raise UserError(
            f"model.{what} needs model.pretrained=true, and this model has random weights."
        )


def weights_file(place: object) -> Path:
    """The weights file at a path, which may be its folder; UserError if there is none."""
    path = Path(os.path.expanduser(path_of("model.weights", place, "file")))
    folder = os.path.isdir(path)
    for file in [path / name for name in NAMES] if folder else [path]:
        if os.path.isfile(file):
            return file
    what = f"a folder without {' or '.join(NAMES)}" if folder else "no file"
    raise UserError(f"model.weights={path} is {what}: name a file of weights.")


def verified_checksum(file: Path, checksum: object) -> str:
    """The file's checksum, "sha256:..."; UserError if another one is expected."""
    try:
        actual = f"sha256:{cached_digest_of(file)}"
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}.") from error
    if checksum not in (None, actual):
        raise UserError(
            f"{file} has the checksum {actual}, but model.checksum is {checksum}: provide the "
            "correct file, or set model.checksum=null to accept this one."
        )
    return actual


def tensors_of(file: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a state dict by torch.save, by name.

    No code in the file is executed. Raises UserError for any other content.
    """
    timm = library("timm.models")
    try:
        tensors = timm.load_state_dict(os.fspath(file), weights_only=True)
    except Exception as error:  # malformed files may raise any exception
        raise UserError(
            f"{file} contains no weights that are safe to read: give a .safetensors file, or a "
            "state dict of tensors as torch.save writes it."
        ) from error
    if not tensors or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise UserError(f"{file} contains no state dict of tensors by name.")
    return tensors
