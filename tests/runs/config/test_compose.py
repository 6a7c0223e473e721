"""From overrides to a configuration: precedence, defaults, refusals and sweeps."""

import pytest

from dpbench.runs.config import compose as configuration
from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import expand
from dpbench.runs.execution.prepare import build
from dpbench.system.errors import UserError


@pytest.mark.slow
def test_an_option_of_the_user_wins_over_the_table_s_choice_and_has_its_settings():
    asked = ["+table=bam_table1", "dataset=imagenet32"]
    assert compose([*asked, "model.depth=10"])["model"]["depth"] == 10
    assert compose([*asked, "model=mlp"])["choices"]["model"] == "mlp"
    with pytest.raises(UserError, match=r"model.activation is not a setting"):
        compose([*asked, "model.activation=relu"])


def test_overrides_take_precedence_over_the_table_in_any_order():
    said = ["optimizer.lr=0.3", "epochs=2", "method.bound=2.0", "dataset=dutch"]
    table = ["+table=misalignment_table4", "method=dpsgd_global"]
    for overrides in ([*table, *said], [*said, *table]):
        config = compose(overrides)
        assert config["optimizer"]["lr"] == 0.3
        assert config["epochs"] == 2
        assert config["method"]["bound"] == 2.0
        assert config["choices"]["dataset"] == "dutch"
        assert config["method"]["strict_bound"] == 50.0


def test_without_a_table_the_defaults_hold():
    config = compose([])
    assert "table" not in config
    assert config["choices"] == {
        "dataset": "digits",
        "model": "mlp",
        "method": "dpsgd",
        "privacy": "eps3",
        "optimizer": "sgd",
        "features": "none",
        "normalization": "none",
        "temperature": "none",
        "conformal": "none",
        "augmentation": "none",
        "engine": "auto",
        "diagnostics": "none",
        "schedule": "none",
        "users": "none",
        "launcher": "local",
        "tracker": "none",
    }


def test_the_settings_of_every_option_can_be_set_not_only_of_the_default_ones():
    assert (
        compose(["method=dpsgd_f", "method.count_noise_ratio=3"])["method"]["count_noise_ratio"]
        == 3
    )
    assert compose(["diagnostics=misalignment", "diagnostics.every=7"])["diagnostics"]["every"] == 7
    assert compose(["dataset=digits_unbalanced", "dataset.base.test_share=0.3"])["dataset"][
        "base"
    ] == {"_target_": "dpbench.data.digits.Digits", "test_share": 0.3}


def test_an_argument_that_the_constructor_knows_may_be_added():
    run = build(compose(["+optimizer.weight_decay=0.25"]))
    (parameter, *_) = run.model.build((4,), 2).parameters()
    assert run.optimizer([parameter]).defaults["weight_decay"] == 0.25


def test_a_table_s_misspelt_setting_is_refused(tmp_path, monkeypatch):
    """What a table sets is held against the chosen parts, like what a user sets."""
    monkeypatch.setattr(configuration, "values", lambda *_: [{"epoch": 3}])
    with pytest.raises(UserError, match="epoch"):
        compose(["+table=misalignment_table5", "table.seeds=[9]"])  # which no other test has


def test_a_sweep_is_every_combination_of_values_that_may_be_lists():
    assert expand(["seed=0,1", "epochs=3", "method=sgd,dpsgd"]) == [
        ["seed=0", "epochs=3", "method=sgd"],
        ["seed=0", "epochs=3", "method=dpsgd"],
        ["seed=1", "epochs=3", "method=sgd"],
        ["seed=1", "epochs=3", "method=dpsgd"],
    ]
    assert expand(["model.widths=[3,4]", "seed=range(2)"]) == [
        ["model.widths=[3,4]", "seed=0"],
        ["model.widths=[3,4]", "seed=1"],
    ]


def test_values_of_a_table_refer_to_settings_and_to_each_other():
    table = ["+table=misalignment_table5", "table.title=${epochs} epochs of ${table.paper}"]
    assert compose(table)["table"]["title"].startswith("20 epochs of Esipova")
