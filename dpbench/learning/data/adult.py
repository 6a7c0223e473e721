"""Adult: does a person in the 1994 US census earn more than 50,000 dollars a year?"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from dpbench.learning.data.examples import Data, Split
from dpbench.learning.data.fetch.download import Source, fetch
from dpbench.learning.data.groups import Attributes, attributes_of, group_names, group_numbers
from dpbench.learning.data.splits import check_test_share, held_out, shuffle_and_split, subsample

WOMEN, MEN = 14_695, 30_527  # among the 45,222 published rows without a missing value

NUMERIC = ["age", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
BINARY = ["race", "sex"]
ATTRIBUTES: Attributes = {
    "sex": {"Male": "male", "Female": "female"},
    "race": {
        name: name
        for name in ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other")
    },
    "white": {True: "White", False: "non-White"},
    "age": {
        **dict.fromkeys(range(25, 61), "25 to 60"),
        **dict.fromkeys([*range(17, 25), *range(61, 91)], "other ages"),
    },
}
"""Race in two is that of Esipova et al. (appendix B.1), who do not print bounds of ages: these are
those of the survey by Le Quy et al., 2022."""
COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]


def _source(name: str, md5: str) -> Source:
    return Source(
        path=f"adult/{name}",
        checksum=f"md5:{md5}",
        page="https://archive.ics.uci.edu/dataset/2/adult",
        urls=(
            f"https://archive.ics.uci.edu/ml/machine-learning-databases/adult/{name}",
            f"https://archive.ics.uci.edu/static/public/2/adult.zip#{name}",
        ),
    )


SOURCES = (
    _source("adult.data", "5d7c39d7b8804f071cdd1f2a7c460872"),
    _source("adult.test", "35238206dfdf7f1fe215bbb874adecdc"),
)


@dataclass(frozen=True)
class Adult:
    """98 features of 45,222 people; the groups are men (0) and women (1).

    balance_by_sex: keep every woman, and each man with probability 14,695/30,527. test_share: of
    the remaining rows, after a shuffle. group: what the groups are by, one or two of ATTRIBUTES.
    Protocol: Esipova et al., ICLR 2023.
    """

    balance_by_sex: bool
    test_share: float
    group: str | list[str] = field(default="sex", hash=False)

    name = "adult"
    shape = (98,)
    task = "classification"
    classes = 2

    def __post_init__(self) -> None:
        check_test_share(self.test_share, self._rows)
        attributes_of(self.group, ATTRIBUTES)

    @property
    def random_size(self) -> bool:
        return self.balance_by_sex

    @property
    def groups(self) -> tuple[str, ...]:
        return group_names(self.group, ATTRIBUTES)

    @property
    def train_size(self) -> int:
        """Expected number of training rows: the number of sub-sampled men varies with the seed."""
        return self._rows - held_out(self._rows, self.test_share)

    @property
    def _rows(self) -> int:
        return 2 * WOMEN if self.balance_by_sex else WOMEN + MEN

    @property
    def notes(self) -> tuple[str, ...]:
        scaling = "The z-scores and one-hot categories are taken from all rows, test included."
        balance = (
            "Men are sub-sampled to the number of women with the published counts of both; "
            "the sampling rate uses the expected number of training rows."
        )
        return (scaling, balance) if self.balance_by_sex else (scaling,)

    def load(self, folder: Path, seed: int) -> Data:
        """Read the two files below `folder`, or download them (6 MB)."""
        paths = tuple(fetch(source, folder) for source in SOURCES)
        examples, men = _examples(paths, attributes_of(self.group, ATTRIBUTES))
        if self.balance_by_sex:
            examples = subsample(examples, men, WOMEN / MEN, seed)
        return shuffle_and_split(examples, self.test_share, seed)


@functools.lru_cache(maxsize=1)
def _examples(paths: tuple[Path, ...], group: tuple[str, ...]) -> tuple[Split, Tensor]:
    """The examples of verified files, and which are men [n] bool; kept for the next run: seeds
    differ only in the split."""
    table = read(paths)
    return encode(table, [*group]), torch.tensor((table["sex"] == "Male").to_numpy())


def read(paths: Iterable[Path]) -> pd.DataFrame:
    """All rows of the files, concatenated, without those with missing values."""
    tables = [
        # The test file opens with a line "|1x3 Cross validator".
        pd.read_csv(path, names=COLUMNS, skipinitialspace=True, na_values="?", comment="|")
        for path in paths
    ]
    return pd.concat(tables, ignore_index=True).dropna()


def encode(table: pd.DataFrame, group: str | list[str] = "sex") -> Split:
    """Features: five z-scores, non-White and female as 0 or 1, then one column per category."""
    numbers = table[NUMERIC]
    scores = (numbers - numbers.mean()) / numbers.std()
    binary = pd.DataFrame({"race": table["race"] != "White", "sex": table["sex"] == "Female"})
    rest = table.drop(columns=[*NUMERIC, *BINARY, "fnlwgt", "income"])
    features = pd.concat([scores, binary, pd.get_dummies(rest)], axis=1)
    people = table.assign(white=table["race"] == "White")
    return Split(
        torch.from_numpy(features.to_numpy("float32")),
        torch.from_numpy(table["income"].str.startswith(">50K").to_numpy("int64")),
        torch.from_numpy(group_numbers(people, group, ATTRIBUTES)),
    )
