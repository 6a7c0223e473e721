"""Wine Quality (red): how do tasters rate a wine with these measurements?"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, fetch
from dpbench.learning.data.numeric import RegressionRows, z_scores
from dpbench.learning.data.splits import shuffle_and_count

SOURCE = Source(
    path="wine/winequality-red.csv",
    checksum="md5:2daeecee174368f8a33b82c8cccae3a5",
    page="https://archive.ics.uci.edu/dataset/186/wine+quality",
    urls=(
        "https://archive.ics.uci.edu/ml/machine-learning-databases/wine-quality/"
        "winequality-red.csv",
        "https://archive.ics.uci.edu/static/public/186/wine+quality.zip#winequality-red.csv",
    ),
)


@dataclass(frozen=True)
class Wine(RegressionRows):
    """11 measurements of 1,599 red wines, and their rating from 0 to 10.

    test_size: test rows, drawn by a shuffle. Source: Cortez et al., "Modeling wine
    preferences by data mining from physicochemical properties", 2009; protocol: Bu et al.
    (calibration), appendix C.4.
    """

    name = "wine"
    shape = (11,)
    rows = 1_599

    def load(self, folder: Path, seed: int) -> Data:
        """Read the file below `folder`, or download it (0.1 MB)."""
        return shuffle_and_count(encode(read(fetch(SOURCE, folder))), self.test_size, seed)


def read(path: Path) -> pd.DataFrame:
    """All rows, `quality` in the last of twelve columns."""
    return pd.read_csv(path, sep=";")


def encode(table: pd.DataFrame) -> Split:
    """z-scores of the eleven measurements, and the unchanged ratings."""
    features = table.drop(columns="quality").to_numpy("float64")
    ratings = torch.from_numpy(table["quality"].to_numpy("float32"))
    return Split(z_scores(features), ratings, torch.zeros(len(table), dtype=torch.int64))
