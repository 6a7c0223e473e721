"""What a model computes in: inside the context, and again as before outside."""

import pytest
import torch

from dpbench.step.gradients.precision import (
    PRECISIONS,
    Precision,
    at_least_float32,
    full_precision_products,
)
from dpbench.system.errors import UserError

CPU = torch.device("cpu")


def tf32() -> list[bool]:
    """Whether products and convolutions of a GPU may be rounded to TF32."""
    return [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32]


@pytest.mark.parametrize(
    ("name", "dtype", "rounded"),
    [
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("bf16", torch.bfloat16, False),
    ],
)
def test_a_precision_holds_inside_its_context_and_nowhere_else(name, dtype, rounded):
    before, x = tf32(), torch.rand(3, 3)
    with full_precision_products(), Precision(name).model(CPU):
        assert (x @ x).dtype == dtype
        assert tf32() == [rounded] * 2
    assert (x @ x).dtype == torch.float32
    assert tf32() == before


def test_an_error_inside_leaves_nothing_behind():
    before = tf32()
    with pytest.raises(ZeroDivisionError), Precision("tf32").model(CPU):
        raise ZeroDivisionError
    assert tf32() == before


def test_around_a_model_in_tf32_everything_else_is_in_float32():
    before = tf32()
    with full_precision_products():
        assert tf32() == [False, False]
        with Precision("tf32").model(CPU):
            assert tf32() == [True, True]
        assert tf32() == [False, False]
    assert tf32() == before


def test_a_precision_set_beside_the_one_that_is_read_is_named(monkeypatch):
    """As by `torch.backends.cuda.matmul.fp32_precision`, which no later setting quite undoes."""

    def mixed():
        raise RuntimeError("PyTorch is checking the matmul precision without a specific backend")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    with pytest.raises(UserError, match=r"`fp32_precision`.*call torch.set_float32_matmul_prec"):
        full_precision_products()


def test_double_precision_stays_and_unknown_ones_are_refused():
    x = torch.rand(3, 3, dtype=torch.float64)
    with Precision("bf16").model(CPU):
        assert (x @ x).dtype == torch.float64
    with pytest.raises(UserError, match="precision=bf61 is unknown: did you mean bf16"):
        Precision("bf61")
    assert all(Precision(name).name == name for name in PRECISIONS)


@pytest.mark.parametrize(
    ("dtype", "fuller"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.int64, torch.int64),
    ],
)
def test_only_short_floats_are_made_longer(dtype, fuller):
    assert at_least_float32(torch.ones(2, dtype=dtype)).dtype == fuller
