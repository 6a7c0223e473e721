"""Opacus by its public interface, `PrivacyEngine.make_private`, on canaries."""

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpbench.audit.peers.peer import PeerTask, StepRelease

BOUND = 1.0

ADAPTIVE: dict[str, Any] = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 1e-3,
    "max_clipbound": 1e3,
    "min_clipbound": 1e-3,
}
"""Adaptive clipping with a bound that hardly moves, so that all steps are alike; it also needs a
noise multiplier of its counts."""


@dataclass(frozen=True)
class OpacusSettings:
    """Settings of Opacus. poisson: False for shuffled batches. column: whether losses are [B, 1]
    rather than [B]. adaptive: whether the clipping bound is."""

    label: str
    mode: str = "hooks"
    poisson: bool = True
    column: bool = False
    adaptive: bool = False


class Opacus:
    """The module, loss, optimiser and loader that `make_private` returns, and the accountant."""

    accountant = "its PRV"

    def __init__(self, task: PeerTask, settings: OpacusSettings):
        from opacus import PrivacyEngine

        self.library = f"Opacus {version('opacus')} ({settings.label})"
        self._task = task
        model = _model(task.size, settings.column)
        with warnings.catch_warnings(action="ignore"):  # that secure_mode is off, as by default
            self._engine = PrivacyEngine()
        adaptive = ADAPTIVE | {"unclipped_num_std": task.noise_multiplier}
        more = adaptive if settings.adaptive else {}
        private = self._engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
            criterion=nn.MSELoss(),
            data_loader=_loader(task, settings),
            noise_multiplier=task.noise_multiplier,
            max_grad_norm=BOUND,
            poisson_sampling=settings.poisson,
            grad_sample_mode=settings.mode,
            **more,
        )
        self._model, self._optimizer, *_ = private
        self._criterion = private[2] if len(private) == 4 else nn.MSELoss()
        self._loader = private[-1]

    def steps(self) -> Iterator[StepRelease]:
        batches = itertools.chain.from_iterable(itertools.repeat(self._loader))
        for inputs, targets in itertools.islice(batches, self._task.steps):
            yield self._step(inputs, targets)

    def _step(self, inputs: Tensor, targets: Tensor) -> StepRelease:
        bound = float(self._optimizer.max_grad_norm)
        self._optimizer.zero_grad()
        with warnings.catch_warnings(action="ignore"):  # of torch, of hooks without input gradients
            self._criterion(self._model(inputs), targets).backward()
        self._optimizer.step()
        (weights,) = self._optimizer.params
        noisy = weights.grad.flatten().double() * self._optimizer.expected_batch_size / bound
        return StepRelease(noisy, float(self._optimizer.max_grad_norm) / bound)

    def history(self) -> list[tuple[float, float, int]]:
        return list(self._engine.accountant.history)

    def epsilon(self, delta: float) -> float:
        with np.errstate(divide="ignore"):  # Opacus takes log(1 - rate), also at a rate of 1
            return float(self._engine.get_epsilon(delta))


def _model(size: int, column: bool) -> nn.Module:
    """One parameter for each canary; inputs [B, 1] are canaries' numbers. column: whether outputs
    are [B, 1], as from a last layer with one unit, rather than [B]."""
    numbers = nn.Embedding(size, 1)
    nn.init.zeros_(numbers.weight)
    return nn.Sequential(numbers, nn.Flatten(1 if column else 0))


def _loader(task: PeerTask, settings: OpacusSettings) -> DataLoader:
    """The loader to be made private, with about 1/rate batches."""
    targets = task.targets.unsqueeze(1) if settings.column else task.targets
    examples = TensorDataset(task.numbers.unsqueeze(1), targets)
    size = max(1, round(len(examples) * task.rate))
    return DataLoader(examples, batch_size=size, shuffle=not settings.poisson)
