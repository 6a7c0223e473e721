"""A private step as one graph: its Python code runs once for each size of a batch.

A graph would repeat every number of Python of the step that it was captured from, so those that
change are tensors that it is given: learning rate, noise multiplier, and the noise or its place.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients import Gradients
from dpbench.step.gradients.engine import EngineFallback
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.precision import in_full_precision
from dpbench.step.mechanism.draws import draws, noise_kernel
from dpbench.step.mechanism.eager import descends, eager_step
from dpbench.step.mechanism.gradient import PerExample
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.step import NO_COUNTS, ClippedSum, PrivateStep, StepReport
from dpbench.step.mechanism.streams import DrawnStream, GpuStream, PlacedStream, Stream
from dpbench.step.mechanism.update import Update
from dpbench.system.errors import first_line
from dpbench.system.seeds import torch_state_kept

Operations = Callable[..., Sequence[Tensor]]
"""Maps tensors to tensors."""

MOST = 4
"""Graphs of a step: on a GPU each keeps the memory of a pass."""


class GraphStep(PrivateStep):
    """A private step that is captured at the second batch of a size, and replayed at later ones.

    At the first one it is taken as ever, so that the engine follows its rows. Of a step that cannot
    be one graph, the sums over physical batches are. replayed: how many of both. why: why others
    were not; "" if they were too few of a size.
    """

    why = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._graphs: dict[Hashable, Operations | None] = {}
        self._seen: set[Hashable] = set()
        self._graphs_of = self._clip
        self.replayed: Counter[str] = Counter()

    @in_full_precision
    def __call__(self, batch: Batch) -> StepReport:
        graph = self._graph(self._step, batch) if is_one_graph(self, batch) else None
        return super().__call__(batch) if graph is None else self._replay(graph, batch)

    def _part_sum(self, gradients: Callable[[Batch], Gradients], part: Batch) -> ClippedSum:
        if (graph := self._graph(self._sums, part)) is None:
            return super()._part_sum(gradients, part)
        self.replayed["sums"] += 1
        with torch.no_grad():
            total, *report = graph(part.inputs, part.targets, part.groups)
        return ClippedSum(total, NO_COUNTS, StepReport(*report))

    def _graph(self, operations: Operations, batch: Batch) -> Operations | None:
        """The graph of operations on such a batch; None where there is none, or not yet."""
        size = (operations.__name__, batch.inputs.shape, batch.inputs.dtype, batch.targets.dtype)
        if why := obstacle(self, batch):
            self._refuse(why)
        elif size not in self._seen:
            self._seen.add(size)
        elif len(batch) and (kind := self._settled(batch)):  # without examples there is no pass
            numbers = self.expected_batch_size, self.engine.options, descends(self.optimizer)
            return self._made((size, kind, numbers), operations, batch)
        return None

    def _settled(self, batch: Batch) -> Hashable | None:
        """What determines the operations of a pass, if it is known."""
        assert isinstance(self.engine, Ghost)
        kind = self.engine.settled(batch)
        if kind is None and len(batch) > 1:
            self._refuse(self.engine.alone or "Python may do something else in each pass")
        return kind

    def _made(self, key: Hashable, operations: Operations, batch: Batch) -> Operations | None:
        """The graph of a key, captured if it is new; None for too many."""
        if self._clip is not self._graphs_of:
            self._graphs, self._graphs_of = {}, self._clip
        if key not in self._graphs and len(self._graphs) < MOST:
            self._graphs[key] = self._captured(operations, batch)
        if key not in self._graphs:
            self._refuse(f"batches have more than {MOST} sizes")
        return self._graphs.get(key)

    @property
    def said(self) -> str:
        """How many steps were replayed since the start, and why others were not."""
        counts = f"{self.replayed['steps']} steps and {self.replayed['sums']} sums replayed"
        return f"{counts}; others not: {self.why or 'they were the first of their size'}"

    def _refuse(self, why: str) -> None:
        if why != self.why:
            self.why = why
            warnings.warn(f"engine.graph=true: not all are graphs: {why}.", EngineFallback, 3)

    def _captured(self, operations: Operations, batch: Batch) -> Operations | None:
        """The graph of operations on such a batch; None if torch cannot capture them."""
        inputs = self._inputs(batch, self.noise_stream.derived("not released"))
        inputs = inputs if operations == self._step else inputs[:3]
        try:
            with torch_state_kept(batch.targets.device):
                return captured(lambda *given: operations(*given), inputs)
        except Exception as error:
            self._refuse(f"torch cannot capture them ({first_line(error)})")
            return None

    def _inputs(self, batch: Batch, stream: Stream) -> tuple[Tensor, ...]:
        """What a graph of a step is given: batch, noise multiplier, learning rate, noise."""
        theta = self.engine.parameters.theta
        rate = -self.optimizer.param_groups[0]["lr"] if descends(self.optimizer) else 0.0
        numbers = (self.noise_multiplier, torch.float64), (rate, theta.dtype)
        return (
            *(batch.inputs, batch.targets, batch.groups),
            *(torch.full((), n, dtype=dtype, device=theta.device) for n, dtype in numbers),
            *_noise(stream, len(theta)),
        )

    def _sums(self, inputs: Tensor, targets: Tensor, groups: Tensor) -> tuple[Tensor, ...]:
        """The clipped sum of a batch, its losses [B], and whether gradients are finite [B]."""
        part = Batch(inputs, targets, groups)
        result = self.clipped_sum(self.engine(part), part)
        return result.total, *result.report

    def _step(
        self, inputs: Tensor, targets: Tensor, groups: Tensor, *changing: Tensor
    ) -> tuple[Tensor, ...]:
        """Losses [B], whether gradients are finite [B], the private gradient [D] and, if a step of
        the optimiser is an addition, the parameters after it [D]."""
        total, *report = self._sums(inputs, targets, groups)
        step: Any = copy(self)
        step.noise_multiplier, rate, *noise = changing
        step.noise_stream = PlacedStream(*noise) if len(noise) > 1 else DrawnStream(*noise)
        start = self.engine.parameters.theta.detach()
        noisy, _ = step._with_noise(self.clip.finish(total).to(start))
        gradient = self.update(noisy.div_(self._divisor(len(targets))), start)
        moved = [start.addcmul(gradient, rate)] if descends(self.optimizer) else []
        return (*report, gradient, *moved)

    def _replay(self, graph: Operations, batch: Batch) -> StepReport:
        self.replayed["steps"] += 1
        theta = self.engine.parameters.theta
        with torch.no_grad():
            losses, finite, gradient, *moved = graph(*self._inputs(batch, self.noise_stream))
        if moved:
            theta.detach().copy_(moved[0])
        else:
            theta.grad = gradient.clone()
            eager_step(self.optimizer)
        self.released = self._state_after(self.released.steps_done + 1, gradient)
        self._apply_schedule()
        return StepReport(losses, finite)


def _noise(stream: Stream, size: int) -> tuple[Tensor, ...]:
    """Key and place of the next draws [size], where a graph makes them; else the draws."""
    if isinstance(stream, GpuStream) and noise_kernel():
        return stream.key, torch.full_like(stream.place, stream.taken(size))
    return (draws(stream, size, torch.special.ndtri),)


def obstacle(step: PrivateStep, batch: Batch) -> str:
    """Why sums over such a batch cannot be a graph, as a clause; "" if nothing is known."""
    clip, name = step.clip, step.method.name
    found = {
        f"engine={step.engine.name} is not ghost": not isinstance(step.engine, Ghost),
        f"{name} computes its own gradients": type(step.gradient) is not PerExample,
        f"the clip of {name} changes": bool(clip.query or clip.memory) or clip is not step._clip,
        "batches are of users": batch.present is not None,
    }
    return next((why for why, is_so in found.items() if is_so), "")


def is_one_graph(step: PrivateStep, batch: Batch) -> bool:
    """Whether what follows the sums of a step can be in its graph, too: noise and update without
    state, on a batch that is not split."""
    return (
        type(step.method.noise) is Gaussian
        and type(step.update).advance is Update.advance
        and not isinstance(step.clip.sensitivity.bound, Tensor)
        and step.recorder is None
        and step.physical.lengths is None
        and len(batch) <= (step.physical.size or len(batch))
    )


def captured(operations: Operations, inputs: tuple[Tensor, ...]) -> Operations:
    """The operations on tensors like the inputs, without the Python code that chose them."""
    from torch._dynamo.backends.cudagraphs import cudagraphs_inner
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.autograd.set_multithreading_enabled(False):
        traced = make_fx(operations, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    with torch.no_grad():
        if inputs[0].is_cuda:
            return cudagraphs_inner(traced, inputs)
        graph = torch.compile(traced, backend="aot_eager", fullgraph=True, dynamic=False)
        graph(*inputs)
    return graph
