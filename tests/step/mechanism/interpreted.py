"""The kernel of a GPU's noise by Triton's interpreter, which runs on a processor."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest


@contextmanager
def interpreted_kernel() -> Iterator[ModuleType]:
    """The kernel's module, interpreted; another may have imported it to be compiled."""
    pytest.importorskip("triton")
    name = "dpbench.step.mechanism.gpu_noise"
    imported = sys.modules.pop(name, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        yield importlib.import_module(name)
    sys.modules.pop(name)
    if imported:
        sys.modules[name] = imported
