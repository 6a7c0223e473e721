"""Users with several examples each, for user-level privacy.

The published data sets have no users, so theirs are synthetic: the training examples are assigned
to users by the run's seed. The user's own data may have a column of people. The number of users and
of each user's examples, or a bound on it, is public configuration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpbench.learning.data.dataset import Dataset, people_of
from dpbench.learning.data.examples import Batch, Split
from dpbench.system.errors import UserError
from dpbench.system.seeds import numpy_generator
from dpbench.system.validate import integer, number, positive

MAX_SHARDS = 10_000
"""The most shards per user; if there are more shards than examples, the rest are empty."""

Assignment = Callable[[np.ndarray, list[int], np.random.Generator], np.ndarray]
"""Maps labels [n], sizes that sum to n, and a generator to an order [n] of the examples: the first
user gets the first sizes[0] of them, and so on."""


@dataclass(frozen=True)
class Synthetic:
    """The number of users, and how examples are assigned to them.

    spread: the standard deviation of the logarithm of their sizes. by_label: whether `assign`
    depends on the classes.
    """

    number: int
    spread: float
    assign: Assignment
    by_label: bool

    note = ""

    def __post_init__(self) -> None:
        integer("users.number", self.number)
        number("users.spread", self.spread, 0, 10)

    def sizes(self, examples: int) -> list[int]:
        """The number of examples of each user, at least 1: quantiles of a log-normal law."""
        levels = [(user + 0.5) / self.number for user in range(self.number)]
        weights = np.exp([self.spread * NormalDist().inv_cdf(level) for level in levels])
        ends = np.cumsum(weights) / weights.sum() * (examples - self.number)
        return [int(size) + 1 for size in np.diff(np.round(ends), prepend=0)]

    def of(self, examples: Split, seed: int) -> "Population":
        """The examples assigned to users; UserError for fewer examples than users."""
        self._check_number(len(examples))
        draws = numpy_generator(seed, "users")
        sizes = self.sizes(len(examples))
        order = self.assign(examples.targets.cpu().numpy(), sizes, draws)
        by_user = [draws.permutation(part) for part in np.split(order, np.cumsum(sizes)[:-1])]
        # Users are numbered by their smallest index, so that users with one example each are the
        # examples in their order.
        return population(examples, sorted(by_user, key=min))

    def units(self, dataset: Dataset) -> "Units":
        """The users, from configuration alone; UserError for a data set that has too few examples,
        or no classes."""
        self._check_number(dataset.train_size)
        if self.by_label and dataset.task != "classification":
            raise UserError(f"{dataset.name} has no classes to assign users by: use users=iid.")
        return Units("user", self.number, self.sizes(dataset.train_size))

    def _check_number(self, examples: int) -> None:
        if self.number > examples:
            raise UserError(
                f"users.number={self.number} is more than the {examples} training examples; choose "
                f"at most {examples}."
            )


@dataclass(frozen=True)
class Column:
    """The people that a column of the user's own data names.

    most: the largest number of rows of one, which is public; of others with more, so many are drawn
    at random. Draws and order of the rows follow from the seed and their number alone: with one
    person fewer, all others keep theirs, also before those who know the seed. A user's gradient is
    the mean over the rows that are left.
    """

    column: str
    most: int

    @property
    def note(self) -> str:
        """What of them is read from the data without accounting."""
        return (
            f"A user is all rows with one value of column {self.column}, of which at most "
            f"{self.most}, drawn by seed, are trained on: people with more are represented by some "
            "of theirs, and all people weigh the same. The numbers of people and of rows are taken "
            "to be public."
        )

    def units(self, dataset: Dataset) -> "Units":
        """The users, from configuration alone; UserError for a data set without people."""
        if (people := people_of(dataset)) is None:
            raise UserError(
                f"users=column takes people from a column of your own data, and {dataset.name} has "
                "none here: choose users=iid, dirichlet or shards."
            )
        return Units("user", people, [self.most] * people)

    def of(self, examples: Split, seed: int) -> "Population":
        """The examples by user."""
        assert examples.people is not None
        people = examples.people.cpu().numpy()
        order = np.argsort(people, kind="stable")
        _, starts = np.unique(people[order], return_index=True)
        by_user = [self._kept(part, seed) for part in np.split(order, starts[1:])]
        return population(examples, sorted(by_user, key=min))

    def _kept(self, rows: np.ndarray, seed: int) -> np.ndarray:
        return numpy_generator(seed, f"rows/{len(rows)}").permutation(rows)[: self.most]


Users = Synthetic | Column
"""What makes examples those of users."""


def column(column: str | None, most: int | None) -> Users:
    """The people that a column of the user's own data names; see `Column`."""
    if column is None or most is None:
        raise UserError(
            "users=column needs users.column=NAME and data of your own with this column, such as "
            "dataset=csv."
        )
    integer("users.most", most)
    return Column(column, most)


def iid(number: int, spread: float) -> Users:
    """All users have the same distribution of examples."""
    return Synthetic(
        number, spread, lambda labels, sizes, draws: draws.permutation(len(labels)), False
    )


def dirichlet(number: int, spread: float, concentration: float) -> Users:
    """Each user has a different mixture of classes (Hsu et al. 2019, "Measuring the effects of
    non-identical data distribution for federated visual classification").

    Mixtures are drawn from a Dirichlet distribution around the class frequencies: the larger the
    concentration, the more similar users are. The share of exhausted classes goes to the others.
    """
    positive("users.concentration", concentration)
    return Synthetic(number, spread, partial(_mixtures, concentration), True)


def shards(number: int, each: int) -> Users:
    """Examples sorted by class and cut into shards, of which each user gets `each`.

    McMahan et al. 2017, with two shards of 300 for each of 100 users of MNIST.
    """
    integer("users.each", each, most=MAX_SHARDS)
    return Synthetic(number, 0.0, partial(_shards, each), True)


def _mixtures(
    concentration: float, labels: np.ndarray, sizes: list[int], draws: np.random.Generator
) -> np.ndarray:
    classes, counts = np.unique(labels, return_counts=True)
    pools = [list(draws.permutation(np.flatnonzero(labels == label))) for label in classes]
    order: list[int] = []
    for size in sizes:
        mixture = draws.dirichlet(concentration * counts / counts.sum()) + 1e-12
        while size:
            remaining = np.array([len(pool) for pool in pools])
            weights = mixture * (remaining > 0)
            drawn = np.minimum(draws.multinomial(size, weights / weights.sum()), remaining)
            for pool, count in zip(pools, drawn, strict=True):
                order += [pool.pop() for _ in range(count)]
            size -= drawn.sum()
    return np.array(order)


def _shards(
    each: int, labels: np.ndarray, sizes: list[int], draws: np.random.Generator
) -> np.ndarray:
    shuffled = draws.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_class, each * len(sizes))
    return np.concatenate([pieces[i] for i in draws.permutation(len(pieces))])


def population(examples: Split, by_user: Sequence[np.ndarray]) -> "Population":
    """The examples by user. by_user: the indices of each one's examples."""
    members = torch.from_numpy(np.concatenate(by_user))
    return Population(examples, members, torch.tensor([len(part) for part in by_user]))


@dataclass(frozen=True)
class Population:
    """A split by users. members: indices int64 of the first user's examples, then of the next
    one's; sizes: how many each user has [U]."""

    examples: Split
    members: Tensor
    sizes: Tensor

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def device(self) -> torch.device:
        return self.examples.device

    def to(self, device: torch.device) -> "Population":
        return Population(self.examples.to(device), self.members.to(device), self.sizes.to(device))

    def at(self, indices: Tensor) -> Batch:
        """The users at `indices` [B] int64; groups are all 0, as they belong to examples."""
        sizes = self.sizes[indices]
        most = int(sizes.max()) if len(indices) else 1
        places = torch.arange(most, device=self.device)
        present = places < sizes.unsqueeze(1)
        # Rows are padded with the user's first example, so that no other user's data can leak in.
        first = (self.sizes.cumsum(0) - self.sizes)[indices].unsqueeze(1)
        members = self.members[first + places * present]
        flat = self.examples.at(members.flatten())
        inputs, targets = (t.unflatten(0, members.shape) for t in (flat.inputs, flat.targets))
        return Batch(inputs, targets, torch.zeros_like(sizes), present, indices)


class Units(NamedTuple):
    """The privacy units, which are sampled and protected; all of this is public.

    name: "example", or "user" for a user with all examples. sizes: the number of examples of each
    user, or a bound on it.
    """

    name: str
    number: int
    sizes: Sequence[int]


def units_of(dataset: Dataset, users: Users | None) -> Units:
    """The privacy units of a data set, from configuration alone; UserError for invalid users."""
    if not users:
        return Units("example", dataset.train_size, ())
    return users.units(dataset)
