"""Our private step, with any engine and any method, as in training."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.step.gradients import Engine, make_engine
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.noise import NoNoise
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import seeded
from dpbench.system.errors import UserError

from .cases import CannotBeTimed, Case, from_conf
from .stepper import BOUND, LR, NOISE_MULTIPLIER, TorchStepper


class Ours(TorchStepper):
    """Our `PrivateStep`, in physical batches if their size is given."""

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        engine: Engine,
        method: Method,
        physical_batch_size: int | None = None,
        compiled: bool = False,
    ):
        super().__init__(model, batches)
        device = batches[0].targets.device
        self.step = PrivateStep(
            engine=engine,
            method=method,
            optimizer=torch.optim.SGD([engine.parameters.theta], lr=LR),
            noise_multiplier=NOISE_MULTIPLIER,
            expected_batch_size=self.expected_batch_size,
            physical=PhysicalBatches(physical_batch_size),
            noise_stream=seeded("noise", 0, "bench", device),
            count_stream=seeded("counts", 0, "bench", device),
        )
        self._call = torch.compile(self.step) if compiled else self.step

    def __call__(self) -> None:
        self._call(next(self.batches))

    def configure(self, lr: float, noise_multiplier: float) -> None:
        self.step.optimizer.param_groups[0]["lr"] = lr
        self.step.noise_multiplier = noise_multiplier


def ours(
    case: Case,
    device: torch.device,
    engine: str,
    method: str = "dpsgd",
    physical_batch_size: int | None = None,
    compiled: bool = False,
    noisy: bool = True,
) -> Ours:
    """Our step on a case; CannotBeTimed if the engine or method is not available.

    noisy: False leaves out the method's noise, to measure what it costs.
    """
    built = _method(method) if noisy else replace(_method(method), noise=NoNoise())
    model, batches = case.build(device), case.batches(device)
    probe = case.batch(device, examples=2, seed=2)
    return Ours(model, batches, _engine(engine, model, probe), built, physical_batch_size, compiled)


def reference(case: Case, device: torch.device, method: str) -> Ours:
    """The reference for a method's step: the loop engine, in small physical batches if allowed."""
    whole = _method(method).whole_batches
    return ours(case, device, "loop", method, physical_batch_size=None if whole else 8)


def _method(name: str) -> Method:
    """The method in conf/method, with the clipping bound that all contenders share."""
    return from_conf("method", name, {} if name == "sgd" else {"bound": BOUND})


def _engine(name: str, model: nn.Module, probe: Batch) -> Engine:
    """The engine of that name; CannotBeTimed with its warning if it falls back to another."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            engine = make_engine(name, model, cross_entropy, probe)
        except UserError as error:
            raise CannotBeTimed(str(error)) from error
    if name not in ("auto", engine.name):
        raise CannotBeTimed(str(caught[-1].message))
    return engine
