"""No step waits for a GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench.step.mechanism import noise
from dpbench.step.methods.asc import asc
from dpbench.step.methods.dc_sgd import dc_sgd
from dpbench.step.methods.dicesgd import dicesgd
from dpbench.step.methods.disk import disk
from dpbench.step.methods.doppler import doppler
from dpbench.step.methods.dp_adam_bc import dp_adam_bc
from dpbench.step.methods.dp_mf import dp_mf
from dpbench.step.methods.dp_mf_blt import dp_mf_blt
from dpbench.step.methods.dp_mf_inverse import dp_lambda_cgd, dp_mf_bisr
from dpbench.step.methods.dp_muon import dp_muon
from dpbench.step.methods.dpsgd_bounded import dpsgd_bounded
from dpbench.step.methods.raco import raco
from dpbench.step.methods.slaclip import slaclip
from tests.problems import problem
from tests.step.mechanism.step_methods import METHODS

FLAT = {"clip": "abadi", "style": "flat"}
WITH_STATE = {
    "asc": asc(0.5, 0.5, 0.1, 3.0, 5.0).bind(problem()),
    "dc_sgd": dc_sgd(0.5, 8, 2.0, 10.0),
    "dicesgd": dicesgd(0.5, 0.1, 0.5),
    "disk": disk(0.5, 0.7, 0.5, **FLAT),
    "doppler": doppler(0.5, [-0.9], [0.1], **FLAT),
    "dp_adam_bc": dp_adam_bc(0.5, 0.9, 0.999, 1e-8, **FLAT),
    "dp_lambda_cgd": dp_lambda_cgd(0.5, 0.5, **FLAT).bind(problem(steps=99)),
    "dp_mf": dp_mf(0.5, 3, **FLAT),
    "dp_mf_blt": dp_mf_blt(0.5, 3, **FLAT),
    "dp_mf_bisr": dp_mf_bisr(0.5, 3, **FLAT),
    "dp_muon": dp_muon(0.5, 0.9, 3, **FLAT).bind(problem()),
    "dpsgd_bounded": dpsgd_bounded(0.5, 0.1, 0.5, 2.5, 0.2, 5.0, **FLAT),
    "raco": raco(0.5, "equalized_odds", 0.05, 0.1, 1.0, "hard", 0.5, 5.0).bind(problem()),
    "slaclip": slaclip(0.5, 4, 0.5, 0.5, 0.1, 50.0),
}

# What a GPU would have to wait for.


class Waits(TorchDispatchMode):
    """Notes what a GPU could only answer after all that it was asked before."""

    NAMES = (
        "_local_scalar_dense",
        "item",
        "is_nonzero",
        "equal",
        "nonzero",
        "masked_select",
        "bincount",
        "_unique2",
        "repeat_interleave",
    )

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        name = function.__name__.partition(".")[0]
        if name in self.NAMES or (name == "index" and any(map(is_mask, arguments[1]))):
            self.seen.append(name)
        return function(*arguments, **(named or {}))


def is_mask(index) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@pytest.mark.sampled(32)
@pytest.mark.parametrize("physical", [None, 4])
@pytest.mark.parametrize("engine", ["vmap", "ghost"])
@pytest.mark.parametrize("name", [*METHODS, *WITH_STATE])
def test_no_step_waits_for_a_gpu(monkeypatch, step_of, batch_of, engine, name, physical):
    method = (METHODS | WITH_STATE)[name]
    step, batch = step_of(method, engine=engine, physical=physical), batch_of(9)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(noise, "_add_on_cpu", noise._add_on_gpu)
    with Waits() as waits:
        step(batch)
        step(batch)  # when what was released before matters
    assert waits.seen == []


def test_waits_are_seen():
    x = torch.arange(3.0)
    with Waits() as waits:
        x.sum().item()
        bool(x.any())
        x[x > 1]
        torch.bincount(x.long())
    assert waits.seen == ["_local_scalar_dense", "_local_scalar_dense", "index", "bincount"]
