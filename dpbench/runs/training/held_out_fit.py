"""Which runs can fit something to training examples that are held out, after the training."""

from dpbench.learning.data.dataset import Dataset, calibration_size_of
from dpbench.learning.data.derive.users import Users
from dpbench.privacy.ledger import Step
from dpbench.runs.training.conformal import PrivateConformal
from dpbench.runs.training.temperature import PrivateTemperature
from dpbench.step.mechanism.method import Method
from dpbench.system.errors import UserError

HeldOutFit = PrivateTemperature | PrivateConformal
"""What is fitted to the logits of a share of the training examples."""


def fit_steps(
    group: str, fit: HeldOutFit | None, dataset: Dataset, users: Users | None, method: Method
) -> tuple[Step, ...]:
    """The steps of a fit, for the ledger; none where there is no fit. group: that of its settings.

    They are composed with the training steps, although an example is only in one of the two parts:
    the ledger does not distinguish parts. UserError for a run without classes or without noise, for
    users, who have several examples, and for too few held-out examples.
    """
    if fit is None:
        return ()
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
    if isinstance(fit, PrivateTemperature):
        fit.check(dataset)
    return (fit.step,) * fit.steps
