"""Physical batches: the parts into which a logical batch is split to bound memory."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from operator import itemgetter
from typing import TypeVar

from dpbench.learning.data.examples import Batch, Lengths
from dpbench.system.errors import UserError
from dpbench.system.memory import is_out_of_memory, run_with_halving

Summand = TypeVar("Summand")


@dataclass
class PhysicalBatches:
    """Splits logical batches into physical ones of at most `size` examples; None for no split.

    adaptive: whether the size is halved where memory runs out, instead of raising an error.
    lengths: those of texts, of which a physical batch then has one; users are not split by it.
    """

    size: int | None = None
    adaptive: bool = False
    lengths: Lengths | None = None

    def split(self, batch: Batch) -> list[Batch]:
        return self._parts(batch, self.size)

    def _parts(self, batch: Batch, size: int | None) -> list[Batch]:
        if self.lengths is None or batch.present is not None:
            return batch.split(size)
        groups = self.lengths.groups(batch.inputs)
        return [
            part
            for places, length in groups
            for part in batch.each(itemgetter(places)).cut(length).split(size)
        ]

    def sum(
        self, batch: Batch, work: Callable[[Batch], Summand], indivisible_for: str | None = None
    ) -> Summand:
        """The sum of `work` over the physical batches, restarted with half the size if adaptive.

        `work` must have no side effects. indivisible_for: the name of a method that needs each
        batch in one piece. Raises UserError where memory runs out and the size is not adaptive, or
        one example does not fit.
        """

        whole = len(batch)
        start = whole if self.size is None else min(self.size, whole)
        if self.adaptive:
            results, fitted = run_with_halving(partial(self._total, batch, work), start)
            if fitted < start:
                self.size = fitted
            return results
        try:
            one = start == whole and (self.lengths is None or indivisible_for)
            return work(batch) if one else self._total(batch, work, start)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(_too_large(start, indivisible_for)) from error

    def _total(self, batch: Batch, work: Callable[[Batch], Summand], size: int) -> Summand:
        return reduce(operator.add, map(work, self._parts(batch, size)))


def _too_large(size: int, indivisible_for: str | None) -> str:
    if indivisible_for:
        return (
            f"memory runs out with {size} examples, and {indivisible_for} needs each batch in one "
            "piece; choose a smaller batch_size or a device with more memory."
        )
    return f"memory runs out with {size} examples at once; choose physical_batch_size=auto."
