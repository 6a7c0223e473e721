import os
import pickle

import numpy as np
import pytest

from dpbench.learning.data.fetch.pickled import read_pickle
from dpbench.system.errors import UserError

ARRAYS = [
    np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
    np.linspace(0, 1, 5, dtype=">f4"),
]
# What Python 2 and numpy 1 wrote for {"data": numpy.array([[200], [7]], "uint8"), "labels": [3]}.
OLD = (
    b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    b"(K\x01K\x02K\x01\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
    b"J\xff\xff\xff\xffK\x00tb\x89U\x02\xc8\x07tbU\x06labels]K\x03au."
)


class Evil:
    """Pickled, it is a call of `function` with `arguments`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.fixture
def read(tmp_path):
    """read(content): what the pickle of it, or the bytes themselves, are read as."""

    def of(content, protocol=4):
        path = tmp_path / "batch"
        is_bytes = isinstance(content, bytes)
        path.write_bytes(content if is_bytes else pickle.dumps(content, protocol))
        return read_pickle(path, "https://its.publisher")

    return of


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}")
def test_arrays_and_plain_containers_are_read_as_they_were(read, array, protocol):
    content = read({"data": array, "labels": [1, (2, "three")], "mean": 0.5}, protocol)
    assert (content["labels"], content["mean"]) == ([1, (2, "three")], 0.5)
    assert content["data"].dtype == array.dtype
    assert np.array_equal(content["data"], array)


def test_a_pickle_of_python_2_is_read(read):
    content = read(OLD)
    assert content["labels"] == [3]
    assert content["data"].tolist() == [[200], [7]]
    assert content["data"].dtype == np.uint8


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize(
    "wrap",
    [
        lambda evil: evil,
        lambda evil: {"data": np.zeros(3), "labels": [evil]},
        lambda evil: {"data": np.array([evil], dtype=object)},
    ],
    ids=["bare", "in a list", "in an array"],
)
def test_nothing_in_a_pickle_is_run(read, tmp_path, wrap, protocol):
    trap = tmp_path / "trap"
    evil = wrap(Evil(os.mkdir, str(trap)))
    pickle.loads(pickle.dumps(evil, protocol))
    assert trap.exists(), "the trap does not work"
    trap.rmdir()
    with pytest.raises(UserError, match=r"mkdir, which no data set needs|truncated or altered"):
        read(evil, protocol)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("evil", "name"),
    [
        (Evil(eval, "1"), "builtins.eval|__builtin__.eval"),
        (Evil(np.load, "file"), "numpy.load"),
        (Evil(np.memmap, "file"), "numpy.memmap"),
        (Evil(getattr, "", "join"), "builtins.getattr"),
        (np.str_("text"), "multiarray.scalar"),
    ],
)
def test_forbidden_names_in_a_pickle_are_reported(read, evil, name):
    with pytest.raises(UserError, match=rf"({name}), .* from https://its.publisher"):
        read({"data": evil})


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {"data": np.array([None, "text"], dtype=object)},
        {"data": np.zeros(2, [("a", "u1"), ("b", "f8")])},
        b"",
        b"no pickle",
        b"\x8d" + b"\xff" * 8,
        b"\x8d" + b"\xff" * 7 + b"\x3f",
        b"cnumpy\nndarray\n(tR.",
        b"cnumpy\ndtype\n(S'u1'\nK\x00K\x00tR}S'x'\nK\x01sb.",
    ],
    ids=["list", "objects", "records", "empty", "text", "too long", "long", "a call", "a state"],
)
def test_other_pickles_are_refused(read, content):
    with pytest.raises(UserError, match="truncated or altered"):
        read(content)


@pytest.mark.slow
def test_a_pickle_that_ends_early_is_refused_wherever_it_ends(read):
    whole = pickle.dumps({"data": np.arange(5), "labels": [1, 2]}, 2)
    assert read(whole)
    for end in range(len(whole)):
        with pytest.raises(UserError, match=r"truncated or altered|which no data set needs"):
            read(whole[:end])
