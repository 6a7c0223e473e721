"""No step waits for a GPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.mechanism.step_methods import METHODS

# What a GPU would have to wait for.


class Waits(TorchDispatchMode):
    """Notes what a GPU could only answer after all that it was asked before."""

    NAMES = (
        "_local_scalar_dense",
        "item",
        "is_nonzero",
        "equal",
        "nonzero",
        "masked_select",
        "bincount",
        "_unique2",
        "repeat_interleave",
    )

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        name = function.__name__.partition(".")[0]
        if name in self.NAMES or (name == "index" and any(map(is_mask, arguments[1]))):
            self.seen.append(name)
        return function(*arguments, **(named or {}))


def is_mask(index) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


@pytest.mark.parametrize("physical", [None, 4])
@pytest.mark.parametrize("engine", ["vmap", "ghost"])
@pytest.mark.parametrize("name", METHODS)
def test_no_step_waits_for_a_gpu(monkeypatch, step_of, batch_of, engine, name, physical):
    step, batch = step_of(METHODS[name], engine=engine, physical=physical), batch_of(9)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    with Waits() as waits:
        step(batch)
    assert waits.seen == []


def test_waits_are_seen():
    x = torch.arange(3.0)
    with Waits() as waits:
        x.sum().item()
        bool(x.any())
        x[x > 1]
        torch.bincount(x.long())
    assert waits.seen == ["_local_scalar_dense", "_local_scalar_dense", "index", "bincount"]
