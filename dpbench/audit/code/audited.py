"""The code under audit: called with tasks, and heard by the parameters that it releases."""

import random
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.audit.code.examples import LENGTH, Examples, MadeUp, one_hot
from dpbench.audit.code.task import Batch, Claim, Task
from dpbench.system.errors import UserError
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
    claim: Claim
    by_real_size: bool = False
    seed: int = 0
    examples: Examples = field(default_factory=MadeUp)
    kind: ClassVar[str]

    @abstractmethod
    def sums(self, batch: Batch, steps: int = 1, draws: int = 0, **settings: Any) -> Tensor:
        """The noisy sums [steps, D] in units of the bound, of steps that each use all examples.

        draws: a seed of the global generators for all that follows the initial parameters.
        settings: of the task, such as noise_multiplier.
        """

    def exact_sum(self, batch: Batch, **settings: Any) -> Tensor:
        """The sum [D] of the examples, with negligible noise."""
        return self.sums(batch, **{"noise_multiplier": NEGLIGIBLE, **settings})[0]

    def task(self, data: Batch, **settings: Any) -> Task:
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

    @contextmanager
    def _called(self, task: Task) -> Iterator[None]:
        """Within the context, the code's own errors are told, its warnings are not, what it prints
        is no result, and global generators are seeded."""
        kept = torch_state_kept(torch.device("cpu"))
        with kept, warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            seed_globally(task.seed)
            try:
                yield
            except UserError:
                raise
            except Exception as error:
                raise UserError(told(self.name, error)) from error


def seed_globally(seed: int) -> None:
    """Seed the global generators of torch, NumPy and Python, from which audited code may draw."""
    number = derived(seed, "audited code")
    torch.manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


def told(name: str, error: BaseException) -> str:
    """An error of the audited code in one sentence, with its last line that is in no library."""
    passed = traceback.extract_tb(error.__traceback__)
    own = [f for f in passed if f.filename != __file__ and "site-packages" not in f.filename]
    where = f" (line {own[-1].lineno} of {own[-1].filename})" if own else ""
    return f"{name} raised {type(error).__name__}: {error!s:.200}{where}; correct it first."


def movement(before: Tensor, after: Tensor, task: Task, size: float) -> Tensor:
    """The noisy sum by which parameters moved, in units of the bound. size: its divisor."""
    return (before - after) * size / (task.learning_rate * task.bound)


class AuditedStep(Audited):
    """A factory of a model and a step: `model, step = factory(task)`, `step(inputs, targets)`."""

    kind = "step"

    def sums(self, batch: Batch, steps: int = 1, draws: int = 0, **settings: Any) -> Tensor:
        return self.sums_of([batch] * steps, draws, **settings)

    def sums_of(self, batches: Sequence[Batch], draws: int = 0, **settings: Any) -> Tensor:
        """The noisy sums [steps, D] of steps on these batches."""
        return torch.stack([*self.released(batches, draws, **settings)])

    def released(self, batches: Sequence[Batch], draws: int = 0, **settings: Any) -> Iterator:
        """The noisy sum [D] of each step."""
        task = self.task(batches[0].at([]), **settings)
        with self._called(task):
            model, step = self._parts(task)
            seed_globally(derived(task.seed, f"steps {draws}"))
            before = flat(model)
            for inputs, targets in batches:
                returned = step(inputs, targets)
                after = flat(model if returned is None else returned)
                size = max(1.0, len(targets)) if self.by_real_size else task.batch_size
                yield movement(before, after, task, size)
                before = after

    def _parts(self, task: Task) -> tuple[Any, Callable]:
        parts = self.factory(task)
        if not (isinstance(parts, tuple) and len(parts) == 2 and callable(parts[1])):
            raise UserError(f"{self.name} must return a pair: a model, and a function of a batch.")
        return parts


class AuditedTraining(Audited):
    """A generator of released parameters: the initial ones, and those after each step."""

    kind = "training"

    def sums(self, batch: Batch, steps: int = 1, draws: int = 0, **settings: Any) -> Tensor:
        size = float(len(batch))
        settings = {"sample_rate": 1.0, "batch_size": size, "steps": steps, **settings}
        return self.train(batch, draws, **settings)

    def train(self, data: Batch, draws: int = 0, **settings: Any) -> Tensor:
        """The noisy sums [T, D] of a training; T is the number of steps that it took."""
        return torch.stack([*self.released(data, draws, **settings)])

    def released(self, data: Batch, draws: int = 0, **settings: Any) -> Iterator[Tensor]:
        """The noisy sum [D] of each step of a training, as many as planned at most."""
        expected = settings.get("sample_rate", self.claim.sample_rate) * len(data)
        task = self.task(data, **{"batch_size": expected, **settings})
        with self._called(task):
            trained = iter(self._trained(task))
            before = flat(next(trained))
            seed_globally(derived(task.seed, f"steps {draws}"))
            for released in islice(trained, task.steps):
                after = flat(released)
                yield movement(before, after, task, task.batch_size)
                before = after

    def _trained(self, task: Task) -> Iterator:
        trained = self.factory(task)
        if not isinstance(trained, Iterator):
            raise UserError(f"{self.name} must be a generator: yield the parameters of each step.")
        return trained
