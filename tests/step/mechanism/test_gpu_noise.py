"""A GPU's noise, on a processor: by torch's operations, and by Triton's interpreter."""

import importlib
import sys

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy import stats

from dpbench.step.mechanism import chacha, draws, noise
from dpbench.step.mechanism.noise import GRID, LAWS, QUANTILES, Gaussian, PerCoordinate
from dpbench.step.mechanism.streams import GpuStream
from dpbench.system.errors import UserError
from tests.step.mechanism.interpreted import interpreted_kernel

CPU = torch.device("cpu")
KEY = bytes(range(32))
CLOSE = 2.0**-48
"""How far a draw may be from torch's, in scales and relative to it."""

LAW = {"gaussian": Gaussian(), **{law: PerCoordinate(law) for law in QUANTILES}}


def openssl(size: int, nonce: int = 0, start: int = 0) -> torch.Tensor:
    """The words [size] int64 of the key stream from a block of eight."""
    place = start.to_bytes(8, "little") + nonce.to_bytes(8, "little")
    cipher = Cipher(algorithms.ChaCha20(KEY, place), mode=None).encryptor()
    return torch.frombuffer(bytearray(cipher.update(bytes(8 * size))), dtype=torch.int64)


@pytest.fixture(scope="module")
def interpreted():
    with interpreted_kernel() as module:
        yield module


EXTREME = [0, -1, 1, -2, 2**32 - 1, 2**32, 2**32 + 1, 2**40, -(2**32), 2**62, 2**63 - 1, -(2**63)]
"""Words of the draws furthest out, closest to 0, and where further bits begin; and some between."""


@pytest.mark.slow
@pytest.mark.parametrize("law", LAW)
def test_tails_have_further_bits(interpreted, law):
    words = torch.tensor(EXTREME + [3 * 2**59] * 4)
    further = openssl(len(words))
    signed = words.double() + 0.5
    tails = draws._refined(signed.abs(), further)
    assert (tails != signed.abs()).sum() == 6
    quantile = next(function for function, name in LAWS.items() if name == law)
    expected = quantile(tails * 2.0**-64).copysign(signed)
    total = torch.zeros(len(words), dtype=torch.float64)
    sys.modules.pop("tests.step.mechanism.words_kernel", None)
    kernel = importlib.import_module("tests.step.mechanism.words_kernel").add_words
    kernel[(1,)](total, words, further, len(words), interpreted.LAWS[law])
    assert ((total - expected).abs() <= CLOSE * expected.abs().clamp(min=1)).all()
    assert total[0] > 9 > -9 > total[1]


@pytest.fixture
def eager(monkeypatch):
    for module in (draws, noise):
        monkeypatch.setattr(module, "noise_kernel", lambda: None)


def stream() -> GpuStream:
    return GpuStream(KEY, CPU)


@pytest.mark.parametrize("nonce", [0, 1])
def test_the_key_stream_is_that_of_openssl_from_any_place(nonce):
    key, expected = chacha.key_words(KEY, CPU), openssl(1000, nonce)
    for first, size in ((0, 1000), (0, 1), (1, 7), (8, 8), (13, 500), (999, 1), (5, 0)):
        assert torch.equal(chacha.words(key, nonce, first, size), expected[first : first + size])


def test_the_key_stream_has_a_counter_of_64_bits_and_the_block_of_rfc_8439():
    start = 2**32 - 3
    made = chacha.words(chacha.key_words(KEY, CPU), 0, 8 * start, 60)
    # The library refuses to count on from the lower half to the upper one.
    assert torch.equal(made, torch.cat([openssl(24, start=start), openssl(36, start=2**32)]))
    # Section 2.3.2; its nonce of 96 bits has the upper half of our counter.
    counter = 1 | 0x09000000 << 32
    block = chacha.words(chacha.key_words(KEY, CPU), 0x4A000000, 8 * counter, 8)
    expected = "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
    assert block.numpy().tobytes()[:32].hex() == expected


def test_a_restored_stream_continues_where_it_was():
    words, further = stream().bits_and_further(50)
    assert torch.equal(words, openssl(50))
    assert torch.equal(further, openssl(50, nonce=1))
    one, other = stream(), GpuStream(bytes(32), CPU)
    one.bits(13)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.bits(50), openssl(63)[13:])
    assert torch.equal(other.bits(50), openssl(63)[13:])
    with pytest.raises(UserError, match="delete the checkpoint"):
        other.load_state_dict({"generator": torch.zeros(16)})
    assert not torch.equal(one.derived("counts").bits(9), one.derived("noise").bits(9))


@pytest.mark.parametrize("law", LAW)
def test_the_law_is_that_of_its_name_and_scale(eager, law):
    drawn = LAW[law].add(torch.zeros(20_000), 0.5, 3.4, stream()).double().numpy()
    cdf = {"gaussian": stats.norm.cdf, "logistic": stats.logistic.cdf, "laplace": stats.laplace.cdf}
    assert stats.kstest(drawn / 1.7, cdf[law]).pvalue > 1e-3
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(drawn / (1.7 * wrong), cdf[law]).pvalue < 1e-6
    assert np.array_equal(np.rint(drawn / GRID), drawn / GRID)


def test_draws_do_not_depend_on_the_chunk(eager, monkeypatch):
    whole = Gaussian().add(torch.zeros(1000), 1.0, 1.0, stream())
    monkeypatch.setitem(noise.CHUNK, "cuda", 37)
    assert torch.equal(Gaussian().add(torch.zeros(1000), 1.0, 1.0, stream()), whole)


def kernel(interpreted, law, total, scale, first, rounding=GRID):
    """What `add_noise` launches, in one program."""
    key, place = chacha.key_words(KEY, CPU), torch.tensor(first // 2)
    arguments = (total, torch.tensor(scale, dtype=torch.float64), key, place, first - first // 2)
    interpreted._add_noise[(2,)](*arguments, len(total), interpreted.LAWS[law], rounding, 64)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("law", LAW)
def test_a_draw_of_the_kernel_is_the_quantile_of_its_words(interpreted, law):
    first, size = 2**35 + 5, 900
    drawn = kernel(interpreted, law, torch.zeros(size, dtype=torch.float64), 1.0, first, 0.0)
    words = openssl(size + 5, start=2**32)[5:]
    signed = words.double() + 0.5
    quantile = next(function for function, name in LAWS.items() if name == law)
    expected = quantile(signed.abs() * 2.0**-64).copysign(signed)
    assert ((drawn - expected).abs() <= CLOSE * expected.abs().clamp(min=1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.3, 2.0**-7])
def test_the_kernel_adds_and_rounds_as_torch(interpreted, eager, scale):
    totals = torch.linspace(-5 * scale, 5 * scale, 900)
    ours = kernel(interpreted, "gaussian", totals.clone(), scale, 0)
    expected = Gaussian().add(totals.clone(), 1.0, scale, stream())
    grid = float(noise._grid(scale))
    assert torch.equal((ours.double() / grid).round() * grid, ours.double())
    # Where both are next to the middle between two points, they may go to either.
    assert (ours != expected).double().mean() < 0.01
    assert (ours - expected).abs().max() <= grid
