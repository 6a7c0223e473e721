"""What a step would do on a GPU, counted where none is: on fake tensors, with a GPU's decisions.

A fake tensor has a shape and a type but no numbers, so nothing is computed. It cannot pretend to be
on a GPU: torch's backward pass would ask the GPU for a queue. Therefore the tensors are fake ones
on the CPU, and every place where a step asks for the device is told that it is a GPU.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from functools import partial
from unittest.mock import patch

import pandas as pd
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from dpbench.comparison.tables.grid import Grid
from dpbench.comparison.tables.page import Page, PageBlock
from dpbench.learning.models import text, timm_network
from dpbench.runs.training.provenance import installed_version
from dpbench.step.gradients import ENGINES, Parameters, engine, ghost
from dpbench.step.gradients.layers import patches
from dpbench.step.gradients.logistic import KINDS, kinds_of
from dpbench.step.mechanism.streams import GpuStream

from . import ours
from .cases import Case
from .contender_process import reason
from .contenders import Contender
from .operation_counter import Cost, OperationCounter, host_us
from .report import environment_lines
from .stepper import Stepper

COSTS = tuple(field.name for field in fields(Cost))
COLUMNS = ("case", "contender", "batch_size", "operation", *COSTS, "reason", "environment")

EXPLANATION = (
    "What one training step would do on an H200, counted on fake tensors without it: kernels, "
    "calls into torch, bytes that kernels read and write, waits of the CPU for the GPU, and the "
    "peak of what is alive beyond model and batch. The milliseconds are predicted: the larger of "
    "the kernels' times and, marked by *, the calls'. `plain` is forward, backward and update."
)


class CountedStream(GpuStream):
    """A GPU's stream in the memory of a processor."""

    def __init__(self) -> None:
        super().__init__(bytes(32), torch.device("cpu"))


@dataclass(frozen=True)
class FakeCase(Case):
    """A case with a fake model, made of a real one: some libraries read its numbers."""

    def build(self, device: torch.device) -> nn.Module:
        with unset_fake_temporarily() as mode:
            assert isinstance(mode, FakeTensorMode)
            return super().build(device)._apply(mode.from_tensor)


@contextmanager
def gpu_decisions() -> Iterator[None]:
    """The context in which steps on the CPU decide as on a GPU, and engines are not checked."""
    with ExitStack() as stack:
        for owner, name, value in (
            (Tensor, "is_cuda", property(lambda _: True)),
            (engine, "CPU_BLOCK", engine.GPU_BLOCK),
            (patches, "GROUPED", ()),
            (text, "attention", lambda _: nullcontext()),
            (timm_network, "attention", lambda _: nullcontext()),
            (ghost, "is_logistic", lambda model: kinds_of(model) in KINDS),  # parameters are fake
            (ours, "make_engine", lambda name, m, loss, _: ENGINES[name](m, loss, Parameters(m))),
            (ours, "seeded", lambda *_: CountedStream()),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield


def count(make: Callable[[], Stepper]) -> dict[str, Cost]:
    """The costs by operation of one step of what is made of fake tensors, after another in which
    caches are filled."""
    with gpu_decisions(), FakeTensorMode(allow_non_fake_inputs=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = make()
        with OperationCounter():
            step()
        with OperationCounter() as counter:
            step()
    return counter.costs


def rows(case: Case, contenders: dict[str, Contender]) -> pd.DataFrame:
    """One row per contender and operation, or with the reason why there is none."""
    versions = [f"{p} {v}" for p in ("torch", "opacus", "opake") if (v := installed_version(p))]
    data = [
        {"contender": name, **row} for name, by in contenders.items() for row in _rows(case, by)
    ]
    same = {"case": case.name, "batch_size": case.batch_size, "environment": ", ".join(versions)}
    return pd.DataFrame(data).assign(**same).reindex(columns=list(COLUMNS))


def _rows(case: Case, contender: Contender) -> list[dict]:
    try:
        make = partial(contender.make, FakeCase(**vars(case)), torch.device("cpu"))
        costs, why_not = count(make), ""
    except Exception as error:
        costs, why_not = {"": Cost()}, reason(error)
    return [{"operation": n, **asdict(cost), "reason": why_not} for n, cost in costs.items()]


def markdown(data: pd.DataFrame) -> str:
    """One table of all steps."""
    data = data.assign(host_us=host_us(data["calls"], data["kernels"]))
    keys = ["case", "contender", "reason"]
    steps = data.groupby(keys, sort=False, as_index=False)[[*COSTS, "host_us"]].sum()
    head = ("step", "kernels", "calls", "GB moved", "waits", "peak, MB", "predicted ms")
    cells = tuple(_cells(step) for _, step in steps.iterrows())
    blocks: list[PageBlock] = [EXPLANATION, [*environment_lines(data)], Grid("", head, cells)]
    return Page("Counts of one training step", blocks).markdown


def _cells(step: pd.Series) -> tuple[str, ...]:
    name = f"{step.case}, {step.contender}"
    if step.reason:
        return name, step.reason
    counts = (f"{step[key]:,.0f}" for key in ("kernels", "calls"))
    milliseconds = f"{max(step.device_us, step.host_us) / 1000:.2f}"
    bound = "*" if step.host_us > step.device_us else ""
    sizes = f"{step.bytes / 1e9:.3g}", f"{step.waits:.0f}", f"{step.peak / 1e6:,.1f}"
    return name, *counts, *sizes, milliseconds + bound
