"""How a setting was chosen among those that a folder has trials of: by the rules of tables."""

from dpbench.comparison.compare.side import AT_EDGE, ELSEWHERE, Tuning
from dpbench.comparison.compare.tuning import Setting, number_of, tuned, validation_scores
from dpbench.runs.config.compose import compose


def setting(*overrides, method="dpsgd"):
    return Setting.of(compose([f"method={method}", *overrides]))


def trials(*rates, method="dpsgd", others=()):
    values = [f"optimizer.lr={rate}" for rate in rates]
    return [setting(rate, "validation=0.2", *others, method=method) for rate in values]


def test_a_value_at_the_end_of_those_tried_was_tuned_at_an_edge():
    tried = trials(0.1, 0.5, 1.0)
    flaws = {rate: tuned(*trials(rate), tried, True).flaw for rate in (0.1, 0.5, 1.0, 3.0)}
    assert flaws == {0.1: AT_EDGE, 0.5: "", 1.0: AT_EDGE, 3.0: ""}
    # Another optimizer has rates of its own, and whole numbers are choices.
    adam = [setting("optimizer=adam", "optimizer.lr=0.7", "validation=0.2")]
    assert tuned(*trials(1.0), trials(0.1, 0.5, 1.0) + adam, True).flaw == AT_EDGE
    assert tuned(*trials(4), trials(1, 2, 4), True).flaw == ""


def test_a_setting_tried_at_other_budgets_or_batches_alone_was_tuned_elsewhere():
    tried = trials(0.1, 0.5, 1.0, others=["privacy=eps1"])
    at_eps1, at_eps3 = (setting("optimizer.lr=0.5", f"privacy={name}") for name in ("eps1", "eps3"))
    assert [tuned(own, tried, True).flaw for own in (at_eps1, at_eps3)] == ["", ELSEWHERE]
    assert tuned(at_eps3, tried, False).flaw == ""  # whose training is not private
    assert tuned(at_eps3, tried + trials(0.5), True).flaw == ""
    assert tuned(setting("privacy=eps1", "batch_size=64"), tried, False).flaw == ELSEWHERE
    private = [setting("privacy=noise1", "trial=1", "validation=0.2")]
    assert tuned(at_eps3, private, True).flaw == ""  # each trial has a share of the budget
    assert number_of(tried + trials(0.5)) == 3


def test_a_search_without_the_special_case_and_one_that_chose_it_are_known():
    start = ["method.quantile=0.5", "method.clip_learning_rate=1e-4"]
    case = setting("optimizer.lr=0.5", *start, method="dpsgd_quantile")
    own = setting("optimizer.lr=0.5", method="dpsgd_quantile")
    without = trials(0.1, 0.5, 1.0, method="dpsgd_quantile")
    assert tuned(own, without, True) == Tuning(3, unsearched="dpsgd")
    assert tuned(own, [*without, case], True) == Tuning(4)
    assert tuned(case, [*without, case], True) == Tuning(4, equals="dpsgd")
    assert tuned(own, [], True) == tuned(case, [], True) == Tuning(0)


def test_the_best_is_chosen_from_finalists_by_the_seeds_that_only_they_have():
    finals = {
        "first of trials": {0: 0.9, 1: 0.6, 2: 0.6},
        "best finalist": {0: 0.7, 1: 0.65, 2: 0.65},
    }
    found = validation_scores({"lucky": {0: 0.99}, "other": {0: 0.5}, **finals})
    assert sorted(found, key=found.__getitem__, reverse=True) == [
        "best finalist", "first of trials", "lucky", "other",
    ]  # fmt: skip
    alone = validation_scores(finals)
    assert max(alone, key=alone.__getitem__) == "first of trials"


def test_a_run_that_one_setting_lacks_does_not_make_the_seed_of_it_the_judge_of_the_others():
    lacks = {"a": {0: 0.9, 1: 0.9, 2: 0.5}, "b": {0: 0.5, 1: 0.5, 2: 0.6}, "c": {0: 1.0, 1: 1.0}}
    found = validation_scores(lacks)
    assert max(found, key=found.__getitem__) == "a"
