import copy

import pytest

from dpbench.dashboard.differing_settings import differences, group_of, series_of


def with_changes(config, **changes):
    changed = copy.deepcopy(config)
    for path, value in changes.items():
        *way, last = path.split("__")
        node = changed
        for key in way:
            node = node[key]
        node[last] = value
    return changed


def test_seeds_share_a_group_and_budgets_share_a_series(composed):
    config = composed("dataset=digits")
    seed, budget = (
        with_changes(config, seed=7),
        with_changes(config, privacy__noise_multiplier=3.0),
    )
    other = with_changes(config, optimizer__lr=9.0)
    assert group_of(seed) == group_of(config) != group_of(budget)
    assert series_of(seed) == series_of(config) == series_of(budget) != series_of(other)
    assert config == composed("dataset=digits")


def test_a_run_that_was_observed_belongs_to_those_that_were_not(composed):
    config, observed = composed("dataset=digits"), composed("dataset=digits", "diagnostics=bias")
    assert group_of(observed) == group_of(config)
    assert series_of(observed) == series_of(config)
    assert differences([config, observed]) == ["", ""]


def test_settings_that_differ_are_said_and_no_others(composed):
    config = composed("dataset=digits")
    others = [with_changes(config, optimizer__lr=lr, seed=s) for lr, s in ((0.25, 1), (2.0, 2))]
    assert differences(others) == ["lr=0.25", "lr=2"]
    assert differences([config]) == [""]
    assert differences([]) == []


def test_an_option_is_said_and_not_what_it_stands_for(composed):
    configs = [composed(f"optimizer={name}") for name in ("sgd", "adam")]
    assert differences(configs) == ["optimizer=sgd", "optimizer=adam"]
    configs.append(with_changes(configs[1], optimizer__lr=0.5))
    said = differences(configs)
    assert said[0] == "optimizer=sgd"
    assert said[2] == "optimizer=adam, lr=0.5"
    assert len(set(said)) == 3


def test_many_differences_are_counted(composed):
    config = composed("dataset=digits")
    changes = {"epochs": 3, "batch_size": 5, "ema_decay": 0.5, "optimizer__lr": 0.7}
    said = differences([config, with_changes(config, **changes)])[1]
    assert said.count("=") == 3
    assert said.endswith(" and 1 more")


@pytest.mark.parametrize("value", [None, {}])
def test_a_part_that_says_nothing_is_no_difference(composed, value):
    config = composed("dataset=digits")
    older = {k: v for k, v in config.items() if k != "augmentation"}
    assert differences([older, {**config, "augmentation": value}]) == ["", ""]


def test_an_option_under_its_first_name_is_no_other_option(composed):
    now = composed("dataset=digits", "schedule=bound_switch")
    first, other = (
        with_changes(now, choices__schedule="mixup"),
        with_changes(now, schedule__noise=2.0),
    )
    assert differences([now, other]) == differences([first, other])
