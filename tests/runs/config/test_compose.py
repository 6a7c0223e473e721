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


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["datset=digits"], "datset is not a setting: did you mean dataset"),
        (["dataset=digit"], "dataset=digit is unknown: did you mean digits"),
        (["privacy=eps4"], "unknown: for this epsilon, write privacy=eps1 privacy.epsilon=4"),
        (["method=dpgsd"], "method=dpgsd is unknown: did you mean dpsgd"),
        (["+table=misalignment_table6"], "did you mean misalignment_table5"),
        (["epoch=3"], "epoch is not a setting: did you mean epochs"),
        (
            ["optimizer.weight_decay=0.1"],
            r"weight_decay is left at the default of torch\.optim\.SGD: write "
            r"\+optimizer\.weight_decay=0\.1 to set it\.",
        ),
        (
            ["optimizer._target_=torch.optim.Adam", "optimizer.betas=[0.9,0.99]"],
            r"default of torch\.optim\.Adam: write \+optimizer\.betas=\[0\.9,0\.99\] to set it\.",
        ),
        (["optimizer.params=3"], "optimizer.params is not a setting: did you mean"),
        (["optimizer._target_=os.system", "optimizer.a=3"], "optimizer.a is not a setting: "),
        (["~optimizer.weight_decay"], "optimizer.weight_decay is not a setting: did you mean"),
        (["optimizer.Lr=3"], "optimizer.Lr is not a setting: did you mean optimizer.lr"),
        (["method=sgd", "method.bound=1"], "method.bound is not a setting"),
        (["+bath_size=3"], "bath_size is not a setting: did you mean batch_size"),
        (["++bath_size=3"], "bath_size is not a setting: did you mean batch_size"),
        (["+engine.nme=loop"], "engine.nme is not a setting: did you mean engine.name"),
        (["+diagnostics.every=3"], "diagnostics.every is not a setting"),
        (["+privacy.epsilom=3"], "privacy.epsilom is not a setting: did you mean epsilon"),
        (["+method.bond=3"], "method.bond is not a setting: did you mean bound"),
        (["method.variant=papper"], "variant=papper is unknown: did you mean paper"),
        (["dataset@eval=adult"], r"one place, so write dataset=adult\."),
        (["+dataset@eval=adult,dutch"], r"one place, so write \+dataset=adult,dutch\."),
        (["~method"], "method cannot be deleted: choose an option, e.g. method=NAME"),
        (["method=sgd,dpsgd"], "names several runs: use dpbench run -m"),
        (["seed=0,1"], "names several runs: use dpbench run -m"),
        (["table=demo"], r"table=demo is refused: write \+table=demo\."),
        (["++table=demo"], r"\+\+table=demo is refused: write \+table=demo\."),
        (["+method=bam"], r"\+method=bam is refused: write method=bam\."),
        (["+tracker=[csv,wandb]"], r"is refused: write tracker=\[csv,wandb\]\."),
        (["+epochs=1"], r"\+epochs=1 is refused: epochs is a setting, so write epochs=1\."),
        (["+optimizer.lr=1"], r"optimizer\.lr is a setting, so write optimizer\.lr=1\."),
        (["hydra/launcher=joblib"], "hydra/launcher is not supported here: choose launcher=local"),
        (["hydra/sweeper=optuna"], "dpbench search searches with by=random"),
        (["hydra.run.dir=x"], "hydra.run.dir is not supported here: records go to results_dir=DIR"),
        (["hydra.verbose=true"], "there is no log: messages go to standard error"),
        (["hydra.job.name=x"], "only hydra.searchpath=.DIR. is, and --config-dir DIR"),
        (["epochs"], "an override must be KEY=VALUE, got .epochs."),
        (["dataset._target_=os.system"], "_target_='os.system' is refused"),
        (
            ["dataset=digits_unbalanced", "dataset.base._target_=os.getcwd"],
            "'os.getcwd' is refused",
        ),
        (["optimizer._target_=torch.load"], "'torch.load' is refused"),
        (["optimizer._target_=torch.optim.Nonsense"], "'torch.optim.Nonsense' is refused"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_ones(overrides, sentence):
    with pytest.raises(UserError, match=sentence) as told:
        build(compose(overrides))
    assert "\n" not in str(told.value)


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


def test_a_table_without_arms_takes_none():
    with pytest.raises(UserError, match=r"table\.arm"):
        compose(["+table=misalignment_table5", "table.arm=dpsgd"])


def test_values_of_a_table_refer_to_settings_and_to_each_other():
    table = ["+table=misalignment_table5", "table.title=${epochs} epochs of ${table.paper}"]
    config = compose(table)["table"]
    assert config["title"].startswith("20 epochs of Esipova")
