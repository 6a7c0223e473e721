"""Users: whose examples are whose, where a person has several and is protected with all of them.

Nobody publishes users for these data sets, so they are made up: `users` deals the training examples
out by the run's seed. How many users there are, and how many examples each has, is configuration
and public.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpbench.data.dataset import Batch, Dataset, Split
from dpbench.errors import UserError
from dpbench.seeds import numpy_generator
from dpbench.validate import integer, number, positive

MOST_PIECES = 10_000
"""For a user; with more than the examples, the others are empty."""

Deal = Callable[[np.ndarray, list[int], np.random.Generator], np.ndarray]
"""Labels [n], sizes that add up to n, and draws, to an order [n]: the first user gets the first
sizes[0] examples of it, and so on."""


@dataclass(frozen=True)
class Users:
    """So many users; spread: of their sizes, the standard deviation of the logarithm.

    deal: who gets which examples. by_label: whether it looks at classes.
    """

    number: int
    spread: float
    deal: Deal
    by_label: bool

    def __post_init__(self) -> None:
        integer("users.number", self.number)
        number("users.spread", self.spread, 0, 10)

    def sizes(self, examples: int) -> list[int]:
        """How many of the examples each user has, at least one: quantiles of a log-normal law."""
        places = [(user + 0.5) / self.number for user in range(self.number)]
        parts = np.exp([self.spread * NormalDist().inv_cdf(place) for place in places])
        ends = np.cumsum(parts) / parts.sum() * (examples - self.number)
        return [int(size) + 1 for size in np.diff(np.round(ends), prepend=0)]

    def of(self, examples: Split, seed: int) -> "Population":
        """The examples, dealt out; UserError for fewer examples than users."""
        self._check_number(len(examples))
        draws = numpy_generator(seed, "users")
        sizes = self.sizes(len(examples))
        order = self.deal(examples.targets.cpu().numpy(), sizes, draws)
        owned = [draws.permutation(part) for part in np.split(order, np.cumsum(sizes)[:-1])]
        # A user's first example says which number it has, so that users of one example each are
        # the examples in their order.
        return _population(examples, sorted(owned, key=min))

    def check(self, dataset: Dataset) -> None:
        """UserError for a data set that cannot be dealt out like that."""
        self._check_number(dataset.train_size)
        if self.by_label and dataset.task != "classification":
            raise UserError(f"{dataset.name} has no classes to deal out by: use users=iid.")

    def _check_number(self, examples: int) -> None:
        if self.number > examples:
            raise UserError(
                f"users.number={self.number} is more than the {examples} training examples; choose "
                f"at most {examples}."
            )


def iid(number: int, spread: float) -> Users:
    """Everybody's examples are drawn alike, whatever their class."""
    return Users(number, spread, lambda labels, sizes, draws: draws.permutation(len(labels)), False)


def dirichlet(number: int, spread: float, concentration: float) -> Users:
    """Each user has a mixture of classes of its own (Hsu et al. 2019, "Measuring the effects of
    non-identical data distribution for federated visual classification").

    It is drawn from a Dirichlet law around the classes' frequencies: the larger the concentration,
    the more alike users are. Classes that are used up leave their share to the others.
    """
    positive("users.concentration", concentration)
    return Users(number, spread, partial(_mixtures, concentration), True)


def shards(number: int, each: int) -> Users:
    """Examples in the order of their classes, cut into pieces of which everybody gets `each`.

    McMahan et al. 2017, with two pieces of 300 for each of 100 users of MNIST.
    """
    integer("users.each", each, most=MOST_PIECES)
    return Users(number, 0.0, partial(_pieces, each), True)


def _mixtures(
    concentration: float, labels: np.ndarray, sizes: list[int], draws: np.random.Generator
) -> np.ndarray:
    classes, counts = np.unique(labels, return_counts=True)
    pools = [list(draws.permutation(np.flatnonzero(labels == one))) for one in classes]
    order: list[int] = []
    for size in sizes:
        mixture = draws.dirichlet(concentration * counts / counts.sum()) + 1e-12
        while size:
            left = np.array([len(pool) for pool in pools])
            wanted = mixture * (left > 0)
            taken = np.minimum(draws.multinomial(size, wanted / wanted.sum()), left)
            for pool, some in zip(pools, taken, strict=True):
                order += [pool.pop() for _ in range(some)]
            size -= taken.sum()
    return np.array(order)


def _pieces(
    each: int, labels: np.ndarray, sizes: list[int], draws: np.random.Generator
) -> np.ndarray:
    shuffled = draws.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_class, each * len(sizes))
    return np.concatenate([pieces[place] for place in draws.permutation(len(pieces))])


def _population(examples: Split, owned: list[np.ndarray]) -> "Population":
    most = max(map(len, owned))
    # A row is filled up with the user's own first example, so nothing of others can come in.
    rows = [np.concatenate([part, np.full(most - len(part), part[0])]) for part in owned]
    members, sizes = torch.from_numpy(np.stack(rows)), torch.tensor([len(part) for part in owned])
    return Population(examples, members, sizes)


@dataclass(frozen=True)
class Population:
    """A split by users: members [U, K] int64 numbers examples, of which sizes [U] are a user's."""

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
        """The users at `indices` [B] int64; groups, which are of examples, are all 0."""
        sizes = self.sizes[indices]
        most = int(sizes.max()) if len(indices) else 1
        members = self.members[indices, :most]
        flat = self.examples.at(members.flatten())
        inputs, targets = (t.unflatten(0, members.shape) for t in (flat.inputs, flat.targets))
        present = torch.arange(most, device=self.device) < sizes.unsqueeze(1)
        return Batch(inputs, targets, torch.zeros_like(sizes), present, indices)


class Units(NamedTuple):
    """What is sampled and protected, as far as it is public.

    name: "example", or "user" for a user with all of its examples. sizes: how many each user has.
    """

    name: str
    number: int
    sizes: Sequence[int]


def units_of(dataset: Dataset, users: Users | None) -> Units:
    """The units of a data set, from configuration alone; UserError where users cannot be made."""
    if not users:
        return Units("example", dataset.train_size, ())
    users.check(dataset)
    return Units("user", users.number, users.sizes(dataset.train_size))
