"""Which runs can fit something to training examples that are held out, after the training."""

from typing import Protocol

from dpbench.learning.data.dataset import Dataset, calibration_size_of
from dpbench.learning.data.derive.users import Users
from dpbench.step.mechanism.method import Method
from dpbench.system.errors import UserError


class HeldOutFit(Protocol):
    """What is fitted to the logits of a share of the training examples.

    least_size: the least number of held-out examples at which it is not mostly noise.
    """

    @property
    def share(self) -> float: ...

    @property
    def least_size(self) -> int: ...


def check_fit(
    group: str, fit: HeldOutFit, dataset: Dataset, users: Users | None, method: Method
) -> None:
    """UserError for a run without classes or without noise, for users, who have several examples,
    and for too few held-out examples; group: that of the settings."""
    if dataset.task != "classification":
        raise UserError(
            f"{group}=private needs the logits of classes, and {dataset.name} is a regression: set "
            f"{group}=none."
        )
    if users or not method.private:
        raise UserError(
            f"{group}=private requires private runs of single examples: set users=none and a "
            f"method that adds noise, or {group}=none."
        )
    if (size := calibration_size_of(dataset)) < fit.least_size:
        raise UserError(
            f"{group}.share={fit.share:g} holds out {size} examples of {dataset.name}, and its "
            f"noise needs {fit.least_size}: choose a larger share, a smaller "
            f"{group}.noise_multiplier, or {group}=none."
        )
