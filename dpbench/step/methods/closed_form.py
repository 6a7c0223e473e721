"""Methods that compute the last layer from noisy moments of its inputs, instead of by descent."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Clip, Problem
from dpbench.step.gradients import Engine, Gradients, at_least_float32
from dpbench.step.gradients.flatten import flatten
from dpbench.step.mechanism import Gradient, Inapplicable, ReleasedState, Update
from dpbench.system.errors import UserError

GUARANTEE = Guarantee(
    "proven",
    "Poisson-sampled Gaussian mechanism on all moments together, with one stated sensitivity; the "
    "last layer is computed from the noisy moments alone.",
)


class Scaling(NamedTuple):
    """z = (x/max(bound, |x|), constant), for the inputs x of the last layer: |z|^2 <= 1 +
    constant^2, the square of `length`."""

    bound: float
    constant: float

    @property
    def length(self) -> float:
        return (1 + self.constant**2) ** 0.5

    def __call__(self, x: Tensor) -> Tensor:
        """[..., d + 1] from [..., d]; not finite where x is not."""
        scaled = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=self.bound)
        return torch.cat([scaled, torch.full_like(x[..., :1], self.constant)], -1)

    def head(self, maps: Tensor) -> Tensor:
        """The weight and bias [K d + K] by which x/bound gets the outputs that z has by `maps`
        [K, d + 1]."""
        return torch.cat([(maps[:, :-1] / self.bound).flatten(), maps[:, -1] * self.constant])


@dataclass(frozen=True)
class HeadMoments(Gradient):
    """The moments of the last layer's inputs, see `Moments`.

    No other layer moves, so that an example's inputs to the last layer depend on it alone.
    """

    of_loss = of_parameters = False

    scaling: Scaling
    second: float
    classes: int = 1

    def bind(self, problem: Problem) -> Self:
        return replace(self, classes=problem.dataset.classes)

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        theta = engine.parameters.theta.detach()
        flat = flatten(batch, engine.views, theta)
        inputs, outputs = _last_layer(engine, flat.rows, self.classes)
        losses = flat.losses(engine.loss(outputs, flat.rows.targets))
        z = self.scaling(inputs.to(theta))
        z = z.view(*flat.shape, z.shape[-1])
        labels = flat.rows.targets.view(flat.shape)
        return Moments(losses, z, labels, self.classes, flat.shares, self.second)


@torch.no_grad()
def _last_layer(engine: Engine, rows: Batch, classes: int) -> tuple[Tensor, Tensor]:
    """The inputs [B, d] and outputs [B, K] of the last layer."""
    head = _head(engine, classes)
    theta = engine.parameters.theta.detach()
    if not len(rows):
        return theta.new_zeros(0, head.in_features), theta.new_zeros(0, classes)
    seen: list[Tensor] = []

    def both(inputs: Tensor) -> Tensor:
        seen.clear()
        outputs = engine.model(inputs)
        if len(seen) != 1 or seen[0].shape != (len(inputs), head.in_features):
            raise UserError(
                "the last layer of this model has other inputs than one vector for each example: "
                "use model=logistic, with features of a pre-trained network."
            )
        return torch.cat([at_least_float32(seen[0]), at_least_float32(outputs)], 1)

    hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    try:
        with engine.options.precision.model(theta.device):
            found = engine.by_row(both, engine.options.in_memory_format(rows).inputs)
    finally:
        hook.remove()
    return found[:, : head.in_features], found[:, head.in_features :]


def _head(engine: Engine, classes: int) -> Any:
    """The last layer; UserError unless it is linear, with a bias and an output per class."""
    name = engine.parameters.layers[-1].name
    head = engine.model.get_submodule(name)
    linear = type(head) is nn.Linear and head.bias is not None and head.out_features == classes
    if linear and all(parameter.requires_grad for parameter in head.parameters()):
        return head
    raise UserError(
        f"this method computes a linear layer with a bias and {classes} outputs, and the last "
        f"trained layer is {type(head).__name__} ({name or 'the model'}): use model=logistic, or "
        "model.train=head."
    )


@dataclass(frozen=True)
class ClosedForm(Update):
    """Sets the last layer to a function of the mean of all noisy moments so far.

    The gradient is the difference between the layer and that function, so that SGD with lr=1 ends
    at it. moments [S]: the mean, per expected example; variance: of its noise, a scalar; steps: how
    many it is of.
    """

    method: ClassVar[str]
    """The name of the method, for messages."""

    scaling: Scaling
    sharpness: float
    classes: int = 1
    moments: Tensor | None = field(default=None, compare=False)
    variance: Tensor | None = field(default=None, compare=False)
    steps: Tensor | None = field(default=None, compare=False)

    def bind(self, problem: Problem) -> Self:
        dataset = problem.dataset
        if dataset.task != "classification":
            raise Inapplicable(
                self.method,
                f"{self.method} needs classes, and {dataset.name} has none: choose another method "
                "or data set.",
            )
        return replace(self, classes=dataset.classes)

    def advance(
        self, noisy: Tensor, deviation: float | Tensor, theta: Tensor, released: ReleasedState
    ) -> Self:
        one = torch.as_tensor(float(deviation) ** 2, dtype=torch.float64)
        if self.moments is None or self.variance is None or self.steps is None:
            return replace(self, moments=noisy.clone(), variance=one, steps=torch.tensor(1))
        steps = self.steps + 1
        moments = self.moments + (noisy - self.moments) / int(steps)
        variance = (self.variance * self.steps**2 + one) / steps**2
        return replace(self, moments=moments, variance=variance, steps=steps)

    def __call__(self, noisy: Tensor, theta: Tensor) -> Tensor:
        assert self.moments is not None
        assert self.variance is not None
        maps = self.solution(self.moments.double(), float(self.variance) ** 0.5)
        head = self.scaling.head(self.sharpness * maps).to(theta)
        gradient = torch.zeros_like(theta)
        gradient[-len(head) :] = theta[-len(head) :] - head
        return gradient

    @abstractmethod
    def solution(self, moments: Tensor, deviation: float) -> Tensor:
        """The maps from z to outputs [K, d + 1], before sharpening, from moments [S] float64 with
        noise of a standard deviation."""


class Moments(Gradients):
    """s_i [S] = (c z_i z_i^T, y_i z_i^T), for features z_i [d] and a class y_i, one-hot [K].

    For a unit of rows v it is their mean with weights `shares`. z [B, V, d], classes [B, V] int64,
    shares [B, V], losses [B]. second: c; 0 leaves the first part out, which is `packed`, so that
    S = d (d + 1)/2 + K d. All is one layer.
    """

    def __init__(
        self, losses: Tensor, z: Tensor, classes: Tensor, number: int, shares: Tensor, second: float
    ):
        self.losses, self._z, self._classes, self._shares = losses, z, classes, shares
        self._number, self._second = number, second

    @property
    def norms(self) -> Tensor:
        """|s_i|^2 = sum_vw a_v a_w (c^2 <z_v, z_w>^2 + [y_v = y_w] <z_v, z_w>), in float64."""
        z, shares = self._z.double(), self._shares.double()
        products = z @ z.mT
        same = self._classes.unsqueeze(2) == self._classes.unsqueeze(1)
        terms = self._second**2 * products.square() + torch.where(same, products, 0 * products)
        squared = torch.einsum("bv,bw,bvw->b", shares, shares, terms)
        return squared.clamp(min=0).sqrt().to(self.losses)

    @property
    def layer_norms(self) -> Tensor:
        return self.norms.unsqueeze(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        z = self._z.masked_fill((factors == 0).view(-1, 1, 1), 0).flatten(0, 1)
        weights = (self._shares * factors.view(-1, 1)).flatten().unsqueeze(1)
        classes = torch.arange(self._number, device=z.device)
        one_hot = (self._classes.flatten().unsqueeze(1) == classes).to(z)
        first = (one_hot * weights).T @ z
        if not self._second:
            return first.flatten()
        return torch.cat([packed(self._second * ((z * weights).T @ z)), first.flatten()])

    def double(self) -> "Moments":
        parts = self.losses, self._z.double(), self._classes
        return Moments(*parts, self._number, self._shares.double(), self._second)

    def stack(self) -> Tensor:
        examples = len(self.losses)
        each = torch.eye(examples, dtype=self.losses.dtype, device=self.losses.device)
        size = len(self.weighted_sum(self.losses))
        rows = (self.weighted_sum(row) for row in each)
        return torch.cat([self.losses.new_zeros(0), *rows]).view(examples, size)


def packed(matrix: Tensor) -> Tensor:
    """The upper triangle of a symmetric matrix [d, d], with the same norm [d (d + 1)/2]."""
    rows, columns = torch.triu_indices(*matrix.shape, device=matrix.device)
    return matrix[rows, columns] * _weights(rows, columns, matrix)


def unpacked(triangle: Tensor) -> Tensor:
    """The inverse of `packed`."""
    d = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    rows, columns = torch.triu_indices(d, d, device=triangle.device)
    values = triangle / _weights(rows, columns, triangle)
    matrix = triangle.new_zeros(d, d)
    matrix[rows, columns] = matrix[columns, rows] = values
    return matrix


def _weights(rows: Tensor, columns: Tensor, like: Tensor) -> Tensor:
    """1 on the diagonal, and sqrt(2) elsewhere."""
    return like.new_full((len(rows),), math.sqrt(2)).masked_fill(rows == columns, 1)
