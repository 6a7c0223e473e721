"""The noisy accuracy on the validation split, which a private search selects by.

It is part of the ledger of a run: one Gaussian query of all held-out examples. Every other metric
of the validation split is exact, and outside every epsilon.
"""

from torch import Tensor

from dpbench.learning.data.dataset import Dataset
from dpbench.learning.data.derive.users import Users
from dpbench.learning.data.derive.validation import WithValidation
from dpbench.privacy.ledger import Step, query
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError
from dpbench.system.validate import positive

SCORE_NOTE = (
    "The noisy accuracy on the validation split is in epsilon, and a choice by it alone can be "
    "accounted for."
)

SENSITIVITY = 1.0
"""The most by which adding or removing an example changes the number of right answers."""


def score_steps(
    multiplier: float | None, dataset: Dataset, users: Users | None, method: Method
) -> tuple[Step, ...]:
    """The release of the number of right answers; none without a multiplier.

    It is composed with the training although an example is either trained on or held out, so that
    the bound does not depend on how the two parts were drawn. UserError for a run without a
    validation split, without classes or without noise, and for users, who have several examples.
    """
    if multiplier is None:
        return ()
    positive("score_noise_multiplier", multiplier)
    if not isinstance(dataset, WithValidation):
        raise UserError(
            "score_noise_multiplier requires a validation split without mislabelled examples: set "
            "validation=0.2 and mislabelled=null."
        )
    if dataset.task != "classification":
        raise UserError(
            f"score_noise_multiplier requires accuracy, and {dataset.name} is "
            f"a {dataset.task.replace('_', ' ')}."
        )
    if users or not method.private:
        raise UserError(
            "score_noise_multiplier requires private runs of single examples: set users=none, and "
            "a method that adds noise."
        )
    return (query("right answers on the validation split", multiplier),)


def noisy_accuracy(outputs: Tensor, targets: Tensor, multiplier: float, stream: Stream) -> float:
    """The share of right answers, with noise; it may lie outside [0, 1]. outputs [n, K], finite or
    not; targets [n]. n is public."""
    right = (outputs.argmax(1) == targets).sum().double().cpu().reshape(1)
    return Gaussian().add(right, SENSITIVITY, multiplier, stream).item() / len(targets)
