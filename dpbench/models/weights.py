"""Files of pre-trained weights: that they are what was asked for, and what is in them.

Their checksum is part of what a run is, and their path only of how it was carried out: the same
weights in two places are one run.
"""

import functools
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from dpbench.data.fetch.library import library
from dpbench.errors import UserError
from dpbench.validate import path_of, quoted

NAMES = ("model.safetensors", "pytorch_model.bin")
"""In a folder of weights: the file that counts, the first that is there."""


def named_by_content(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model's settings with the checksum of its weights where they are a file or folder.

    Raises UserError for one that is not there or has another checksum than is asked for.
    """
    named = dict(model)
    if named.get("weights") is not None:
        named["checksum"] = checked(weights_in(named["weights"]), named.get("checksum"))
    return named


def check_weights(pretrained: bool, weights: object, checksum: str | None) -> None:
    """Refuse a checksum that is none, and weights for a model that is to have random ones."""
    if checksum is not None and not re.fullmatch("sha256:[0-9a-f]{64}", checksum):
        raise UserError(
            f"model.checksum={quoted(checksum)} is no checksum: write sha256: and 64 hex digits."
        )
    if not pretrained and (weights, checksum) != (None, None):
        what = "weights" if weights is not None else "checksum"
        raise UserError(f"model.{what} is for model.pretrained=true, and this model begins anew.")


def weights_in(place: object) -> Path:
    """The file of weights at a path: itself, or the one of a folder; UserError for none."""
    path = Path(os.path.expanduser(path_of("model.weights", place, "file")))
    folder = os.path.isdir(path)
    for file in [path / name for name in NAMES] if folder else [path]:
        if os.path.isfile(file):
            return file
    what = f"a folder without {' or '.join(NAMES)}" if folder else "no file"
    raise UserError(f"model.weights={path} is {what}: name a file of weights.")


def checked(file: Path, checksum: object) -> str:
    """The file's checksum, "sha256:...", if that is the one asked for, or none was."""
    try:
        status = file.stat()
        found = _sha256(file, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}.") from error
    if checksum not in (None, found):
        raise UserError(
            f"{file} has the checksum {found}, and model.checksum asks for {checksum}: bring the "
            "right file, or set model.checksum=null to take this one."
        )
    return found


@functools.lru_cache(maxsize=16)
def _sha256(file: Path, size: int, modified: int) -> str:
    """Of a file that is read again only where its size or time changed."""
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def tensors_of(file: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a state dict by torch.save, by name.

    Nothing in the file is run. UserError for a file that holds anything else.
    """
    timm = library("timm.models")
    try:
        found = timm.load_state_dict(os.fspath(file), weights_only=True)
    except Exception as error:  # which a stranger's bytes may raise, of any kind
        raise UserError(
            f"{file} holds no weights that are safe to read: give a .safetensors file, or a state "
            "dict of tensors as torch.save writes it."
        ) from error
    if not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{file} holds no state dict, which is tensors by name.")
    return found
