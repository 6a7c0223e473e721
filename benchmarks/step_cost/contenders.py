"""The contenders by name. Each is built in a process of its own, from a case and a device."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from dpbench.step.gradients import ENGINES

from .cases import CannotBeTimed, Case
from .jax_peer import jax_privacy
from .opacus_peer import opacus
from .opake_peer import opake
from .ours import ours
from .stepper import PlainStepper, Stepper


@dataclass(frozen=True)
class Contender:
    """A kind of step to be timed.

    make: builds the stepper. method: the one whose reference step it must agree with. noisy:
    whether it adds that method's noise. compiled: whether it is compiled.
    """

    make: Callable[[Case, torch.device], Stepper]
    method: str = "dpsgd"
    noisy: bool = True
    compiled: bool = False


def plain(case: Case, device: torch.device, compiled: bool = False) -> PlainStepper:
    """A step without privacy."""
    return PlainStepper(case.build(device), case.batches(device), compiled)


def fastdp(case: Case, device: torch.device) -> Stepper:
    """Raises CannotBeTimed: fastDP is not on the package index."""
    raise CannotBeTimed("not installed (pip finds no distribution of the name fastDP)")


BASELINE = "plain"

STEP = {
    BASELINE: Contender(plain, "sgd", noisy=False),
    **{f"ours_{name}": Contender(partial(ours, engine=name)) for name in ENGINES},
    "ours_ghost_without_noise": Contender(partial(ours, engine="ghost", noisy=False), noisy=False),
    **{
        f"opacus_{mode}": Contender(partial(opacus, mode=mode))
        for mode in ("hooks", "functorch", "ew", "ghost")
    },
    "opake": Contender(opake),
    "jax_privacy": Contender(jax_privacy),
    "fastdp": Contender(fastdp),
    "plain_compiled": Contender(partial(plain, compiled=True), "sgd", noisy=False, compiled=True),
    **{
        f"ours_{name}_compiled": Contender(partial(ours, engine=name, compiled=True), compiled=True)
        for name in ENGINES
        if name != "loop"
    },
}

DEPTH = {
    BASELINE: Contender(plain, "sgd", noisy=False),
    **{
        name: Contender(partial(ours, engine="auto", method=name), name)
        for name in ("dpsgd", "dpsat", "bam", "bam_exact")
    },
}

PARTS = {
    name: STEP[name] for name in (BASELINE, "ours_ghost", "opacus_hooks", "opacus_ghost", "opake")
}

COUNTED = {name: STEP[name] for name in (BASELINE, "ours_ghost", "opacus_hooks", "opacus_ghost")}

CONTENDERS = STEP | DEPTH
