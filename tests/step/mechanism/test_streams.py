"""Random streams: the bits of a cipher, another stream for every purpose, run and seed."""

import hashlib

import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpbench.step.mechanism.streams import (
    AHEAD,
    CipherStream,
    GpuStream,
    permutation,
    secure,
    seeded,
    uniforms,
)

CPU = torch.device("cpu")


def first(stream, size: int = 4) -> tuple[int, ...]:
    return tuple(stream.bits(size).tolist())


def test_bits_are_the_key_stream_of_aes_in_counter_mode():
    """Block by block, by the bare cipher: AES of the numbers 0, 1, 2, ..."""
    key = bytes(range(32))
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    blocks = b"".join(cipher.update(number.to_bytes(16, "big")) for number in range(50))
    expected = [int.from_bytes(blocks[8 * i : 8 * i + 8], "little", signed=True) for i in range(99)]
    assert CipherStream(key).bits(99).tolist() == expected


def test_the_bits_of_a_seed_never_change_in_whatever_pieces():
    key = hashlib.sha256(b"noise/3/0123456789abcdef").digest()
    made = first(seeded("noise", 3, "0123456789abcdef", CPU))
    assert made == first(CipherStream(key))
    assert made[0] == -1909474224855229307
    whole, pieces = (seeded("noise", 0, "run", CPU) for _ in range(2))
    taken = [pieces.bits(size) for size in (0, 1, 2, 3, 94)]
    assert torch.equal(torch.cat(taken), whole.bits(100))


@given(st.lists(st.integers(0, 40), max_size=6), st.integers(0, 40))
def test_a_restored_stream_continues_where_it_was(sizes, more):
    stream = seeded("noise", 0, "run", CPU)
    for size in sizes:
        stream.bits(size)
    other = seeded("counts", 1, "another", CPU)
    other.bits(3)
    other.load_state_dict(stream.state_dict())
    assert first(other, more) == first(stream, more)


def halved(words, stream):
    return words / 2


def doubled(words, stream):
    return words * 2.0


@given(
    st.lists(
        st.tuples(st.sampled_from([None, halved, doubled]), st.integers(0, 40), st.booleans()),
        max_size=30,
    )
)
def test_mapped_draws_are_those_of_the_same_bits(calls):
    """Whatever is drawn between them, and wherever the stream is restored."""
    whole = seeded("noise", 0, "run", CPU).bits(sum(size for _, size, _ in calls)).numpy()
    stream, drawn = seeded("noise", 0, "run", CPU), 0
    for by, size, restored in calls:
        if restored:
            stream.load_state_dict(stream.state_dict())
        expected = whole[drawn : drawn + size]
        taken = stream.mapped(size, by) if by else stream.bits(size).numpy()
        assert taken.tolist() == (by(expected, stream) if by else expected).tolist()
        drawn += size
    assert stream.state_dict()["drawn"] == drawn


def test_mapped_draws_cannot_be_changed_before_they_are_drawn():
    taken = seeded("noise", 0, "run", CPU).mapped(4, halved)
    with pytest.raises(ValueError, match="read-only"):
        taken *= 2


def test_a_restored_stream_has_nothing_of_another_key():
    stream, other = (seeded("noise", seed, "run", CPU) for seed in range(2))
    for one in (stream, other):
        for _ in range(4):
            taken = one.mapped(4, halved).tolist()
    stream.load_state_dict({**other.state_dict(), "drawn": 12})
    assert stream.mapped(4, halved).tolist() == taken


def test_more_are_mapped_ahead_the_more_were_drawn():
    """Twice as many each time, up to a limit; none where other draws come between."""
    counts = []

    def counted(words, stream):
        counts.append(len(words))
        return words

    stream = seeded("noise", 0, "run", CPU)
    for _ in range(200):
        stream.mapped(1000, counted)
    assert counts[:6] == [1000, 2000, 4000, 8000, 16_000, 32_000]
    assert set(counts[6:]) == {AHEAD}
    counts.clear()
    for _ in range(4):
        stream.bits(2 * AHEAD)
        stream.mapped(1000, counted)
    assert counts == [1000] * 4
    stream.mapped(2 * AHEAD, counted)
    assert counts[-1] == 2 * AHEAD


def test_every_purpose_seed_and_run_has_bits_of_its_own():
    made = {
        first(seeded(purpose, seed, run, CPU))
        for purpose in ("noise", "counts", "batches", "local batches")
        for seed in (0, 1, 2**32, 2**32 + 1, 2**40)
        for run in ("", "a", "b")
    }
    assert len(made) == 4 * 5 * 3


def test_names_cannot_run_into_each_other_and_secure_streams_never_repeat():
    assert first(seeded("a", 11, "", CPU)) != first(seeded("a", 1, "1", CPU))
    assert first(secure()) != first(secure())


def test_all_bits_are_coins():
    bits = seeded("noise", 0, "run", CPU).bits(20_000)
    for place in range(64):
        ones = int((bits >> place & 1).sum())
        assert stats.binomtest(ones, 20_000).pvalue > 1e-3 / 64


def test_uniforms_are_uniform_and_never_0_or_1():
    class Edges:
        def bits(self, size):
            return torch.tensor([0, -1, 2**52 - 1, -(2**63)])[:size]

    assert uniforms(Edges(), 4).tolist() == [2**-53, 1 - 2**-53, 1 - 2**-53, 2**-53]
    drawn = uniforms(seeded("batches", 0, "run", CPU), 20_000)
    assert stats.kstest(drawn.numpy(), "uniform").pvalue > 1e-3


def test_orders_are_all_alike():
    stream = seeded("batches", 0, "run", CPU)
    counts = torch.zeros(3, 3)
    for _ in range(3000):
        counts[range(3), permutation(stream, 3)] += 1
    assert stats.chisquare(counts.flatten().numpy()).pvalue > 1e-3
    assert permutation(stream, 50).sort()[0].tolist() == list(range(50))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_draws_all_64_bits_and_goes_on_where_it_was():
    device = torch.device("cuda")
    stream = seeded("noise", 0, "run", device)
    assert isinstance(stream, GpuStream)
    bits = stream.bits(20_000)
    for place in range(64):
        ones = int((bits >> place & 1).sum())
        assert stats.binomtest(ones, 20_000).pvalue > 1e-3 / 64
    other = seeded("noise", 1, "run", device)
    other.load_state_dict(stream.state_dict())
    assert first(other) == first(stream)
