"""Pickled arrays, read without executing code from the file.

A pickle is a program. These files are first verified by their publishers' checksums, and even then
nothing that the file names is imported or called: only the names that pickled arrays of numbers
consist of are allowed, and each is replaced by a harmless stand-in.
"""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpbench.learning.data.fetch.download import Source, altered_file, fetch
from dpbench.system.errors import UserError

BROKEN = (
    *(pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError, AttributeError),
    *(MemoryError, OverflowError),
)
"""What Python's unpickler, and the stand-ins, raise for malformed files."""


class _Dtype:
    """Stands in for numpy.dtype: the type of one number, and its byte order."""

    def __init__(self, code: str, align: int, copy: int):
        self.dtype = np.dtype(code)
        if self.dtype.kind not in "biuf":
            raise ValueError(f"{code} is not a numeric type")

    def __setstate__(self, state: tuple) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands in for an array; the state that the unpickler sets has its content."""

    def __init__(self, kind: str, shape: tuple[int, ...], code: str | bytes):
        self.array = np.empty(0)

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran, data = state
        content = data.encode("latin1") if isinstance(data, str) else data  # a string of Python 2
        flat = np.frombuffer(content, dtype.dtype)
        self.array = flat.reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str) -> bytes:
    """Stands in for codecs.encode: bytes written by Python 3 in a protocol of Python 2."""
    return text.encode("latin1")


ADMITTED: dict[tuple[str, str], Callable | str] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # since numpy 2
    ("numpy", "ndarray"): "the kind of an array",
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


class _ForeignError(Exception):
    """A pickle refers to a name that is not ADMITTED."""


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable | str:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise _ForeignError(f"{module}.{name}") from None


def read_pickle(path: Path, address: str) -> dict:
    """The dictionary in a pickle, its arrays read-only; strings of Python 2 become str.

    address: where a person can download the original. Raises UserError for a file without such a
    dictionary, or with anything but arrays of numbers and plain containers.
    """
    try:
        with path.open("rb") as file:
            content = _Restricted(file, encoding="latin1").load()
        return {k: v.array if isinstance(v, _Array) else v for k, v in content.items()}
    except _ForeignError as error:
        raise UserError(
            f"{path} refers to {error}, which no data set needs: "
            f"delete it, and put the original from {address} there."
        ) from None
    except BROKEN as error:
        raise altered_file(path, address) from error


def read_images(source: Source, folder: Path, labels: str) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, 3, 32, 32] and labels int64 [n] of one batch in CIFAR's layout.

    The file is verified before it is read. labels: the key of the labels. Each row of pixels is a
    red, a green and a blue plane, line by line.
    """
    content = read_pickle(fetch(source, folder), source.address)
    return content["data"].reshape(-1, 3, 32, 32), np.asarray(content[labels], np.int64)
