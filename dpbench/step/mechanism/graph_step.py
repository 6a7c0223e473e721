"""A private step as one graph: its Python code runs once for each size of a batch.

What the code does with tensors is captured and then replayed, which takes one call where a step has
hundreds. A graph would repeat every number of Python of the step that it was made of, so those that
change are tensors that it is given: learning rate, noise multiplier, and the noise itself.
"""

import warnings
from collections.abc import Callable, Hashable
from copy import copy

import torch
from torch import Tensor

from dpbench.learning.data.dataset import Batch
from dpbench.step.clipping import Clip
from dpbench.step.gradients.choice import EngineFallback
from dpbench.step.gradients.ghost import Ghost
from dpbench.step.gradients.precision import in_full_precision
from dpbench.step.mechanism.draws import draws
from dpbench.step.mechanism.eager import descends, eager_step
from dpbench.step.mechanism.gradient import PerExample
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.step import PrivateStep, StepReport
from dpbench.step.mechanism.streams import DrawnStream, Stream
from dpbench.step.mechanism.update import Update
from dpbench.system.errors import first_line
from dpbench.system.seeds import torch_state_kept

Graph = Callable[..., tuple[Tensor, ...]]

MOST = 4
"""Graphs of a run: each keeps a step's memory on a GPU."""


class GraphStep(PrivateStep):
    """A private step whose operations are captured at the second batch of a size.

    The first one takes the step as ever, so that its rows are followed. why: why other steps were
    not replayed; "" if nothing prevents it. replayed: how many were.
    """

    why = ""
    replayed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._graphs: dict[Hashable, Graph | None] = {}
        self._sizes: set[int] = set()

    @in_full_precision
    def __call__(self, batch: Batch) -> StepReport:
        graph = self._graph_for(batch)
        return super().__call__(batch) if graph is None else self._replay(graph, batch)

    def _graph_for(self, batch: Batch) -> Graph | None:
        """The graph of a step on such a batch; None where there is none, or not yet."""
        if why := obstacle(self, batch):
            return self._refuse(why)
        if len(batch) not in self._sizes:
            self._sizes.add(len(batch))
            return None
        assert isinstance(self.engine, Ghost)
        if (kind := self.engine.settled(batch)) is None:
            return self._refuse(f"{self.engine.alone or 'the operations of a pass may change'}")
        dtypes = batch.inputs.dtype, batch.targets.dtype
        key = (kind, len(batch), dtypes, descends(self.optimizer))
        if key not in self._graphs:
            if len(self._graphs) == MOST:
                return self._refuse(f"batches have more than {MOST} sizes")
            self._graphs[key] = self._captured(batch)
        return self._graphs[key]

    def _refuse(self, why: str) -> None:
        if why != self.why:
            self.why = why
            warnings.warn(f"engine.graph: not all steps are graphs: {why}.", EngineFallback, 3)

    def _captured(self, batch: Batch) -> Graph | None:
        """The graph of a step on such a batch; None if torch cannot capture it."""
        inputs = self._inputs(batch, self.noise_stream.derived("not released"))
        try:
            with torch_state_kept(batch.targets.device):
                return captured(lambda *given: self._operations(*given), inputs)
        except Exception as error:
            return self._refuse(f"torch cannot capture it ({first_line(error)})")

    def _inputs(self, batch: Batch, stream: Stream) -> tuple[Tensor, ...]:
        """What changes from step to step, as tensors; noise from a stream."""
        theta = self.engine.parameters.theta
        rate = -self.optimizer.param_groups[0]["lr"] if descends(self.optimizer) else 0.0
        return (
            *(batch.inputs, batch.targets, batch.groups),
            torch.full((), self.noise_multiplier, dtype=torch.float64, device=theta.device),
            torch.full((), rate, dtype=theta.dtype, device=theta.device),
            draws(stream, len(theta), torch.special.ndtri),
        )

    def _operations(
        self, inputs: Tensor, targets: Tensor, groups: Tensor, multiplier: Tensor, rate: Tensor,
        noise: Tensor,
    ) -> tuple[Tensor, ...]:
        """Losses [B], whether gradients are finite [B], the private gradient [D] and, if a step of
        the optimiser is an addition, the parameters after it."""
        step = copy(self)
        step.noise_multiplier, step.noise_stream = multiplier, DrawnStream(noise)
        part, start = Batch(inputs, targets, groups), self.engine.parameters.theta.detach()
        result = step.clipped_sum(self.engine(part), part)
        noisy, _ = step._with_noise(self.clip.finish(result.total).to(start))
        gradient = self.update(noisy.div_(self._divisor(len(part))), start)
        moved = [start.addcmul(gradient, rate)] if descends(self.optimizer) else []
        return (*result.report, gradient, *moved)

    def _replay(self, graph: Graph, batch: Batch) -> StepReport:
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
        self.replayed += 1
        return StepReport(losses, finite)


def obstacle(step: PrivateStep, batch: Batch) -> str:
    """Why a step on a batch cannot be a graph, as a clause; "" if nothing is known against it."""
    clip, size, name = step.clip, step.physical.size, step.method.name
    other = isinstance(clip.sensitivity.bound, Tensor) or clip is not step._clip
    return next(
        (
            why
            for why, found in (
                (f"engine={step.engine.name} is not ghost", not isinstance(step.engine, Ghost)),
                (f"{name} computes its own gradients", type(step.gradient) is not PerExample),
                (f"the clip of {name} changes", bool(clip.query or clip.memory) or other),
                (f"{name} has noise of its own", type(step.method.noise) is not Gaussian),
                (f"{name} keeps state", type(step.update).advance is not Update.advance),
                ("an audit records what is released", step.recorder is not None),
                ("batches are of users", batch.present is not None),
                ("batches are split", bool(step.physical.lengths) or len(batch) > (size or len(batch))),
            )
            if found
        ),
        "",
    )


def captured(operations: Graph, inputs: tuple[Tensor, ...]) -> Graph:
    """The operations on tensors like these inputs, without the Python code that chose them."""
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
