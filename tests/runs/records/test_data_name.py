"""Which runs are tested on the same examples, and how their data are named."""

import pytest

from dpbench.runs.config.compose import compose
from dpbench.runs.records.data_name import data_name


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "digits"),
        (["dataset.test_share=0.5", "mislabelled=20"], "digits (test_share=0.5, mislabelled=20)"),
        (["dataset=adult", "dataset.group=[sex,race]"], "adult (group=['sex', 'race'])"),
        (["dataset=celeba"], "celeba (Male)"),
        (["users=shards"], "digits (users=shards, users.number=300, users.each=2)"),
        (["dataset=digits_unbalanced", "dataset.base.test_share=0.5"],
         "digits_unbalanced (base.test_share=0.5)"),
        (["epochs=3", "model=logistic", "normalization=cifar10", "mislabelled=0"], "digits"),
    ],
)  # fmt: skip
def test_what_changes_the_examples_is_in_the_name(overrides, name):
    assert data_name(compose(["dataset=digits", *overrides])) == name


def test_data_of_ones_own_are_named_by_checksums_and_what_is_predicted():
    config = compose(["dataset=csv"])
    config["choices"]["dataset"] = "csv:people"
    config["dataset"] |= {
        **{"checksum": f"sha256:{'1' * 64}", "test_checksum": f"sha256:{'2' * 64}"},
        **{"target": "sex", "rows": 30, "drop": ["x"], "split_seed": 7},
    }
    assert data_name(config) == "csv:people 111111 (sex, split_seed=7, test_checksum=222222)"
