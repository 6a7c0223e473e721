"""California Housing: what is the median house value in a block of the 1990 census?"""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, fetch, write_member
from dpbench.learning.data.numeric import RegressionRows, z_scores
from dpbench.learning.data.splits import shuffle_and_count

ARCHIVE = Source(
    path="california/cal_housing.tgz",
    checksum="sha256:aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
    page="https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html",
    urls=(
        "https://ndownloader.figshare.com/files/5976036",
        "https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.tgz",
    ),
)
SOURCE = Source(
    path="california/cal_housing.data",
    checksum="md5:2c9da11498c5aa9ed02cf8b7f6e77ea7",
    page=ARCHIVE.page,
)
MEMBER = "CaliforniaHousing/cal_housing.data"


@dataclass(frozen=True)
class California(RegressionRows):
    """8 features of 20,640 blocks, and the median value of a house in 100,000 dollars.

    test_size: test rows, drawn by a shuffle. Source: Pace and Barry, "Sparse spatial
    autoregressions", 1997; protocol: Bu et al. (calibration), appendix C.4.
    """

    name = "california"
    shape = (8,)
    rows = 20_640

    def load(self, folder: Path, seed: int) -> Data:
        """Read the file below `folder`, or download it (0.4 MB)."""
        if not (folder / SOURCE.path).exists():
            with tarfile.open(fetch(ARCHIVE, folder)) as tar:
                write_member(tar.extractfile(MEMBER), folder / SOURCE.path)
        return shuffle_and_count(encode(read(fetch(SOURCE, folder))), self.test_size, seed)


def read(path: Path) -> np.ndarray:
    """The nine columns of the file [n, 9], in the file's order."""
    return np.loadtxt(path, delimiter=",", ndmin=2)


def encode(table: np.ndarray) -> Split:
    """z-scores of income, age, rooms, bedrooms and people per household, people, and location.

    The features of scikit-learn's `fetch_california_housing`, in its order.
    """
    longitude, latitude, age, rooms, bedrooms, people, households, income, value = table.T
    per_household = [number / households for number in (rooms, bedrooms, people)]
    features = np.stack(
        [income, age, *per_household[:2], people, per_household[2], latitude, longitude], axis=1
    )
    groups = torch.zeros(len(table), dtype=torch.int64)
    return Split(z_scores(features), torch.from_numpy(value / 1e5).float(), groups)
