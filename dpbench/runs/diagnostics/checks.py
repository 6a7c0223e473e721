"""Checks the settings of diagnostics."""

from dpbench.learning.data.dataset import Split
from dpbench.system.errors import UserError
from dpbench.system.validate import is_integer, quoted


def chosen_groups(groups: list[int] | None, train: Split) -> list[int]:
    """The groups to measure, all for None; UserError for unknown groups."""
    count = int(train.groups.max()) + 1
    if groups is None:
        return list(range(count))
    check_groups(groups, count)
    return groups


def check_groups(groups: list[int], count: int) -> None:
    """UserError for a number outside 0 to count - 1."""
    if not all(is_integer(k) and 0 <= k < count for k in groups):
        raise UserError(
            f"diagnostics.groups={quoted(groups)}: the groups here are 0 to {count - 1}."
        )
