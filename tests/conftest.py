"""What the tests of every room share: the original data files, where they are at hand."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from dpbench.data import adult, dutch, mnist

UNPACK = Path(__file__).parents[2] / "shared" / "data" / "unpack"
NEEDED = (*adult.SOURCES, dutch.SOURCE, *mnist.TRAIN, *mnist.TEST)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """A data folder with the original files; tests that need it carry the mark `data`."""
    named = Path(os.environ.get("DPBENCH_DATA", "/nowhere"))
    if all((named / source.path).exists() for source in NEEDED):
        return named
    if not UNPACK.exists():
        pytest.skip("the original files are neither in $DPBENCH_DATA nor in ../shared/data")
    folder = Path(tempfile.gettempdir()) / "dpbench-test-data"
    with FileLock(f"{folder}.lock"):  # several test processes share the folder
        subprocess.run([sys.executable, UNPACK, folder, "adult", "dutch", "mnist"], check=True)
    return folder
