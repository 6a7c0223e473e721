"""Attacks on nominal epsilons: lower bounds from canaries in the real training code.

The package is callable, as `from dpbench import audit` is how users import the function.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpbench.audit.code.report import CodeReport


class AuditCode(ModuleType):
    """The class of this package, which makes it callable."""

    def __call__(
        self,
        step: Callable | str | None = None,
        training: Callable | str | None = None,
        examples: Callable | str | None = None,
        **settings: object,
    ) -> "CodeReport":
        """Audit the factory of a step or of a training (docs/audit_your_code.md).

        examples: a function of their number, for code that takes no made-up ones. Each may be a
        function or its name, `package.module:name`. settings: those of `dpbench audit step=`, such
        as `noise_multiplier=1.1`. The report has a `verdict` and a `page`. Raises UserError for
        invalid settings, and for code that fails.
        """
        from dpbench.audit.code.door import report_of_functions

        return report_of_functions({"step": step, "training": training}, examples, settings)


sys.modules[__name__].__class__ = AuditCode
