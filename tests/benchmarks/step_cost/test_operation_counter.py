"""A step made by hand costs what is known of it."""

import gc
from dataclasses import astuple

import pytest
import torch
from dpbench.benchmarks.step_cost.counted import gpu_decisions
from dpbench.benchmarks.step_cost.operation_counter import (
    KERNEL_SECONDS,
    SINGLE_KERNEL_GROUPS,
    OperationCounter,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F


def costs(step, *shapes, dtype=torch.float32):
    """The costs by operation of a step on fake tensors: calls, kernels, bytes, waits, peak."""
    with FakeTensorMode():
        tensors = [torch.empty(shape, dtype=dtype) for shape in shapes]
        with OperationCounter() as counter:
            step(*tensors)
    return {name: astuple(cost)[:5] for name, cost in counter.costs.items()}


def product_and_sum(x, w, total):
    total.add_(x @ w)
    total.sum().item()


def test_a_product_an_addition_in_place_and_a_read_value():
    product = 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert costs(product_and_sum, (64, 32), (32, 16), (64, 16)) == {
        "mm": (1, 1, product, 0, 4 * 64 * 16),
        "add_": (1, 1, 3 * 4 * 64 * 16, 0, 0),
        "sum": (1, 1, 4 * 64 * 16 + 4, 0, 0),  # the product is gone: the peak does not rise
        "_local_scalar_dense": (1, 0, 0, 1, 0),
    }


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("step", "cost"),
    [
        (lambda x: x.T.flatten(0, 0)[:3].detach(), [(0, 0, 0)]),
        (lambda x: torch.empty_like(x), [(0, 0, 64)]),
        (lambda x: x.zero_(), [(1, 64, 0)]),  # writes without reading
        (lambda x: x.copy_(x), [(1, 128, 0)]),
        (lambda x: x[0].expand(4, 4) * 2, [(0, 0, 0), (1, 16 + 64, 64)]),  # a row is read once
        (lambda x: (x.exp().log_(), x.exp()), [(2, 256, 128), (1, 128, 0)]),
        (lambda x: len([x.exp() for _ in range(3)]), [(3, 384, 192)]),
        (lambda x: [x.exp() is None for _ in range(3)], [(3, 384, 64)]),  # freed at once
        (lambda x: torch.sort(x), [(4, 64 + 64 + 128, 64 + 128)]),
    ],
)
def test_kernels_bytes_and_peak(step, cost):
    given = [c[1:3] + c[4:] for c in costs(step, (4, 4)).values()]
    assert [c for c in given if any(c)] == [c for c in cost if any(c)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "read", [lambda x: x.cpu(), lambda x: bool((x > 0).any()), torch.Tensor.max]
)
def test_waits(read):
    waits = sum(cost[3] for cost in costs(read, (4, 4)).values())
    assert waits == (read is not torch.Tensor.max)


def test_each_group_of_a_convolution_has_its_kernel():
    groups = SINGLE_KERNEL_GROUPS
    for count, channels, kernels in ((groups, 2, groups), (groups, 1, 1), (1, 2 * groups, 1)):
        shapes = (1, count * channels, 8, 8), (count * 2 if channels > 1 else count, channels, 3, 3)
        made = costs(lambda x, w, count=count: F.conv2d(x, w, groups=count), *shapes)
        assert made["convolution"][1] == kernels


def test_the_time_is_that_of_bytes_arithmetic_or_kernels():
    def device_us(n, dtype):
        with FakeTensorMode():
            x = torch.empty(n, n, dtype=dtype)
            with OperationCounter() as counter:
                x @ x
        return counter.costs["mm"].device_us

    assert device_us(8, torch.float32) == pytest.approx(1e6 * KERNEL_SECONDS)
    assert device_us(8192, torch.float32) == pytest.approx(1e6 * 2 * 8192**3 / 45e12)
    assert device_us(8192, torch.float64) == pytest.approx(1e6 * 2 * 8192**3 / 50e12)


def test_everything_is_as_before_afterwards():
    with gpu_decisions():
        assert torch.ones(1).is_cuda
    assert not torch.ones(1).is_cuda
    with pytest.raises(ValueError, match="ours"), OperationCounter():
        raise ValueError("ours")
    assert gc.isenabled()
    assert costs(lambda x: x.cpu(), (2,)).keys() == {"cpu"}
