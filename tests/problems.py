"""Problems for methods in tests: as much of a data set and a model as they ask for."""

from dataclasses import dataclass

from torch import Size

from dpbench.learning.data.derive.users import Users, units_of
from dpbench.step.clipping import Problem
from dpbench.step.mechanism.gradient import ReleasedState

START = ReleasedState(0, 1, None)

SIZE, LAYERS = 579, ("0", "2")
SHAPES = tuple(map(Size, [(64, 5), (64,), (3, 64), (3,)]))
"""The parameters and trained layers of the model of step_of."""


@dataclass(frozen=True)
class Made:
    """As much of a data set as a method asks for."""

    groups: tuple[str, ...] = ("a", "b", "c")
    name: str = "made"
    train_size: int = 80  # of 20 users four each, as many as the largest of users_of
    task: str = "classification"
    classes: int = 3


def problem(
    dataset: Made | None = None,
    users: Users | None = None,
    *,
    layers: tuple[str, ...] = LAYERS,
    size: int = SIZE,
    steps: int = 1,
    cycle: int = 1,
) -> Problem:
    dataset = dataset or Made()
    return Problem(dataset, units_of(dataset, users), layers, size, steps, cycle, SHAPES)
