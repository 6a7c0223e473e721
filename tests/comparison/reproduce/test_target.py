"""What is asked of a table, before any run."""

from types import SimpleNamespace

import pytest

from dpbench.comparison.reproduce.figure import _title
from dpbench.comparison.reproduce.render import printed_numbers
from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.edition import claims_of
from dpbench.runs.config.compose import compose
from dpbench.runs.config.table_file import ClaimEntry
from dpbench.system.errors import UserError


def test_fixing_what_a_table_varies_is_a_part_of_it_and_the_whole_or_changes_are_none():
    wanted = target_of("bam_table1", ["dataset=cifar100", "privacy.epsilon=2.0"])
    assert [c.label for c in wanted.conditions] == ["cifar100, epsilon 2"]
    assert (wanted.stem, wanted.scale_label) == ("bam_table1-part", "paper")
    assert len(list(wanted.cells())) == 9
    assert wanted.part == ("In part: dataset=cifar100 privacy.epsilon=2.0.",)
    assert target_of("bam_table1", []).part == ()
    assert target_of("bam_table1", ["privacy.epsilon=3"]).part == ()
    some_of_others = ["privacy.epsilon=3", "table.seeds=[0]"]
    assert target_of("bam_table1", some_of_others).part == ("In part: table.seeds=[0].",)
    wanted = target_of("bam_table1", ["privacy.epsilon=3"])
    assert [c.label for c in wanted.conditions] == [
        *("cifar10, epsilon 3", "cifar100, epsilon 3", "imagenet32, epsilon 3")
    ]
    assert (wanted.stem, wanted.scale_label) == ("bam_table1-changed", "privacy.epsilon=3")


def test_a_scale_narrows_and_the_user_may_still_change_its_runs():
    goal = target_of("bam_table1", ["scale=cpu_hour", "epochs=1"])
    assert [c.label for c in goal.conditions] == ["cifar10, epsilon 10"]
    assert (goal.stem, goal.scale_label) == ("bam_table1-cpu_hour-changed", "cpu_hour, epochs=1")
    *_, last = goal.cells()
    assert last.index("epochs=3") < last.index("epochs=1"), "the last one counts"


def test_a_scale_on_another_data_set_is_labelled():
    wanted = target_of("bam_table1", ["scale=cpu_hour", "dataset=cifar100"])
    assert [c.label for c in wanted.conditions] == ["cifar100, epsilon 10"]
    assert (wanted.stem, wanted.scale_label) == (
        *("bam_table1-cpu_hour-changed", "cpu_hour, dataset=cifar100"),
    )
    assert printed_numbers(wanted), "the paper has numbers of these data"


def test_on_other_data_than_the_paper_s_its_numbers_are_not_shown():
    wanted = target_of("misalignment_table5", ["dataset=adult"])
    assert wanted.title == "Dutch: performance and fairness (Table 5), here with dataset=adult"
    assert printed_numbers(wanted) == {}
    usual = target_of("misalignment_table5", [])
    assert printed_numbers(usual)


@pytest.mark.parametrize("scale", [[], ["scale=cpu_hour"]])
def test_other_conditions_of_the_user_s_are_those_at_every_scale(scale):
    few = "table.conditions=[{optimizer.lr:[0.02,0.1],method.bound:[5.0]}]"
    wanted = target_of("calibration_fig3", [*scale, few])
    assert [dict(condition.values) for condition in wanted.conditions] == [
        {"optimizer.lr": lr, "method.bound": 5.0} for lr in (0.02, 0.1)
    ]
    assert wanted.stem.endswith("-changed")


def test_every_cell_is_there_once_at_the_paper_s_scale_by_default():
    assert target_of("bam_table1", ["scale=paper"]) == target_of("bam_table1", [])
    assert target_of("bam_table1", []).stem == "bam_table1"
    cells = [tuple(cell) for cell in target_of("bam_table1", []).cells()]
    assert len(set(cells)) == len(cells) == 7 * 3 * 3


def test_a_row_that_is_only_planned_has_no_runs_and_needs_no_search():
    wanted = target_of("bam_table1", ["+table.planned={bam: later}"])
    assert len([*wanted.cells()]) == 7 * 2 * 3
    assert "method=bam" not in {override for cell in wanted.cells() for override in cell}
    with pytest.raises(UserError, match=r"table\.planned=bma is unknown"):
        target_of("bam_table1", ["+table.planned={bma: later}"])


@pytest.mark.parametrize("asked", ["method=bam", "seed=1", "+table=demo"])
def test_overriding_settings_of_the_table_is_refused(asked):
    with pytest.raises(UserError, match="is set by the table"):
        target_of("bam_table1", [asked])


def test_a_run_is_told_by_its_arm_whatever_its_seed():
    wanted = target_of("calibration_table2", ["dataset=mnist", "table.seeds=[3,4]", "epochs=1"])
    for overrides in wanted.cells():
        arm = next(o for o in overrides if o.startswith("table.arm=")).partition("=")[2]
        assert wanted.method_of(compose(overrides)) == arm


def test_a_claim_about_some_conditions_names_those_that_are_there():
    def under(*overrides):
        (claim,) = (
            c for c in target_of("calibration_table2", [*overrides]).claims if c.name == "ece"
        )
        return claim.labels

    assert under() == ("cifar10", "mnist")
    assert under("dataset=mnist") == ("mnist",)
    assert under("dataset=digits") == ()


def test_a_condition_that_a_table_does_not_vary_is_refused_in_a_claim():
    words = {"statement": "So.", "source": "page 1", "than": ["b"], "quantities": ["acc"]}
    claim = ClaimEntry(**words, better=["a"], under={"datset": ["mnist"]})
    table = SimpleNamespace(claims={"ece": claim}, regime="", read=None)
    conditions = target_of("calibration_table2", []).conditions
    with pytest.raises(UserError, match="under in claim ece=datset is unknown: did you mean datas"):
        claims_of(table, conditions)


@pytest.mark.slow
def test_a_variant_may_be_of_other_settings_and_is_told_by_them():
    asked = "table.variants.dpsgd_f=[corrected,paper,{optimizer.lr:0.3}]"
    wanted = target_of("misalignment_table5", [asked])
    usual, paper, other, *_ = wanted.cells_of(wanted.conditions[0], "dpsgd_f")
    assert paper[:-1] == other[:-1] == usual[:-1]
    assert (usual[-1], other[-1]) == ("method.variant=corrected", "optimizer.lr=0.3")
    assert [wanted.variant_of(compose(o)) for o in (usual, paper, other)] == [
        *("corrected", "paper", "lr 0.3")
    ]
    assert wanted.variant_of(compose([*other, "method.variant=paper"])) == "lr 0.3, paper"
    assert wanted.variant_of(compose([*other, "method=sgd"])) == "corrected"


def test_the_title_of_a_figure_says_whose_runs_it_has_and_variants_are_not_drawn_as_one():
    asked = ["+table.variants={dpsgd: [corrected, {optimizer.lr: 0.1}]}"]
    with pytest.raises(UserError, match="a figure draws methods or arms"):
        target_of("bam_fig4", asked)
    changed = target_of("misalignment_fig4", ["epochs=1"])
    assert _title(changed) == f"{changed.title} (not the paper's runs: epochs=1)"
    for title_says_it in ("scale=cpu_hour", "scale=paper"):
        wanted = target_of("bam_fig5", [title_says_it])
        assert _title(wanted) == wanted.title
