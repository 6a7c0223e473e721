"""Checkpoints: a run put away while it goes on, to be taken up again where it was.

A file is one line of JSON, then what torch.save wrote. The line says the format, what a run must
agree in to go on from here, and a checksum of everything. Nothing in a file is ever executed, and
nobody but its owner may read it: it holds the state of generators and losses of single examples.
"""

import hashlib
import io
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from dpbench.files import remove_parts, replace_file
from dpbench.memory import ran_out
from dpbench.training.lock import exclusive

FORMAT = 1

CHECKPOINTS_KEPT = 2
"""Checkpoints of one run: the last one, and one before in case that is damaged."""


class Unusable(Exception):
    """Why a checkpoint is not gone on from, as the end of a sentence."""


@contextmanager
def locked_checkpoints(
    folder: Path, minutes: float | None, wait: bool = True
) -> Iterator["Checkpoints"]:
    """The checkpoints of one run, for one process at a time; others wait, or Busy is raised.

    folder: of this run alone, named by its digest. minutes: of training between checkpoints, None
    to write none. UserError for a folder that cannot be written.
    """
    with exclusive(folder / "lock", wait) as abandoned:
        remove_parts(folder)
        yield Checkpoints(folder, minutes, abandoned)


class Checkpoints:
    """What is in the folder of one run. Numbered files: the largest number is the last one.

    conditions: plain values by name that a run must agree in for its steps to be those of the run
    that wrote the checkpoint. state: nested dictionaries and lists of tensors and plain values.
    abandoned: whether an earlier process was killed while the run was its own.
    """

    def __init__(self, folder: Path, minutes: float | None, abandoned: bool = False):
        self._folder, self._minutes, self._run = folder, minutes, {"run": folder.name}
        self.abandoned = abandoned
        self._saved_at = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for the next one."""
        minutes = self._minutes
        return minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes

    def save_at_exit(self, state: dict, conditions: dict) -> None:
        """Write one for a run that ends here, unless none is wanted at all."""
        if self._minutes is not None:
            self.save(state, conditions)

    def save(self, state: dict, conditions: dict) -> None:
        """Write one, at once or not at all, and drop all but the last two.

        Where it cannot be written there is a warning: the run goes on, and so do those before.
        """
        earlier = self._paths()
        number = int(earlier[-1].stem) + 1 if earlier else 1
        path = self._folder / f"{number:06}.ckpt"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)  # somebody may have removed it
            replace_file(path, *_packed(state, conditions | self._run), mode=0o600)
            for old in earlier[: -(CHECKPOINTS_KEPT - 1)]:
                old.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"a checkpoint cannot be written to {self._folder} ({error.strerror}): the run "
                "goes on, and would be taken up again from an earlier one, if there is any.",
                stacklevel=2,
            )
        self._saved_at = time.monotonic()

    def resume_from_last(self, conditions: dict, load: Callable[[dict], None]) -> bool:
        """Load the state of the last checkpoint that is whole, agrees in the conditions and can be
        loaded: whether there is one.

        load: raises for a state that is none of this run, whatever that state has done by then. A
        warning says why a checkpoint is passed over.
        """
        for path in reversed(self._paths()):
            try:
                state = _unpacked(_content(path), conditions | self._run)
                try:
                    load(state)
                except Exception as error:  # whatever a forged one may lead to
                    if ran_out(error):
                        raise
                    raise Unusable(f"is none of this run ({type(error).__name__})") from error
                return True
            except (Unusable, OSError) as reason:
                warnings.warn(
                    f"the checkpoint {path} {_reason_text(reason)}: it is left out, and the "
                    "run resumes from an earlier one or starts anew.",
                    stacklevel=2,
                )
        return False

    def clear(self) -> None:
        """Remove all of them, as far as the system lets us: the record is what counts."""
        for path in self._paths():
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                warnings.warn(
                    f"{path} cannot be removed ({error.strerror}), and is of no more use.",
                    stacklevel=2,
                )

    def _paths(self) -> list[Path]:
        found = (path for path in self._folder.glob("*.ckpt") if path.stem.isdecimal())
        return sorted(found, key=lambda path: int(path.stem))


def _reason_text(reason: Unusable | OSError) -> str:
    return f"cannot be read ({reason.strerror})" if isinstance(reason, OSError) else str(reason)


def _content(path: Path) -> bytes:
    """What is in a file; of a pipe, which would never end, nothing is read."""
    if not path.is_file():
        raise Unusable("is no file")
    return path.read_bytes()


def _packed(state: dict, conditions: dict) -> tuple[bytes, memoryview]:
    """First line and content. In memory, because what stops torch.save has no sure type."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    said = {"format": FORMAT, "conditions": conditions, "sha256": _checksum(conditions, content)}
    return json.dumps(said).encode() + b"\n", content


def _unpacked(packed: bytes, conditions: dict) -> dict:
    """The state; Unusable for another format, other conditions, a byte that is not its own, or what
    is more than tensors and plain values."""
    end = packed.find(b"\n")
    try:
        said = json.loads(packed[:end])
        version, made, checksum = said["format"], said.get("conditions"), said.get("sha256")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unusable("is damaged") from error
    if version != FORMAT:
        raise Unusable(f"is of format {version!r:.20} and not {FORMAT}")
    content = memoryview(packed)[end + 1 :]
    if not isinstance(made, dict) or checksum != _checksum(made, content):
        raise Unusable("is damaged")
    if made != conditions:
        raise Unusable(f"was made with {_differences(made, conditions)}")
    try:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # torch says of no type that it is all there are
        raise Unusable(f"holds what no run puts away ({type(error).__name__})") from error


def _checksum(conditions: dict, content: memoryview) -> str:
    digest = hashlib.sha256(json.dumps(conditions, sort_keys=True).encode())
    digest.update(content)
    return digest.hexdigest()


def _differences(made: dict, wanted: dict) -> str:
    names = sorted({*made, *wanted})
    apart = [name for name in names if made.get(name) != wanted.get(name)]
    pairs = (f"{n:.40}={made.get(n)!s:.80} instead of {n:.40}={wanted.get(n)}" for n in apart)
    return " and ".join(pairs)
