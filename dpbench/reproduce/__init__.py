"""Reproduces tables and figures of papers: executes their runs, and renders the files.

The package can be called, since `from dpbench import reproduce` is its name for users too.
"""

import sys
from types import ModuleType


class Page(str):
    """A page in Markdown, which a notebook shows as one."""

    def _repr_markdown_(self) -> str:
        return str(self)


class Reproduce(ModuleType):
    """This package, as a function."""

    def __call__(self, table: str, *overrides: str, **settings: object) -> Page:
        """Execute the missing runs of a table, write `results/tables/TABLE.*`, and return its page.

        overrides, settings: see `dpbench.run`; `scale="cpu_hour"` is a smaller one. Raises
        UserError for an unknown table, and for settings that are refused.
        """
        from dpbench.execution.python_api import as_overrides
        from dpbench.reproduce.command import reproduce

        return Page(reproduce(table, as_overrides(overrides, settings)))


sys.modules[__name__].__class__ = Reproduce
