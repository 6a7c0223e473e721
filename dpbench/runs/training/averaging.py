"""A moving average of the weights, which can be evaluated instead of the last weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dpbench.system.validate import fraction


class MovingAverage:
    """The exponential moving average of parameters theta [D], updated after each step.

    average <- d average + (1 - d) theta with d = min(decay, (1 + t) / (10 + t)) at step t = 0, 1,
    ...: De et al. 2022, with the warm-up of TensorFlow's. It reads released parameters only, so it
    costs no privacy.
    """

    def __init__(self, decay: float, theta: nn.Parameter):
        self.decay = fraction("ema_decay", decay, zero=True)
        self.theta = theta
        self.average = theta.detach().clone()
        self._steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Include the current parameters."""
        decay = min(self.decay, (1 + self._steps) / (10 + self._steps))
        self.average.lerp_(self.theta, 1 - decay)
        self._steps += 1

    def state_dict(self) -> dict:
        return {"average": self.average, "steps": self._steps}

    def load_state_dict(self, state: dict) -> None:
        self.average, self._steps = state["average"].to(self.theta), state["steps"]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the context, the average replaces the parameters."""
        last: Tensor = self.theta.detach().clone()
        try:
            self.theta.data.copy_(self.average)
            yield
        finally:
            self.theta.data.copy_(last)
