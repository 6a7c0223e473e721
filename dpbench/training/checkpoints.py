"""Checkpoints: a run put away while it goes on, to be taken up again where it was.

A file is one line of JSON, then what torch.save wrote. The line says the format, what a run must
agree in to go on from here, and a checksum of everything. Nothing in a file is ever executed.
"""

import hashlib
import io
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from dpbench.files import remove_parts, replace_file
from dpbench.lock import exclusive

FORMAT = 1

KEPT = 2
"""Checkpoints of one run: the last one, and one before in case that is damaged."""


class Unusable(Exception):
    """Why a checkpoint is not gone on from, as the end of a sentence."""


@contextmanager
def claimed(folder: Path, minutes: float | None, wait: bool = True) -> Iterator["Checkpoints"]:
    """The checkpoints of one run, for one process at a time; others wait, or Busy is raised.

    folder: of this run alone, named by its digest. minutes: of training between checkpoints, None
    to write none. UserError for a folder that cannot be written.
    """
    with exclusive(folder / "lock", wait):
        remove_parts(folder)
        yield Checkpoints(folder, minutes)


class Checkpoints:
    """What is in the folder of one run. Numbered files: the largest number is the last one.

    conditions: plain values by name that a run must agree in for its steps to be those of the run
    that wrote the checkpoint. state: nested dictionaries and lists of tensors and plain values.
    """

    def __init__(self, folder: Path, minutes: float | None):
        self._folder, self._minutes, self._run = folder, minutes, {"run": folder.name}
        self._saved_at = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next one."""
        minutes = self._minutes
        return minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes

    def save(self, state: dict, conditions: dict) -> None:
        """Write one, at once or not at all, and drop all but the last two.

        Where it cannot be written there is a warning: the run goes on, and so do those before.
        """
        earlier = self._paths()
        number = int(earlier[-1].stem) + 1 if earlier else 1
        path = self._folder / f"{number:06}.ckpt"
        try:
            replace_file(path, *_packed(state, conditions | self._run))
            for old in earlier[: -(KEPT - 1)]:
                old.unlink()
        except OSError as error:
            warnings.warn(
                f"a checkpoint cannot be written to {self._folder} ({error.strerror}): the run "
                "goes on, and would be taken up again from an earlier one, if there is any.",
                stacklevel=2,
            )
        self._saved_at = time.monotonic()

    def last(self, conditions: dict) -> dict | None:
        """The state of the last checkpoint that is whole and agrees in the conditions, on the CPU.

        A warning says why one is passed over; None where there is no other.
        """
        for path in reversed(self._paths()):
            try:
                return _unpacked(path.read_bytes(), conditions | self._run)
            except (Unusable, OSError) as reason:
                warnings.warn(
                    f"the checkpoint {path} {_said(reason)}: it is left out, and the run goes on "
                    "from an earlier one or starts anew.",
                    stacklevel=2,
                )
        return None

    def clear(self) -> None:
        """Remove all of them."""
        for path in self._paths():
            path.unlink()

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.ckpt"))


def _said(reason: Unusable | OSError) -> str:
    return f"cannot be read ({reason.strerror})" if isinstance(reason, OSError) else str(reason)


def _packed(state: dict, conditions: dict) -> tuple[bytes, memoryview]:
    """First line and content. In memory, because what stops torch.save has no sure type."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    said = {"format": FORMAT, "conditions": conditions, "sha256": _checksum(conditions, content)}
    return json.dumps(said).encode() + b"\n", content


def _unpacked(packed: bytes, conditions: dict) -> dict:
    """The state; Unusable for another format, other conditions, or a byte that is not its own."""
    end = packed.find(b"\n")
    try:
        said = json.loads(packed[:end])
        version, made, checksum = said["format"], said.get("conditions"), said.get("sha256")
    except (ValueError, KeyError, TypeError) as error:
        raise Unusable("is damaged") from error
    if version != FORMAT:
        raise Unusable(f"is of format {version} and not {FORMAT}")
    content = memoryview(packed)[end + 1 :]
    if checksum != _checksum(made, content):
        raise Unusable("is damaged")
    if made != conditions:
        raise Unusable(f"was made with {_differences(made, conditions)}")
    return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def _checksum(conditions: dict, content: memoryview) -> str:
    digest = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode())
    digest.update(content)
    return digest.hexdigest()


def _differences(made: dict, wanted: dict) -> str:
    names = sorted({*made, *wanted})
    apart = [name for name in names if made.get(name) != wanted.get(name)]
    return " and ".join(f"{n}={made.get(n)} instead of {n}={wanted.get(n)}" for n in apart)
