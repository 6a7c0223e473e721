"""What the settings of diagnostics are held against."""

from dpbench.data.dataset import Split
from dpbench.errors import UserError


def chosen_groups(groups: list[int] | None, train: Split) -> list[int]:
    """The groups to look at, None for all; UserError for groups no training example can be in."""
    count = int(train.groups.max()) + 1
    if groups is None:
        return list(range(count))
    if not all(0 <= k < count for k in groups):
        raise UserError(f"diagnostics.groups={groups}: the groups here are 0 to {count - 1}.")
    return groups
