"""Settings of methods that are out of their annotated range are refused, by name."""

from inspect import signature
from typing import Annotated, get_args, get_origin

import pytest

from dpbench.runs.config.buildable import build, declared, function
from dpbench.system.errors import UserError
from tests.step.methods.every_method import settings_of

REFUSED = {
    "a positive number": {
        "disk": {"gamma": [0, -1]},
        "dp_adam_bc": {"floor": [0.0]},
        "dp_fedavg": {"cap": [0], "local_lr": [0]},
        "dp_fedsgd": {"cap": [0, -1]},
        "dp_least_squares": {
            "bound": [0.0],
            "constant": [-1.0],
            "second_weight": [0.0],
            "ridge": [0],
            "sharpness": [0.0],
        },
        "dp_prototypes": {"bound": [0.0], "constant": [-1.0], "sharpness": [0]},
        "dpzero": {"smoothing": [0, -1e-3]},
    },
    "a number": {
        "disk": {"gamma": [float("nan")], "kappa": ["x"]},
        "dp_fedsgd": {"cap": [float("nan"), "2"]},
        "dpzero": {"smoothing": [float("inf"), "x"]},
        "dpsgld": {"prior_precision": [float("nan"), float("inf"), "1", True]},
    },
    "a number above 0 and up to 1": {"disk": {"kappa": [0.0, 1.1]}},
    "a number between 0 and 1": {
        "dicesgd": {"account_share": [0.0, 1.0]},
        "dpsgd_jl": {"failure": [0.0, 1.0]},
    },
    "a number from 0 to 1": {
        "geoclip": {"mean_decay": [-0.1, 1.1], "covariance_decay": [-0.1, 1.1]}
    },
    "a number from 0 to below 1": {
        "dp_adam_bc": {"beta1": [1.0], "beta2": [-0.1]},
        "dp_muon": {"momentum": [1.0, -0.1]},
    },
    "a number of at least 0": {
        "dpsghmc": {"prior_precision": [-1]},
        "dpsgld": {"prior_precision": [-1]},
    },
    "a whole number": {
        "dp_fedavg": {"local_epochs": [0, 100_001], "local_batch_size": [0]},
        "dp_fedsgd": {"local_batch_size": [0, -1, 2.0, True, "2"]},
        "dp_mf": {"bands": [0, 1.5, 4097]},
        "dp_mf_blt": {"buffers": [0, 9, 1.5]},
        "dp_muon": {"newton_schulz_steps": [-1, 100, 1.5]},
        "geoclip": {"rank": [0, 4097, 2.5]},
        "dpsgd_jl": {"projections": [0, 1, 2.5]},
    },
}


@pytest.mark.parametrize(
    ("expected", "method", "setting", "value"),
    [
        (expected, method, setting, value)
        for expected, methods in REFUSED.items()
        for method, settings in methods.items()
        for setting, values in settings.items()
        for value in values
    ],
)
def test_a_setting_out_of_its_range_is_refused(expected, method, setting, value):
    node = {**settings_of(method), setting: value}
    with pytest.raises(UserError, match=rf"^method\.{setting} must be {expected}"):
        build("method", node)


def ranged(method):
    """The settings of a method with an annotated range, in their order."""
    for name, parameter in signature(method, eval_str=True).parameters.items():
        hint = parameter.annotation
        if any(get_origin(kind) is Annotated for kind in (hint, *get_args(hint))):
            yield name


METHODS = [function("method", {"_target_": name}) for name in sorted(declared("method"))]


@pytest.mark.parametrize(
    ("method", "setting"),
    [(method, setting) for method in METHODS for setting in [*ranged(method)][:1]],
)
def test_python_is_refused_what_a_command_is(method, setting):
    settings = dict.fromkeys(signature(method).parameters)
    with pytest.raises(UserError, match=rf"^method\.{setting} must be "):
        method(**settings | {setting: -1})
