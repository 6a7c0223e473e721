"""Normalization by the mean and deviation of the training data, which are released with noise."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dpbench.learning.data.dataset import Dataset, Split, bounded_of, people_of
from dpbench.learning.data.derive.users import Users
from dpbench.privacy.ledger import GaussianMechanism, Poisson, Release, Step
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError
from dpbench.system.validate import Positive

AT_ONCE = 1024
"""Examples read at once."""

STEPS_PER_OCTAVE, OCTAVES = 4, 20
"""Bins of a histogram of norms: each spans a factor of 2^(1/4), from 2^-10 to 2^10."""

SMALLEST_VARIANCE = 1e-5


class PrivateStatistics(ABC):
    """Statistics of the training examples that are released with noise before the first step."""

    note: ClassVar[str]

    @abstractmethod
    def check(self, dataset: Dataset, users: Users | None) -> None:
        """UserError for inputs that have no such statistics."""

    @property
    @abstractmethod
    def step(self) -> Step:
        """The releases, for the ledger."""

    @abstractmethod
    def measured(self, train: Split, dataset: Dataset, stream: Stream) -> "ChannelNormalization":
        """The constants, measured on the training split with noise from the stream."""


@dataclass(frozen=True)
class PrivateNormalization(PrivateStatistics):
    """Standardises each channel by its mean and standard deviation, both measured with noise.

    noise_multiplier: of the mean of each channel, and of its mean square. Either is a sum of one
    vector per example, the channel's mean over positions, clipped to the median of their norms.
    median_noise_multiplier: of the two medians, each found in a noisy histogram of norms. All four
    queries are of all examples and made once, before the first step (Tramer and Boneh 2021,
    appendix B, with exact medians).
    """

    noise_multiplier: Positive
    median_noise_multiplier: Positive

    note = (
        "The mean and deviation of each channel are measured with noise on the training examples, "
        "and epsilon pays for them."
    )

    def check(self, dataset: Dataset, users: Users | None) -> None:
        """UserError for inputs without channels, and for users, who have several examples."""
        if users:
            raise UserError(
                "normalization=private measures single examples, and users have several: set "
                "users=none or normalization=none."
            )
        if len(dataset.shape) != 3:
            raise UserError(
                f"normalization=private needs images or their features, and the inputs of "
                f"{dataset.name} are {dataset.shape}: use normalization=none."
            )

    @property
    def step(self) -> Step:
        both = (("norms", self.median_noise_multiplier), ("sum", self.noise_multiplier))
        releases = (
            Release(f"{what} of the channels' mean {power}", GaussianMechanism(multiplier))
            for power in ("values", "squares")
            for what, multiplier in both
        )
        return Step(Poisson(1.0), tuple(releases))

    def measured(self, train: Split, dataset: Dataset, stream: Stream) -> "ChannelNormalization":
        answers = self.answers(train, stream)
        means, squares = (total / dataset.train_size for _, total in answers)
        return ChannelNormalization(means, (squares - means.square()).clamp(min=0))

    def answers(self, train: Split, stream: Stream) -> Iterator[tuple[Tensor, Tensor]]:
        """The releases: for values and for squares the noisy histogram of norms, and the noisy sum
        [C] of vectors clipped to its median."""
        for power in (1, 2):
            vectors = _per_example(train, power)
            norms = vectors.norm(dim=1)
            histogram = noisy_histogram(norms, self.median_noise_multiplier, stream)
            bound = median_of(histogram)
            total = clipped_sum(vectors, bound)
            yield histogram, Gaussian().add(total, bound, self.noise_multiplier, stream)


@dataclass(frozen=True)
class PrivateColumns(PrivateStatistics):
    """Standardises the numbers of a table by their means and deviations, both measured with noise.

    noise_multiplier: of the sum over examples of the vector of all numbers and their squares. With
    public bounds, `dataset.bounds`, each is between -1 and 1, so the vector of k numbers and k
    squares has a norm of at most sqrt(2k), by which the noise is scaled. With `users=column` the
    sum is over people, of the mean of their rows' vectors, which has the same bound. Made once,
    before the first step.
    """

    noise_multiplier: Positive

    note = (
        "The mean and deviation of each number are measured with noise on the training rows, "
        "within public bounds, and epsilon pays for them."
    )

    def check(self, dataset: Dataset, users: Users | None) -> None:
        """UserError for data without bounded numbers, and for users that are made up."""
        if not bounded_of(dataset):
            raise UserError(
                f"normalization=private_columns needs dataset.bounds, and {dataset.name} has none: "
                "give each number its public range, as in dataset.bounds={age: [0, 120]}."
            )
        if users and people_of(dataset) is None:
            raise UserError(
                "normalization=private_columns measures rows or the people of a column: set "
                "users=none or users=column."
            )

    @property
    def step(self) -> Step:
        mechanism = GaussianMechanism(self.noise_multiplier)
        return Step(Poisson(1.0), (Release("sum of the columns' values and squares", mechanism),))

    def measured(self, train: Split, dataset: Dataset, stream: Stream) -> "ColumnNormalization":
        """The constants; variances are at least the deviation of their noise."""
        columns = bounded_of(dataset)
        number = people_of(dataset) or dataset.train_size
        answer = self.answer(train, columns, stream) / number
        means, squares = answer[:columns], answer[columns:]
        least = self.noise_multiplier * math.sqrt(2 * columns) / number
        return ColumnNormalization(means, (squares - means.square()).clamp(min=least))

    def answer(self, train: Split, columns: int, stream: Stream) -> Tensor:
        """The noisy sum [2 columns] of the first columns of the inputs, and of their squares."""
        values = train.inputs[:, :columns].cpu().double().clamp(-1, 1)
        vectors = torch.cat([values, values.square()], dim=1).nan_to_num(0)
        if train.people is not None:
            vectors = _means_by(train.people.cpu(), vectors)
        bound = math.sqrt(2 * columns)
        return Gaussian().add(vectors.sum(0), bound, self.noise_multiplier, stream)


def _means_by(people: Tensor, vectors: Tensor) -> Tensor:
    """The mean of each person's vectors [n, d], in any order of people [n]."""
    _, numbers, sizes = people.unique(return_inverse=True, return_counts=True)
    sums = vectors.new_zeros(len(sizes), vectors.shape[1]).index_add_(0, numbers, vectors)
    return sums / sizes.unsqueeze(1)


class ChannelNormalization:
    """Standardises each channel by `mean` [C] and `variance` [C]; 0 where the variance is 0.

    Its state is in checkpoints, since constants that were measured with noise from a key that is
    never stored cannot be measured again.
    """

    def __init__(self, mean: Tensor, variance: Tensor):
        self.mean, self.variance = mean, variance

    def __call__(self, inputs: Tensor) -> Tensor:
        """The inputs [B, C, H, W], normalised."""
        mean, variance = (
            t.to(inputs.device, torch.float32)[:, None, None] for t in (self.mean, self.variance)
        )
        deviation = (variance + SMALLEST_VARIANCE).sqrt()
        return torch.where(variance > 0, (inputs - mean) / deviation, torch.zeros_like(inputs))

    def state_dict(self) -> dict:
        return {"mean": self.mean, "variance": self.variance}

    def load_state_dict(self, state: dict) -> None:
        self.mean, self.variance = state["mean"], state["variance"]


class ColumnNormalization(ChannelNormalization):
    """Standardises the first columns of inputs by `mean` [k] and `variance` [k]."""

    def __call__(self, inputs: Tensor) -> Tensor:
        """The inputs [B, d], their first k columns normalised."""
        mean, variance = (t.to(inputs.device, inputs.dtype) for t in (self.mean, self.variance))
        numbers, others = inputs.split([len(mean), inputs.shape[1] - len(mean)], dim=1)
        return torch.cat([(numbers - mean) / variance.sqrt(), others], dim=1)


def _per_example(train: Split, power: int) -> Tensor:
    """The mean over positions of each channel to a power [n, C] float64, 0 where not finite."""
    parts = (
        train.at(indices).inputs.double().pow(power).mean((2, 3))
        for indices in train.batches(AT_ONCE)
    )
    vectors = torch.cat([part.cpu() for part in parts])
    return torch.where(vectors.isfinite().all(1, keepdim=True), vectors, 0.0)


def clipped_sum(vectors: Tensor, bound: float) -> Tensor:
    """The sum [C] of vectors [n, C] scaled to norms of at most `bound`: its sensitivity."""
    return (vectors * (bound / vectors.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)


def noisy_histogram(norms: Tensor, multiplier: float, stream: Stream) -> Tensor:
    """How many norms [n] are in each bin, with noise.

    One example adds 1 to one bin, so the sensitivity is 1.
    """
    last = STEPS_PER_OCTAVE * OCTAVES - 1
    exponents = norms.log2().add(OCTAVES / 2).mul(STEPS_PER_OCTAVE).ceil()
    counts = torch.bincount(exponents.clamp(0, last).long(), minlength=last + 1).double()
    return Gaussian().add(counts, 1.0, multiplier, stream)


def median_of(histogram: Tensor) -> float:
    """The upper edge of the bin at which a histogram reaches half of its sum."""
    reached = histogram.cumsum(0)
    first = int((reached >= reached[-1] / 2).int().argmax())
    return math.exp2(first / STEPS_PER_OCTAVE - OCTAVES / 2)


def statistics_steps(
    normalization: object, dataset: Dataset, users: Users | None
) -> tuple[Step, ...]:
    """The releases of a run's normalization, if it makes any; UserError for data or users that have
    no such statistics."""
    if not isinstance(normalization, PrivateStatistics):
        return ()
    normalization.check(dataset, users)
    return (normalization.step,)
