"""A record of a run on digits, with every kind of value."""

import math

from dpbench.runs.records.record import Record

PLAIN = {
    "dataset": {"_target_": "dpbench.data.digits.Digits", "test_share": 0.2},
    "model": {"_target_": "dpbench.models.logistic.Logistic", "squashed": False},
    "method": {"_target_": "dpbench.methods.dpsgd.dpsgd", "bound": 1.0, "variant": "corrected"},
    "privacy": {"noise_multiplier": 1.0, "epsilon": None, "delta": 1e-6, "accountant": "rdp"},
    "optimizer": {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.5, "momentum": 0.0},
    "sampler": "poisson",
    "epochs": 2,
    "batch_size": 256,
    "seed": 0,
    "choices": {"dataset": "digits", "model": "logistic", "method": "dpsgd"},
    "data_dir": "/somebody's/data",
}


def record(**changes):
    fields = {
        "config": PLAIN,
        "metrics": {"test/accuracy": 0.75, "test/loss": math.nan, "test/loss/3": math.inf},
        "privacy": {
            **{"rdp": math.inf, "pld": None, "gdp": None, "claimed": None, "delta": 1e-6},
            **{"guarantee": "none", "why": "made up", "noise_multiplier": 0.0, "steps": 3},
            "ledger": [{"times": 3}],
        },
        "provenance": {"commit": None, "seconds": 1.5},
        "status": "complete",
        "history": {"train/loss": [2.5, math.nan]},
        "diagnostics": {"step/R/0": [-math.inf]},
    }
    return Record(**{**fields, **changes})
