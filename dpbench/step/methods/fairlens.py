"""FairLens: two regularisers on batches, meant to equalise the cost of privacy across groups."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Abadi, Clip, require_style
from dpbench.step.gradients import DelegatingGradients, Engine, Gradients, Layer, at_least_float32
from dpbench.step.gradients.flatten import flatten
from dpbench.step.mechanism import Gradient, Method, ReleasedState, as_published

GUARANTEE = Guarantee(
    "none",
    "The regularisers couple the examples of a batch: taking one away moves every other gradient, "
    "so clipping each does not bound its effect.",
)


def fairlens(
    bound: float, clipping_weight: float, noise_weight: float, variant: str, style: str = "flat"
) -> Method:
    """Tran et al. 2021 as in Esipova et al. 2023, Algorithm 4; for two groups.

    clipping_weight and noise_weight are gamma_1 and gamma_2. variant="paper" is as printed, where
    the second regulariser drives outputs in [0, 1] to its ends; "corrected" reverses its sign and
    averages f(1-f) over examples and outputs, the reading closest to the printed tables.
    """
    require_style("flat", style, "fairlens", "its first regulariser needs one factor per example")
    published = as_published(variant)
    return Method(
        "fairlens",
        Abadi(bound),
        GUARANTEE,
        FairLens(clipping_weight, noise_weight, as_printed=published),
        variant=variant,
        by_real_size=published,
        whole_batches=True,
        groups=2,
    )


@dataclass(frozen=True)
class FairLens(Gradient):
    """The gradient of each example's loss, plus that of gamma_1 R_1 + gamma_2 R_2 of its batch.

    R_1 = |<g_Ba - g_Bb, c_B - g_B>| with c_B the clipped batch gradient, whose factors count as
    constants in the derivative; R_2 measures f(1-f) of the outputs f in each group. Batches without
    one of the groups have neither.
    """

    clipping_weight: float
    noise_weight: float
    as_printed: bool

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        gradients = engine(batch)
        finite = gradients.norms.isfinite()
        if finite.all():
            return self._regularised(engine, batch, clip, gradients, gradients)
        # A single non-finite example would make the regularisers, hence all gradients, NaN.
        rest = batch.each(lambda t: t[finite])
        return self._regularised(engine, rest, clip, engine(rest), gradients)

    def _regularised(
        self, engine: Engine, batch: Batch, clip: Clip, gradients: Gradients, shifted: Gradients
    ) -> Gradients:
        """`shifted` plus the gradient of the regularisers of a batch with these gradients."""
        members = [batch.groups == group for group in (0, 1)]
        if not all(member.any() for member in members):
            return shifted
        # One forward pass serves both: R_2 needs the outputs, R_1 the gradient of the losses.
        flat = flatten(batch, engine.views, engine.parameters.theta.detach())
        inputs = engine.options.in_memory_format(flat.rows).inputs
        with engine.options.precision.model(inputs.device):
            outputs = at_least_float32(engine.model(inputs))
        losses = flat.losses(engine.loss(outputs, flat.rows.targets))
        factors = clip.factors(gradients.norms, batch.groups)
        views = [member.repeat_interleave(flat.shape[1]) for member in members]
        value = self.noise_weight * self._noise_regulariser(outputs, views)
        value = value + self.clipping_weight * _clipping_regulariser(
            engine, gradients, losses, members, factors
        )
        parameters = engine.parameters
        return TranslatedGradients(shifted, parameters.gradient(value), parameters.layers)

    def _noise_regulariser(self, outputs: Tensor, members: list[Tensor]) -> Tensor:
        """R_2, a scalar, from outputs [N, K] and the membership [N] bool of each group."""
        groups = [outputs[member] for member in members]
        if self.as_printed:
            means = [group[:, 1].mean() for group in groups]
            return sum((f * (1 - f) for f in means), outputs.new_zeros(())) / 2
        return -sum(((f * (1 - f)).mean() for f in groups), outputs.new_zeros(())) / 2


def _clipping_regulariser(
    engine: Engine, gradients: Gradients, losses: Tensor, members: list[Tensor], factors: Tensor
) -> Tensor:
    """A scalar with the value and the gradient of R_1, for fixed clipping factors [B], by the
    product rule: R_1 = |<u, w>| for u = sum_i a_i g_i and w = sum_i b_i g_i."""
    means = [member.to(factors) / member.sum() for member in members]
    a, b = means[0] - means[1], (factors - 1) / len(factors)
    u, w = (gradients.weighted_sum(c).to(losses) for c in (a, b))
    slope_a, slope_b = (
        engine.parameters.gradient((losses * c).sum(), differentiable=True) for c in (a, b)
    )
    return torch.sign(u @ w) * (slope_a @ w + slope_b @ u)


class TranslatedGradients(DelegatingGradients):
    """g_i + v for one vector v [D], without materialising the gradients.

    Squared norms are |g_i|^2 + 2 <g_i, v> + |v|^2, per layer with the layer's part of v. They are
    inaccurate where v nearly cancels g_i, so no guarantee may rely on them.
    """

    def __init__(self, gradients: Gradients, vector: Tensor, layers: tuple[Layer, ...]):
        super().__init__(gradients)
        self._vector, self._layers = vector, layers

    @property
    def norms(self) -> Tensor:
        return self._translated(self.base.norms, self._vector)

    @property
    def layer_norms(self) -> Tensor:
        columns = self.base.layer_norms.unbind(1)
        parts = (layer.part_of(self._vector) for layer in self._layers)
        pairs = zip(columns, parts, strict=True)
        return torch.stack([self._translated(*pair) for pair in pairs], 1)

    def _translated(self, norms: Tensor, vector: Tensor) -> Tensor:
        """The norms after adding a vector, from the norms before."""
        squared = norms.square() + 2 * self.base.dot(vector) + vector @ vector
        return squared.clamp(min=0).sqrt()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        total = self.base.weighted_sum(factors)
        if factors.dim() == 1:
            return total + factors.sum() * self._vector
        pairs = zip(factors.sum(0), self._layers, strict=True)
        return total + torch.cat([share * self._vector[layer.at] for share, layer in pairs])

    def dot(self, vector: Tensor) -> Tensor:
        return self.base.dot(vector) + self._vector @ vector

    def stack(self) -> Tensor:
        return self.base.stack() + self._vector
