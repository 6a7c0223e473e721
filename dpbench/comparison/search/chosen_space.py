"""The search space of a search: of the method that is run, or of another."""

from dpbench.runs.config.compose import compose
from dpbench.runs.config.method_space import ranges_of, searchable, space_of
from dpbench.runs.config.overrides import split_ranges
from dpbench.runs.config.settings import key_of
from dpbench.system.errors import UserError
from dpbench.system.validate import one_of

OF_THE_METHOD = "method"
"""The space that is named as the method of the runs."""


def with_space(name: str, overrides: list[str]) -> list[str]:
    """The overrides, after the ranges of a space for settings that they do not set themselves;
    UserError for a broken space."""
    given = {key_of(override) for override in overrides}
    return [*(f"{k}={v}" for k, v in ranges_of(name).items() if k not in given), *overrides]


def method_of_space(name: str, overrides: list[str]) -> str:
    """The method whose space is meant: one that is named, or that of the runs (OF_THE_METHOD);
    UserError for one without a space."""
    if name == OF_THE_METHOD:
        name = _method(overrides)
        if not space_of(name):
            raise UserError(
                f"method={name} has no search space: write `search:` with ranges into its YAML "
                "file, or give ranges such as optimizer.lr=tag(log,interval(1e-3,1))."
            )
    return one_of("space", name, searchable())


def _method(overrides: list[str]) -> str:
    """The method of the runs; UserError where several are searched."""
    ranges, fixed = split_ranges(overrides)
    if searched := [r for r in ranges if r.key == OF_THE_METHOD]:
        raise UserError(
            f"space=method is that of one method, not of {searched[0].text}: search each by itself."
        )
    return compose(fixed)["choices"][OF_THE_METHOD]
