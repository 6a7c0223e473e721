"""Random splits and sub-samples, determined by the seed and their purpose; examples joined."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch, Data, Split
from dpbench.system.errors import UserError
from dpbench.system.seeds import numpy_generator
from dpbench.system.validate import fraction

Examples = TypeVar("Examples", Batch, Split)


def joined(first: Examples, second: Examples) -> Examples:
    """The n examples and then m others [n + m, ...], none of which has users."""
    names = ["inputs", "targets", "groups"]
    if isinstance(first, Split) and first.people is not None:
        names.append("people")
    parts: dict[str, Any] = {n: torch.cat([getattr(first, n), getattr(second, n)]) for n in names}
    return replace(first, **parts)


def held_out(count: int, test_share: float) -> int:
    """The number of test examples among `count`."""
    return int(test_share * count)


def drawn(
    number: int, people: np.ndarray | None, share: float, draws: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the examples that are kept, and of those held out: a share of the examples, or
    with people [n] all examples of a share of these."""
    if people is None:
        order, count = draws.permutation(number), held_out(number, share)
        return order[count:], order[:count]
    everybody = draws.permutation(np.unique(people))
    out = np.isin(people, everybody[: held_out(len(everybody), share)])
    return np.flatnonzero(~out), np.flatnonzero(out)


def held_out_together(people: np.ndarray, count: int, draws: np.random.Generator) -> np.ndarray:
    """Whether each example [n] is held out: exactly `count` are, all or none of each person.

    people: the number of each example's person. People are drawn in a random order, and those who
    have more examples than are still wanted are passed over. UserError if no choice of this kind
    has the right number.
    """
    numbers, sizes = np.unique(people, return_counts=True)
    chosen = []
    for place in draws.permutation(len(numbers)):
        if sizes[place] <= count:
            chosen.append(numbers[place])
            count -= sizes[place]
    if count:
        raise UserError("no choice of whole people has this share of the examples: take another.")
    return np.isin(people, chosen)


def check_test_share(test_share: float, count: int) -> None:
    """UserError for a share of `count` examples that is none of them."""
    fraction("test_share", test_share)
    if held_out(count, test_share) == 0:
        raise UserError(f"test_share={test_share} leaves no example to test on.")


def shuffle_and_split(examples: Split, test_share: float, seed: int) -> Data:
    """Shuffle; the first int(test_share * n) of the n examples are the test set."""
    return shuffle_and_count(examples, held_out(len(examples), test_share), seed)


def shuffle_and_count(examples: Split, count: int, seed: int) -> Data:
    """Shuffle; the first `count` examples are the test set."""
    order = torch.from_numpy(numpy_generator(seed, "split").permutation(len(examples)))
    return Data(train=examples.take(order[count:]), test=examples.take(order[:count]))


def subsample(examples: Split, marked: Tensor, keep: float, seed: int) -> Split:
    """Keep each example that is `marked` [n] bool with probability `keep`, and all others."""
    kept = torch.from_numpy(numpy_generator(seed, "thin").random(len(examples)) < keep)
    return examples.take(kept | ~marked)
