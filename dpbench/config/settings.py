"""What each setting of a run is for: whether it names the run, or only says how to carry it out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """A top-level key of a configuration that reaches a run.

    scientific: it makes the run what it is, so that the record keeps it and the digest has it; all
    else is how the run is carried out. omitted: the values at which the digest leaves it out,
    because there was no such setting when the first records were named.
    """

    scientific: bool = True
    omitted: tuple[object, ...] = ()


ADDED_LATER = Setting(omitted=(None, {}))
"""A setting that came after the first records, and then was off."""

EXECUTION = Setting(scientific=False)

SETTINGS = {
    "dataset": Setting(),
    "model": Setting(),
    "method": Setting(),
    "privacy": Setting(),
    "optimizer": Setting(),
    "sampler": Setting(),
    "epochs": Setting(),
    "batch_size": Setting(),
    "seed": Setting(),
    "diagnostics": Setting(),
    "augmentation": ADDED_LATER,
    "ema_decay": ADDED_LATER,
    "validation": ADDED_LATER,
    "schedule": ADDED_LATER,
    "precision": Setting(omitted=(None, "float32")),
    "users": ADDED_LATER,
    "normalization": ADDED_LATER,
    "noise": Setting(omitted=(None, "seeded")),
    "engine": EXECUTION,
    "physical_batch_size": EXECUTION,
    "channels_last": EXECUTION,
    "device": EXECUTION,
}

SCIENTIFIC = tuple(name for name, setting in SETTINGS.items() if setting.scientific)
"""The parts of a configuration that make a run what it is."""

OFF = tuple(value for setting in SETTINGS.values() for value in setting.omitted)
"""Values that say nothing of a run, as the settings that came later have where they are off."""

SETTINGS_OF_METHODS = {"clip": "abadi", "style": "flat"}
"""Settings of methods that came after the first records, and what they had been until then."""

SETTINGS_OF_METHOD: dict[str, dict[str, str | None]] = {
    "dp_fedsgd": {"variant": "corrected", "local_batch_size": None},
    "dp_fedavg": {"variant": "corrected"},
}
"""The same of one method alone, where others have always had the setting."""

PATHS = {"model": ("weights",)}
"""Settings that are paths, by group: they neither name a run nor stand in its record. What they
lead to has a checksum beside them."""


def key_of(override: str) -> str:
    """The key that an override sets: `model.width` of `+model.width=8`."""
    return override.lstrip("+~").split("=")[0]


def is_scientific(override: str) -> bool:
    """Whether an override changes what a run is, rather than only how it is carried out."""
    return key_of(override).split(".")[0] in SCIENTIFIC
