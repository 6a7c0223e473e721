"""Methods: a gradient, a clip, a noise and an update, with the guarantee of their combination."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from dpbench.clipping import Clip
from dpbench.config.settings import CORRECTED
from dpbench.data.dataset import Batch, Dataset
from dpbench.data.derive.users import Units, Users, units_of
from dpbench.gradients import Engine, Gradients
from dpbench.mechanism.noise import Gaussian, Noise
from dpbench.mechanism.schedules import Schedules
from dpbench.mechanism.update import Plain, Update
from dpbench.privacy.guarantee import PRIVATE_DIVISOR, Guarantee
from dpbench.privacy.ledger import GaussianMechanism, Mechanism, Release
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

GRADIENT_SUM = "gradient sum"
"""The first release of every training step, as ledgers name it."""


class ReleasedState(NamedTuple):
    """What a run has released so far: reusing it is post-processing and costs no privacy.

    gradient: the private gradient of the last step [D], as passed to the optimiser; None before the
    first step. seed: of the method's random draws; like steps_done, it is the same for all physical
    batches of a step. update: the method's, with its state after the last step.
    """

    steps_done: int
    steps_planned: int
    gradient: Tensor | None
    seed: int = 0
    update: Update = Plain()

    @property
    def progress(self) -> float:
        """The fraction of the planned steps that are done."""
        return min(self.steps_done / self.steps_planned, 1.0)


Gradient = Callable[[Engine, Batch, Clip, ReleasedState], Gradients]
"""The gradient seam: from a physical batch to the gradients that are clipped."""


class NoiseRule(Protocol):
    """Derives the noise multiplier of a method from its other settings."""

    def multiplier(
        self, clip: Clip, optimizer: torch.optim.Optimizer, expected_batch_size: float, units: Units
    ) -> float:
        """The noise multiplier at the start of a run; UserError for unsupported optimisers."""
        ...

    def schedule(self, schedule: Schedules, steps: int) -> Schedules:
        """The schedule with the noise schedule derived; UserError if that is impossible."""
        ...


class Inapplicable(UserError):
    """The method is not defined for the data set; the message says why."""

    def __init__(self, method: str, why: str):
        super().__init__(why)
        self.method = method


def plain(engine: Engine, batch: Batch, clip: Clip, released: ReleasedState) -> Gradients:
    """The gradient of each example's loss at the current parameters."""
    return engine(batch)


IDENTITY, GAUSSIAN = Plain(), Gaussian()


@dataclass(frozen=True)
class Method:
    """A training method: the clip of the private step, and what it changes of DP-SGD otherwise.

    basis: how far epsilon can be trusted if the clip's sensitivity is a bound. by_real_size:
    whether sums are divided by the batch's real size instead of the public expected one.
    whole_batches: whether the gradient seam needs the logical batch in one piece. groups: the
    number of groups the data must have; None for any. update: post-processing of the noisy mean.
    noise_rule: derives the noise multiplier from other settings; None where it is a setting itself.
    users_only: whether the method is defined only for user-level privacy; all others protect
    examples or users. failure: the probability, per clipped part and step, that an example's part
    exceeds its bound. own_accountant: the accountant of the method's paper, one of
    `dpbench.privacy.accountants.CLAIMS`.
    """

    name: str
    clip: Clip
    basis: Guarantee
    gradient: Gradient = plain
    noise: Noise = GAUSSIAN
    update: Update = IDENTITY
    variant: str = CORRECTED
    by_real_size: bool = False
    whole_batches: bool = False
    groups: int | None = None
    noise_rule: NoiseRule | None = None
    users_only: bool = False
    failure: float = 0.0
    own_accountant: str | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The basis, voided by a clip whose sensitivity is no bound, or completed by how its parts
        compose."""
        if self.basis.level == "none":
            return self.basis
        if self.by_real_size:
            return PRIVATE_DIVISOR
        if self.clip.caveat:
            return Guarantee("none", self.clip.caveat)
        return replace(
            self.basis, why=" ".join(filter(None, (self.basis.why, self.clip.composition)))
        )

    @property
    def excess(self) -> float:
        """The true sensitivity over the one that scales the noise."""
        return self.clip.excess * self.update.excess

    @property
    def private(self) -> bool:
        return self.noise.private

    def on(self, dataset: Dataset, users: Users | None = None) -> "Method":
        """The method for a data set and its users, if any; raises Inapplicable if undefined."""
        if users:
            self._check_users()
        elif self.users_only:
            raise Inapplicable(
                self.name, f"{self.name} protects users: choose users=iid, dirichlet or shards."
            )
        groups = len(dataset.groups)
        if self.groups not in (None, groups):
            raise Inapplicable(
                self.name,
                f"{self.name} is defined for exactly {self.groups} groups and {dataset.name} has "
                f"{groups}; choose another method or data set.",
            )
        clip = self.clip.for_groups(groups)
        if clip.by_output:
            self._check_classes(dataset)
            clip = clip.for_classes(dataset.classes)
        update = self.update.on(units_of(dataset, users)).for_data(dataset)
        return replace(self, clip=clip, update=update)

    def _check_classes(self, dataset: Dataset) -> None:
        if dataset.task != "classification":
            raise Inapplicable(
                self.name,
                f"{self.name} counts predicted classes, and {dataset.name} has none; choose "
                "another method or data set.",
            )

    def _check_users(self) -> None:
        if self.clip.by_group or self.groups is not None:
            raise Inapplicable(
                self.name,
                f"{self.name} depends on the groups of examples, and a user may have several: use "
                "users=none or another method.",
            )

    def for_size(self, size: int) -> "Method":
        """The method for a model of `size` trained parameters.

        Raises UserError for noise that needs a bound on each coordinate and a clip without one.
        """
        if self.noise.per_coordinate and not self.clip.per_coordinate:
            raise UserError(
                f"the noise of {self.name} needs a bound on each coordinate, and "
                f"{type(self.clip).__name__} has none: use dpbench.clipping.Coordinates."
            )
        return replace(self, clip=self.clip.for_size(size), noise=self.noise.for_size(size))

    def for_run(self, steps: int, cycle: int) -> "Method":
        """The method for a run of `steps` steps, and the cycle of its sampling law."""
        return replace(self, noise=self.noise.for_run(steps, cycle))

    def for_layers(self, names: Sequence[str]) -> "Method":
        """The method for a model with these trained layers; UserError if bounds do not match."""
        return replace(self, clip=self.clip.for_layers(names))

    def check_size(self, size: int) -> None:
        """UserError if the sensitivity was derived for a model of another size."""
        if self.clip.per_coordinate and self.clip.coordinates != size:
            raise UserError(
                f"{self.name} was made for {self.clip.coordinates} parameters and the model trains "
                f"{size}: call for_size({size})."
            )

    def releases(self, noise_multiplier: float) -> tuple[Release, ...]:
        """Everything that one step releases from its batch, for the ledger."""
        if memory := self.clip.memory:
            if self.failure or self.excess != 1 or self.clip.query:
                raise UserError(
                    f"{self.name} keeps an error from step to step, which is not accounted for "
                    "beside a count query, or a sensitivity that may be exceeded: use another clip."
                )
            own, carried = map(self._mechanism, memory.multipliers(noise_multiplier))
            error = Release("error of earlier steps", carried, unsampled=True)
            return (Release(GRADIENT_SUM, own), error)
        claimed = self._mechanism(noise_multiplier)
        mechanism = self._mechanism(noise_multiplier / self.excess)
        if self.failure and isinstance(mechanism, GaussianMechanism):
            mechanism = replace(mechanism, failure=self.failure * self.clip.parts)
        gradient = Release(GRADIENT_SUM, mechanism, None if mechanism == claimed else claimed)
        query = self.clip.query
        if query is None or query.joint:
            return (gradient,)
        counts = GaussianMechanism(query.multiplier(noise_multiplier))
        return (gradient, Release("counts for the clip", counts))

    def _mechanism(self, noise_multiplier: float) -> Mechanism:
        return self.update.releases(self.noise.mechanism(noise_multiplier), self.clip.coordinates)


def as_published(variant: str) -> bool:
    """Whether a variant is "paper" rather than "corrected"; UserError if it is neither."""
    return one_of("method.variant", variant, (CORRECTED, "paper")) == "paper"
