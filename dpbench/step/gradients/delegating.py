"""The base class of gradients that override some operations of other gradients."""

from torch import Tensor

from dpbench.step.gradients.engine import Gradients


class DelegatingGradients(Gradients):
    """Delegates to `base` every operation that it does not override; losses and counts are those of
    `base`."""

    def __init__(self, base: Gradients):
        self.base, self.losses, self.counts = base, base.losses, base.counts

    @property
    def norms(self) -> Tensor:
        return self.base.norms

    @property
    def layer_norms(self) -> Tensor:
        return self.base.layer_norms

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self.base.weighted_sum(factors)

    def dot(self, vector: Tensor) -> Tensor:
        return self.base.dot(vector)

    @property
    def rounding(self) -> Tensor:
        return self.base.rounding

    def double(self) -> Gradients:
        return self.base.double()

    def stack(self) -> Tensor:
        return self.base.stack()
