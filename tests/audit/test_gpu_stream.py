"""Runs with a GPU's random streams, here on a processor: correct ones hold, broken ones do not."""

import pytest
import torch

from dpbench.step.mechanism import chacha, draws, noise, streams
from dpbench.step.mechanism.streams import GpuStream
from tests.audit.attacking import is_refuted, less_noise
from tests.step.mechanism.interpreted import interpreted_kernel

# So few canaries are no data set: attacks are sharper at a large delta.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:privacy.delta")]


SAMPLED = {"canaries": 4000, "rate": 0.1, "steps": 10}
ALL = {"canaries": 20_000}


@pytest.fixture(params=["eager", "kernel"])
def gpu_stream(request, monkeypatch):
    """All streams are a GPU's; the name of what adds noise."""
    monkeypatch.setattr(streams, "_keyed", lambda key, _: GpuStream(key, torch.device("cpu")))
    with interpreted_kernel() as module:
        monkeypatch.setattr(module, "BLOCKS", 4096)  # the interpreter's time is that of programs
        kernel = {"eager": None, "kernel": module.add_noise}[request.param]
        for user in (draws, noise):
            monkeypatch.setattr(user, "noise_kernel", lambda: kernel)
        yield request.param


def test_a_correct_run_is_not_refuted(gpu_stream):
    assert not is_refuted("method=dpsgd", **SAMPLED)


def noise_that_does_not_count(patch):
    """All steps draw the same noise, of different batches."""
    taken = GpuStream.taken

    def bits(stream, size):
        return chacha.words(stream.key, 0, taken(stream, size), size)

    patch.setattr(GpuStream, "bits", bits)
    patch.setattr(GpuStream, "taken", lambda stream, size: 0)


def draws_too_close_to_0(patch):
    """Tail probabilities are taken to be twice as large."""
    refined = draws._refined
    patch.setattr(draws, "_refined", lambda *words: (2 * refined(*words)).clamp(max=2.0**63))


@pytest.mark.parametrize(
    ("gpu_stream", "mutate", "size"),
    [
        ("eager", noise_that_does_not_count, SAMPLED),
        ("kernel", noise_that_does_not_count, SAMPLED),
        ("eager", less_noise(0.8), ALL),
        ("kernel", less_noise(0.8), ALL),
        ("eager", draws_too_close_to_0, ALL),
    ],
    indirect=["gpu_stream"],
)
def test_a_mutant_is_refuted(gpu_stream, mutate, size, monkeypatch):
    mutate(monkeypatch)
    assert is_refuted("method=dpsgd", **size)
