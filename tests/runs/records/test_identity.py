"""Which runs are one group, one curve, one protocol."""

import copy

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.records.digest import group_of, protocol_of, series_of

BASE = compose(["dataset=digits"])


def changed(path, value):
    config = copy.deepcopy(BASE)
    *way, last = path.split(".")
    node = config
    for key in way:
        node = node[key]
    node[last] = value
    return config


def test_seeds_and_diagnostics_share_a_group_and_methods_with_their_own_settings_a_protocol():
    assert group_of(changed("seed", 7)) == group_of(compose(["dataset=digits", "diagnostics=bias"]))
    others = ["method=sgd", "optimizer=adam", "optimizer.lr=9", "privacy=noise1", "seed=3"]
    assert protocol_of(compose(["dataset=digits", *others])) == protocol_of(BASE)
    assert compose(["dataset=digits"]) == BASE


@pytest.mark.parametrize("key", ["epsilon", "noise_multiplier", "accountant"])
def test_a_curve_passes_through_budgets(key):
    config = changed(f"privacy.{key}", 7.0)
    assert series_of(config) == series_of(BASE)
    assert group_of(config) != group_of(BASE)


STUDIES = {
    "batch_size": 17, "epochs": 3, "schedule": {"lr": {"values": [1.0, 0.1]}},
    "normalization": {"mean": 0.5}, "validation": 0.2, "sampler": "shuffled",
}  # fmt: skip


@pytest.mark.parametrize("key", [*STUDIES, "privacy.delta", "optimizer.lr", "method.bound"])
def test_no_curve_passes_through_two_studies(key):
    assert series_of(changed(key, STUDIES.get(key, 1e-7))) != series_of(BASE)


@pytest.mark.parametrize("key", STUDIES)
def test_studies_have_protocols_of_their_own(key):
    config = changed(key, STUDIES[key])
    assert protocol_of(config) != protocol_of(BASE)
    assert protocol_of(config, key) == protocol_of(BASE, key)
