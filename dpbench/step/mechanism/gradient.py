"""The gradient of a step: from a physical batch to the gradients that are clipped."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.step.clipping import Clip, Part
from dpbench.step.gradients import Engine, Gradients


class ReleasedState(NamedTuple):
    """What a run has released so far: reusing it is post-processing and costs no privacy.

    gradient: the private gradient of the last step [D], as passed to the optimiser; None before the
    first step. seed: of the method's random draws; like steps_done, it is the same for all physical
    batches of a step. expected_batch_size: the public one, by which sums are divided. update: that
    of the step, as the last step left it.
    """

    steps_done: int
    steps_planned: int
    gradient: Tensor | None
    seed: int = 0
    expected_batch_size: float = 1.0
    update: Part | None = None

    @property
    def progress(self) -> float:
        """The fraction of the planned steps that are done."""
        return min(self.steps_done / self.steps_planned, 1.0)


class Gradient(Part, ABC):
    """Computes the gradients of a physical batch that are clipped.

    The defaults are for a gradient without state of its own. of_loss: whether it is the gradient of
    the run's loss, which may weight classes. of_parameters: whether it is a gradient of the
    parameters, and not something else that is clipped, such as moments.
    """

    of_loss: ClassVar[bool] = True
    of_parameters: ClassVar[bool] = True

    @abstractmethod
    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        """The gradients of a batch; clip: the one that follows."""

    def advance(self, theta: Tensor, counts: Tensor | None) -> Self:
        """The gradient for the next step, by what this one released.

        theta [D]: the parameters before the step, to be copied if they are stored. counts [Q]: the
        noisy answer to the clip's query, per expected example; None without a query. All state is
        in tensor fields.
        """
        return self


@dataclass(frozen=True)
class PerExample(Gradient):
    """The gradient of each example's loss at the current parameters."""

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        return engine(batch)
