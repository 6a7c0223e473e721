"""A public name is that of the module that lies in a group of rooms, and not of a copy."""

import sys
from importlib import import_module

import pytest

from dpbench.runs.config.history import ADDED_TO_PARTS
from dpbench.system.public_names import GROUPS, module_name, public_name

NAMES = [
    "dpbench.clipping",
    "dpbench.clipping.functions",
    "dpbench.records.trackers.csv",
    "dpbench.reproduce",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_module_is_the_same_by_both_names(name):
    module, real = import_module(name), import_module(module_name(name))
    assert module is real
    assert module.__name__ == module.__spec__.name == module_name(name) != name
    assert sys.modules[name] is module


def test_names_lead_there_and_back_and_others_lead_nowhere():
    for name in [*ADDED_TO_PARTS, *NAMES, "dpbench.privacy.ledger", "torch.optim.SGD"]:
        assert public_name(module_name(name)) == name
    for name in ("dpbench.privacy.ledger", "torch.optim.SGD", "dpbench", "other.clipping"):
        assert module_name(name) == name
    with pytest.raises(ModuleNotFoundError):
        import_module("dpbench.clipping.nothing")
    with pytest.raises(ModuleNotFoundError):
        import_module("dpbench.papers")
    assert len({room for r in GROUPS.values() for room in r}) == sum(map(len, GROUPS.values()))
    assert import_module("dpbench.benchmarks.sign.epsilons").sign_epsilons
