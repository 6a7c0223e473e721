"""Opacus, in each of its four modes of per-example gradients."""

from collections.abc import Sequence

import torch
from torch import nn

from dpbench.learning.data.examples import Batch

from .cases import CannotBeTimed, Case
from .stepper import BOUND, LR, NOISE_MULTIPLIER, TorchStepper


class OpacusStepper(TorchStepper):
    """Opacus' wrapped module and optimiser; mode "ghost" takes two backward passes."""

    def __init__(self, model: nn.Module, batches: Sequence[Batch], mode: str):
        from opacus.grad_sample.utils import wrap_model
        from opacus.optimizers import get_optimizer_class
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        super().__init__(model, batches)
        ghost = mode == "ghost"
        more = {"max_grad_norm": BOUND} if ghost else {}
        self.wrapped = wrap_model(model, grad_sample_mode=mode, loss_reduction="mean", **more)
        self.optimizer = get_optimizer_class("flat", distributed=False, grad_sample_mode=mode)(
            torch.optim.SGD(self.trained, lr=LR),
            noise_multiplier=NOISE_MULTIPLIER,
            max_grad_norm=BOUND,
            expected_batch_size=self.expected_batch_size,
        )
        self.criterion = nn.CrossEntropyLoss()
        if ghost:
            self.criterion = DPLossFastGradientClipping(
                self.wrapped, self.optimizer, self.criterion
            )

    def __call__(self) -> None:
        batch = next(self.batches)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.criterion(self.wrapped(batch.inputs), batch.targets)
        loss.backward()
        self.optimizer.step()

    def configure(self, lr: float, noise_multiplier: float) -> None:
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.noise_multiplier = noise_multiplier


def opacus(case: Case, device: torch.device, mode: str) -> OpacusStepper:
    """Opacus on a case; ImportError if it is not installed, CannotBeTimed if it refuses the
    model."""
    try:
        return OpacusStepper(case.build(device), case.batches(device), mode)
    except NotImplementedError as error:
        several = isinstance(error.args[0], list)  # one for each layer
        why = error.args[0][0] if several else error
        raise CannotBeTimed(f"Opacus refuses the model: {why}") from error
