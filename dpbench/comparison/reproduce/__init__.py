"""Reproduces tables and figures of papers: executes their runs, and renders the files.

The package is callable, as `from dpbench import reproduce` is how users import the function.
"""

import sys
from types import ModuleType


class MarkdownPage(str):
    """A Markdown page, which notebooks render."""

    def _repr_markdown_(self) -> str:
        return str(self)


class CallablePackage(ModuleType):
    """The class of this package, which makes it callable."""

    def __call__(self, table: str = "", /, *overrides: str, **settings: object) -> MarkdownPage:
        """Execute the missing runs of a table, write `results/tables/TABLE.*`, and return its page.

        overrides, settings: see `dpbench.run`; `scale="cpu_hour"` runs a smaller one.
        Raises UserError for an unknown table and for invalid settings.
        """
        from dpbench.comparison.reproduce.command import reproduce
        from dpbench.runs.execution.python_api import as_overrides

        name = table or str(settings.pop("table", ""))
        return MarkdownPage(reproduce(name, as_overrides(overrides, settings)))


sys.modules[__name__].__class__ = CallablePackage
