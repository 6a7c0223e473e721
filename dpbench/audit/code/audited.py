"""The code under audit: called with tasks, and heard by the parameters that it releases."""

import random
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.audit.code.examples import LENGTH, ExampleBatches, MadeUp, one_hot
from dpbench.audit.code.task import AuditBatch, ClaimedDpsgd, Task, reporting_errors
from dpbench.system.errors import UserError, counted
from dpbench.system.seeds import derived, torch_state_kept

NEGLIGIBLE = 2.0**-20
"""The noise multiplier at which a sum is heard as if without noise; code may refuse 0."""

STEP_BATCH_SIZE = 64.0
"""The expected batch size of single steps: a power of two, so that dividing by it loses no bit."""


def flat(released: Any) -> Tensor:
    """All parameters of a model, a mapping, a list or an array as one vector [D] float64."""
    if isinstance(released, nn.Module):
        released = list(released.parameters())
    if isinstance(released, Mapping):
        released = list(released.values())
    if isinstance(released, list | tuple):
        return torch.cat([flat(part) for part in released])
    values = released.detach() if isinstance(released, Tensor) else np.asarray(released)
    return torch.as_tensor(values).to("cpu", torch.float64, copy=True).flatten()


@dataclass(frozen=True, eq=False)
class Audited(ABC):
    """Audited code: its name, its factory, and what it claims.

    by_real_size: whether it is known to divide its sum by the real size of a batch. seed: from
    which those of all tasks are derived. examples: on which it is audited.
    """

    name: str
    factory: Callable[[Any], Any]
    claim: ClaimedDpsgd
    by_real_size: bool = False
    seed: int = 0
    examples: ExampleBatches = field(default_factory=MadeUp)
    kind: ClassVar[str]

    @abstractmethod
    def noisy_sums(
        self, batch: AuditBatch, steps: int = 1, draws: int | None = 0, **settings: Any
    ) -> Iterator[Tensor]:
        """The noisy sum [D] in units of the bound, of each step; each step uses all examples.

        draws: a seed of the global generators for all that follows the initial parameters, None to
        leave them as they are. settings: of the task, such as noise_multiplier.
        """

    @abstractmethod
    def model_after(self, batch: AuditBatch) -> Any:
        """What a step on a batch leaves: a model, or parameters in any form."""

    def sums(
        self, batch: AuditBatch, steps: int = 1, draws: int | None = 0, **settings: Any
    ) -> Tensor:
        """The noisy sums [steps, D] of all steps."""
        return torch.stack([*self.noisy_sums(batch, steps, draws, **settings)])

    def exact_sum(self, batch: AuditBatch, **settings: Any) -> Tensor:
        """The sum [D] of the examples, with negligible noise."""
        return self.sums(batch, **{"noise_multiplier": NEGLIGIBLE, **settings})[0]

    def task(self, data: AuditBatch, **settings: Any) -> Task:
        """The claimed task on these data, unless the settings say otherwise."""
        claim = self.claim
        usual = {
            "noise_multiplier": claim.noise_multiplier,
            "bound": claim.bound,
            "sample_rate": claim.sample_rate,
            "batch_size": STEP_BATCH_SIZE,
            "steps": claim.steps,
            "learning_rate": 1.0,
            "physical_batch_size": 64,
            "seed": 0,
        }
        settings = {**usual, **settings}
        settings["seed"] = derived(settings["seed"], f"tasks {self.seed}") % 2**31
        return Task(data.inputs.shape[1:].numel(), *data, **settings)

    @cached_property
    def is_linear(self) -> bool:
        """Whether a made-up example with one input moves only the parameter of this input."""
        if not self.examples.made_up:
            return False
        alone = self.exact_sum(one_hot([1, 3], LENGTH * self.claim.bound, 4))
        return len(alone) == 4 and bool((alone[[0, 2]].abs() < 0.01).all() and alone.any())

    def _movement(self, before: Tensor, after: Tensor, task: Task, size: float) -> Tensor:
        """The noisy sum by which parameters moved, in units of the bound. size: its divisor."""
        if len(before) != len(after):
            raise UserError(
                f"{self.name} released {counted(len(before), 'number')}, and then {len(after)}: "
                "release all parameters each time, and nothing else."
            )
        return (before - after) * size / (task.learning_rate * task.bound)

    @contextmanager
    def _called(self, task: Task) -> Iterator[None]:
        """Within the context, the code's own errors are told, its warnings are not, what it prints
        is no result, and global generators are seeded."""
        kept = torch_state_kept(torch.device("cpu"))
        quiet = redirect_stdout(sys.stderr)
        with reporting_errors(self.name), kept, warnings.catch_warnings(action="ignore"), quiet:
            seed_globally(task.seed)
            yield


def seed_steps(task: Task, draws: int | None) -> None:
    """Seed the global generators for what follows the initial parameters, unless draws is None."""
    if draws is not None:
        seed_globally(derived(task.seed, f"steps {draws}"))


def seed_globally(seed: int) -> None:
    """Seed the global generators of torch, NumPy and Python, from which audited code may draw."""
    number = derived(seed, "audited code")
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


class StoppedEarly(UserError):
    """A training that released fewer steps than planned."""


def parameters_after(model: Any, returned: Any, number: int) -> Tensor:
    """The parameters after a step: what it returned if that is so many numbers, else the model's
    (a step may return its loss, or nothing)."""
    with suppress(TypeError, ValueError, RuntimeError):
        if len(values := flat(returned)) == number:
            return values
    return flat(model)


class AuditedStep(Audited):
    """A factory of a model and a step: `model, step = factory(task)`, `step(inputs, targets)`."""

    kind = "step"

    def noisy_sums(
        self, batch: AuditBatch, steps: int = 1, draws: int | None = 0, **settings: Any
    ) -> Iterator[Tensor]:
        return self.released([batch] * steps, draws, **settings)

    def sums_of(self, batches: Sequence[AuditBatch], **settings: Any) -> Tensor:
        """The noisy sums [steps, D] of steps on these batches."""
        return torch.stack([*self.released(batches, **settings)])

    def released(
        self, batches: Sequence[AuditBatch], draws: int | None = 0, **settings: Any
    ) -> Iterator[Tensor]:
        """The noisy sum [D] of each step."""
        task = self.task(batches[0].at([]), **settings)
        with self._called(task):
            model, step = self._parts(task)
            seed_steps(task, draws)
            before = flat(model)
            for inputs, targets in batches:
                after = parameters_after(model, step(inputs, targets), len(before))
                size = max(1.0, len(targets)) if self.by_real_size else task.batch_size
                yield self._movement(before, after, task, size)
                before = after

    def model_after(self, batch: AuditBatch) -> Any:
        task = self.task(batch.at([]))
        with self._called(task):
            model, step = self._parts(task)
            step(*batch)
        return model

    def _parts(self, task: Task) -> tuple[Any, Callable]:
        parts = self.factory(task)
        if not (isinstance(parts, tuple) and len(parts) == 2 and callable(parts[1])):
            raise UserError(f"{self.name} must return a pair: a model, and a function of a batch.")
        return parts


class AuditedTraining(Audited):
    """A generator of released parameters: the initial ones, and those after each step."""

    kind = "training"

    def noisy_sums(
        self, batch: AuditBatch, steps: int = 1, draws: int | None = 0, **settings: Any
    ) -> Iterator[Tensor]:
        size = float(len(batch))
        settings = {"sample_rate": 1.0, "batch_size": size, "steps": steps, **settings}
        return self.released(batch, draws, **settings)

    def train(self, data: AuditBatch, **settings: Any) -> Tensor:
        """The noisy sums [T, D] of a training of T steps."""
        return torch.stack([*self.released(data, **settings)])

    def released(
        self, data: AuditBatch, draws: int | None = 0, **settings: Any
    ) -> Iterator[Tensor]:
        """The noisy sum [D] of each step of a training; StoppedEarly after fewer than planned."""
        expected = settings.get("sample_rate", self.claim.sample_rate) * len(data)
        task = self.task(data, **{"batch_size": expected, **settings})
        with self._called(task):
            trained = self._trained(task)
            before = self._next(trained, "before its initial parameters")
            seed_steps(task, draws)
            for taken in range(task.steps):
                after = self._next(trained, f"after {taken} of {task.steps} steps")
                yield self._movement(before, after, task, task.batch_size)
                before = after

    def model_after(self, batch: AuditBatch) -> Any:
        task = self._of_all(batch)
        with self._called(task):
            return [None, *islice(self._trained(task), 2)][-1]

    def _of_all(self, data: AuditBatch) -> Task:
        """Every batch is of all data: a share of few could be less than one example."""
        return self.task(data, sample_rate=1.0, batch_size=float(len(data)))

    def initial(self, data: AuditBatch) -> Tensor:
        """The initial parameters [D] of a training on these data."""
        task = self._of_all(data)
        with self._called(task):
            return self._next(self._trained(task), "before its initial parameters")

    def _next(self, trained: Iterator, when: str) -> Tensor:
        for parameters in trained:
            return flat(parameters)
        raise StoppedEarly(f"{self.name} stopped {when}: release all, whatever the data.")

    def _trained(self, task: Task) -> Iterator:
        trained = self.factory(task)
        if not isinstance(trained, Iterator):
            raise UserError(f"{self.name} must be a generator: yield the parameters of each step.")
        return trained
