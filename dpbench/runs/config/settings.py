"""The settings of a run: scientific ones, which are in its digest, and those of execution."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct

from dpbench.privacy.guarantee import CORRECTED
from dpbench.runs.config.history import ADDED_TO_PARTS
from dpbench.system.arguments import read
from dpbench.system.errors import UserError
from dpbench.system.validate import boolean, fraction, integer, is_number, positive, quoted

S = TypeVar("S", bound=Struct)


@dataclass(frozen=True)
class Setting:
    """A top-level key of a configuration that is passed to a run.

    scientific: whether it affects what the run computes, and so is in the record and the digest.
    omitted: values at which the digest leaves it out, as it was added later. data: whether it
    describes data or model, which the canaries of an audit replace.
    """

    scientific: bool = True
    omitted: tuple[object, ...] = ()
    data: bool = False


ADDED_LATER = Setting(omitted=(None, {}))
"""A setting added after the first records, whose runs had it off."""

DATA = Setting(data=True)
DATA_ADDED_LATER = Setting(omitted=(None, {}), data=True)

EXECUTION = Setting(scientific=False)

NAMED_GROUPS = ("dataset", "model", "method")
"""The groups whose options are part of a run's identity: its digest names them."""

SETTINGS = {
    "dataset": DATA,
    "model": DATA,
    "method": Setting(),
    "privacy": Setting(),
    "optimizer": Setting(),
    "sampler": Setting(),
    "epochs": Setting(),
    "batch_size": Setting(),
    "seed": Setting(),
    "diagnostics": DATA,
    "augmentation": DATA_ADDED_LATER,
    "head_lr_factor": DATA_ADDED_LATER,
    "ema_decay": ADDED_LATER,
    "validation": DATA_ADDED_LATER,
    "schedule": ADDED_LATER,
    "precision": Setting(omitted=(None, "float32")),
    "sums": Setting(omitted=(None, "float32")),
    "users": DATA_ADDED_LATER,
    "normalization": DATA_ADDED_LATER,
    "noise": Setting(omitted=(None, "seeded")),
    "score_noise_multiplier": ADDED_LATER,
    "class_weights": DATA_ADDED_LATER,
    "class_count_noise_multiplier": DATA_ADDED_LATER,
    "trial": ADDED_LATER,
    "mislabelled": DATA_ADDED_LATER,
    "features": DATA_ADDED_LATER,
    "temperature": DATA_ADDED_LATER,
    "conformal": DATA_ADDED_LATER,
    "batch_limit": ADDED_LATER,
    "participations": ADDED_LATER,
    "engine": EXECUTION,
    "physical_batch_size": EXECUTION,
    "channels_last": EXECUTION,
    "device": EXECUTION,
}

SCIENTIFIC = tuple(name for name, setting in SETTINGS.items() if setting.scientific)
"""The settings that are in the record and the digest."""

OFF_VALUES = tuple(value for setting in SETTINGS.values() for value in setting.omitted)
"""The values of settings that are off."""

DECAYS = {"torch.optim.SGD": "momentum", "torch.optim.RMSprop": "alpha"}
"""By optimiser, the share of an average that a step keeps: torch does not refuse 1 and more, with
which it grows without bound."""

PATHS = {
    "model": ("weights",),
    "features": ("weights",),
    "dataset": ("file", "test_file", "folder", "labels", "path", "tokenizer", "large"),
}
"""Settings that are paths, and what may be read from there, by group. They are in neither digest
nor record if the checksum of what they name is a setting beside them."""


DEVICE = re.compile(r"auto|(cpu|cuda|mps|xpu)(:\d{1,3})?")
"""The names of devices that a machine may have."""


def check_numbers(settings: Mapping[str, object]) -> None:
    """UserError for a numeric setting of a run that is not a number, or is out of range."""
    integer("epochs", settings["epochs"])
    integer("batch_size", settings["batch_size"])
    integer("seed", settings["seed"], least=0)
    if settings["ema_decay"] is not None:
        fraction("ema_decay", settings["ema_decay"], zero=True)
    if settings["head_lr_factor"] is not None:
        positive("head_lr_factor", settings["head_lr_factor"])


def check_optimizer(settings: object) -> None:
    """UserError for an optimiser of torch that stands still, or whose averages never forget."""
    target = target_of(settings)
    if not isinstance(settings, Mapping) or not target.startswith("torch.optim."):
        return
    if is_number(rate := settings.get("lr")):  # other types are refused when it is built
        positive("optimizer.lr", rate)
    if is_number(share := settings.get(decay := DECAYS.get(target, ""))):
        fraction(f"optimizer.{decay}", share, zero=True)


def check_compute(settings: Mapping[str, object]) -> None:
    """UserError for a physical batch size, memory format or device that is invalid anywhere."""
    size = settings["physical_batch_size"]
    if isinstance(size, str) and size != "auto":
        raise UserError(
            f"physical_batch_size={quoted(size)} must be auto, null or a whole number of at least "
            "1."
        )
    if size not in (None, "auto"):
        integer("physical_batch_size", size)
    boolean("channels_last", settings["channels_last"])
    if not DEVICE.fullmatch(str(settings["device"])):
        raise UserError(no_device(settings["device"]))


def no_device(name: object) -> str:
    """The message that refuses a device."""
    return f"device={name!s:.60} is not available here; try device=auto."


def target_of(node: object) -> str:
    """The name of what a node of a configuration builds; "" for nothing."""
    return str(node.get("_target_", "")) if isinstance(node, Mapping) else ""


def path_settings(group: str, part: Mapping[str, object]) -> tuple[str, ...]:
    """The settings of a part that are paths; only unset ones in a data set without a checksum."""
    named = group != "dataset" or part.get("checksum") is not None
    return tuple(key for key in PATHS.get(group, ()) if named or part.get(key) is None)


def settings_left_out(group: str, part: Mapping[str, object]) -> tuple[str, ...]:
    """The settings of a part that a record leaves out: paths, and later ones that are as ever."""
    added = ADDED_TO_PARTS.get(target_of(part), {})
    as_ever = (key for key, value in added.items() if part.get(key) == value)
    return (*path_settings(group, part), *as_ever)


def variant_of(config: Mapping[str, Any]) -> str:
    """The variant of a configuration's method; methods without variants are as if corrected."""
    return config["method"].get("variant", CORRECTED)


def key_of(override: str) -> str:
    """The key that an override sets: `model.width` of `+model.width=8`."""
    return override.lstrip("+~").split("=")[0]


def leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a nested configuration by dotted key. A mapping within a part that describes no
    part of its own, such as constants by column, is one."""
    for key, value in node.items():
        if isinstance(value, Mapping) and (not prefix or "_target_" in value):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def canonical(value: Any) -> Any:
    """The value with 1.0 as 1, since both mean the same."""
    if isinstance(value, dict):
        return {key: canonical(part) for key, part in value.items()}
    if isinstance(value, list):
        return [canonical(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def varying_keys(mappings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values differ, without constructors, which follow from the options."""
    keys = sorted({key for m in mappings for key in m if not key.endswith("_target_")})
    return [key for key in keys if len({repr(canonical(m.get(key))) for m in mappings}) > 1]


def split_settings(command: str, kind: type[S], arguments: Sequence[str]) -> tuple[S, list[str]]:
    """A command's own settings, and the other arguments. Raises UserError for a setting that `read`
    refuses, or one that is spelled as another's in a case of its own, such as n for N."""
    names = kind.__struct_fields__
    by_lower = {name.lower(): name for name in names}
    for key in map(key_of, arguments):
        if key not in names and (meant := by_lower.get(key.lower())):
            raise UserError(f"{key} is not a setting of {command}: did you mean {meant}?")
    own = [argument for argument in arguments if key_of(argument) in names]
    others = [argument for argument in arguments if key_of(argument) not in names]
    return read(command, kind, own), others


def is_scientific(override: str) -> bool:
    """Whether an override changes what a run computes, rather than only how it is executed."""
    return key_of(override).split(".")[0] in SCIENTIFIC
