"""Reads the user's own images as arrays of one size."""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from dpbench.errors import UserError

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}
"""Names of folders of examples, not of classes."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's modes by the number of channels."""


def class_folders(folder: Path) -> list[tuple[Path, int]]:
    """The images in the subfolders of a folder, each with its subfolder's number; sorted by name.

    Raises UserError for fewer than two folders, for one without images, and for splits.
    """
    classes = classes_of(folder)
    if classes and SPLITS.issuperset(name.lower() for name in classes):
        raise UserError(
            f"dataset.folder={folder} has the folders {' and '.join(classes)}, which are splits, "
            "not classes: give the path of one of them, of which dataset.test_share is held out."
        )
    images = [
        (path, number)
        for number, name in enumerate(classes)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    empty = set(range(len(classes))) - {number for _, number in images}
    if len(classes) < 2 or empty:
        what = f"no images in {classes[min(empty)]}" if empty else f"{len(classes)} folders"
        raise UserError(
            f"dataset.folder={folder} must have a folder of images for each class, but has {what}."
        )
    return images


def classes_of(folder: Path) -> list[str]:
    """The names of the classes: those of the subfolders, sorted."""
    return sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def stacked(images: Iterable[Path | Any], size: int, channels: int) -> np.ndarray:
    """Images, or image files, as uint8 [n, channels, size, size].

    Of each image the largest centred square is taken, and scaled.
    """
    return np.stack([_array(image, size, channels) for image in images])


def _array(source: Path | Any, size: int, channels: int) -> np.ndarray:
    try:
        with Image.open(source) if isinstance(source, Path) else nullcontext(source) as image:
            whole = image.convert(MODES[channels])
            square = ImageOps.fit(whole, (size, size), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise UserError(
            f"{source} is not an image, or is truncated: replace it, or remove it."
        ) from error
    return np.asarray(square).reshape(size, size, channels).transpose(2, 0, 1)
