"""Logistic regression without a graph: the operations of torch's own forward and backward pass."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients.rows.torch_layers import FOR_ALL, HOOKS

aten = torch.ops.aten
forward, backward = aten.nll_loss_forward.default, aten.nll_loss_backward.default

PLAIN = [nn.Sequential, nn.Flatten, nn.Linear]
KINDS = (PLAIN, [*PLAIN, nn.Sigmoid])

IGNORED = -100
"""The class whose losses are 0, as in `torch.nn.functional.cross_entropy`."""


def is_logistic(model: nn.Module) -> bool:
    """Whether a model is one linear layer of torch, of which everything is trained; inputs are
    flattened before it, and outputs may be squashed by a sigmoid."""
    if kinds_of(model) not in KINDS:
        return False
    trained = all(type(p) is nn.Parameter and p.requires_grad for p in model.parameters())
    flatten: Any = next(model.children())
    return trained and (flatten.start_dim, flatten.end_dim) == (1, -1)


class LogisticRegression:
    """The passes of a model that `is_logistic`, under cross-entropy.

    hooks: how many its modules have, of which none changes a pass.
    """

    def __init__(self, model: nn.Module, hooks: int):
        self._model, self._hooks = model, hooks
        self._modules: list[Any] = [model, *model.children()]
        self._attributes = [*map(vars, self._modules)]
        self._parameters: dict[str, Any] = self._modules[2]._parameters
        self._places = [*FOR_ALL]
        for attributes in self._attributes:
            self._places += [attributes[kind] for kind in HOOKS]

    @property
    def _unchanged(self) -> bool:
        """Whether a pass still runs torch's code and those hooks alone."""
        modules = [self._model, *self._model._modules.values()]
        return (
            modules == self._modules
            and [*map(type, modules)] in KINDS
            and sum(map(len, self._places)) == self._hooks
            and not any("forward" in attributes for attributes in self._attributes)
        )

    def fits(self, batch: Batch) -> bool:
        """Whether `pass_of` gives what the model's pass would: for examples with a class each."""
        return (
            batch.present is None
            and batch.targets.dtype is torch.int64
            and not batch.inputs.requires_grad
            and not torch.is_autocast_enabled(batch.inputs.device.type)
            and self._unchanged
            and batch.inputs.dtype is self._parameters["weight"].dtype
        )

    def pass_of(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Of a batch that fits: losses [B], inputs [B, I] of the linear layer, and gradients [B, O]
        of its outputs."""
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        a = batch.inputs.flatten(1)
        outputs = F.linear(a, weight.detach(), None if bias is None else bias.detach())
        sigmoid = len(self._modules) > len(PLAIN)
        if sigmoid:
            outputs = outputs.sigmoid()
        logs, classes = outputs.log_softmax(1), batch.targets
        losses, total = forward(logs, classes, None, 0, IGNORED)
        b = backward(torch.ones_like(losses), logs, classes, None, 0, IGNORED, total)
        b = torch._log_softmax_backward_data(b, logs, 1, logs.dtype)
        return losses, a, aten.sigmoid_backward(b, outputs) if sigmoid else b


def kinds_of(model: nn.Module) -> list[type[nn.Module]]:
    """The types of a model and its children, of which KINDS has those of logistic regression."""
    return [*map(type, (model, *model.children()))]
