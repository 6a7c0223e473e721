"""What tests of several files watch."""

import pytest

from dpbench.step.gradients.rows.check import RowCheck


@pytest.fixture
def followed(monkeypatch):
    """The numbers of rows of all passes that are followed, or compared with one that was."""
    sizes = []

    def counted(watch):
        def counting(self, inputs, *rest):
            sizes.append(len(inputs))
            return watch(self, inputs, *rest)

        return counting

    for name in ("_followed", "_compared"):
        monkeypatch.setattr(RowCheck, name, counted(getattr(RowCheck, name)))
    return sizes
