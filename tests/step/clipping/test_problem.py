"""Parts that were written for an earlier version."""

import pytest

from dpbench.privacy.guarantee import PROVEN
from dpbench.step.clipping import Abadi, ByNorm, Clip
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.update import Plain
from dpbench.system.errors import UserError


@pytest.mark.parametrize(
    ("of", "name", "instead"),
    [
        (ByNorm, "caveat", "`Sensitivity`"),
        (Clip, "excess", "`Sensitivity`"),
        (Clip, "counts_by_norm", "`counts`"),
        (Clip, "for_groups", "`bind`"),
        (Plain, "on", "`bind`"),
    ],
)
def test_a_member_that_would_no_longer_be_called_is_refused(of, name, instead):
    with pytest.raises(UserError, match=rf"Mine\.{name} is of an earlier version.*{instead}"):
        type("Mine", (of,), {name: None})


def test_numbers_and_functions_in_place_of_parts_are_refused():
    class Mine(Abadi):
        sensitivity = 1.0

    with pytest.raises(UserError, match=r"return Sensitivity\(number\)"):
        Method("mine", Mine(1.0), PROVEN)
    with pytest.raises(UserError, match=r"must be a dpbench\.mechanism\.gradient\.Gradient"):
        Method("mine", Abadi(1.0), PROVEN, gradient=lambda engine, *_: engine)
