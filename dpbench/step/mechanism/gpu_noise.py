"""Noise on a GPU for `noise.add_rounded`: key stream, quantile and rounding in one kernel, instead
of hundreds of operations of torch. In Triton, which torch installs beside itself for NVIDIA's
GPUs."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCKS = 128
"""Blocks of the key stream that a program turns into draws, eight of each."""

LAWS = {"gaussian": 0, "logistic": 1, "laplace": 2}


@torch.library.custom_op("dpbench::add_noise", mutates_args=("total",))
def add_noise(
    total: Tensor, scale: Tensor, key: Tensor, place: Tensor, first: int, law: str, rounding: float
) -> None:
    """total [n] plus scale times draws of a law, in place; from word place + first of the key
    stream.

    scale: a float64 scalar. key: [8] int32, see `chacha`. place: an int64 scalar. rounding: the
    grid that results are rounded to, relative to the power of two below the scale; 0 for none.
    """
    programs = triton.cdiv(len(total) + 7, 8 * BLOCKS)
    arguments = (total, scale, key, place, first, len(total), LAWS[law], rounding, BLOCKS)
    with torch.cuda.device_of(total):
        # As torch computes it: with a product and a sum in one, the last digits would be others.
        _add_noise[(programs,)](*arguments, enable_fp_fusion=False)


@add_noise.register_fake
def _(
    total: Tensor, scale: Tensor, key: Tensor, place: Tensor, first: int, law: str, rounding: float
) -> None:
    """On tensors without numbers there is nothing to add."""


@triton.jit(do_not_specialize=["first", "size"])
def _add_noise(
    total,
    scale,
    key,
    place,
    first,
    size,
    law: tl.constexpr,
    rounding: tl.constexpr,
    blocks: tl.constexpr,
):
    first = tl.load(place) + first
    number = tl.program_id(0).to(tl.int64) * blocks + tl.arange(0, blocks)
    at = number * 8 - first % 8
    number += first // 8
    x = _block(key, number, 0)
    y = _block(key, number, 1)
    s = tl.load(scale)
    # Without its mantissa a number is the power of two below it.
    power = (s.to(tl.int64, bitcast=True) & 0x7FF0000000000000).to(tl.float64, bitcast=True)
    g = power * rounding
    _add_word(total, at + 0, size, x[0], x[1], y[0], y[1], s, g, law, rounding)
    _add_word(total, at + 1, size, x[2], x[3], y[2], y[3], s, g, law, rounding)
    _add_word(total, at + 2, size, x[4], x[5], y[4], y[5], s, g, law, rounding)
    _add_word(total, at + 3, size, x[6], x[7], y[6], y[7], s, g, law, rounding)
    _add_word(total, at + 4, size, x[8], x[9], y[8], y[9], s, g, law, rounding)
    _add_word(total, at + 5, size, x[10], x[11], y[10], y[11], s, g, law, rounding)
    _add_word(total, at + 6, size, x[12], x[13], y[12], y[13], s, g, law, rounding)
    _add_word(total, at + 7, size, x[14], x[15], y[14], y[15], s, g, law, rounding)


@triton.jit
def _add_word(
    total,
    place,
    size,
    low,
    high,
    more_low,
    more_high,
    scale,
    grid,
    law: tl.constexpr,
    rounding: tl.constexpr,
):
    """Adds the draws of words to numbers in these places."""
    inside = (place >= 0) & (place < size)
    signed = _word(low, high).to(tl.float64) + 0.5
    tail = tl.abs(signed)
    further = (_word(more_low, more_high) & 0xFFFFFFFFFFFFF).to(tl.float64) + 0.5
    tail = tl.where(tail < 4294967296.0, tl.floor(tail) + further * 2.0**-52, tail)
    u = tail * 2.0**-64
    if law == 0:
        quantile = _ndtri(u)
    elif law == 1:
        quantile = tl.log(u) - _log1p(-u)
    else:
        quantile = tl.log(u * 2)
    draw = tl.where(signed < 0, -tl.abs(quantile), tl.abs(quantile))
    before = tl.load(total + place, mask=inside, other=0.0)
    noisy = draw * scale + before.to(tl.float64)
    if rounding > 0:
        noisy = _rint(noisy / grid) * grid
    tl.store(total + place, noisy.to(before.dtype), mask=inside)


@triton.jit
def _word(low, high):
    return ((high.to(tl.uint64) << 32) | low.to(tl.uint64)).to(tl.int64, bitcast=True)


@triton.jit
def _rint(x):
    """Rounded to a whole number, halves to the even one."""
    below = tl.floor(x)
    over = x - below
    odd = below - 2 * tl.floor(below * 0.5)
    return tl.where((over > 0.5) | ((over == 0.5) & (odd == 1.0)), below + 1, below)


@triton.jit
def _log1p(x):
    """log(1 + x), by a quotient in which rounding errors of 1 + x cancel (Kahan)."""
    y = 1.0 + x
    ratio = tl.log(y) * x / tl.where(y == 1.0, 1.0, y - 1.0)
    return tl.where(y == 1.0, x, ratio)


@triton.jit
def _block(key, number, nonce):
    """The sixteen numbers of blocks of the key stream; see `chacha`."""
    zero = (number * 0).to(tl.uint32)
    low = number.to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    k0 = tl.load(key + 0).to(tl.uint32, bitcast=True) + zero
    k1 = tl.load(key + 1).to(tl.uint32, bitcast=True) + zero
    k2 = tl.load(key + 2).to(tl.uint32, bitcast=True) + zero
    k3 = tl.load(key + 3).to(tl.uint32, bitcast=True) + zero
    k4 = tl.load(key + 4).to(tl.uint32, bitcast=True) + zero
    k5 = tl.load(key + 5).to(tl.uint32, bitcast=True) + zero
    k6 = tl.load(key + 6).to(tl.uint32, bitcast=True) + zero
    k7 = tl.load(key + 7).to(tl.uint32, bitcast=True) + zero
    c0 = zero + 0x61707865
    c1 = zero + 0x3320646E
    c2 = zero + 0x79622D32
    c3 = zero + 0x6B206574
    n0 = zero + nonce
    a0, a1, a2, a3 = c0, c1, c2, c3
    b0, b1, b2, b3 = k0, k1, k2, k3
    e0, e1, e2, e3 = k4, k5, k6, k7
    d0, d1, d2, d3 = low, high, n0, zero
    for _ in range(10):
        a0, b0, e0, d0 = _quarter_round(a0, b0, e0, d0)
        a1, b1, e1, d1 = _quarter_round(a1, b1, e1, d1)
        a2, b2, e2, d2 = _quarter_round(a2, b2, e2, d2)
        a3, b3, e3, d3 = _quarter_round(a3, b3, e3, d3)
        a0, b1, e2, d3 = _quarter_round(a0, b1, e2, d3)
        a1, b2, e3, d0 = _quarter_round(a1, b2, e3, d0)
        a2, b3, e0, d1 = _quarter_round(a2, b3, e0, d1)
        a3, b0, e1, d2 = _quarter_round(a3, b0, e1, d2)
    # fmt: off
    return (
        a0 + c0, a1 + c1, a2 + c2, a3 + c3, b0 + k0, b1 + k1, b2 + k2, b3 + k3,
        e0 + k4, e1 + k5, e2 + k6, e3 + k7, d0 + low, d1 + high, d2 + n0, d3,
    )
    # fmt: on


@triton.jit
def _quarter_round(a, b, c, d):
    a += b
    d ^= a
    d = (d << 16) | (d >> 16)
    c += d
    b ^= c
    b = (b << 12) | (b >> 20)
    a += b
    d ^= a
    d = (d << 8) | (d >> 24)
    c += d
    b ^= c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _ndtri(y):
    """The Gaussian quantile of 0 < y <= 1/2, as torch has it (Moshier's Cephes, ndtri.c)."""
    # fmt: off
    v = y - 0.5
    v2 = v * v
    p = _horner4(v2, -5.99633501014107895267e1, 9.80010754185999661536e1,
        -5.66762857469070293439e1, 1.39312609387279679503e1, -1.23916583867381258016e0)
    q = _horner8(v2, 1.0, 1.95448858338141759834e0, 4.67627912898881538453e0,
        8.63602421390890590575e1, -2.25462687854119370527e2, 2.00260212380060660359e2,
        -8.20372256168333339912e1, 1.59056225126211695515e1, -1.18331621121330003142e0)
    middle = (v + v * (v2 * p / q)) * 2.50662827463100050242e0
    x = tl.sqrt(-2.0 * tl.log(y))
    x0 = x - tl.log(x) / x
    z = 1.0 / x
    p1 = _horner8(z, 4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1,
        4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539e0,
        -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4)
    q1 = _horner8(z, 1.0, 1.57799883256466749731e1, 4.53907635128879210584e1,
        4.13172038254672030440e1, 1.50425385692907503408e1, 2.50464946208309415979e0,
        -1.42182922854787788574e-1, -3.80806407691578277194e-2, -9.33259480895457427372e-4)
    p2 = _horner8(z, 3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0,
        1.33303460815807542389e0, 2.01485389549179081538e-1, 1.23716634817820021358e-2,
        3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9)
    q2 = _horner8(z, 1.0, 6.02427039364742014255e0, 3.67983563856160859403e0,
        1.37702099489081330271e0, 2.16236993594496635890e-1, 1.34204006088543189037e-2,
        3.28014464682127739104e-4, 2.89247864745380683936e-6, 6.79019408009981274425e-9)
    # fmt: on
    tail = x0 - z * tl.where(x < 8.0, p1, p2) / tl.where(x < 8.0, q1, q2)
    return tl.where(y > 0.13533528323661269189, middle, -tail)


@triton.jit
def _horner4(x, c0, c1, c2, c3, c4):
    return (((c0 * x + c1) * x + c2) * x + c3) * x + c4


@triton.jit
def _horner8(x, c0, c1, c2, c3, c4, c5, c6, c7, c8):
    return _horner4(x, _horner4(x, c0, c1, c2, c3, c4), c5, c6, c7, c8)
