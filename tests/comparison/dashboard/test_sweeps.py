"""The settings that are filters and axes of the page."""

import copy

from dpbench.comparison.dashboard.controls import all_settings, swept_settings


def series(composed, *changes):
    configs = {}
    for name, change in enumerate(changes):
        config = copy.deepcopy(composed("dataset=digits"))
        config["optimizer"] |= change.get("optimizer", {})
        configs[str(name)] = config | {k: v for k, v in change.items() if k != "optimizer"}
    return {("digits · mlp", "dpsgd"): configs}


def test_a_setting_with_several_values_is_swept_in_numeric_order(composed):
    found = swept_settings(series(composed, *({"optimizer": {"lr": r}} for r in (10.0, 0.5, 2.0))))
    assert [(one["name"], one["values"], one["numeric"]) for one in found] == [
        ("optimizer.lr", ["0.5", "2", "10"], True)
    ]


def test_settings_are_swept_with_more_values_first_but_no_seeds_and_budgets(composed):
    assert swept_settings(series(composed, {}, {"optimizer": {"eps": 1e-8}})) == []
    budgets = [{"privacy": {"noise_multiplier": x}, "seed": x, "diagnostics": {}} for x in (1, 2)]
    assert swept_settings(series(composed, *budgets)) == []
    changes = [{"optimizer": {"lr": lr}, "epochs": e} for lr, e in ((1.0, 5), (2.0, 6), (3.0, 6))]
    assert [one["name"] for one in swept_settings(series(composed, *changes))] == [
        "optimizer.lr",
        "epochs",
    ]


def test_every_group_has_all_settings_and_its_budget(composed):
    groups = {name: composed("dataset=digits", f"optimizer={name}") for name in ("sgd", "adam")}
    found = all_settings(groups)
    sgd, adam = found["sgd"], found["adam"]
    assert (sgd["epochs"], sgd["privacy.epsilon"], sgd["privacy.accountant"]) == ("20", "3", "best")
    assert (sgd["optimizer.betas"], adam["optimizer.momentum"]) == (None, None)
