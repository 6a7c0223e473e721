"""A disk that refuses, once, each call that a run makes of it, and one that turns bits around.

Runs here are of one process. FAULT_ROUNDS=1000 draws a thousand times as many faults.
"""

import errno
import io
import itertools
import json
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.training import plan
from dpbench.runs.training.loop import Training
from dpbench.system.errors import UserError

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
USUAL = ["batch_size=720", "epochs=2", "model.widths=[8]", "tracker=csv"]  # 4 steps on digits
CALLS = {
    **{name: (os, name) for name in ("fsync", "mkdir", "open", "replace", "rmdir", "unlink")},
    "io.open": (io, "open"),
}
"""What a run asks of the disk; pathlib and shutil go through these."""


class Interrupted(Exception):
    """Stands in for whatever ends a process."""


@pytest.fixture(autouse=True, scope="module")
def few_words(brief_statement):
    """Epsilons follow from the ledger, and take longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "statement", brief_statement)
        yield


pytestmark = pytest.mark.slow


def asked(folder: Path) -> list[str]:
    """The overrides of the run, which saves a checkpoint after each step."""
    return [*USUAL, f"results_dir={folder}", "checkpoint_minutes=1e-9"]


def run(folder: Path) -> str:
    """Carry it out, and give all that it warned of, or the sentence with which it was refused."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            load_or_run(run_config(asked(folder)), quiet=True)
        except UserError as error:
            return str(error)
    return "\n".join(str(one.message) for one in warned)


def result(folder: Path) -> str:
    """Its record, but how and where it was carried out."""
    (record,) = folder.glob("runs/*.json")
    said = json.loads(record.read_text())
    del said["provenance"], said["checksum"]
    return json.dumps(said)


def tracked(folder: Path) -> dict[str, bytes]:
    """What its tracker wrote, by the file's name."""
    return {path.name: path.read_bytes() for path in folder.glob("tracking/csv/*")}


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@contextmanager
def refusing(name: str, folder: Path, number: int | None) -> Iterator[list[int]]:
    """The call of that number about a file in the folder fails; gives the calls there were."""
    (module, attribute), calls = CALLS[name], itertools.count(1)
    function, seen = getattr(module, attribute), [0]

    def fails(*arguments, **named):
        if isinstance(arguments[0], int) or str(folder) in str(arguments[0]):
            seen[0] = next(calls)
            if seen[0] == number:
                code = random.Random(number).choice([errno.ENOSPC, errno.EIO, errno.EROFS])
                raise OSError(code, os.strerror(code), str(arguments[0]))
        return function(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, attribute, fails)
        yield seen


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The folder of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(folder) == ""
    return folder


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CALLS)
def test_a_failing_call_to_the_disk_is_at_most_one_sentence(name, whole, tmp_path):
    with refusing(name, tmp_path / "counted", None) as calls:
        run(tmp_path / "counted")
    total = calls[0]
    assert total
    for number in random.Random(name).sample(range(1, total + 1), min(total, 3 * ROUNDS)):
        folder = tmp_path / str(number)
        with refusing(name, folder, number) as calls:
            told = run(folder)
        assert calls[0] >= number
        assert run(folder) == ""
        assert result(folder) == result(whole)
        if "tracker=csv failed and is disabled" not in told:
            assert tracked(folder) == tracked(whole)
            assert files(folder) == files(whole)


def interrupted(folder: Path, before: int) -> None:
    """The run ends before that step."""
    make = Training._do_step

    def one_step(training, batch):
        if training.steps_done == before:
            raise Interrupted
        make(training, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "_do_step", one_step)
        with pytest.raises(Interrupted):
            run(folder)


def turn_a_bit(path: Path, draw: random.Random) -> None:
    whole = bytearray(path.read_bytes())
    whole[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
    path.write_bytes(whole)


@pytest.mark.parametrize("seed", range(2 * ROUNDS))
def test_flipped_bits_in_all_checkpoints_restart_the_run(seed, whole, tmp_path):
    folder = tmp_path / "turned"
    interrupted(folder, before=3)
    checkpoints = list(folder.glob("checkpoints/*/*.ckpt"))
    assert checkpoints
    for path in checkpoints:
        turn_a_bit(path, random.Random(seed))
    assert run(folder).count("is ignored, and the run resumes") == len(checkpoints)
    assert result(folder) == result(whole)
    assert tracked(folder) == tracked(whole)


@pytest.mark.parametrize("seed", range(2 * ROUNDS))
def test_a_record_with_a_flipped_bit_is_replaced(seed, whole, tmp_path):
    folder = tmp_path / "turned"
    run(folder)
    (record,) = folder.glob("runs/*.json")
    turn_a_bit(record, random.Random(seed))
    run(folder)
    assert result(folder) == result(whole)
