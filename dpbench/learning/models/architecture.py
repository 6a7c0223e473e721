"""The interface of architectures, and the loss of each task."""

import warnings
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.learning.models.modes import in_mode
from dpbench.system.errors import UserError, first_line
from dpbench.system.memory import is_out_of_memory
from dpbench.system.seeds import torch_state_kept
from dpbench.system.validate import quoted


class Architecture(Protocol):
    """A model whose input shape and number of classes are not yet known."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A model from inputs [B, *shape] to outputs [B, classes], freshly initialised."""


UNSUITABLE = "the model cannot be trained: "


def check_module(model: object) -> None:
    """UserError for what an architecture built that is no module, or none that can be trained on
    per-example gradients; a model on the meta device will do."""
    if not isinstance(model, nn.Module):
        raise UserError(
            f"{UNSUITABLE}build returned {quoted(model)}, and must return a torch.nn.Module."
        )
    for name, module in model.named_modules():
        what = f"{name or 'it'} ({type(module).__name__})"
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise UserError(
                f"{UNSUITABLE}{what} has sparse gradients, and noise is added to all parameters: "
                "build it with sparse=False."
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError(
                f"{UNSUITABLE}{what} is compiled by torch.jit, which hides its layers: return the "
                "module itself."
            )


def check_outputs(model: nn.Module, inputs: Tensor, classes: int, squashed: bool = False) -> None:
    """UserError unless the model's outputs for these inputs [B, ...] are [B, classes]. Warns of
    outputs that are probabilities, unless they are `squashed` on purpose."""
    for training in (True, False):
        with torch_state_kept(inputs.device), torch.no_grad(), in_mode(model, training):
            outputs = _outputs(model, inputs)
        _check_shape(outputs, len(inputs), classes)
    if classes > 1 and not squashed and _are_probabilities(model, inputs, outputs):
        warnings.warn(
            "the model's outputs for made-up inputs are probabilities, and the loss, calibration "
            "and predictions take them for logits: remove the softmax or sigmoid at its end, or "
            "all of them are of a softmax of a softmax.",
            stacklevel=2,
        )


def _are_probabilities(model: nn.Module, inputs: Tensor, outputs: Tensor) -> bool:
    """Whether outputs [B, K] sum to 1, or stay between 0 and 1 for much larger inputs."""
    if not ((outputs >= 0) & (outputs <= 1)).all():
        return False
    if torch.allclose(outputs.sum(1), torch.ones_like(outputs[:, 0]), atol=1e-3):
        return True
    if not inputs.is_floating_point() or not outputs.all():  # 0 is where a head begins
        return False
    with torch_state_kept(inputs.device), torch.no_grad(), in_mode(model, False):
        several = torch.cat([_outputs(model, scale * inputs) for scale in (-1, 100, -100)])
    return bool(((several >= 0) & (several <= 1)).all() and several.std() > 0)


def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's outputs; UserError where torch says that inputs and parameters do not fit."""
    try:
        return model(inputs)
    except (RuntimeError, ValueError, IndexError) as error:
        if is_out_of_memory(error):
            raise
        names = {str(dtype) for dtype in (inputs.dtype, *(p.dtype for p in model.parameters()))}
        types = ", ".join(sorted(name.removeprefix("torch.") for name in names))
        hint = f" and types {types}: store parameters as float32" if len(names) > 1 else ""
        raise UserError(
            f"{UNSUITABLE}it fails on inputs of shape {[*inputs.shape]}{hint} "
            f"({first_line(error, type(error).__name__)})."
        ) from error


def _check_shape(outputs: object, examples: int, classes: int) -> None:
    if not isinstance(outputs, Tensor) or outputs.shape != (examples, classes):
        given = [*outputs.shape] if isinstance(outputs, Tensor) else type(outputs).__name__
        raise UserError(
            f"the model's outputs for {examples} examples are {given} and must be a tensor of "
            f"shape {[examples, classes]}, one output for each class (or 1 for regression): "
            "build the model for the number of classes that it is given."
        )


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] in nats, from outputs [B, K] and class numbers [B]."""
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] in the targets' unit squared, from outputs [B, 1] and numbers [B]."""
    return (outputs.squeeze(1) - targets).square()


class ClassWeighted:
    """`cross_entropy`, weighted by class. weights: [K], which are in checkpoints."""

    def __init__(self, weights: Tensor):
        self.weights = weights

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weights = self.weights.to(outputs.device, outputs.dtype)
        return weights[targets] * cross_entropy(outputs, targets)

    def state_dict(self) -> dict:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict) -> None:
        self.weights = state["weights"]


def token_sum(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] of texts in nats, the sums over their tokens, which are the outputs [B, 1]."""
    return outputs.squeeze(1)


def token_mean(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [B] of texts in nats, the means over their tokens, from sums [B, 1] and the numbers of
    tokens [B]; 0 for a text of none."""
    return outputs.squeeze(1) / targets.clamp(min=1)


REDUCTIONS = {"mean": token_mean, "sum": token_sum}
"""The loss of a language model by what it is of its tokens' losses."""

LOSSES = {
    "classification": cross_entropy,
    "regression": squared_error,
    "language_model": token_mean,
}
"""The loss by the task of a data set."""
