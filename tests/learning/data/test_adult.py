import numpy as np
import pandas as pd
import pytest
import torch

from dpbench.learning.data.adult import MEN, WOMEN, Adult, encode, read
from dpbench.system.errors import UserError

ROWS = """\
39, Private, 1, HS-grad, 9, Divorced, Sales, Husband, White, Male, 0, 0, 40, Cuba, <=50K
20, ?, 2, HS-grad, 9, Divorced, Sales, Husband, White, Male, 0, 0, 40, Cuba, <=50K
41, State-gov, 3, 11th, 7, Widowed, Sales, Wife, Black, Female, 10, 5, 20, Cuba, >50K
"""
TEST_ROWS = """\
|1x3 Cross validator
50, Private, 4, 11th, 7, Widowed, Sales, Wife, White, Female, 5, 1, 30, Cuba, >50K.

"""


@pytest.fixture
def table(tmp_path) -> pd.DataFrame:
    (tmp_path / "adult.data").write_text(ROWS)
    (tmp_path / "adult.test").write_text(TEST_ROWS)
    return read([tmp_path / "adult.data", tmp_path / "adult.test"])


def test_rows_without_missing_values_have_targets_groups_and_no_income(table):
    assert list(table["age"]) == [39, 41, 50]
    examples = encode(table)
    assert examples.targets.tolist() == [0, 1, 1]
    assert examples.groups.tolist() == [0, 1, 1]
    other = table.assign(income=["<=50K", "<=50K", "<=50K"])
    assert torch.equal(encode(table).inputs, encode(other).inputs)


def test_groups_by_two_attributes_are_their_intersections(table):
    adult = Adult(balance_by_sex=True, test_share=0.2, group=["sex", "race"])
    assert adult.groups[:2] == ("male & White", "male & Black")
    assert len(adult.groups) == 10
    numbers = encode(table, adult.group).groups
    assert [adult.groups[n] for n in numbers] == [
        "male & White",
        "female & Black",
        "female & White",
    ]
    assert torch.equal(encode(table, adult.group).inputs, encode(table).inputs)


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ("income", "dataset.group=income is unknown"),
        (["sex", "sex"], r"\[sex,sex\] must name one or 2 of sex, race, white, age, each once"),
        ([], r"dataset.group=\[\] must name one or 2"),
        (7, "dataset.group must be"),
    ],
)
def test_groups_by_anything_else_are_refused(group, why):
    with pytest.raises(UserError, match=why):
        Adult(balance_by_sex=True, test_share=0.2, group=group)


def test_features_are_scores_then_binaries_then_categories(table):
    inputs = encode(table).inputs
    ages = np.array([39, 41, 50])
    scores = (ages - ages.mean()) / ages.std(ddof=1)
    torch.testing.assert_close(inputs[:, 0], torch.tensor(scores, dtype=torch.float32))
    assert inputs[:, 5].tolist() == [0, 1, 0]  # non-White
    assert inputs[:, 6].tolist() == [0, 1, 1]  # female
    assert inputs[:, 7:].sum(dim=1).tolist() == [6, 6, 6]  # one category of each of six columns


@pytest.mark.parametrize("test_share", [0, 1, -0.1, "0.2", True])
def test_a_test_share_that_is_no_share_is_refused(test_share):
    with pytest.raises(UserError, match="test_share must be a number between 0 and 1"):
        Adult(balance_by_sex=True, test_share=test_share)


@pytest.mark.slow
@pytest.mark.data
def test_the_original_files_give_the_published_counts(data_folder):
    data = Adult(balance_by_sex=False, test_share=0.2).load(data_folder, seed=0)
    groups = torch.cat([data.train.groups, data.test.groups])
    assert torch.bincount(groups).tolist() == [MEN, WOMEN]
    scores = torch.cat([data.train.inputs, data.test.inputs])[:, :5].double()
    torch.testing.assert_close(scores.mean(dim=0), torch.zeros(5).double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(scores.std(dim=0), torch.ones(5).double(), rtol=0, atol=1e-5)


@pytest.mark.data
def test_balancing_keeps_every_woman_and_about_as_many_men(data_folder):
    data = Adult(balance_by_sex=True, test_share=0.2).load(data_folder, seed=0)
    men, women = torch.bincount(torch.cat([data.train.groups, data.test.groups])).tolist()
    assert women == WOMEN
    assert abs(men - WOMEN) < 2 * (WOMEN * (1 - WOMEN / MEN)) ** 0.5
    assert len(data.test) == int(0.2 * (men + women))


@pytest.mark.parametrize(
    ("group", "names", "numbers"),
    [
        ("white", ("White", "non-White"), [0, 1, 0]),
        ("age", ("25 to 60", "other ages"), [0, 0, 1]),
        (
            ["white", "age"],
            (
                *("White & 25 to 60", "White & other ages"),
                *("non-White & 25 to 60", "non-White & other ages"),
            ),
            [0, 2, 1],
        ),
    ],
)
def test_race_and_age_are_in_two_as_in_the_paper(group, names, numbers, table):
    assert Adult(balance_by_sex=True, test_share=0.2, group=group).groups == names
    assert encode(table.assign(age=[25, 60, 61]), group).groups.tolist() == numbers


@pytest.mark.data
def test_other_groups_change_no_row_and_all_have_test_rows(data_folder):
    by_sex, by_both = (
        Adult(balance_by_sex=True, test_share=0.2, group=group).load(data_folder, seed=0)
        for group in ("sex", ["sex", "race"])
    )
    for one, other in ((by_sex.train, by_both.train), (by_sex.test, by_both.test)):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.groups, other.groups // 5)
        assert len(other.groups.unique()) == 10
