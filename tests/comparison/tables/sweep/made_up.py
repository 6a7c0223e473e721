"""Records of the shape that runs make, for tables of sweeps."""

import math

from dpbench.runs.records.record import Record

EPSILON = {"eps1": 0.9, "eps3": 2.8}


LEDGER = [{"times": 1, "sampling": {"law": "Poisson", "rate": 0.1}, "releases": []}]


def record(method="dpsgd", privacy="eps3", seed=0, value=0.8, lr=0.1, **more):
    """A record of the shape that runs make."""
    guarantee, pld = ("proven", EPSILON[privacy])
    if method == "fairlens":
        guarantee, pld = "none", None
    if method == "sgd":
        guarantee, pld = "none", math.inf
    return Record(
        config={
            "choices": {"dataset": "digits", "model": "mlp", "method": method, "privacy": privacy},
            "method": {"name": method},
            "privacy": {"epsilon": float(privacy[3:])},
            "optimizer": {"lr": lr},
            "seed": seed,
        },
        metrics={"test/accuracy": value, "test/ece": 1 - value, "test/accuracy/a": value / 2},
        privacy={
            **{"guarantee": guarantee, "pld": pld, "rdp": pld, "gdp": pld, "claimed": pld},
            **{"why": "", "delta": 1e-5, "noise_multiplier": 1.0, "steps": 1, "ledger": LEDGER},
        },
        provenance={},
        status="complete",
        **more,
    )


def swept():
    """Four methods, of which two have an epsilon, at two budgets with two seeds."""
    best = {"sgd": 0.97, "fairlens": 0.95, "dpsgd": 0.8, "dpsgd_global_adapt": 0.9}
    return [
        record(method, privacy, seed, value + 0.01 * seed)
        for method, value in best.items()
        for privacy in EPSILON
        for seed in (0, 1)
    ]
