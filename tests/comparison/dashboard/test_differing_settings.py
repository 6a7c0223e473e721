import copy

import pytest

from dpbench.comparison.dashboard.controls import differences, swept_settings
from dpbench.runs.records.digest import scientific


def with_changes(config, **changes):
    changed = copy.deepcopy(config)
    for path, value in changes.items():
        *way, last = path.split("__")
        node = changed
        for key in way:
            node = node[key]
        node[last] = value
    return changed


def test_settings_that_differ_are_said_and_no_others_but_of_the_budget_delta(composed):
    config, observed = composed("dataset=digits"), composed("dataset=digits", "diagnostics=bias")
    assert differences([config, observed]) == ["", ""]
    config = composed("dataset=digits")
    others = [
        with_changes(config, privacy__delta=delta, privacy__epsilon=delta * 1e5, choices__privacy=x)
        for x, delta in (("eps1", 1e-5), ("eps3", 1e-6))
    ]
    assert differences(others) == ["delta=1e-05", "delta=1e-06"]
    config = composed("dataset=digits")
    others = [with_changes(config, optimizer__lr=lr, seed=s) for lr, s in ((0.25, 1), (2.0, 2))]
    assert differences(others) == ["lr=0.25", "lr=2"]
    assert differences([config]) == [""]
    assert differences([]) == []


def test_an_option_is_said_whatever_its_first_name_and_not_what_it_stands_for(composed):
    configs = [composed(f"optimizer={name}") for name in ("sgd", "adam")]
    assert differences(configs) == ["optimizer=sgd", "optimizer=adam"]
    configs.append(with_changes(configs[1], optimizer__lr=0.5))
    said = differences(configs)
    assert said[0] == "optimizer=sgd"
    assert said[2] == "optimizer=adam, lr=0.5"
    assert len(set(said)) == 3
    now = composed("dataset=digits", "schedule=bound_switch")
    first, other = (
        with_changes(now, choices__schedule="mixup"),
        with_changes(now, schedule__noise=2.0),
    )
    assert differences([now, other]) == differences([first, other])


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


LATER = {
    "clip=abadi": ("method__clip", "automatic"),
    "precision=float32": ("precision", "bf16"),
    "noise=seeded": ("noise", "secure"),
    "dataset.group=sex": ("dataset__group", "race"),
    "model.order=0": ("model__order", 3),
}


@pytest.mark.parametrize("said", LATER)
def test_a_setting_that_older_records_lack_has_the_value_that_those_had(composed, said):
    place, value = LATER[said]
    model = "wrn16_4" if "model" in place else "mlp"
    config = composed(f"dataset={'adult' if model == 'mlp' else 'cifar10'}", f"model={model}")
    older = scientific(with_changes(config, precision=None, noise=None))
    older["method"] = {k: v for k, v in older["method"].items() if k != "clip"}
    assert differences([older, config]) == ["", ""]
    assert differences([older, with_changes(config, **{place: value})])[0] == said


def test_a_whole_number_is_one_value_with_and_without_a_point(composed):
    whole, point = ({**composed(), "epochs": epochs, "head_lr_factor": 2} for epochs in (3, 3.0))
    other = {**point, "head_lr_factor": 4.0}
    assert differences([whole, point]) == ["", ""]
    assert differences([whole, point, other]) == [*["head_lr_factor=2"] * 2, "head_lr_factor=4"]
    million = [{**whole, "batch_size": size} for size in (2_000_000, 2e6)]
    assert swept_settings({("digits", "dpsgd"): dict(zip("ab", million, strict=True))}) == []
