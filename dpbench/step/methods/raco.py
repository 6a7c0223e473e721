"""RaCO: DP-SGD under rate constraints, from noisy histograms of the predictions in each batch."""

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch
from dpbench.privacy.guarantee import Guarantee
from dpbench.step.clipping import Abadi, ByNorm, Clip, CountQuery, DelegatingClip, Problem
from dpbench.step.gradients import DelegatingGradients, Engine, Gradients, at_least_float32
from dpbench.step.gradients.flatten import FlatBatch, flatten
from dpbench.step.mechanism import Gradient, Inapplicable, Method, ReleasedState, checked
from dpbench.system.seeds import torch_state_kept
from dpbench.system.validate import Positive, Share, one_of

CONSTRAINTS, RATES = ("demographic_parity", "equalized_odds"), ("hard", "soft")

MIN_SHARE = 0.01
"""The least share of a batch that a cell counts as having: noisy shares may be negative."""

GUARANTEE = Guarantee(
    "proven",
    "Gradient sum and noisy histogram are one joint Gaussian release per Poisson batch; other "
    "examples enter an example's gradient through earlier releases alone.",
)


@checked
def raco(
    bound: float,
    constraint: str,
    slack: Share,
    dual_learning_rate: Positive,
    dual_bound: Positive,
    rates: str,
    temperature: Positive,
    histogram_noise_ratio: float,
) -> Method:
    """Descent in theta, and ascent in the dual variables of rate constraints (Yaghini et al. 2026).

    constraint: one of CONSTRAINTS; rates: one of RATES, the predictions that the histogram counts.
    The penalty always has soft ones, softmax(outputs/temperature). histogram_noise_ratio: the noise
    multiplier of the histogram over that of the gradient sum. The other settings: see `Duals`.
    """
    query = CountQuery(histogram_noise_ratio, before=False, relative=True)
    by_label = one_of("method.constraint", constraint, CONSTRAINTS) == "equalized_odds"
    hard = one_of("method.rates", rates, RATES) == "hard"
    gradient = Lagrangian(temperature, hard, Duals(by_label, slack, dual_learning_rate, dual_bound))
    return Method("raco", CountedRates(Abadi(bound), query), GUARANTEE, gradient)


@dataclass(frozen=True)
class CountedRates(DelegatingClip):
    """A clip by norm that asks for the histogram that `Lagrangian` counts.

    An example adds a row of probabilities to one cell, which has a norm of at most 1.
    """

    clip: ByNorm
    query: CountQuery = field()
    by_group = True

    def scaled(self, by: float) -> Self:
        return replace(self, clip=self.clip.scaled(by))


@dataclass(frozen=True)
class Duals:
    """Dual variables lambda [M, K] of rate constraints, updated from noisy histograms.

    A cell is a group or, `by_label`, a label and a group; cell m is compared with the others of its
    label. H [M, K] are the noisy counts of predictions in each cell over the expected batch size, s
    [M] the mean over all steps of its row sums, and v_m = H_m/s_m - sum_o H_o/sum_o s_o, over the
    cells o that m is compared with. Constraints are v <= slack, so that
    lambda <- clamp(lambda + eta (v - slack), 0, bound), with eta = learning_rate.
    """

    by_label: bool
    slack: float
    learning_rate: float
    bound: float
    groups: int = 2
    classes: int = 2
    values: Tensor | None = field(default=None, compare=False)
    shares: Tensor | None = field(default=None, compare=False)  # s
    steps: Tensor | None = field(default=None, compare=False)  # a scalar

    @property
    def cells(self) -> int:
        """M."""
        return self.groups * (self.classes if self.by_label else 1)

    def membership(self, batch: Batch) -> Tensor:
        """The cell of each example, as indicators [B, M] bool."""
        cells = batch.groups + self.groups * batch.targets if self.by_label else batch.groups
        return _one_hot(cells, self.cells)

    def updated(self, histogram: Tensor) -> Self:
        """The duals after H [M K]."""
        histogram = histogram.view(self.cells, self.classes)
        sizes = histogram.sum(1)
        steps = torch.ones_like(sizes[0]) if self.steps is None else self.steps + 1
        shares = sizes if self.shares is None else self.shares + (sizes - self.shares) / steps
        # No two rates differ by more than 1.
        violations = (self._contrasts(shares) @ histogram).clamp(-1, 1)
        values = torch.zeros_like(histogram) if self.values is None else self.values
        values = values + self.learning_rate * (violations - self.slack)
        return replace(self, values=values.clamp(0, self.bound), shares=shares, steps=steps)

    def weights(self, like: Tensor) -> Tensor:
        """The derivative [M, K] of sum lambda v with respect to H, of the dtype of `like`."""
        if self.values is None or self.shares is None:
            return like.new_zeros(self.cells, self.classes)
        return (self._contrasts(self.shares).T @ self.values).to(like)

    def _contrasts(self, shares: Tensor) -> Tensor:
        """The matrix [M, M] with v = matrix H."""
        shares = shares.clamp(min=MIN_SHARE)
        labels = torch.arange(self.cells, device=shares.device) // self.groups
        peers = (labels.unsqueeze(1) == labels).to(shares).fill_diagonal_(0)
        return torch.diag(1 / shares) - peers / (peers @ shares).unsqueeze(1)


@dataclass(frozen=True)
class Lagrangian(Gradient):
    """The gradient of each example's loss plus <w, q>: q are its soft predictions, w [K] the
    weights of its cell.

    That of <w, q> in the outputs is r = q (w - <w, q>)/temperature, which sums to 0, and that of
    the cross-entropy is the predictions minus the target: so the target is the label minus r.
    """

    of_loss = False

    temperature: float
    hard: bool
    duals: Duals

    def bind(self, problem: Problem) -> Self:
        dataset, groups = problem.dataset, len(problem.dataset.groups)
        if groups < 2:
            raise Inapplicable("raco", "raco compares groups, and this data set has only one.")
        if dataset.task != "classification":
            raise Inapplicable(
                "raco",
                f"raco counts predicted classes, and {dataset.name} has none; choose another "
                "method or data set.",
            )
        duals = replace(self.duals, groups=groups, classes=dataset.classes)
        return replace(self, duals=duals)

    def advance(self, theta: Tensor, counts: Tensor | None) -> Self:
        return self if counts is None else replace(self, duals=self.duals.updated(counts))

    def __call__(
        self, engine: Engine, batch: Batch, clip: Clip, released: ReleasedState
    ) -> Gradients:
        duals, theta = self.duals, engine.parameters.theta.detach()
        members, flat = duals.membership(batch), flatten(batch, engine.views, theta)
        outputs = _outputs(engine, flat, duals.classes)
        views = outputs.double().view(*flat.shape, duals.classes)
        q = (views / self.temperature).softmax(-1)
        w = (members.to(theta) @ duals.weights(theta)).unsqueeze(1)
        slope = q * (w - (q * w).sum(-1, keepdim=True)) / self.temperature
        labels = _one_hot(batch.targets, duals.classes).unsqueeze(1).to(q)
        gradients = DelegatingGradients(engine(_with_targets(batch, (labels - slope).to(theta))))
        gradients.losses = flat.losses(engine.loss(outputs, flat.rows.targets))
        gradients.counts = (members.double().T @ self._counted(q).mean(1)).flatten()
        return gradients

    def _counted(self, q: Tensor) -> Tensor:
        """What the histogram counts [B, V, K]: 0 where outputs are not finite."""
        counted = _one_hot(q.argmax(-1), q.shape[-1]).to(q) if self.hard else q
        return counted.where(q.isfinite(), 0)


def _one_hot(numbers: Tensor, size: int) -> Tensor:
    """Indicators [..., size] bool; unlike torch's, without a GPU synchronisation."""
    return numbers.unsqueeze(-1) == torch.arange(size, device=numbers.device)


def _outputs(engine: Engine, flat: FlatBatch, classes: int) -> Tensor:
    """The outputs [B V, K] of V views; random layers draw the same again in the next pass."""
    if not len(flat.rows):
        return flat.like.new_zeros(0, classes)
    device = flat.like.device
    inputs = engine.options.in_memory_format(flat.rows).inputs
    with torch.no_grad(), torch_state_kept(device), engine.options.precision.model(device):
        return at_least_float32(engine.by_row(engine.model, inputs))


def _with_targets(batch: Batch, targets: Tensor) -> Batch:
    """The batch with targets [B, V, K] for the V views of each example."""
    if targets.shape[1] == 1:
        return Batch(batch.inputs, targets.squeeze(1), batch.groups)
    present = torch.ones_like(targets[..., 0], dtype=torch.bool)
    return Batch(batch.inputs, targets, batch.groups, present)
