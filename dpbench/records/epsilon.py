"""The epsilon of a record that may be shown, given its guarantee."""

import math
from typing import TypeGuard

WITH_EPSILON = ("proven", "approximate")
"""The guarantees with which an epsilon may be shown."""

NOT_PRIVATE = "not private"
NO_PROOF = "no proof"
NOT_COMPUTED = "not computed"


def epsilon_or_reason(privacy: dict, accountant: str) -> float | str:
    """The epsilon by an accountant if it is finite and the guarantee supports it, else a reason."""
    value = privacy.get(accountant)
    if is_recorded_number(value) and math.isinf(value):
        return NOT_PRIVATE
    if privacy["guarantee"] not in WITH_EPSILON:
        return NO_PROOF
    return value if is_recorded_number(value) and value >= 0 else NOT_COMPUTED


def is_recorded_number(value: object) -> TypeGuard[float]:
    """Whether a value of a record is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
