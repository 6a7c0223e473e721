"""Reads the user's own images as arrays of one size."""

import math
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageFile, ImageOps

from dpbench.learning.data.custom.checksums import (
    checksum,
    files_of,
    shown,
    source_path,
    verified,
)
from dpbench.learning.data.custom.columns import named
from dpbench.learning.data.custom.csv_files import verified_file
from dpbench.learning.data.custom.oddities import SHARE
from dpbench.learning.data.custom.source import FOLDER, Encoded, OwnTable, TestRows
from dpbench.system.errors import UserError, counted, first_line, warn
from dpbench.system.files import cached_digest_of
from dpbench.system.validate import quoted

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
TRAIN, TEST = "train", "test"
SPLITS = {TRAIN, "training", TEST, "testing", "val", "valid", "validation", "dev"}
"""Names of folders of examples, not of classes."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's modes by the number of channels."""

EIGHT_BITS = {"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV"}
"""Pillow's modes with at most 8 bits a channel and without transparency."""

BITS, ZERO = 258, 262
"""TIFF's tags for the bits of a sample, and for what 0 stands for: 0 for white."""

DARK = 0.25
"""Where all images with more than 8 bits are darker, 8 bits would keep few of their shades."""


def read(settings: Mapping[str, Any]) -> OwnTable:
    """The images in the class folders of a folder, or of its folders `train` and `test`; with a
    file of labels, in any folders, each with its row.

    Raises UserError for fewer than two classes, for one without images or with files that are
    neither images nor texts, for other splits, and for others than the expected images and labels.
    """
    folder = source_path("dataset.folder", settings["folder"], "folder")
    checksums = {"checksum": verified("dataset.folder", folder, settings.get("checksum"))}
    labels = settings.get("labels")
    files, tested = _files(folder, labels is not None and settings.get("target") is not None)
    everything = [*files, *tested]
    frame = pd.DataFrame({FOLDER: [f.relative_to(folder).parts[bool(tested)] for f in everything]})
    if labels is not None:
        names = [file.relative_to(folder).as_posix() for file in everything]
        rows, checksums["labels_checksum"] = verified_file(settings, "labels", "labels_checksum")
        frame = _labelled(frame, names, rows, settings)
    images = [(str(file), file) for file in everything]
    test = TestRows(f"dataset.folder={folder / TEST}", len(tested))
    return OwnTable(f"dataset.folder={folder}", frame, checksums, test, images=images)


def _files(folder: Path, any_folder: bool) -> tuple[list[Path], list[Path]]:
    """The images of a folder, and those of the publisher's test split; in class folders, unless
    any_folder."""
    names = _subfolders(folder)
    splits = [name for name in names if name.lower() in SPLITS]
    if names == [TEST, TRAIN]:
        return _published_split(folder, any_folder)
    if any_folder:
        return _images_in(folder), []
    if not splits or (len(splits) == 1 and splits != names):  # `train` alone is a vehicle
        return _class_files(folder, names), []
    raise UserError(
        f"dataset.folder={folder} has the folders {' and '.join(splits)}, which are splits, not "
        "classes: give the path of one of them (dataset.test_share of it is held out), or of a "
        f"folder with {TRAIN} and {TEST} alone."
    )


def _images_in(folder: Path) -> list[Path]:
    return [file for file, _, _ in files_of(folder) if file.suffix.lower() in SUFFIXES]


def _labelled(
    frame: pd.DataFrame, names: list[str], labels: pd.DataFrame, settings: Mapping[str, Any]
) -> pd.DataFrame:
    """The columns of each image, from the row of a file of labels that has its name.

    A name is a path below the folder, or the last part of it where no other image has that.
    """
    what = f"dataset.labels={settings['labels']}"
    column = named("dataset.image", settings["image"], list(labels))
    rows = labels.set_index(labels[column].astype(str).map(_as_path))
    if rows.index.has_duplicates:
        twice = rows.index[rows.index.duplicated()][0]
        raise UserError(f"{what} has several rows of the image {twice}: keep one.")
    short = pd.Series([name.rpartition("/")[2] for name in names])
    short = short.where(~short.duplicated(keep=False), "")
    found = [name if name in rows.index else last for name, last in zip(names, short, strict=True)]
    places = rows.index.get_indexer(found)
    if (places < 0).any():
        missing = names[int(np.flatnonzero(places < 0)[0])]
        raise UserError(
            f"{what} has no row of the image {missing}, one of {(places < 0).sum():,}, and names "
            f"{quoted(rows.index[0])} in its first row: add it, or "
            "move the image elsewhere."
        )
    if unused := sorted({*rows.index} - {*found}):
        raise UserError(
            f"{what} has a row of {unused[0]}, one of {len(unused):,} that are no images of the "
            "folder: remove it, or give the whole folder."
        )
    return pd.concat([frame, labels.iloc[places].reset_index(drop=True)], axis=1)


def _as_path(name: str) -> str:
    """A name of an image, as it is below the folder."""
    return name.strip().replace("\\", "/").removeprefix("./")


def warn_of_copied_images(rows: OwnTable, target: str) -> None:
    """Warn of a file whose copy is of another class, or of the other split, and of many copies."""
    files = [file for _, file in rows.images if isinstance(file, Path)]
    sizes = [file.stat().st_size for file in files]
    several = {size for size, number in Counter(sizes).items() if number > 1}
    known: dict[str, tuple[Path, object]] = {}
    copies, again = [], 0
    for place, (file, size, label) in enumerate(zip(files, sizes, rows.frame[target], strict=True)):
        at = label, place >= len(files) - rows.test.number
        if size in several:
            original, known_at = known.setdefault(cached_digest_of(file), (file, at))
            copies += [(original, file)] if known_at != at else []
            again += known_at == at and original != file
    if again > SHARE * len(files):
        warn(
            f"{again:,} images of {rows.name} are copies of others in their class: epsilon is per "
            "image, and whoever is in k images has less privacy; one of two may be trained on and "
            "the other tested: remove them."
        )
    if copies:
        one, other = copies[0]
        such = counted(len(copies) - 1, "more such copy", "more such copies")
        more = f" ({such})" if len(copies) > 1 else ""
        warn(
            f"{one} and {other} are one image in two classes, or in training and test{more}: keep "
            "it where it belongs."
        )


def _published_split(folder: Path, any_folder: bool) -> tuple[list[Path], list[Path]]:
    train, test = folder / TRAIN, folder / TEST
    if any_folder:
        return _images_in(train), _images_in(test)
    classes = _subfolders(train)
    if different := {*classes} ^ {*_subfolders(test)}:
        raise UserError(
            f"dataset.folder={folder} must have the same class folders in {TRAIN} and {TEST}, but "
            f"only one of them has {min(different)}."
        )
    learned, tested = (_class_files(part, classes) for part in (train, test))
    if len(learned) == len(tested) and checksum(train) == checksum(test):
        raise UserError(
            f"dataset.folder={folder} has the same images in {TRAIN} and {TEST}: give the path of "
            "one of them (dataset.test_share of it is held out)."
        )
    return learned, tested


def _class_files(folder: Path, classes: list[str]) -> list[Path]:
    """The images of class folders, sorted by name."""
    loose = [file.name for file in shown(folder) if file.suffix.lower() in SUFFIXES]
    if loose and classes:
        raise UserError(
            f"dataset.folder={folder} has images of no class beside its folders, such as "
            f"{min(loose)}: move them into the folder of their class, or remove them."
        )
    files = [(file, file.relative_to(folder).parts[0]) for file, _, _ in files_of(folder)]
    images = {file: name for file, name in files if name in classes and _is_readable(file)}
    empty = {*classes}.difference(images.values())
    if len(classes) < 2 or empty:
        what = f"no images in {min(empty)}" if empty else counted(len(classes), "folder")
        raise UserError(
            f"dataset.folder={folder} must have a folder of images for each class, but has {what}."
        )
    return [*images]


def _is_readable(file: Path) -> bool:
    """Whether a file is an image, and not a note; UserError for anything else, which may be an
    image that its class would lack."""
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES and (suffix == ".svg" or not _is_text(file)):
        raise UserError(
            f"{file} is neither an image that can be read ({', '.join(SUFFIXES)}) nor a note in "
            "UTF-8: save it as .png, or remove it."
        )
    return suffix in SUFFIXES


def _is_text(file: Path) -> bool:
    with file.open("rb") as opened:
        start = opened.read(4096)
    with suppress(UnicodeDecodeError):
        return "\0" not in getincrementaldecoder("utf-8")().decode(start)
    return False


def _subfolders(folder: Path) -> list[str]:
    return sorted(path.name for path in shown(folder) if path.is_dir())


def stacked(images: Iterable[Encoded], size: int, channels: int) -> np.ndarray:
    """Images as uint8 [n, channels, size, size].

    Each is turned as its EXIF data say and put on white, and its largest centred square is scaled;
    more than 8 bits are scaled by their range. UserError for an image that cannot be read so.
    """
    arrays, brightest = [], (0.0, "")
    for name, source in images:
        image, shortened = _upright(name, source)
        if shortened:
            brightest = max(brightest, (_brightness(image), name))
        if image.has_transparency_data and not _is_deep(image):
            image = _on_white(name, image)
        elif image.mode not in EIGHT_BITS:
            shades = _shades(name, image)
            brightest = max(brightest, (float(shades.max()), name))
            image = Image.fromarray((shades * 255).round().astype("uint8"))
        whole = image.convert(MODES[channels])
        square = ImageOps.fit(whole, (size, size), Image.Resampling.BILINEAR)
        arrays.append(np.asarray(square).reshape(size, size, channels).transpose(2, 0, 1))
    _check_brightness(*brightest)
    return np.stack(arrays)


def _upright(name: str, source: Path | BytesIO) -> tuple[Image.Image, bool]:
    """The only frame of an image, loaded, and whether its colours were shortened to 8 bits.

    UserError for a damaged or animated one.
    """
    try:
        with Image.open(source) as image:
            shortened = _is_shortened(image)
            image.load()
            animated = getattr(image, "is_animated", False)  # GIF looks it up in the open file
            ImageOps.exif_transpose(image, in_place=True)
    except Image.DecompressionBombError as error:
        raise UserError(f"{name} is too large: {first_line(error).rstrip('.')}.") from error
    except Exception as error:  # what Pillow's readers raise depends on where a file is damaged
        raise UserError(
            f"{name} is not an image, or is truncated: replace it, or remove it."
        ) from error
    if animated and image.format != "MPO":  # a photograph's preview
        raise UserError(f"{name} has several frames: keep the one to learn from, or remove it.")
    return image, shortened


def _is_shortened(image: ImageFile.ImageFile) -> bool:
    """Whether Pillow reads an opened image's colours of more than 8 bits as 8, which all have."""
    layout = image.tile[0][-1] if image.tile else None  # a mode, with more in a tuple
    most = layout[-1] if image.format == "PPM" and isinstance(layout, tuple) else 0
    return not _is_deep(image) and (most > 255 or bool(re.search(";16[BLN]", str(layout))))


def _brightness(image: Image.Image) -> float:
    """The largest value, from 0 to 1, of colours shortened to 8 bits; half a step for 0."""
    if image.has_transparency_data:
        image = image.convert("RGBA").convert("RGBa")
    colours = np.asarray(image)[..., : 3 if image.mode == "RGBa" else None]
    return max(int(colours.max()), 0.5) / 255


def _is_deep(image: Image.Image) -> bool:
    """Whether an image has one channel with more than 8 bits."""
    return image.mode[0] in "IF"


def _on_white(name: str, image: Image.Image) -> Image.Image:
    """An image with transparency on white; UserError if nothing of it is left."""
    layers = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    whole = Image.alpha_composite(white, layers)
    if _is_blank(whole) and not _is_blank(layers):
        raise UserError(
            f"{name} cannot be seen on white, on which transparent images are put: save it without "
            "transparency, or remove it."
        )
    return whole


def _is_blank(image: Image.Image) -> bool:
    return all(low == high for low, high in np.reshape(image.getextrema(), (-1, 2)))


def _shades(name: str, image: Image.Image) -> np.ndarray:
    """The values, from 0 to 1, of an image with one channel of more than 8 bits [h, w]."""
    tags, values = getattr(image, "tag_v2", {}), np.asarray(image)
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):
        transparent = values == image.info.get("transparency", -1)
        values = np.where(transparent, 1, values / (2 ** tags.get(BITS, (16,))[0] - 1))
    elif image.mode != "F":
        raise _unscaled(name, image, "")
    elif not (values.min() >= 0 and values.max() <= 1):
        raise _unscaled(name, image, f" and values from {values.min():g} to {values.max():g}")
    return 1 - values if tags.get(ZERO) == 0 else values


def _unscaled(name: str, image: Image.Image, values: str) -> UserError:
    return UserError(
        f"{name} has Pillow's mode {image.mode}{values}, for which it is not known what is white: "
        "save it with 8 or 16 bits a channel, or with floats from 0 to 1."
    )


def _check_brightness(brightest: float, name: str) -> None:
    """UserError if the brightest of the images with more than 8 bits is dark too."""
    if 0 < brightest < DARK:
        factor = 2 ** math.floor(-math.log2(brightest))
        raise UserError(
            f"the images with more than 8 bits use only {brightest:.2g} of their range, such as 12 "
            f"of 16 bits, and would be nearly black (the brightest is {name}): multiply their "
            f"values by {factor}."
        )
