"""Settings at which a method is dpsgd, and methods that cost what dpsgd costs."""

import functools
import itertools

import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.step.methods.bam import bam, bam_exact
from dpbench.step.methods.dicesgd import dicesgd
from dpbench.step.methods.disk import disk
from dpbench.step.methods.doppler import doppler
from dpbench.step.methods.dp_adam_bc import dp_adam_bc
from dpbench.step.methods.dp_mf import dp_mf
from dpbench.step.methods.dp_muon import dp_muon
from dpbench.step.methods.dpsat import dpsat
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpzero import dpzero
from dpbench.step.methods.geoclip import geoclip
from dpbench.step.methods.slaclip import slaclip
from tests.step.methods.raco_parts import made as raco
from tests.steps import theta

ABADI = {"clip": "abadi", "style": "flat"}
EXACT = {"rtol": 0, "atol": 0}
CASES = {  # with the bound of dpsgd
    "bam": (bam(1.0, 0.0), 1.0, EXACT),
    "bam_exact": (bam_exact(1.0, 0.0), 1.0, EXACT),
    "dpsat": (dpsat(1.0, 0.0), 1.0, EXACT),
    "disk": (disk(1.0, 1.0, None, **ABADI), 1.0, EXACT),
    "doppler": (doppler(1.0, [], [1.0], **ABADI), 1.0, EXACT),
    "dp_mf": (dp_mf(1.0, 1, **ABADI), 1.0, EXACT),
    "dp_muon": (dp_muon(1.0, 0.0, 0, **ABADI), 1.0, EXACT),
    "geoclip": (geoclip(1.0, 9, 1.0, 1.0), 1.0, EXACT),
    "dicesgd, where nothing is clipped": (
        dicesgd(1e6, 0.5, 0.5),
        1e6,
        {"rtol": 1e-9, "atol": 1e-9},
    ),
    "raco, while no constraint is violated": (raco(slack=1.0), 0.5, {"rtol": 1e-9, "atol": 1e-12}),
}
SAME_COST = {
    "disk": disk(0.5, 0.5, 2.0, **ABADI),
    "doppler": doppler(1.0, [-9 / 11], [1 / 11, 1 / 11], **ABADI),
    "dp_adam_bc": dp_adam_bc(1.0, 0.9, 0.999, 1e-8, **ABADI),
    "dp_muon": dp_muon(1.0, 0.9, 5, **ABADI),
    "dpzero": dpzero(3.0, 1e-3),
    "geoclip": geoclip(1.0, 9, 0.9, 0.9),
    "slaclip": slaclip(1.0, 8, 0.5, 0.5, 0.1, 50.0),
}


@pytest.mark.parametrize("physical", [None, 3])
@pytest.mark.parametrize("name", CASES)
def test_it_is_dpsgd(step_of, batch_of, name, physical):
    method, bound, close = CASES[name]
    physical = None if method.whole_batches else physical
    ours, usual = (step_of(m, physical=physical) for m in (method, dpsgd(bound, "corrected")))
    for seed in range(4):
        ours(batch_of(7, seed=seed))
        usual(batch_of(7, seed=seed))
    assert torch.allclose(theta(ours), theta(usual), **close)


@pytest.mark.parametrize("name", SAME_COST)
def test_epsilon_is_that_of_dpsgd(name):
    ours, usual = (
        pld(Ledger().after(Step(Poisson(0.02), method.releases(0.9)), 500), 1e-5)
        for method in (SAME_COST[name], dpsgd(1.0, "corrected"))
    )
    assert ours == usual


@functools.cache
def by_dp_accounting(rate, steps, multiplier):
    sampled = PoissonSampledDpEvent(rate, GaussianDpEvent(multiplier))
    return PLDAccountant().compose(SelfComposedDpEvent(sampled, steps)).get_epsilon(1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["dp_muon", "geoclip"])
def test_twenty_epsilons_are_those_of_dp_accounting(name):
    runs = [(0.001, 1000), (0.01, 500), (0.1, 100), (0.5, 20)]
    for (rate, steps), multiplier in itertools.product(runs, [0.6, 0.9, 1.5, 3.0, 6.0]):
        step = Step(Poisson(rate), SAME_COST[name].releases(multiplier))
        expected = pytest.approx(by_dp_accounting(rate, steps, multiplier), rel=1e-2, abs=1e-3)
        assert pld(Ledger().after(step, steps), 1e-5) == expected
