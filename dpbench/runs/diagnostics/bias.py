"""The bias of the clipped batch gradient, step by step, for any method.

Figures 2, 4, 5 and 6 and Theorem 1 of Knolle et al. 2023.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.learning.data.examples import Batch, Split
from dpbench.runs.diagnostics.batch import unaugmented
from dpbench.runs.diagnostics.batch_bias import bias_over_batch_sizes, measure
from dpbench.runs.diagnostics.observer import Observer, chosen_groups
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system import seeds
from dpbench.system.errors import UserError
from dpbench.system.validate import Count, Share, one_of

EXAMPLES = ("batch", "probe", "all")


@dataclass(frozen=True)
class BiasDiagnostics:
    """Bias of the clipped batch gradient and alignment of the ascent step, every few steps.

    every: steps between measurements. examples: those measured: "batch", of the step, augmented;
    or, not augmented, "probe", a fixed random subset of probe_size training examples, or "all".
    chunk: examples per pass, which bounds memory. groups: numbers of those to measure separately,
    None for all if there are several. quantiles: of the gradient norms, each from 0 to 1. sizes: of
    random batches that are measured at the last parameters, `repeats` of each.
    """

    every: Count
    examples: str
    probe_size: Count
    chunk: Count
    groups: list[int] | None
    quantiles: list[Share]
    sizes: list[Count]
    repeats: Count

    of_gradients = True

    def __post_init__(self) -> None:
        one_of("diagnostics.examples", self.examples, EXAMPLES)

    def observer(
        self, step: PrivateStep, train: Split, test: Split | None = None
    ) -> "BiasObserver":
        """An observer of `step`; UserError for sizes beyond the training split."""
        if max(self.sizes, default=0) > len(train):
            raise UserError(
                f"diagnostics.sizes={self.sizes} exceeds the {len(train)} training examples."
            )
        groups = chosen_groups(self.groups, train)
        if self.groups is None and len(groups) == 1:
            groups = []
        measured = self._examples_of(train)
        if measured is not None and step.method.whole_batches and len(measured) > self.chunk:
            raise UserError(
                f"{step.method.name} needs examples in one piece; set diagnostics.examples=batch, "
                f"or diagnostics.chunk={len(measured)}."
            )
        return BiasObserver(self, groups, measured, step, train)

    def _examples_of(self, train: Split) -> Tensor | None:
        """Indices [n] of the training examples to measure; None for those of each batch."""
        device = train.targets.device
        if self.examples == "batch":
            return None
        if self.examples == "all":
            return torch.arange(len(train), device=device)
        if self.probe_size > len(train):
            raise UserError(
                f"diagnostics.probe_size={self.probe_size} is more than the {len(train)} training "
                "examples; use diagnostics.examples=all."
            )
        draw = seeds.generator(0, "diagnostics probe", torch.device("cpu"))
        return torch.randperm(len(train), generator=draw)[: self.probe_size].sort()[0].to(device)


class BiasObserver(Observer):
    """Measures before a step.

    Columns of `series`, one entry per measured step: `step` (the number of earlier steps), and
    every name of `measure` as `step/NAME`, and as `step/NAME/k` for each group's number k. With
    `sizes`, also those of `bias_over_batch_sizes` as `end/NAME`, one entry per batch.
    """

    def __init__(
        self,
        settings: BiasDiagnostics,
        groups: list[int],
        measured: Tensor | None,
        step: PrivateStep,
        train: Split,
    ):
        super().__init__(step)
        self._settings, self._groups, self._measured = settings, groups, measured
        self._train = train

    def before(self, batch: Batch) -> None:
        if self._steps_done % self._settings.every == 0:
            parts = self._parts(batch)
            values = measure(self._step, parts, self._groups, self._settings.quantiles)
            self.columns["step"].append(self._steps_done)
            for name, value in values.items():
                self.columns[f"step/{name}"].append(value)

    def series(self) -> dict[str, list]:
        """The columns; those at the last parameters are measured by this call."""
        # The same batches for every method and seed on the same split.
        draw = seeds.generator(0, "diagnostics sizes", torch.device("cpu"))
        about = self._settings.sizes, self._settings.repeats, draw
        at_the_end = bias_over_batch_sizes(self._step, self._train, *about)
        return {**self.columns, **{f"end/{name}": values for name, values in at_the_end.items()}}

    def _parts(self, batch: Batch) -> Iterable[Batch]:
        step, chunk = self._step, self._settings.chunk
        size = min(chunk, step.physical.size or chunk)
        if self._measured is None:
            return batch.split(None if step.method.whole_batches else size)
        parts = (self._train.at(indices) for indices in self._measured.split(size))
        return (unaugmented(step.engine, part) for part in parts)
