"""opake, a functional library on torch.func: its clipped gradient and its Gaussian noise."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from dpbench.learning.data.examples import Batch

from .cases import Case
from .stepper import BOUND, LR, NOISE_MULTIPLIER, TorchStepper


class Opake(TorchStepper):
    """`clipped_grad` by vmap, then `gaussian_noise`, then the update in place."""

    def __init__(self, model: nn.Module, batches: Sequence[Batch]):
        from opake.dpsgd.clipping import clipped_grad
        from opake.random import key

        super().__init__(model, batches)
        self._parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        others = {n: p for n, p in model.named_parameters() if not p.requires_grad}

        def loss(parameters, inputs, target):
            outputs = functional_call(model, {**parameters, **others}, (inputs.unsqueeze(0),))
            return nn.functional.cross_entropy(outputs, target.unsqueeze(0))

        self._clipped, self._clip_state = clipped_grad(
            loss, clipping_norm=BOUND, normalize_by=1.0, batch_argnums=(1, 2)
        )
        self._key = key(0)
        self._noise_state: Any = None
        self.configure(LR, NOISE_MULTIPLIER)

    def __call__(self) -> None:
        batch = next(self.batches)
        values = {name: p.detach() for name, p in self._parameters.items()}
        total, self._clip_state = self._clipped(
            values, batch.inputs, batch.targets, state=self._clip_state
        )
        noisy, self._noise_state = self._noise(total, self._noise_state)
        for name, value in values.items():
            value.sub_(noisy.pytree[name], alpha=self._lr / self.expected_batch_size)

    def configure(self, lr: float, noise_multiplier: float) -> None:
        from opake.dpsgd.noise import gaussian_noise

        self._lr = lr
        noise = gaussian_noise(noise_multiplier=noise_multiplier, key=self._key)
        self._noise, self._noise_state = noise


def opake(case: Case, device: torch.device) -> Opake:
    """opake on a case; ImportError if it is not installed."""
    return Opake(case.build(device), case.batches(device))
