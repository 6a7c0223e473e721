"""Weights of classes in the loss: public ones, or by counts that are released with noise."""

from collections.abc import Sequence

from torch import Tensor

from dpbench.learning.data.dataset import Dataset, people_of
from dpbench.learning.data.derive.users import Users
from dpbench.learning.data.examples import Split
from dpbench.runs.training.statistics import counts_of
from dpbench.step.mechanism.method import Inapplicable, Method
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError
from dpbench.system.validate import positive, typed

COUNT_NOTE = (
    "The loss of an example is weighted by its class, inversely to the number of training examples "
    "of the class, which is measured with noise, and epsilon pays for it."
)

WEIGHTED_SAMPLING = (
    "sampler=weighted is refused: if examples of a rare class were drawn more often, epsilon would "
    "be that of the largest rate, for everybody. Set class_weights=[...] if the sizes of classes "
    "are public, or class_count_noise_multiplier=20, which balances the loss by noisy counts; "
    "method=asc draws groups at rates of their own, with bounds that make up for them."
)


def check_class_weights(
    weights: Sequence[float] | None,
    multiplier: float | None,
    dataset: Dataset,
    users: Users | None,
    method: Method,
) -> None:
    """UserError for weights that do not fit the classes or the method, or two kinds of them."""
    if weights is None and multiplier is None:
        return
    if not method.gradient.of_loss:
        key = "class_weights" if multiplier is None else "class_count_noise_multiplier"
        why = f"{method.name} has a loss of its own, without weights of classes: leave out {key}."
        raise Inapplicable(method.name, why)
    if dataset.task != "classification":
        task = dataset.task.replace("_", " ")
        raise UserError(f"{dataset.name} is a {task}, whose loss has no class_weights.")
    if weights is not None:
        typed("class_weights", weights, list[float])
        for weight in weights:
            positive("class_weights", weight)
        if len(weights) != dataset.classes:
            raise UserError(
                f"class_weights has {len(weights)} weights, and {dataset.name} has "
                f"{dataset.classes} classes: give one for each, in their order."
            )
    if multiplier is not None:
        positive("class_count_noise_multiplier", multiplier)
        if weights is not None:
            raise UserError("class_weights and class_count_noise_multiplier exclude each other.")
        if users and people_of(dataset) is None:
            raise UserError(
                "class_count_noise_multiplier counts rows or the people of a column: set "
                "users=none or users=column."
            )


def noisy_counts(train: Split, classes: int, multiplier: float, stream: Stream) -> Tensor:
    """The noisy number of examples of each class [K], to which an example adds 1; with people, the
    sum of the shares of their examples, of norm at most 1."""
    people = None if train.people is None else train.people.cpu()
    counts = counts_of(train.targets.cpu(), classes, people)
    return Gaussian().add(counts, 1.0, multiplier, stream)


def balanced(counts: Tensor, multiplier: float) -> Tensor:
    """Weights [K] inversely to counts, the largest 1: clipping would undo larger ones. Counts below
    two deviations of the noise are taken as these."""
    usable = counts.clamp(min=max(2 * multiplier, 1.0))
    return usable.min() / usable
