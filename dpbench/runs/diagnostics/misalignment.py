"""Gradient misalignment: the cost of clipping errors and of noise for each group.

Figures 3 to 5 and 7 to 17 of Esipova et al., ICLR 2023. It reads the whole training split.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from dpbench.learning.data.examples import Batch, Split
from dpbench.runs.diagnostics import excess_risk
from dpbench.runs.diagnostics.batch import (
    GroupMeans,
    clipped_batch,
    group_means,
    isolated_evaluation,
)
from dpbench.runs.diagnostics.curvature import MeanLoss, largest_eigenvalue, trace
from dpbench.runs.diagnostics.observer import Observer, chosen_groups
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system import seeds
from dpbench.system.errors import UserError
from dpbench.system.validate import Count

TERMS = {
    "R_mag": excess_risk.magnitude_risk,
    "R_dir": excess_risk.direction_risk,
    "R_mag*": excess_risk.magnitude_risk_starred,
    "R_dir*": excess_risk.direction_risk_starred,
    "R_clip": excess_risk.clipping_risk,
    "cos_plain": lambda x: x.cos_plain,
    "cos_clipped": lambda x: x.cos_clipped,
    "norm_group": lambda x: x.norm_group,
}
"""The terms that are reported per group and measured step, by name."""


@dataclass(frozen=True)
class MisalignmentDiagnostics:
    """Excess-risk terms every few steps, and losses and gradient norms of every epoch.

    every: steps between measurements; None for epochs only. hutchinson: random vectors for each
    group's Hessian trace, 0 for none. eigenvalues: whether to compute the largest of each group.
    chunk: training examples per pass. groups: numbers of those to measure, None for all; gaps need
    two.
    """

    every: Count | None
    hutchinson: Annotated[int, Meta(ge=0, le=100_000)]
    eigenvalues: bool
    chunk: Count
    groups: list[int] | None

    of_gradients = True

    def __post_init__(self) -> None:
        if self.groups == []:
            raise UserError(
                "diagnostics.groups=[] leaves no group to measure: name some, or set it to null "
                "for all."
            )

    def observer(
        self, step: PrivateStep, train: Split, test: Split | None = None
    ) -> "MisalignmentObserver":
        """An observer of `step`."""
        return MisalignmentObserver(self, chosen_groups(self.groups, train), step, train)


class MisalignmentObserver(Observer):
    """Measures before a step.

    Columns, k being a group's number. One entry per measured step: `step` (the number of earlier
    steps), `step/TERM/k` of TERMS, `step/R_noise/k`, `step/trace/k`, `step/eigenvalue/k`,
    `step/norm_plain`, `step/norm_clipped`, `step/clipped_fraction`, `step/inverse_learning_rate`,
    and of two groups their gaps and lower bounds. One entry per epoch: `epoch` (from 0),
    `epoch/loss/k` (mean over the examples of its batches, each at the parameters of its step) and
    `epoch/gradient_norm/k` (mean over the batches that contain the group). Undefined values are
    NaN.
    """

    def __init__(
        self, settings: MisalignmentDiagnostics, groups: list[int], step: PrivateStep, train: Split
    ):
        super().__init__(step)
        self._settings, self._groups = settings, groups
        members = [train.groups == k for k in groups]
        self._losses = [self._mean_loss(train, mask) for mask in members]
        self._rest = self._mean_loss(train, ~torch.stack(members).any(0))
        self._shares = [len(loss) / len(train) for loss in (*self._losses, self._rest)]
        self._epoch: list[GroupMeans] = []

    def _mean_loss(self, train: Split, mask: Tensor) -> MeanLoss:
        return MeanLoss(self._step.engine, train, mask.nonzero()[:, 0], self._settings.chunk)

    def before(self, batch: Batch) -> None:
        with isolated_evaluation(self._step.engine.model):
            self._epoch.append(group_means(self._step, batch, self._groups))
            every = self._settings.every
            if every and self._steps_done % every == 0:
                self._measure(batch)

    def end_of_epoch(self) -> None:
        losses, counts, norms = (torch.stack(x) for x in zip(*self._epoch, strict=True))
        self.columns["epoch"].append(len(self.columns["epoch"]))
        self._per_group("epoch/loss", losses.sum(0) / counts.sum(0))
        present = norms.where(counts > 0, 0).sum(0) / (counts > 0).sum(0)
        self._per_group("epoch/gradient_norm", present)
        self._epoch = []

    def state_dict(self) -> dict:
        return super().state_dict() | {"epoch": [tuple(means) for means in self._epoch]}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        device = self._step.engine.parameters.theta.device
        self._epoch = [GroupMeans(*(x.to(device) for x in means)) for means in state["epoch"]]

    def _measure(self, batch: Batch) -> None:
        self.columns["step"].append(self._steps_done)
        means = clipped_batch(self._step, batch)
        gradients = torch.stack([loss.gradient() for loss in self._losses])
        x = self._expansion(gradients, torch.stack([means.plain, means.clipped]))
        for name, term in TERMS.items():
            self._per_group(f"step/{name}", term(x))
        self._scalar("step/norm_plain", x.norm_plain)
        self._scalar("step/norm_clipped", x.norm_clipped)
        self._scalar("step/clipped_fraction", means.clipped_fraction)
        rate = torch.tensor(x.learning_rate, dtype=torch.float64)
        self._scalar("step/inverse_learning_rate", 1 / rate)
        if len(self._groups) == 2:
            self._gaps(x)
        if self._settings.hutchinson:
            traces = self._traces()
            self._per_group("step/trace", traces)
            noise = excess_risk.noise_risk(x.learning_rate, traces, self._noise())
            self._per_group("step/R_noise", noise)
        if self._settings.eigenvalues:
            self._per_group("step/eigenvalue", self._eigenvalues())

    def _expansion(self, gradients: Tensor, vectors: Tensor) -> excess_risk.Expansion:
        """From the groups' gradients [K, D], and g and c as the rows of `vectors` [2, D]."""
        products = torch.stack([loss.products(vectors) for loss in self._losses])
        vectors, gradients, products = vectors.double(), gradients.double(), products.double()
        norms = torch.linalg.vector_norm(vectors, dim=1)
        dots = gradients @ vectors.T
        curvatures = torch.einsum("kvd,vd->kv", products, vectors)
        return excess_risk.Expansion(
            learning_rate=self._step.optimizer.param_groups[0]["lr"],
            norm_plain=norms[0],
            norm_clipped=norms[1],
            norm_group=torch.linalg.vector_norm(gradients, dim=1),
            dot_plain=dots[:, 0],
            dot_clipped=dots[:, 1],
            curvature_plain=curvatures[:, 0],
            curvature_clipped=curvatures[:, 1],
        )

    def _gaps(self, x: excess_risk.Expansion) -> None:
        *shares, other = self._shares
        rest = other * torch.linalg.vector_norm(self._rest.gradient()) if other else 0.0
        direction, clipping = excess_risk.direction_risk(x), excess_risk.clipping_risk(x)
        self._scalar("step/gap_dir", direction[0] - direction[1])
        self._scalar("step/bound_prop3", excess_risk.direction_gap_bound(x))
        starred = excess_risk.direction_risk_starred(x)
        self._scalar("step/gap_dir*", starred[0] - starred[1])
        self._scalar("step/bound_prop3*", excess_risk.direction_gap_bound_starred(x))
        self._scalar("step/gap_clip", clipping[0] - clipping[1])
        self._scalar("step/bound_tran", excess_risk.clipping_gap_bound(x, shares, rest))

    def _traces(self) -> Tensor:
        """Hutchinson's estimates [K], with the same random vectors for all groups."""
        theta, count = self._step.engine.parameters.theta, self._settings.hutchinson
        estimates = [
            trace(loss.products, len(theta), count, self._draw("trace")) for loss in self._losses
        ]
        return torch.tensor(estimates, dtype=torch.float64)

    def _eigenvalues(self) -> Tensor:
        theta = self._step.engine.parameters.theta.detach()
        start = torch.randn(
            theta.shape, dtype=theta.dtype, device=theta.device, generator=self._draw("eigenvalue")
        )
        return torch.tensor([largest_eigenvalue(loss.products, start) for loss in self._losses])

    def _draw(self, purpose: str) -> torch.Generator:
        """A generator for the diagnostics alone, which leaves those of the run untouched."""
        device = self._step.engine.parameters.theta.device
        return seeds.generator(self._steps_done, f"diagnostics {purpose}", device)

    def _noise(self) -> float:
        """sigma C0 of the next step; 0 for methods without noise."""
        step, bound = self._step, float(self._step.clip.sensitivity.bound)
        return step.noise_multiplier * bound if step.method.private else 0.0

    def _per_group(self, name: str, values: Tensor) -> None:
        for k, value in zip(self._groups, values.tolist(), strict=True):
            self.columns[f"{name}/{k}"].append(value)

    def _scalar(self, name: str, value: Tensor) -> None:
        self.columns[name].append(value.item())
