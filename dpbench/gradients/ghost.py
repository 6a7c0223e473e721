"""The fast engine: one forward and one backward pass, with book-keeping instead of gradients.

The backward pass stops at the modules' outputs; parameter gradients are never computed for the
batch. Each module's inputs and output gradients give the norms, and with the clipping factors
known, the clipped sum in one product per module (Bu et al. 2023, "Differentially private
optimization on large model at small cost", book-keeping).
"""

from functools import cached_property

import torch
from torch import Tensor, nn

from dpbench.data.dataset import Batch
from dpbench.gradients.engine import Loss, Stacked
from dpbench.gradients.layers import RULES, LayerGradient
from dpbench.gradients.parameters import Parameters


class Unsupported(Exception):
    """Why book-keeping cannot be done for a model."""


class Ghost:
    """Per-example gradients by book-keeping, for models made of the modules in `layers.RULES`."""

    name = "ghost"

    def __init__(self, model: nn.Module, loss: Loss, parameters: Parameters):
        self.model, self.loss, self.parameters = model, loss, parameters
        self._seen: list[tuple[nn.Module, Tensor, Tensor, int]] | None = None
        self._modules = [model.get_submodule(layer.name) for layer in parameters.layers]
        for layer, module in zip(parameters.layers, self._modules, strict=True):
            _refuse(layer.name, module)
        if len(dict(model.named_parameters(remove_duplicate=False))) > len(
            dict(model.named_parameters())
        ):
            raise Unsupported("weights are tied")
        for module in self._modules:
            module.register_forward_hook(self._note)

    def _note(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if self._seen is not None:
            if not inputs:
                raise Unsupported("a module is called with keyword arguments")
            self._seen.append((module, inputs[0].detach(), output, output._version))

    def __call__(self, batch: Batch) -> "GhostGradients | Stacked":
        theta = self.parameters.theta
        if not len(batch):
            empty = theta.new_zeros(0, len(self.parameters))
            return Stacked(theta.new_zeros(0), empty, self.parameters.layers)
        self._seen = []
        try:
            losses = self.loss(self.model(batch.inputs), batch.targets)
            seen = self._in_order(self._seen, len(batch))
        finally:
            self._seen = None
        outputs = [output for _, _, output, _ in seen]
        adjoints = torch.autograd.grad(losses.sum(), outputs, materialize_grads=True)
        with torch.no_grad():
            rules = [
                RULES[type(module)](module, a, b)
                for (module, a, _, _), b in zip(seen, adjoints, strict=True)
            ]
        return GhostGradients(losses.detach(), rules, self.parameters)

    def _in_order(self, seen: list, examples: int) -> list:
        """What was seen, in the order of theta, once per module and unchanged since."""
        if any(len(a) != examples for _, a, _, _ in seen):
            raise Unsupported("a module's input has another first axis than the examples")
        by_module = {id(entry[0]): entry for entry in seen}
        if len(by_module) != len(seen):
            raise Unsupported("a module is used more than once in a forward pass")
        if len(by_module) != len(self._modules):
            raise Unsupported("a module's parameters are used without calling the module")
        if any(output._version != version for _, _, output, version in seen):
            raise Unsupported("a module's output is changed in place")
        return [by_module[id(module)] for module in self._modules]


def _refuse(name: str, module: nn.Module) -> None:
    where = f"{name or 'the model itself'} ({type(module).__name__})"
    if type(module) not in RULES:
        raise Unsupported(f"there is no rule for {where}")
    if isinstance(module, nn.Embedding) and (module.max_norm or module.scale_grad_by_freq):
        raise Unsupported(f"{where} mixes examples (max_norm or scale_grad_by_freq)")
    if not all(p.requires_grad for p in module.parameters()):
        raise Unsupported(f"{where} is partly frozen")


class GhostGradients:
    """Per-example gradients known by what each layer saw: losses [B], one rule per layer."""

    def __init__(self, losses: Tensor, rules: list[LayerGradient], parameters: Parameters):
        self.losses = losses
        self._rules = rules
        self._layers = parameters.layers

    @cached_property
    def _squared(self) -> Tensor:
        with torch.no_grad():
            return torch.stack([rule.squared_norms() for rule in self._rules], 1)

    @property
    def norms(self) -> Tensor:
        return self._squared.sum(1).sqrt()

    @property
    def layer_norms(self) -> Tensor:
        return self._squared.sqrt()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        columns = factors.unbind(1) if factors.dim() == 2 else [factors] * len(self._rules)

        def add(rules: list[LayerGradient]) -> Tensor:
            pairs = zip(rules, columns, strict=True)
            return torch.cat([rule.weighted_sum(column) for rule, column in pairs])

        with torch.no_grad():
            total = add(self._rules)
            if torch.isfinite(total).all():
                return total
            # 0 times infinity is NaN, so an example that is to be left out must be taken out.
            return add([rule.cleaned(factors) for rule in self._rules])

    def dot(self, vector: Tensor) -> Tensor:
        with torch.no_grad():
            pairs = zip(self._rules, self._layers, strict=True)
            return torch.stack([rule.dot(vector[layer.at]) for rule, layer in pairs]).sum(0)

    def stack(self) -> Tensor:
        with torch.no_grad():
            return torch.cat([rule.stack() for rule in self._rules], 1)
