"""The search space: settings with the values they may take, and random draws from it. That of a
method, `search` in its file, has what its paper tunes and on which scale."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench.runs.config.search_path import file_of, options
from dpbench.runs.config.yaml_files import read_settings
from dpbench.system.errors import UserError, nearest
from dpbench.system.seeds import numpy_generator
from dpbench.system.validate import SMALLEST, number, quoted

if TYPE_CHECKING:
    import numpy as np


DIGITS = 4
"""The digits of a number drawn from an interval, relative to its width: few enough to copy."""

DRAWS_PER_CONFIGURATION = 100
"""The most draws for each configuration, as repeated ones are discarded."""

SEARCH = "search"
"""The key in the file of a method, which no run is composed of."""

START = "start"
"""The key of a search space that is no range."""


@dataclass(frozen=True)
class Choices:
    """A setting and the values to choose from, as text for a command line."""

    key: str
    values: tuple[str, ...]
    tags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.tags:
            raise UserError(
                f"{self.key}: only an interval takes a tag, as in tag(log,interval(1,9))."
            )
        if not self.values:
            raise UserError(f"{self.key} has a range without values.")

    @property
    def size(self) -> float:
        return len(self.values)

    @property
    def first(self) -> str:
        return self.values[0]

    @property
    def text(self) -> str:
        return ",".join(self.values)

    def draw(self, generator: "np.random.Generator") -> str:
        return self.values[generator.integers(len(self.values))]


@dataclass(frozen=True)
class Interval:
    """A setting and the bounds of its values, both included; whole numbers if both bounds are int.
    tags: nothing, or "log" for a uniform draw of the logarithm."""

    key: str
    low: float
    high: float
    tags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for tag in sorted(self.tags - {"log"}):
            raise UserError(f"{self.key}: tag {tag} is unknown: {nearest(tag, ['log'])}")
        for bound in (self.low, self.high):
            number(f"{self.key}: each bound of {self.text}", bound)
        if not self.low < self.high:
            raise UserError(f"{self.key}: the first bound of {self.text} must be below the second.")
        if self.log and self.low < SMALLEST:
            raise UserError(f"{self.key}: {self.text} needs bounds above 0.")

    @property
    def log(self) -> bool:
        return "log" in self.tags

    @property
    def integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def size(self) -> float:
        return self.high - self.low + 1 if self.integer else math.inf

    @property
    def first(self) -> str:
        return repr(self.low)

    @property
    def text(self) -> str:
        plain = f"interval({self.low:g},{self.high:g})"
        plain = f"int({plain})" if self.integer else plain
        return f"tag(log,{plain})" if self.log else plain

    def draw(self, generator: "np.random.Generator") -> str:
        if self.log:
            return self.write(math.exp(generator.uniform(math.log(self.low), math.log(self.high))))
        if self.integer:
            return self.write(int(generator.integers(int(self.low), int(self.high), endpoint=True)))
        return self.write(generator.uniform(self.low, self.high))

    def write(self, value: float) -> str:
        """The value as text, rounded but within the bounds."""
        if self.integer:
            return repr(round(value))
        width = value * math.log(self.high / self.low) if self.log else self.high - self.low
        rounded = round(value, DIGITS - 1 - math.floor(math.log10(width)))
        return repr(min(max(rounded, self.low), self.high))


Range = Choices | Interval
Configuration = tuple[str, ...]
"""One value of each range, in their order, as text for a command line."""


def override_texts(values: Mapping[str, str]) -> list[str]:
    """Values by key, as on a command line."""
    return [f"{key}={value}" for key, value in values.items()]


@dataclass(frozen=True)
class Space:
    """All combinations of ranges."""

    ranges: tuple[Range, ...]

    @property
    def size(self) -> float:
        """The number of configurations; infinite with an interval of real numbers."""
        return math.prod(range_.size for range_ in self.ranges)

    def values(self, configuration: Configuration) -> dict[str, str]:
        """The values by key."""
        return dict(zip((range_.key for range_ in self.ranges), configuration, strict=True))

    def random(self, count: int, draw: int, start: int = 0) -> list[Configuration]:
        """The first `count` different configurations of a random sequence, or all that it has.

        draw: the seed of the sequence; start: how much of it is left out. Each setting has its own
        generator, so its draws depend neither on the count nor on the other ranges.
        """
        configurations: dict[Configuration, None] = {}
        for attempt in range(start, start + DRAWS_PER_CONFIGURATION * count):
            if len(configurations) >= min(count, self.size):
                break
            drawn = (
                range_.draw(numpy_generator(draw, f"search {range_.key} {attempt}"))
                for range_ in self.ranges
            )
            configurations[tuple(drawn)] = None
        return list(configurations)


def space_of(method: str) -> dict[str, Any]:
    """The search space of a method, empty if its file has none; UserError for a broken one."""
    path = file_of("method", method)
    space = read_settings(path).get(SEARCH, {}) if path else {}
    if not isinstance(space, dict):
        raise UserError(f"{SEARCH} of {path} must be a mapping of ranges, got {quoted(space)}.")
    return space


def ranges_of(method: str) -> dict[str, str]:
    """The ranges of the space of a method by key, as on a command line."""
    return {key: str(value) for key, value in space_of(method).items() if key != START}


def searchable() -> list[str]:
    """The methods that have a search space."""
    return [method for method in options("method") if space_of(method)]
