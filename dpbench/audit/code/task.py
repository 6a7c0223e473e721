"""What audited code is given, and what it is taken to claim."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from dpbench.mechanism.method import GRADIENT_SUM
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step


class Batch(NamedTuple):
    """Examples: inputs [n, features] float32, targets [n] float32."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def without(self, i: int) -> "Batch":
        """The batch without its example i."""
        return self.at([k for k in range(len(self)) if k != i])

    def scaled(self, factor: float) -> "Batch":
        """The examples with larger inputs."""
        return Batch(factor * self.inputs, self.targets)

    def at(self, indices) -> "Batch":
        """The examples with these indices."""
        return Batch(self.inputs[indices], self.targets[indices])


@dataclass(frozen=True)
class Task:
    """What a factory is called with.

    features: numbers per input. inputs [n, features], targets [n]: the data of a training, empty
    for a step. batch_size: the expected one, by which the noisy sum is divided. sample_rate,
    noise_multiplier, bound: of DP-SGD. physical_batch_size: for code that accumulates gradients.
    """

    features: int
    inputs: Tensor
    targets: Tensor
    batch_size: float
    sample_rate: float
    noise_multiplier: float
    bound: float
    steps: int
    learning_rate: float
    physical_batch_size: int
    seed: int


@dataclass(frozen=True)
class Claim:
    """DP-SGD as the code is said to carry it out, for the epsilon of `steps` steps at `delta`."""

    noise_multiplier: float = 1.0
    bound: float = 1.0
    sample_rate: float = 0.125
    steps: int = 40
    delta: float = 1e-5

    def ledger(self, sample_rate: float, steps: int) -> Ledger:
        """So many of its steps, at a sampling rate."""
        release = Release(GRADIENT_SUM, GaussianMechanism(self.noise_multiplier))
        return Ledger().after(Step(Poisson(sample_rate), (release,)), steps)
