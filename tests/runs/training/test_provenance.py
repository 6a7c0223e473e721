"""How a run was carried out, over all of its processes."""

import pytest
import torch

from dpbench.runs.training import provenance
from dpbench.runs.training.provenance import ResourceUsage, conditions
from dpbench.system import memory

CPU = torch.device("cpu")


@pytest.fixture
def now(monkeypatch):
    """A clock, and memory in use, that stand where they are put."""
    stands = {"time": 100.0, "memory": 7}
    monkeypatch.setattr(provenance.time, "perf_counter", lambda: stands["time"])
    monkeypatch.setattr(provenance.memory, "peak", lambda _: stands["memory"])
    return stands


@pytest.mark.skipif(memory.resident("VmHWM") is None, reason="needs /proc")
def test_the_peak_is_of_the_process_and_can_be_measured_anew():
    """Unlike getrusage's, which a child inherits and nothing lowers."""
    fat = torch.ones(2**27)
    before = ResourceUsage(CPU).peak_memory
    assert before > fat.nbytes
    del fat
    memory.reset_peak(CPU)
    assert 0 < ResourceUsage(CPU).peak_memory < before - 2**28


def test_seconds_add_up_and_the_highest_peak_counts(now):
    first = ResourceUsage(CPU)
    now["time"] += 5
    kept = first.state_dict()
    now["time"] += 1000  # of which 2 were training, and nobody was told
    now["memory"] = 3
    second = ResourceUsage(CPU)
    now["time"] += 0.5
    second.load_state_dict(kept)
    now["time"] += 1
    assert (second.seconds, second.peak_memory, second.resumed) == (6.5, 7, 1)
    third = ResourceUsage(CPU)
    now["memory"] = 9
    third.load_state_dict(second.state_dict())
    assert (third.seconds, third.peak_memory, third.resumed) == (6.5, 9, 2)


def test_threads_matter_where_they_compute(monkeypatch):
    alone = conditions("ghost", CPU)
    on_gpu = conditions("ghost", torch.device("cuda"))
    monkeypatch.setattr(provenance.torch, "get_num_threads", lambda: 64)
    assert conditions("ghost", CPU) != alone
    assert conditions("ghost", torch.device("cuda")) == on_gpu


def test_the_source_matters_to_the_letter(monkeypatch, tmp_path):
    (tmp_path / "part").mkdir()
    names = ("provenance.py", "part/one.py", "part/notes.txt")
    hashes = []
    for changed in (None, *names):
        for name in names:
            (tmp_path / name).write_text("changed" if name == changed else "as it was")
        with monkeypatch.context() as patch:
            patch.setattr(provenance, "PACKAGE", tmp_path)
            hashes.append(provenance.code.__wrapped__())
    usual, own, other, notes = hashes
    assert len({usual, own, other}) == 3
    assert notes == usual
