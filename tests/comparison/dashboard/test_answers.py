"""What to use at a budget: the tasks that decide, those that do not and why, and the page on it."""

import math

import pytest

from dpbench.comparison.dashboard.answers import answer_view, answers
from dpbench.comparison.dashboard.command import report
from dpbench.comparison.dashboard.summarise import Summary

NAMES = {"dpsgd": "DP-SGD", "bam": "BAM", "dpsgd_f": "DPSGD-F"}
GAINS = {"dpsgd": 0.0, "bam": 0.05, "dpsgd_f": -0.04}
SEEDS = {"digits": range(4), "mnist": range(20, 24)}
"""Tasks of other seeds are read together, as each is paired by its own."""


def runs(record_of, data, shares, searched=True, epsilon=3.0):
    """Four seeds of three methods and of training without privacy, and a trial of each method."""
    for method, gain in {**GAINS, "sgd": 0.1}.items():
        private = method != "sgd"
        for seed in SEEDS.get(data, range(4)):
            yield record_of(
                method,
                seed,
                accuracy=0.8 + shares * gain + seed * (1 + len(method)) / 1e5,
                dataset=data,
                epsilon=epsilon if private else math.inf,
                guarantee="proven" if private else "none",
            )
        if searched and private:
            trial = record_of(method, 9, epsilon=epsilon, dataset=data, validation=0.1)
            trial.metrics["validation/accuracy"] = trial.metrics.pop("test/accuracy")
            yield trial


@pytest.fixture(scope="module")
def records(record_of):
    return [
        *runs(record_of, "digits", 1.0),
        *runs(record_of, "mnist", 1.0),
        *runs(record_of, "mnist_unbalanced", 0.0),
        *runs(record_of, "cifar10_unbalanced", 1.0, searched=False),
        *runs(record_of, "digits_unbalanced", 1.0, epsilon=1.0),
    ]


@pytest.fixture(scope="module")
def found(records):
    summary = Summary(lambda config: "")
    for record in records:
        summary.add(record)
    return {(one.kind, one.epsilon): one for one in answers(summary.contests)}


def test_tasks_of_other_seeds_count_and_each_other_task_is_left_out_for_a_reason(found):
    one = found["images", 3.0]
    assert [task.facet for task in one.tasks] == ["digits · mlp", "mnist · mlp"]
    assert one.left_out == {
        "no search chose the settings of DP-SGD": ["cifar10_unbalanced · mlp"],
        "nothing to win": ["mnist_unbalanced · mlp"],
        "not run at this budget": ["digits_unbalanced · mlp"],
    }
    assert one.text == "BAM (2 of 2 tasks)"
    assert one.verdicts == {"bam": ["better"] * 2, "dpsgd_f": ["worse"] * 2}
    assert found["tabular data", 3.0].text == "no evidence"


def test_the_view_has_a_row_a_method_and_a_column_a_task(found):
    view = answer_view(found["images", 3.0], NAMES)
    assert view["answer"] == "Images at ε 3: BAM (2 of 2 tasks)."
    assert view["head"] == ("method", "digits · mlp, minus DP-SGD", "mnist · mlp, minus DP-SGD")
    first, second = (row["cells"] for row in view["rows"])
    assert [cell["text"] for cell in first] == ["BAM", "+5.0 ± 0.0", "+5.0 ± 0.0"]
    assert first[1]["lines"] == [("sub", "better, 4 seeds")]
    assert second[0]["text"] == "DPSGD-F"
    assert view["files"]["csv"].splitlines()[1].startswith('BAM,"+5.0 ± 0.0 better, ')
    assert view["tasks"][0].startswith("Decided by digits · mlp (ε 3.00 at δ = 1e-05), mnist")


def test_the_page_opens_with_the_answer_and_its_tasks(records, folder_of, opened):
    folder = folder_of(records)
    window = opened(report([f"results_dir={folder}", f"out={folder / 'r.html'}"]), pictures=False)
    assert window.locator("select[name=board]").input_value() == "images"
    assert window.locator("select[name=budget]").input_value() == "ε 3"
    assert window.inner_text("#part-board .answer") == "Images at ε 3: BAM (2 of 2 tasks)."
    said = window.inner_text("#part-board .tasks")
    for part in ("Decided by digits · mlp", "Left out, nothing to win: mnist_unbalanced · mlp."):
        assert part in said
    labels = window.locator("#part-board .whiskers")
    assert labels.first.get_attribute("aria-label").startswith("5.0 %, interval from ")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 900, 1400])
def test_the_first_screen_says_what_to_use_by_which_tasks_and_by_how_much(
    records, folder_of, opened, width
):
    folder = folder_of(records)
    path = report([f"results_dir={folder}", f"out={folder / 'r.html'}"])
    window = opened(path, pictures=False, viewport={"width": width, "height": 900})
    for part in (".answer", ".tasks summary", ".whiskers"):
        box = window.locator(f"#part-board {part}").first.bounding_box()
        assert box["y"] + box["height"] < 900, part
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, part
