"""The printed numbers of every paper, and of this one in particular."""

import itertools
from pathlib import Path

import pytest

from dpbench.comparison.tables.published import (
    Published,
    check_covered,
    read_epsilon,
    read_published,
)
from dpbench.system.errors import UserError

FOLDER = Path(__file__).parents[3] / "benchmarks" / "misalignment"
PRIVATE = ["dpsgd", "dpsgd_f", "dpsgd_global", "dpsgd_global_adapt"]
METHODS = {2: PRIVATE, 3: PRIVATE, 4: [*PRIVATE, "fairlens"], 5: [*PRIVATE, "fairlens"]}
ALWAYS = {"acc_a", "acc_b", "loss_a", "loss_b"}
RELATIVE = {"pi_a", "pi_b", "pi_ab", "R_a", "R_b", "R_ab"}


def published(number):
    return read_published(FOLDER / f"table{number}.csv")


@pytest.mark.parametrize("number", METHODS)
def test_every_printed_cell_is_there_with_its_spread(number):
    table = published(number)
    private = set(itertools.product(METHODS[number], ALWAYS | RELATIVE))
    assert table.keys() == private | {("sgd", column) for column in ALWAYS}
    assert all(cell.spread is not None for cell in table.values())


def test_table_1_has_eight_numbers_and_spot_values_keep_their_digits():
    table = published(1)
    assert len(table) == 8
    assert table["magnitude_error", "acc_b"] == Published("93.5", None)
    assert table["direction_error", "loss_b"] == Published("0.518", None)
    assert published(2)["dpsgd", "acc_b"] == Published("26.3", "0.4")
    assert published(3)["dpsgd_global_adapt", "loss_a"] == Published("0.17", "0.00")
    assert published(4)["dpsgd_global_adapt", "pi_a"] == Published("-0.1", "0.1")
    assert published(4)["dpsgd_global", "pi_a"] == Published("2.0", "0.2")
    assert published(5)["fairlens", "R_b"] == Published("0.079", "0.000")


@pytest.mark.parametrize("number", METHODS)
@pytest.mark.parametrize("group", ["a", "b"])
def test_costs_and_risks_follow_from_accuracy_and_loss_up_to_rounding(number, group):
    table = published(number)
    for method in METHODS[number]:
        cost = value(table, "sgd", f"acc_{group}") - value(table, method, f"acc_{group}")
        risk = value(table, method, f"loss_{group}") - value(table, "sgd", f"loss_{group}")
        assert_up_to_rounding(table[method, f"pi_{group}"], cost)
        assert_up_to_rounding(table[method, f"R_{group}"], risk)


@pytest.mark.parametrize("number", METHODS)
@pytest.mark.parametrize("kind", ["pi", "R"])
def test_gaps_follow_from_the_group_means_up_to_rounding(number, kind):
    table = published(number)
    for method in METHODS[number]:
        gap = abs(value(table, method, f"{kind}_a") - value(table, method, f"{kind}_b"))
        assert_up_to_rounding(table[method, f"{kind}_ab"], gap)


def value(table, method, column):
    return float(table[method, column].value)


def assert_up_to_rounding(printed, derived):
    """Three rounded numbers: each is off by half a unit of the last digit at most."""
    assert abs(float(printed.value) - derived) <= 3 * printed.rounding + 1e-9


def test_two_printed_gaps_are_no_means_of_absolute_differences():
    """n numbers that are not negative have a standard error of at most their mean.

    The mean of the printed 0.2 ± 0.3 is below 0.25 and its standard error above it; 0.0 ± 0.1 is
    as impossible. If ± is the standard error that the paper says it is, its gaps are not averages
    of absolute differences per seed.
    """
    impossible = [
        (number, method, column)
        for number in METHODS
        for (method, column), cell in published(number).items()
        if column in ("pi_ab", "R_ab")
        and float(cell.spread) - cell.rounding >= float(cell.value) + cell.rounding - 1e-9
    ]
    assert impossible == [(4, "dpsgd_f", "pi_ab"), (4, "dpsgd_global_adapt", "pi_ab")]


def test_bam_has_every_cell_of_its_table_and_imagenet_no_spread():
    path = FOLDER.parent / "bam" / "table1.csv"
    table = read_published(path, ["dataset", "privacy.epsilon"])
    budgets = [f"{d}, epsilon {e}" for d in ("cifar10", "cifar100") for e in (1, 2, 10)]
    rows = [*budgets, "imagenet32, epsilon 10"]
    methods = ("dpsgd", "dpsat", "bam")
    assert list(table) == [(f"{row}, {method}", "accuracy") for row in rows for method in methods]
    for (row, _), cell in table.items():
        assert (cell.spread is None) == row.startswith("imagenet32")
    assert table["cifar10, epsilon 10, dpsat", "accuracy"] == Published("78.1", "0.69")
    assert table["cifar100, epsilon 1, bam", "accuracy"] == Published("18.5", "0.04")
    assert table["imagenet32, epsilon 10, bam", "accuracy"] == Published("20.67", None)


def test_a_file_without_a_column_of_what_is_varied_is_refused(tmp_path):
    path = tmp_path / "broken.csv"
    path.write_text("dataset,method,column,value,spread\ntoy,sgd,acc_a,1,\n")
    assert read_published(path, ["dataset"]) == {("toy, sgd", "acc_a"): Published("1", None)}
    with pytest.raises(UserError, match="must have the columns dataset, epsilon, method"):
        read_published(path, ["dataset", "privacy.epsilon"])


def test_epsilons_and_rounding_by_half_a_unit_of_the_last_digit():
    path = FOLDER / "epsilon.csv"
    printed = {name: read_epsilon(path, name) for name in ("adult", "dutch", "celeba")}
    assert printed == {"adult": "3.41", "dutch": "2.27", "celeba": "2.49"}
    assert read_epsilon(path, "mnist_unbalanced") == "5.90"
    with pytest.raises(UserError, match="no epsilon for cifar10"):
        read_epsilon(path, "cifar10")
    roundings = [Published(text, None).rounding for text in ("80.0", "0.499", "7")]
    assert roundings == pytest.approx([0.05, 0.0005, 0.5])


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ("sgd,acc_a,1.0,\nsgd,acc_a,2.0,\n", "two numbers for sgd acc_a"),
        ("sgd,acc_a,1.0x,\n", "'1.0x' is not a number"),
        ("sgd,acc_a,1.0,?\n", "'\\?' is not a number"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, lines, complaint):
    path = tmp_path / "broken.csv"
    path.write_text(f"# prose\nmethod,column,value,spread\n{lines}")
    with pytest.raises(UserError, match=complaint):
        read_published(path)


def test_a_file_without_the_columns_is_refused(tmp_path):
    path = tmp_path / "broken.csv"
    path.write_text("method,value\nsgd,1\n")
    with pytest.raises(UserError, match="must have the columns method, column"):
        read_published(path)


@pytest.mark.parametrize("key", [("adam", "acc_a"), ("sgd", "acc_c")])
def test_a_printed_number_without_a_cell_is_refused(toy, key):
    with pytest.raises(UserError, match="no cell for the published"):
        check_covered(toy, {key: Published("1.0", None)})
