"""What the parts of a method are bound to before a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import Size

from dpbench.learning.data.dataset import Dataset
from dpbench.learning.data.derive.users import Units
from dpbench.system.errors import UserError


@dataclass(frozen=True)
class Problem:
    """A data set and its privacy units, the parameters to train on it, and for how long.

    layers: the names of the trained layers; size: the number of trained parameters, and shapes:
    theirs, in the order of theta. steps: of the run, where an example has a turn in every cycle-th.
    """

    dataset: Dataset
    units: Units
    layers: tuple[str, ...]
    size: int
    steps: int
    cycle: int
    shapes: tuple[Size, ...] = ()


class Part:
    """A part of a private step: a gradient, a clip, a noise or an update."""

    moved: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("for_groups", "for_size", "for_layers", "for_run", "for_data", "on", "seeded"),
        "read the data set, the model and the run in `bind`",
    )
    """Members of earlier versions, which parts outside of dpbench may have, and what to do."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name in vars(cls).keys() & cls.moved.keys():
            raise UserError(
                f"{cls.__module__}.{cls.__qualname__}.{name} is of an earlier version of dpbench: "
                f"{cls.moved[name]} (docs/add_a_method.md)."
            )

    def bind(self, problem: Problem) -> Self:
        """The part for a problem; raises UserError if it does not fit or is not defined for it."""
        return self
