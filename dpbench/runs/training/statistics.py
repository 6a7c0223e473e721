"""Normalization by the mean and deviation of the training data, which are released with noise."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import torch
from scipy.special import ndtri
from torch import Tensor
from torch.nn.functional import pad

from dpbench.learning.data.dataset import MOMENTS, Dataset, Fact, bounded_of, people_of, selected_of
from dpbench.learning.data.derive.users import Users
from dpbench.learning.data.examples import Split
from dpbench.privacy.ledger import GaussianMechanism, Poisson, Release, Step, query
from dpbench.step.mechanism.noise import GRID, Gaussian
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError
from dpbench.system.validate import Positive

if TYPE_CHECKING:  # pandas takes longer to import than a small run
    from dpbench.learning.data.custom.preparation import TablePreparation, Values

AT_ONCE = 1024
"""Examples read at once."""

STEPS_PER_OCTAVE, OCTAVES = 4, 20
"""Bins of a histogram of norms: each spans a factor of 2^(1/4), from 2^-10 to 2^10."""

SMALLEST_VARIANCE = 1e-5

FAILURE_SHARE = 0.01
"""The share of delta for a category that is selected although only one example or person has it."""

UNUSED = -2
"""In place of the code of a category that may be selected, and is not."""

MOST_SHARES = 10
"""A person counts for categories that at least a tenth of their rows have, so for at most ten."""


@dataclass(frozen=True)
class PrivateNormalization:
    """Standardises each channel by its mean and standard deviation, both measured with noise.

    noise_multiplier: of each channel's mean, and mean square: sums of one vector per example,
    clipped to the median of their norms. median_noise_multiplier: of the two medians, each found in
    a noisy histogram. All four queries are of all examples, once (Tramer and Boneh 2021, appendix
    B).
    """

    noise_multiplier: Positive
    median_noise_multiplier: Positive

    note = (
        "The mean and deviation of each channel are measured with noise on the training examples, "
        "and epsilon pays for them."
    )

    def facts(self, dataset: Dataset) -> dict[str, Fact]:
        """The facts of the data that it measures."""
        return {MOMENTS: "epsilon"}

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

    def step(self, dataset: Dataset, delta: float) -> Step:
        """The releases, for the ledger."""
        both = (("norms", self.median_noise_multiplier), ("sum", self.noise_multiplier))
        releases = (
            Release(f"{what} of the channels' mean {power}", GaussianMechanism(multiplier))
            for power in ("values", "squares")
            for what, multiplier in both
        )
        return Step(Poisson(1.0), tuple(releases))

    def measured(
        self, train: Split, dataset: Dataset, delta: float, stream: Stream
    ) -> "ChannelNormalization":
        """The constants, measured on the training split with noise from the stream."""
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
class PrivateColumns:
    """Standardises the numbers of a table, and selects categories, by one sum measured with noise.

    noise_multiplier: of the sum over examples of all numbers with public bounds, between -1 and 1,
    their squares, and a 1 for the category of each of c selected columns: with k numbers its norm
    is at most sqrt(2k + c), by which the noise is scaled. With `users=column` it is over people, of
    the mean of their rows, which has the same bound. A category is selected if its noisy count
    exceeds what one of a single example or person exceeds with probability FAILURE_SHARE * delta in
    any column (Gopi et al. 2020); of more than `dataset.categories` permits, the most frequent.
    """

    noise_multiplier: Positive

    note = (
        "The mean and deviation of each number are measured with noise on the training rows, "
        "within public bounds, and epsilon pays for them."
    )

    def facts(self, dataset: Dataset) -> dict[str, Fact]:
        """The facts of the data that it measures."""
        return {MOMENTS: "epsilon"} if bounded_of(dataset) else {}

    def check(self, dataset: Dataset, users: Users | None) -> None:
        """UserError for data with nothing to measure, and for users that are made up."""
        if not (bounded_of(dataset) or selected_of(dataset)):
            raise UserError(
                f"normalization=private_columns needs dataset.bounds, and {dataset.name} has none: "
                "give each number its public range, as in 'dataset.bounds={age: [0, 120]}', or a "
                "column the number of its categories, as in 'dataset.categories={town: 20}'."
            )
        if users and people_of(dataset) is None:
            raise UserError(
                "normalization=private_columns measures rows or the people of a column: set "
                "users=none or users=column."
            )

    def step(self, dataset: Dataset, delta: float) -> Step:
        """The release, for the ledger."""
        failure = FAILURE_SHARE * delta if selected_of(dataset) else 0.0
        more = ", and of their categories" if failure else ""
        what = f"sum of the columns' values and squares{more}"
        return query(what, self.noise_multiplier, failure)

    def measured(
        self, train: Split, dataset: Dataset, delta: float, stream: Stream
    ) -> "ColumnNormalization":
        """The constants; variances are at least the deviation of their noise."""
        most = selected_of(dataset)
        number = people_of(dataset) or dataset.train_size
        answer, *counts = self.answers(train, dataset, stream)
        means, squares = (answer / number).chunk(2)
        scale = self.noise_multiplier * self._bound(dataset)
        variance = (squares - means.square()).clamp(min=scale / number)
        least = threshold(scale, FAILURE_SHARE * delta, len(most))
        kept = [_largest(count, size, least) for count, size in zip(counts, most, strict=True)]
        return ColumnNormalization(means, variance, kept)

    def answers(self, train: Split, dataset: Dataset, stream: Stream) -> tuple[Tensor, ...]:
        """The noisy sum [2k] of the first columns of the inputs, and of their squares; and for each
        column of categories their noisy counts [K], -inf for those that nobody has."""
        values = train.inputs[:, : bounded_of(dataset)].cpu().double().clamp(-1, 1)
        vectors = torch.cat([values, values.square()], dim=1).nan_to_num(0)
        people = None if train.people is None else train.people.cpu()
        if people is not None:
            vectors = _means_by(people, vectors)
        _, *blocks = _blocks(train.inputs, selected_of(dataset))
        codes = [block[:, 0].cpu().long() for block in blocks]
        counts = [counts_of(c, int(c.max()) + 1, people, 1 / MOST_SHARES) for c in codes]
        total = torch.cat([vectors.sum(0), *counts])
        noisy = Gaussian().add(total, self._bound(dataset), self.noise_multiplier, stream)
        sums, *found = noisy.split([vectors.shape[1], *map(len, counts)])
        nobody = [count == 0 for count in counts]
        return sums, *(n.masked_fill(no, -math.inf) for n, no in zip(found, nobody, strict=True))

    def _bound(self, dataset: Dataset) -> float:
        return math.sqrt(2 * bounded_of(dataset) + len(selected_of(dataset)))


PrivateStatistics = PrivateNormalization | PrivateColumns
"""Statistics of the training examples that are released with noise before the first step."""


def threshold(scale: float, failure: float, columns: int) -> float:
    """The noisy count above which a category is not that of one example or person alone.

    Of these one adds at most 1 to each of MOST_SHARES counts of each column, of which any exceeds
    it with probability f at most, where f/(1 - f) is `failure`: so much it moves a privacy profile,
    in either direction.
    """
    likely = failure / (1 + failure) / (max(columns, 1) * MOST_SHARES)
    return 1 + scale * (GRID - float(ndtri(likely)))


def _largest(counts: Tensor, most: int, least: float) -> Tensor:
    """The places of the largest counts above `least` in their order, and UNUSED, [most] in all."""
    places = counts.argsort(descending=True)[:most]
    kept = places[counts[places] > least].sort().values
    return pad(kept, (0, most - len(kept)), value=UNUSED)


def counts_of(codes: Tensor, number: int, people: Tensor | None, least: float = 0.0) -> Tensor:
    """How many examples have each code [K]; with people, the sum of the shares of their examples.
    codes [n]: -1 for none. people [n]: each example's person. least: of the shares that count."""
    codes = codes % (number + 1)
    if people is None:
        return torch.bincount(codes, minlength=number + 1)[:number].double()
    _, people, rows = people.unique(return_inverse=True, return_counts=True)
    pairs, sizes = (people * (number + 1) + codes).unique(return_counts=True)
    shares = sizes.double() / rows[pairs // (number + 1)]
    counted = shares.where(shares >= least, 0.0)
    return torch.bincount(pairs % (number + 1), counted, minlength=number + 1)[:number]


def _blocks(inputs: Tensor, most: Sequence[int]) -> Sequence[Tensor]:
    """The inputs [B, d] without the columns of selected categories, and these, by column: one for
    each category that may be selected, and one for others; before, the first has a code."""
    widths = [number + 1 for number in most]
    return inputs.split([inputs.shape[1] - sum(widths), *widths], dim=1)


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
    """Standardises the first columns of inputs by `mean` [k] and `variance` [k], and turns the
    codes of categories into features: one for each of those that are `kept` [most], by column, and
    one for others."""

    def __init__(self, mean: Tensor, variance: Tensor, kept: list[Tensor]):
        super().__init__(mean, variance)
        self.kept = kept

    def __call__(self, inputs: Tensor) -> Tensor:
        """The inputs [B, d], their first k columns normalised."""
        mean, variance = (t.to(inputs.device, inputs.dtype) for t in (self.mean, self.variance))
        plain, *blocks = _blocks(inputs, [*map(len, self.kept)])
        numbers, others = plain.split([len(mean), plain.shape[1] - len(mean)], dim=1)
        features = map(self._features, blocks, self.kept)
        return torch.cat([(numbers - mean) / variance.sqrt(), others, *features], dim=1)

    def _features(self, block: Tensor, kept: Tensor) -> Tensor:
        """One feature for each category that is kept, and one for others [B, most + 1]."""
        codes = block[:, :1]
        known = codes == kept.to(codes)
        other = (codes >= 0) & ~known.any(1, keepdim=True)
        return torch.cat([known, other], dim=1).to(block.dtype)

    def prepared(self, exact: "TablePreparation", values: "Values") -> "TablePreparation":
        """The preparation of new rows, from one without these constants. values: all categories of
        the columns of which some are kept."""
        scales = zip(self.mean.tolist(), self.variance.sqrt().tolist(), strict=True)
        numbers = {
            name: (middle + half * mean, half * deviation)
            for (name, (middle, half)), (mean, deviation) in zip(
                exact.numbers.items(), scales, strict=False
            )
        }
        selected = {
            name: tuple(None if place == UNUSED else values[name][place] for place in kept.tolist())
            for name, kept in zip(values, self.kept, strict=True)
        }
        return msgspec.structs.replace(
            exact, numbers={**exact.numbers, **numbers}, selected=selected
        )

    def state_dict(self) -> dict:
        return {**super().state_dict(), "kept": self.kept}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.kept = state["kept"]


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
    """How many norms [n] are in each bin, with noise. One example adds 1 to one bin, so the
    sensitivity is 1."""
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
    normalization: object, dataset: Dataset, users: Users | None, delta: float
) -> tuple[Step, ...]:
    """The releases of a run's normalization, if it makes any; UserError for data or users that have
    no such statistics, and for categories that nothing selects."""
    if selected_of(dataset) and not isinstance(normalization, PrivateColumns):
        raise UserError(
            "dataset.categories has the number of categories of a column, which are then selected "
            "with noise: set normalization=private_columns, or list them."
        )
    if not isinstance(normalization, PrivateStatistics):
        return ()
    normalization.check(dataset, users)
    return (normalization.step(dataset, delta),)
