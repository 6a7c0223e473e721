"""Continuous-time optimisers of Bu et al. (calibration), Appendices C.5 to C.7, in small steps.

Each maps the clipped gradient G = sum_i C_i g_i / n over time to the velocity of the weights. The
equations are those of da Silva and Gazeau 2020, which the paper uses; it writes G without 1/n,
which changes the unit of time. Every stationary point has G = 0, so Theorem 3 makes the same claim
for all of them: that the loss is zero there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dpbench.system.validate import Positive

Velocity = Callable[[Tensor], Tensor]
"""Maps the gradient G [D] at the next time to the velocity dw/dt [D]; stateful."""


class Dynamics(Protocol):
    """An optimiser in continuous time, before its first step."""

    def start(self, dt: float) -> Velocity:
        """The velocity from rest at time 0, in steps of dt."""


@dataclass(frozen=True)
class Descent:
    """dw/dt = -G (Equation 4.2)."""

    def start(self, dt: float) -> Velocity:
        return torch.neg


@dataclass(frozen=True)
class HeavyBall:
    """dw/dt = -m and dm/dt = G - r m (Equations C.1 and C.2). friction: r."""

    friction: Positive

    def start(self, dt: float) -> Velocity:
        return _with_momentum(dt, lambda time: self.friction)


@dataclass(frozen=True)
class Nesterov:
    """Like the heavy ball, with r(t) = 3/t (Equations C.1 and C.2)."""

    def start(self, dt: float) -> Velocity:
        return _with_momentum(dt, lambda time: 3 / time)


@dataclass(frozen=True)
class Adam:
    """dw/dt = -m / sqrt(v + xi), dm/dt = G - m/a1, dv/dt = (G^2 - v)/a2 (Equations C.4 to C.6).

    memory, square_memory: a1 and a2, in units of time.
    """

    memory: Positive
    square_memory: Positive
    xi: Positive

    def start(self, dt: float) -> Velocity:
        momentum = _with_momentum(dt, lambda time: 1 / self.memory)
        scale = _root_of_squares(dt, 1 / self.square_memory, 1 / self.square_memory, self.xi)
        return lambda gradient: momentum(gradient) / scale(gradient)


@dataclass(frozen=True)
class AdaGrad:
    """dw/dt = -G / sqrt(v + xi), dv/dt = G^2 (Equations C.7 and C.8 with p = 1 and q = 0)."""

    xi: Positive

    def start(self, dt: float) -> Velocity:
        scale = _root_of_squares(dt, 1.0, 0.0, self.xi)
        return lambda gradient: -gradient / scale(gradient)


@dataclass(frozen=True)
class RmsProp:
    """dw/dt = -G / sqrt(v + xi), dv/dt = (G^2 - v)/a (Equations C.7 and C.8 with p = q = 1/a)."""

    square_memory: Positive
    xi: Positive

    def start(self, dt: float) -> Velocity:
        scale = _root_of_squares(dt, 1 / self.square_memory, 1 / self.square_memory, self.xi)
        return lambda gradient: -gradient / scale(gradient)


def _with_momentum(dt: float, friction: Callable[[float], float]) -> Velocity:
    """-m for dm/dt = G - r(t) m, with an implicit step for the friction: r(0) may be infinite."""
    time, momentum = 0.0, torch.zeros(())

    def velocity(gradient: Tensor) -> Tensor:
        nonlocal time, momentum
        time += dt
        momentum = (momentum + dt * gradient) / (1 + dt * friction(time))
        return -momentum

    return velocity


def _root_of_squares(dt: float, gain: float, loss: float, xi: float) -> Velocity:
    """sqrt(v + xi) for dv/dt = p G^2 - q v, with an implicit step; gain: p, loss: q."""
    squares = torch.zeros(())

    def scale(gradient: Tensor) -> Tensor:
        nonlocal squares
        squares = (squares + dt * gain * gradient.square()) / (1 + dt * loss)
        return (squares + xi).sqrt()

    return scale
