"""Names that runs share: those of one group, one curve, one setting, one protocol."""

from dpbench.runs.records.digest import digest

BUDGET = ("epsilon", "noise_multiplier", "accountant")
"""The settings of privacy that say how much noise there is; delta says what an epsilon means."""


def group_of(config: dict) -> str:
    """A common name of runs that differ only by their seed and diagnostics."""
    return digest({**config, "seed": None, "diagnostics": None})


def series_of(config: dict) -> str:
    """A common name of the runs of one curve, which differ only by seed, diagnostics and budget."""
    privacy = {k: v for k, v in (config.get("privacy") or {}).items() if k not in BUDGET}
    return digest({**config, "seed": None, "privacy": privacy, "diagnostics": None})


def setting_of(config: dict) -> str:
    """A common name of the runs of a series at any delta, and of those on a validation split."""
    off = dict.fromkeys(("seed", "privacy", "diagnostics", "validation", "trial"))
    return digest({**config, **off, "score_noise_multiplier": None})


def protocol_of(config: dict, *but: str) -> str:
    """A common name of runs whose methods can be compared: that differ only by method, optimiser,
    seed, diagnostics and budget.

    but: dotted keys of settings that may differ, too.
    """
    settings = {**config, **dict.fromkeys(("seed", "privacy", "diagnostics", "optimizer"))}
    settings |= {"method": {}, "choices": {**config["choices"], "method": ""}}
    for key in but:
        group, _, name = key.partition(".")
        settings[group] = {**settings[group], name: None} if name else None
    return digest(settings)
