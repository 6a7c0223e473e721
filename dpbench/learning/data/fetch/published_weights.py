"""Published weights: in an installed package, in a file or folder, or on the Hugging Face hub.

A run is identified by the checksum of its weights, not by where they are.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpbench.learning.data.fetch.archives import SUFFIX, unpacked
from dpbench.learning.data.fetch.archives import SUFFIXES as ARCHIVES
from dpbench.learning.data.fetch.library import library
from dpbench.system.errors import MALFORMED_JSON, Unavailable, UserError, first_line
from dpbench.system.files import cached_digest_of
from dpbench.system.paths import installed_folder
from dpbench.system.validate import path_of, quoted, typed

NAMES = ("model.safetensors", "pytorch_model.bin")
"""The names of weights files in a folder; the first one that exists is used."""

CONFIG = "config.json"
"""The file that describes a model of transformers, beside its weights."""

BESIDE = (CONFIG, "preprocessor_config.json")
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
SOURCES = ("package", "weights", "hub")
KEYS = (*SOURCES, "revision", "checksum")

FOREIGN = ("auto_map", "_name_or_path", "architectures", "transformers_version", "torch_dtype")
"""Keys of a config.json that name code or say nothing of a network."""


def weights_file(place: object, group: str = "model") -> Path:
    """The weights file at a path, which may be its folder, or an archive with it; UserError if
    there is none."""
    path = Path(os.path.expanduser(path_of(f"{group}.weights", place, "file")))
    if path.suffix in ARCHIVES and path.is_file():
        path = unpacked(path)
    folder = os.path.isdir(path)
    for file in [path / name for name in NAMES] if folder else [path]:
        if os.path.isfile(file):
            return file
    what = f"a folder without {' or '.join(NAMES)}" if folder else "not a file"
    raise UserError(f"{group}.weights={path} is {what}: name a file of weights.")


def verified_checksum(files: Sequence[Path], checksum: object, group: str) -> str:
    """The checksum of a file, or of several ones, by name; UserError if another one is expected.

    group: of settings, for messages.
    """
    try:
        digests = [cached_digest_of(file) for file in files]
    except OSError as error:
        raise UserError(f"{files[0]} cannot be read: {error.strerror or error}.") from error
    (digest, *others) = digests
    if others:
        lines = (f"{file.name}\0{each}\n" for file, each in zip(files, digests, strict=True))
        digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    actual = f"sha256:{digest}"
    if checksum not in (None, actual):
        raise UserError(
            f"{files[0]} has the checksum {actual}, but {group}.checksum is {checksum}: provide "
            f"the correct file, or set {group}.checksum=null to accept this one."
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


def weights_in_package(name: str, group: str) -> Path:
    """The one file of weights in an installed package, or in its one archive; none of its code is
    run.

    Raises UserError for what is not the name of a package to import, and for any other number of
    files; Unavailable if it is not installed.
    """
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise UserError(
            f"{group}.package={quoted(name)} is not the name of a package to import: write "
            "letters, digits and _."
        )
    if (folder := installed_folder(name)) is None:
        raise Unavailable(
            f"{group}.package={name} is not installed: run `pip install {name}`, or install the "
            "package that has it."
        )
    files = [*folder.rglob("*")]
    found = [path for path in files if path.suffix in SUFFIXES]
    archives = [path for path in files if path.suffix == SUFFIX]
    if not found and len(archives) == 1:
        return weights_file(str(unpacked(archives[0])), group)
    if len(found) != 1:
        raise UserError(
            f"{group}.package={name} has {len(found)} files of weights, not one: set "
            f"{group}.package=null and {group}.weights to a file."
        )
    return found[0]


@dataclass(frozen=True)
class PublishedWeights:
    """Weights from exactly one place, and the checksum that they have to have, if any.

    package: an installed package with one file of weights, or one archive with a folder of them.
    weights: a file, a folder with model.safetensors, or an archive with such a folder, such as a
    downloaded package. hub: a name on the Hugging Face hub, at the commit `revision`. group: of the
    settings, for messages. described: whether the files BESIDE the weights are a part of them.
    """

    package: str | None
    weights: str | None
    hub: str | None
    revision: str | None
    checksum: str | None
    group: str = "features"
    described: bool = False

    def __post_init__(self) -> None:
        for key in KEYS:
            typed(f"{self.group}.{key}", getattr(self, key), str | None)
        if self.checksum is not None and not re.fullmatch("sha256:[0-9a-f]{64}", self.checksum):
            raise UserError(
                f"{self.group}.checksum={quoted(self.checksum)} is not valid: write sha256: and 64 "
                "hex digits."
            )
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) > 1:
            raise UserError(
                f"{self.group}.{given[0]} and {self.group}.{given[1]} both name weights: set one "
                "of them to null."
            )

    @classmethod
    def of(cls, settings: Mapping[str, Any], group: str = "features") -> "PublishedWeights":
        """Those that the settings of features or a model name."""
        given = {key: settings.get(key) for key in KEYS}
        described = "backbone" in settings and settings["backbone"] is None
        weights = cls(**given, group=group, described=described)
        if weights.hub is not None:
            weights._check_hub(weights.hub)
        return weights

    def _check_hub(self, name: str) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UserError(
                f"{self.group}.hub={quoted(name)} is not a name on the hub: write OWNER/NAME."
            )
        if self.revision is None or not re.fullmatch("[0-9a-f]{40}", self.revision):
            raise UserError(
                f"{self.group}.hub={name} may change: set {self.group}.revision to a commit (40 "
                f"hex digits), not to {quoted(self.revision)}."
            )

    def check_used(self, pretrained: bool) -> None:
        """UserError for settings of weights where the model is not pre-trained."""
        named = [
            key for key in ("weights", "package", "checksum") if getattr(self, key) is not None
        ]
        if not pretrained and named:
            raise UserError(
                f"{self.group}.{named[0]} needs {self.group}.pretrained=true, and this model has "
                "random weights."
            )

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
            file = weights_in_package(self.package, self.group)
        elif self.hub is not None:
            return self._from_hub(self.hub)
        elif self.weights is None:
            raise Unavailable(
                f"{self.group} need{'' if self.group == 'features' else 's'} weights: set "
                f"{self.group}.package, {self.group}.weights or {self.group}.hub"
                f"{f' to those of {self.checksum}' if self.checksum else ''}."
            )
        else:
            file = weights_file(self.weights, self.group)
        beside = [file.with_name(name) for name in BESIDE] if self.described else []
        return (file, *(path for path in beside if path.is_file()))

    def config_file(self) -> Path:
        """The file config.json of a model of transformers; UserError if there is none."""
        file, *_ = self.files()
        if (path := file.with_name(CONFIG)).is_file():
            return path
        hint = "set features.backbone to the name of its network in timm, or "
        raise UserError(
            f"there is no {CONFIG} beside {file}: {hint if self.group == 'features' else ''}give a "
            "folder that save_pretrained has written."
        )

    def config(self) -> dict[str, Any]:
        """What config.json says of the network; UserError if there is none."""
        path = self.config_file()
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {key: value for key, value in found.items() if key not in FOREIGN}
        except (OSError, *MALFORMED_JSON) as error:
            raise UserError(f"{path} describes no model of transformers.") from error

    def verified(self) -> tuple[tuple[Path, ...], str]:
        """The files, and their checksum; UserError for another one than the configured."""
        files = self.files()
        return files, verified_checksum(files, self.checksum, self.group)

    def _from_hub(self, name: str) -> tuple[Path, ...]:
        hub = library("huggingface_hub")
        absent = library("huggingface_hub.errors").EntryNotFoundError

        def download(file: str) -> Path:
            return Path(hub.hf_hub_download(name, file, revision=self.revision))

        try:
            files = [download(NAMES[0])]
            for file in BESIDE if self.described else ():
                with suppress(absent):
                    files.append(download(file))
        except Exception as error:  # the library raises its own errors, and those of the network
            hint = ", or set model.pretrained=false for random weights"
            raise Unavailable(
                f"needs pre-trained weights: those of {name} are not in the Hugging Face cache "
                f"($HF_HOME) and cannot be downloaded now "
                f"({first_line(error, type(error).__name__).rstrip('.')}): run once with network "
                f"access, or set {self.group}.weights to a local copy"
                f"{hint if self.group == 'model' else ''}."
            ) from error
        return tuple(files)


def named_by_content(settings: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Settings of features or a model with the checksum of their weights, and with what describes
    their network if their `config` is None.

    Raises UserError for missing weights, and for a checksum that differs.
    """
    weights = PublishedWeights.of(settings, group)
    undescribed = settings.get("config", {}) is None
    config = {"config": weights.config()} if undescribed else {}
    return {**settings, **config, "checksum": weights.verified()[1]}


def public_note(name: str, checksum: str | None) -> str:
    """The note on privacy of a model that starts from published weights."""
    which = f" ({checksum})" if checksum else ""
    return (
        f"The model starts from weights of {name}{which}, which are taken to be public: not "
        "covered by epsilon."
    )


@contextmanager
def loading_weights(name: str) -> Iterator[None]:
    """The context in which a network of another library gets its weights.

    Raises UserError if they are for one of other sizes, or damaged.
    """
    try:
        yield
    except UserError:
        raise
    except RuntimeError as error:
        which = str(error).strip(" .\n").rpartition("\n")[2].strip()
        raise UserError(
            f"the weights of {name} do not fit a model of these sizes ({which}): set the "
            "sizes that they are for, or model.pretrained=false for random weights."
        ) from error
    except Exception as error:  # each library has its own for a damaged file
        raise UserError(
            f"the weights of {name} are damaged, or none: get them again, or set "
            "model.pretrained=false for random weights."
        ) from error


def refuse_missing(missing: Collection[str], place: object, name: str) -> None:
    """UserError if tensors of a network are missing where its weights are."""
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"{place} has no weights for {name}: it lacks {min(missing)}{more}.")


def _is_of_a_layer(key: str, config: Any) -> bool:
    """Whether a tensor that a network does not have is of a layer: of an encoder of any, or of a
    language model, some of which are published with their masks, of one more than it has."""
    number = re.search(r"\b(?:h|layers)\.(\d+)\.", key)
    beyond = number is not None and int(number[1]) >= config.num_hidden_layers
    return beyond or re.search(r"\blayer\.\d", key) is not None


def with_weights(network: Any, config: Any, file: Path, own: tuple[str, ...]) -> Any:
    """A network of transformers, in float32, with a file's weights.

    own: what the names of tensors begin with that may be missing, or of other sizes. Raises
    UserError if others are, or if the file has layers that the network has not.
    """
    tensors: Mapping[str, Tensor] = tensors_of(file)
    quiet = library("transformers").logging  # what it reports is refused below
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    with loading_weights(str(file)):
        net, found = network.from_pretrained(
            None,
            config=config,
            state_dict=tensors,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        missing = {key for key in found["missing_keys"] if not key.startswith(own)}
        refuse_missing(missing, file, "the network of these sizes")
        other = [key for key, *_ in found["mismatched_keys"] if not key.startswith(own)]
        other += [key for key in found["unexpected_keys"] if _is_of_a_layer(key, config)]
        if other:
            raise RuntimeError(min(other))
    return net


def with_encoder_weights(config: Any, file: Path) -> Any:
    """The encoder of a config of transformers, in float32, with a file's weights; not its pooler,
    which not all published weights have."""
    network = library("transformers").MODEL_MAPPING[type(config)]
    return with_weights(network, config, file, own=("pooler.",))
