"""Files of weights: their checksums and their tensors."""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from dpbench.learning.data.fetch.archives import SUFFIXES, unpacked
from dpbench.learning.data.fetch.library import library
from dpbench.system.errors import UserError
from dpbench.system.files import cached_digest_of
from dpbench.system.validate import path_of, quoted

NAMES = ("model.safetensors", "pytorch_model.bin")
"""The names of weights files in a folder; the first one that exists is used."""


def check_checksum(group: str, checksum: str | None) -> None:
    """UserError for a malformed checksum in a group of settings."""
    if checksum is not None and not re.fullmatch("sha256:[0-9a-f]{64}", checksum):
        raise UserError(
            f"{group}.checksum={quoted(checksum)} is not valid: write sha256: and 64 hex digits."
        )


def weights_file(place: object, group: str = "model") -> Path:
    """The weights file at a path, which may be its folder, or an archive with it; UserError if
    there is none."""
    path = Path(os.path.expanduser(path_of(f"{group}.weights", place, "file")))
    if path.suffix in SUFFIXES and path.is_file():
        path = unpacked(path)
    folder = os.path.isdir(path)
    for file in [path / name for name in NAMES] if folder else [path]:
        if os.path.isfile(file):
            return file
    what = f"a folder without {' or '.join(NAMES)}" if folder else "not a file"
    raise UserError(f"{group}.weights={path} is {what}: name a file of weights.")


def verified_checksum(file: Path, checksum: object, group: str = "model") -> str:
    """The file's checksum, "sha256:..."; UserError if another one is expected."""
    return verified_checksum_of([file], checksum, group)


def verified_checksum_of(files: Sequence[Path], checksum: object, group: str) -> str:
    """The checksum of a file, or of several ones, by name; UserError if another one is expected.

    group: of settings, for messages.
    """
    try:
        actual = f"sha256:{_digest(files)}"
    except OSError as error:
        raise UserError(f"{files[0]} cannot be read: {error.strerror or error}.") from error
    if checksum not in (None, actual):
        raise UserError(
            f"{files[0]} has the checksum {actual}, but {group}.checksum is {checksum}: provide "
            f"the correct file, or set {group}.checksum=null to accept this one."
        )
    return actual


def _digest(files: Sequence[Path]) -> str:
    if len(files) == 1:
        return cached_digest_of(files[0])
    lines = (f"{file.name}\0{cached_digest_of(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


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
