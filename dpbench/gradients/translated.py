"""Per-example gradients that all carry one more common vector."""

from torch import Tensor

from dpbench.gradients.engine import Gradients


class Translated:
    """g_i + v for one vector v [D], without materialising any of them.

    Norms come from |g_i|^2 + 2 <g_i, v> + |v|^2; layer norms are not offered.
    """

    def __init__(self, gradients: Gradients, vector: Tensor):
        self._gradients, self._vector = gradients, vector
        self.losses = gradients.losses

    @property
    def norms(self) -> Tensor:
        g, v = self._gradients, self._vector
        return (g.norms.square() + 2 * g.dot(v) + v @ v).clamp(min=0).sqrt()

    @property
    def layer_norms(self) -> Tensor:
        raise NotImplementedError("layer norms of gradients that share a vector")

    def weighted_sum(self, factors: Tensor) -> Tensor:
        return self._gradients.weighted_sum(factors) + factors.sum() * self._vector

    def dot(self, vector: Tensor) -> Tensor:
        return self._gradients.dot(vector) + self._vector @ vector

    def stack(self) -> Tensor:
        return self._gradients.stack() + self._vector
