"""A metric as one value: label, unit, digits, direction, and the difference that matters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Better = Literal["higher", "lower"]
MetricKind = Literal["utility", "calibration", "fairness", "privacy", "cost"]
FACTORS = {"percent": 100, "nats": 1, "": 1}
"""Factors from recorded values to a unit: records contain fractions."""


def sign_of(better: Better | None) -> int:
    """1 for "higher", -1 for "lower"; ValueError where no direction is better."""
    if better is None:
        raise ValueError("neither direction is better")
    return 1 if better == "higher" else -1


@dataclass(frozen=True)
class Margin:
    """The largest difference of a metric that does not matter: absolute, and a share of its value.
    absolute: in the unit in which it is shown; relative: a fraction."""

    absolute: float = 0.0
    relative: float = 0.0

    def __str__(self) -> str:
        """`0.5`, or `2 %`."""
        return f"{100 * self.relative:g} %" if self.relative else f"{self.absolute:g}"

    def in_records(self, factor: float) -> "Margin":
        """The margin in the unit of the records, of which a factor makes that which is shown."""
        return Margin(self.absolute / factor, self.relative)

    def at(self, value: float) -> float:
        """The margin around a value, in its unit."""
        return self.absolute + self.relative * abs(value)


OTHER_MARGIN = Margin(relative=0.05)
"""Of metrics and series that state no margin of their own."""


@dataclass(frozen=True)
class Metric:
    """How a metric is shown, the differences of it that matter, and how it is computed.

    digits: decimals in its unit; None if they depend on the data. better: the better direction;
    None if there is none. margin: what a reader would not choose a method for. compute: from
    outputs [n, K], targets [n] and groups [n] of a held-out split to the value, a fraction where
    the unit is percent; None for those that come from elsewhere than outputs. task: of the data
    sets on which it is computed. is_bound: whether it is an upper bound, which is rounded up.
    is_offered: whether the report offers to compare methods by it.
    """

    label: str
    unit: Literal["percent", "nats", ""]
    digits: int | None
    better: Better | None
    kind: MetricKind = "utility"
    margin: Margin = OTHER_MARGIN
    compute: "Callable[[Tensor, Tensor, Tensor], float] | None" = None
    task: Literal["classification", "regression", "language_model"] = "classification"
    is_bound: bool = False
    is_offered: bool = True

    @property
    def factor(self) -> int:
        """100 for a fraction shown in percent, else 1."""
        return FACTORS[self.unit]

    @property
    def sign(self) -> int:
        """1 if a larger value is better, -1 if a smaller one is; ValueError if neither is."""
        return sign_of(self.better)
