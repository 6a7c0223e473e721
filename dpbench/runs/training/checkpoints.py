"""Checkpoints of unfinished runs, from which they resume.

A file is a line of JSON (format, conditions to resume, checksum of everything), then the output of
torch.save. No code in it is executed, and only its owner may read it: it has the state of private
random streams and the losses of single examples.
"""

import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from dpbench.runs.training.progress import STEPS_FILE
from dpbench.system.errors import MALFORMED_JSON, UserError, warn
from dpbench.system.files import remove_parts, replace_file
from dpbench.system.lock import exclusive
from dpbench.system.memory import is_out_of_memory

FORMAT = 1

CHECKPOINTS_KEPT = 2
"""Checkpoints per run: the last one, and the one before in case the last is damaged."""

UNCHECKED = (
    "/parts/observer",
    "/parts/step/seam",
    "/parts/step/clip",
    "/parts/step/update",
    "/parts/step/correlated_noise",
    "/parts/step/optimizer/state",
    "/parts/step/optimizer/param_groups",
)
"""Parts whose structure changes during a run."""


class UnusableCheckpoint(Exception):
    """A run cannot resume from a checkpoint; the message is a predicate such as "is damaged"."""


@contextmanager
def locked_checkpoints(
    folder: Path, minutes: float | None, wait: bool = True
) -> Iterator["Checkpoints"]:
    """The checkpoints of one run, for one process at a time; others wait, or Busy is raised.

    folder: used by this run alone, and named by its digest. minutes: training time between
    checkpoints, None to write none. Raises UserError if the folder cannot be written.
    """
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, and a run has its own folder: remove the link.")
    with exclusive(folder / "lock", wait) as abandoned:
        remove_parts(folder)
        yield Checkpoints(folder, minutes, abandoned)


class Checkpoints:
    """The checkpoint files of one run, numbered; the largest number is the last.

    conditions: plain values that must be equal for the resumed steps to be those of an
    uninterrupted run. abandoned: whether an earlier process was killed while it held the lock.
    """

    def __init__(self, folder: Path, minutes: float | None, abandoned: bool = False):
        self.folder, self._minutes, self._run = folder, minutes, {"run": folder.name}
        self.abandoned = abandoned
        self._saved_at = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next checkpoint."""
        minutes = self._minutes
        return minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes

    def save_at_exit(self, state: dict, conditions: dict) -> None:
        """Save for a run that is interrupted or fails, unless checkpoints are disabled."""
        if self._minutes is not None:
            self.save(state, conditions, "the same command resumes")

    def save(
        self, state: dict, conditions: dict, then: str = "the run continues, and would resume"
    ) -> None:
        """Write a checkpoint atomically, and remove all but the last two. Warns if it cannot be
        written, and of what happens then: earlier checkpoints stay."""
        earlier = self._paths()
        number = int(earlier[-1].stem) + 1 if earlier else 1
        path = self.folder / f"{number:06}.ckpt"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # it may have been removed
            replace_file(path, *serialise(state, conditions | self._run), mode=0o600)
            for old in earlier[: -(CHECKPOINTS_KEPT - 1)]:
                old.unlink(missing_ok=True)
        except OSError as error:
            warn(
                f"a checkpoint cannot be written to {self.folder} ({error.strerror}): {then} "
                "from an earlier checkpoint, if there is one."
            )
        self._saved_at = time.monotonic()

    def resume_from_last(self, conditions: dict, load: Callable[[dict], None]) -> bool:
        """Load the last checkpoint that is intact, has equal conditions and fits the run; returns
        whether there is one. A warning says why one is ignored. load: raises for a state that does
        not belong to this run, possibly after loading parts of it."""
        for path in reversed(self._paths()):
            try:
                state = _deserialise(_content(path), conditions | self._run)
                try:
                    load(state)
                except Exception as error:  # a forged state may cause any exception
                    if is_out_of_memory(error):
                        raise
                    reason = f"does not belong to this run ({type(error).__name__})"
                    raise UnusableCheckpoint(reason) from error
                return True
            except UnusableCheckpoint as why:
                warn(
                    f"the checkpoint {path} {why}: it is ignored, and the run "
                    "resumes from an earlier one or starts over."
                )
        return False

    def clear(self) -> None:
        """Remove all checkpoints; warns of those that cannot be removed, as the run is complete."""
        for path in (*self._paths(), self.folder / STEPS_FILE):  # a killed process left it
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                warn(f"{path} cannot be removed ({error.strerror}), and is no longer needed.")

    def _paths(self) -> list[Path]:
        numbered = (path for path in self.folder.glob("*.ckpt") if path.stem.isdecimal())
        return sorted(numbered, key=lambda path: int(path.stem))


def _content(path: Path) -> bytes:
    """The bytes of a regular file; a pipe would block forever."""
    try:
        if path.is_file():
            return path.read_bytes()
    except OSError as error:
        raise UnusableCheckpoint(f"cannot be read ({error.strerror})") from error
    raise UnusableCheckpoint("is not a file")


def serialise(state: dict, conditions: dict) -> tuple[bytes, memoryview]:
    """Header and content. In memory, because torch.save may raise any exception on a full disk."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    header = {"format": FORMAT, "conditions": conditions, "sha256": _checksum(conditions, content)}
    return json.dumps(header).encode() + b"\n", content


def _deserialise(data: bytes, conditions: dict) -> dict:
    """The state; raises UnusableCheckpoint for another format or other conditions, a wrong
    checksum, or content other than tensors and plain values."""
    end = data.find(b"\n")
    try:
        header = json.loads(data[:end])
        version, saved, checksum = header["format"], header.get("conditions"), header.get("sha256")
    except MALFORMED_JSON as error:
        raise UnusableCheckpoint("is damaged") from error
    if version != FORMAT:
        raise UnusableCheckpoint(f"has format {version!r:.20} instead of {FORMAT}")
    content = memoryview(data)[end + 1 :]
    if not isinstance(saved, dict) or checksum != _checksum(saved, content):
        raise UnusableCheckpoint("is damaged")
    if saved != conditions:
        raise UnusableCheckpoint(f"was written with {_differences(saved, conditions)}")
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch does not document the types
        raise UnusableCheckpoint(f"has unexpected content ({type(error).__name__})") from error


def _checksum(conditions: dict, content: memoryview) -> str:
    digest = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode())
    digest.update(content)
    return digest.hexdigest()


def _differences(saved: dict, expected: dict) -> str:
    names = [name for name in sorted({*saved, *expected}) if saved.get(name) != expected.get(name)]
    pairs = (f"{n:.40}={saved.get(n)!s:.80} instead of {n:.40}={expected.get(n)}" for n in names)
    return " and ".join(pairs)


def check_state(state: object, like: object, where: str = "") -> None:
    """ValueError if a state differs from one of the same run in its keys, the types of values, or
    the shape and dtype of tensors. Where the other has None, and in lists, nothing is checked."""
    if where in UNCHECKED or like is None:
        return
    if isinstance(like, dict) and isinstance(state, dict) and state.keys() == like.keys():
        for key, part in like.items():
            check_state(state[key], part, f"{where}/{key}")
    elif isinstance(like, dict) or _kind(state) != _kind(like):
        raise ValueError(f"{where} does not belong to this run")


def _kind(value: object) -> tuple:
    if isinstance(value, Tensor):
        return type(value), value.dtype, value.shape
    return (type(value),)


def tensors(state: object) -> Iterator[Tensor]:
    """All tensors in nested dictionaries, lists and tuples."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors(part)
