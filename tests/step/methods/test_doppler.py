"""The low-pass filter: against scipy's, and what it does to signal and noise."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import signal

from dpbench.step.mechanism.state import restore_state, state_of
from dpbench.step.methods.doppler import LowPass, doppler
from dpbench.system.errors import UserError
from tests.problems import START

FILTERS = {
    "identity": ((), (1.0,)),
    "average": ((-0.9,), (0.1,)),
    "default": ((-9 / 11,), (1 / 11, 1 / 11)),
    "moving average": ((), (0.25, 0.25, 0.25, 0.25)),
    "second order": ((-1.2, 0.5), (0.1, 0.1, 0.1)),
}


def means(steps=40, size=3):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(steps, size, dtype=torch.float64, generator=draw)


def filtered(update, rows):
    """The rows as an optimiser gets them."""
    found = []
    for row in rows:
        update = update.advance(row, 1.0, row, START)
        found.append(update(row.clone(), row))
    return torch.stack(found)


@pytest.mark.parametrize("name", FILTERS)
def test_the_filter_agrees_with_scipy(name):
    a, b = FILTERS[name]
    rows = means()
    ours = filtered(LowPass(a, b), rows)
    theirs = signal.lfilter(b, [1, *a], rows.numpy(), axis=0)
    ones = signal.lfilter(b, [1, *a], np.ones(len(rows)))[:, None]
    assert torch.allclose(ours, torch.from_numpy(theirs / ones), rtol=1e-12)


# The recursion as printed: m_t = -sum a_k m_{t-k} + sum b_k g_{t-k}, c_t likewise, and m_t/c_t.
def test_the_filter_follows_the_recursion():
    a, b, rows = (-1.2, 0.5), (0.1, 0.1, 0.1), means(8, 1).flatten().tolist()
    m, c, expected = [0.0, 0.0], [0.0, 0.0], []
    for t in range(len(rows)):
        past = [rows[t - k] if t >= k else 0.0 for k in range(3)]
        for series, inputs in ((m, past), (c, [1.0 if t >= k else 0.0 for k in range(3)])):
            value = sum(w * x for w, x in zip(b, inputs, strict=True))
            series.append(value - a[0] * series[-1] - a[1] * series[-2])
        expected.append(m[-1] / c[-1])
    ours = filtered(LowPass(a, b), torch.tensor(rows, dtype=torch.float64).view(-1, 1))
    assert ours.flatten().tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_keeps_a_constant_and_comes_back_from_its_state(name):
    ours = filtered(LowPass(*FILTERS[name]), torch.full((20, 2), 3.5).double())
    assert torch.allclose(ours, torch.full_like(ours, 3.5))
    rows, start = means(), LowPass(*FILTERS[name])
    update = start
    assert state_of(start) == {}
    for row in rows[:7]:
        update = update.advance(row, 1.0, row, START)
    back = restore_state(start, state_of(update), torch.device("cpu"))
    assert torch.equal(filtered(back, rows[7:]), filtered(update, rows[7:]))


def test_noise_is_damped_and_the_memory_of_a_filter_does_not_grow():
    a, b = FILTERS["average"]
    noise = filtered(LowPass(a, b), means(400, 2000))[-1]
    assert float(noise.std()) == pytest.approx(math.sqrt(0.1 / 1.9), rel=0.05)
    update = LowPass(*FILTERS["second order"])
    for row in means(10):
        update = update.advance(row, 1.0, row, START)
    sizes = {name: len(rows) for name, rows in state_of(update).items()}
    assert sizes == {"inputs": 3, "outputs": 2}
    assert dataclasses.replace(update, inputs=None, outputs=None) == update


@pytest.mark.parametrize(
    ("a", "b"),
    [((-1.0,), (0.1,)), ((1.5,), (1.0,)), ((), ()), ((), (-1.0,)), ((), (1.0, -2.0)), ((), (0.0,))],
)
def test_filters_that_are_not_low_pass_are_refused(a, b):
    with pytest.raises(UserError, match=r"method.a and method.b do not define a low-pass filter"):
        doppler(1.0, list(a), list(b), clip="abadi", style="flat")
