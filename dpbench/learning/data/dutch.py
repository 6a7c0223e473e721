"""Dutch: does a person in the 2001 census of the Netherlands hold a prestigious occupation?"""

import functools
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import torch

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, fetch
from dpbench.learning.data.groups import Attributes, attributes_of, group_names, group_numbers
from dpbench.learning.data.splits import check_test_share, held_out, shuffle_and_split

ROWS = 60_420

ATTRIBUTES: Attributes = {
    "sex": {"1": "male", "2": "female"},
    **{
        column: {str(code): f"{column} {code}" for code in range(1, codes + 1)}
        for column, codes in (("citizenship", 3), ("country_birth", 3), ("Marital_status", 4))
    },
}
"""The file's own codes, where it has no words for them."""

SOURCE = Source(
    path="dutch/dutch_census_2001.arff",
    checksum="md5:ff7daa26f4a3119448a20302a1fa7574",
    page="https://github.com/tailequy/fairness_dataset",
    urls=(
        "https://raw.githubusercontent.com/tailequy/fairness_dataset/main/"
        "Dutch_census/dutch_census_2001.arff",
    ),
)


@dataclass(frozen=True)
class Dutch:
    """59 features of 60,420 people; the groups are men (0) and women (1).

    test_share: of the rows, after a shuffle. group: what the groups are by, one or two of
    ATTRIBUTES. Protocol: Esipova et al., ICLR 2023; the file is that of the survey by Le Quy et
    al., 2022.
    """

    test_share: float
    group: str | list[str] = field(default="sex", hash=False)

    name = "dutch"
    shape = (59,)
    task = "classification"
    classes = 2
    notes = (
        "The one-hot categories are taken from all rows, test included.",
        "The published file leaves out minors and people of middle occupations.",
    )

    def __post_init__(self) -> None:
        check_test_share(self.test_share, ROWS)
        attributes_of(self.group, ATTRIBUTES)

    @property
    def groups(self) -> tuple[str, ...]:
        return group_names(self.group, ATTRIBUTES)

    @property
    def train_size(self) -> int:
        return ROWS - held_out(ROWS, self.test_share)

    def load(self, folder: Path, seed: int) -> Data:
        """Read the file below `folder`, or download it (2 MB)."""
        examples = _examples(fetch(SOURCE, folder), attributes_of(self.group, ATTRIBUTES))
        return shuffle_and_split(examples, self.test_share, seed)


@functools.lru_cache(maxsize=1)
def _examples(path: Path, group: tuple[str, ...]) -> Split:
    """The examples of a verified file, kept for the next run: seeds differ only in the split."""
    return encode(read(path), [*group])


def read(path: Path) -> pd.DataFrame:
    """The rows of an ARFF file of nominal attributes, all as text."""
    with path.open() as file:
        names = []
        for line in file:
            if line.startswith("@attribute"):
                names.append(line.split()[1])
            if line.startswith("@data"):
                break
        return pd.read_csv(file, names=names, dtype=str)


def encode(table: pd.DataFrame, group: str | list[str] = "sex") -> Split:
    """Features: female and moved as 0 or 1, then one column per category of the others."""
    binary = table[["sex", "prev_residence_place"]] == "2"
    rest = table.drop(columns=[*binary, "occupation"])
    features = pd.concat([binary, pd.get_dummies(rest)], axis=1)
    return Split(
        torch.from_numpy(features.to_numpy("float32")),
        torch.from_numpy((table["occupation"] == "2_1").to_numpy("int64")),
        torch.from_numpy(group_numbers(table, group, ATTRIBUTES)),
    )
