"""From overrides to a configuration: precedence, defaults, refusals and sweeps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dpbench.config import compose as configuration
from dpbench.config import search_path
from dpbench.config.compose import compose, groups, options
from dpbench.config.overrides import expand, grammar, parse
from dpbench.errors import UserError
from dpbench.execution.prepare import build


@pytest.mark.slow
def test_an_option_of_the_user_wins_over_the_table_s_choice_and_has_its_settings():
    asked = ["+table=bam_table1", "dataset=imagenet32"]
    assert compose([*asked, "model.depth=10"])["model"]["depth"] == 10
    assert compose([*asked, "model=mlp"])["choices"]["model"] == "mlp"
    with pytest.raises(UserError, match=r"model.activation is not a setting"):
        compose([*asked, "model.activation=relu"])


def test_what_the_user_says_wins_over_the_table_whatever_the_order():
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
        "privacy": "noise1",
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
        (["method=dpgsd"], "method=dpgsd is unknown: did you mean dpsgd"),
        (["+table=misalignment_table6"], "did you mean misalignment_table5"),
        (["epoch=3"], "epoch is not a setting: did you mean epochs"),
        (["optimizer.Lr=3"], "optimizer.Lr is not a setting: did you mean optimizer.lr"),
        (["method=sgd", "method.bound=1"], "method.bound is not a setting"),
        (["+bath_size=3"], "bath_size is not a setting: did you mean batch_size"),
        (["++bath_size=3"], "bath_size is not a setting: did you mean batch_size"),
        (["+engine.nme=loop"], "engine.nme is not a setting: did you mean engine.name"),
        (["+diagnostics.every=3"], "diagnostics.every is not a setting"),
        (["+privacy.epsilom=3"], "privacy.epsilom is not a setting: did you mean epsilon"),
        (["+method.bond=3"], "method.bond is not a setting: did you mean bound"),
        (["method.variant=papper"], "variant=papper is unknown: did you mean paper"),
        (["~method"], "method cannot be deleted: choose an option, as method=NAME"),
        (["method=sgd,dpsgd"], "names several runs: use dpbench run -m"),
        (["seed=0,1"], "names several runs: use dpbench run -m"),
        (["table=misalignment_table4"], r"add a table with \+table=NAME"),
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
def test_what_is_unknown_is_refused_with_the_nearest_names(overrides, sentence):
    with pytest.raises(UserError, match=sentence) as told:
        build(compose(overrides))
    assert "\n" not in str(told.value)


def test_a_table_s_misspelt_setting_is_refused(tmp_path, monkeypatch):
    """What a table sets is held against the chosen parts, like what a user sets."""
    broken = [{"set": {"epoch": 3}}]
    monkeypatch.setattr(configuration, "rules", lambda *_: broken)
    with pytest.raises(UserError, match="epoch"):
        compose(["+table=misalignment_table5", "seed=123"])  # which no other test asks for


def test_a_sweep_is_every_combination_in_order():
    assert expand(["seed=0,1", "epochs=3", "method=sgd,dpsgd"]) == [
        ["seed=0", "epochs=3", "method=sgd"],
        ["seed=0", "epochs=3", "method=dpsgd"],
        ["seed=1", "epochs=3", "method=sgd"],
        ["seed=1", "epochs=3", "method=dpsgd"],
    ]


def test_a_list_is_one_value_of_a_sweep():
    assert expand(["model.widths=[3,4]", "seed=range(2)"]) == [
        ["model.widths=[3,4]", "seed=0"],
        ["model.widths=[3,4]", "seed=1"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["epochs=3", "model.widths=[3,4]", "optimizer.lr=1e-3", "ema_decay=null"],
        ["+table=bam_table1", "dataset=cifar10", "method=bam", "method.lambda_=0.1", "seed=7"],
        ["+table=calibration_table2", "dataset=digits", "table.arm=large_r", "epochs=2"],
        [
            "schedule=custom",
            "schedule.lr={_target_:dpbench.mechanism.schedules.Linear,start:1.0,end:0.5}",
        ],
        ["tracker=[csv,wandb]", "tracker.wandb.project=mine", "batch_size=${epochs}"],
        ["method=dpsgd", "method.bound=[0.1,0.2]", "method.style=layerwise"],
        ["+table=misalignment_table5", "table.seeds=[3]", "table.title=${epochs} epochs"],
        ["+table=misalignment_table5", "+table.arm=null", "seed=1"],
        ["+table=misalignment_table5", "table.seeds=[0,1]", "table.methods=[sgd]", "epochs=1"],
        ["+table=misalignment_table5", "table.groups=[women,men]"],  # which columns refer to
        ["+table=misalignment_table5", "table.columns={acc_a:{digits:3}}"],  # merged
        ["+table=bam_table1", "table.conditions=[{dataset:[cifar10],privacy.epsilon:[1]}]"],
        ["+table=bam_fig2", "table.figure.x=epoch", "table.title='a, b'"],
    ],
)
def test_values_set_in_a_copy_are_what_hydra_composes(overrides):
    with grammar():
        parsed = configuration.check(overrides)
        ours = configuration._compose(parsed)
        theirs = configuration._compose_by_hydra([str(override.input_line) for override in parsed])
    assert ours.choices == theirs.choices
    assert ours.table == theirs.table
    assert OmegaConf.to_container(ours.config) == OmegaConf.to_container(theirs.config)
    assert OmegaConf.is_struct(ours.config) == OmegaConf.is_struct(theirs.config)


GROUPS = sorted({*groups()} - {"table"})


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=8)
@given(st.data())
def test_options_put_together_are_what_hydra_composes(data):
    table = data.draw(
        st.sampled_from([None, "misalignment_table5", "bam_fig2", "misalignment_fig8"])
    )
    drawn = data.draw(st.sets(st.sampled_from(GROUPS), min_size=2, max_size=6))
    overrides = [f"{group}={data.draw(st.sampled_from(options(group)))}" for group in sorted(drawn)]
    added = [f"+table={table}"] if table else []
    configuration._composed_beside(search_path.folders(), tuple(added)).add(())
    overrides += added
    with grammar():
        ours = configuration._compose(parse(overrides))
        theirs = configuration._compose_by_hydra(overrides)
    assert ours.choices == theirs.choices
    assert ours.table == theirs.table
    assert OmegaConf.to_container(ours.config) == OmegaConf.to_container(theirs.config)
    assert list(ours.config) == list(theirs.config)
    assert OmegaConf.is_struct(ours.config["method"]) == OmegaConf.is_struct(
        theirs.config["method"]
    )


@pytest.mark.parametrize("table", [[], ["+table=misalignment_table5"]])
def test_pairs_of_options_take_hydra_few_compositions(table, monkeypatch):
    composed = []
    by_hydra = configuration._compose_by_hydra
    monkeypatch.setattr(
        configuration, "_compose_by_hydra", lambda lines: composed.append(lines) or by_hydra(lines)
    )
    for cached in ("_compose_options", "_composed_beside", "_options_and_keys"):
        getattr(configuration, cached).cache_clear()
    numbers = []
    for dataset in ("dutch", "adult", "digits", "mnist"):
        for method in ("bam", "dpsat", "sgd", "dpsgd_f", "dp_losgd"):
            compose([*table, f"dataset={dataset}", f"method={method}", "epochs=17"])
            numbers.append(len(composed))
    assert numbers[0] == 1 + bool(table)  # the launcher as it is without the table
    assert numbers[-1] == numbers[0] + 1


def test_runs_that_differ_in_values_alone_share_what_hydra_composes(monkeypatch):
    table = ["+table=calibration_table2", "dataset=digits"]
    first = compose([*table, "method=bam", "table.arm=small_r", "seed=0"])
    monkeypatch.setattr(
        configuration, "_compose_by_hydra", lambda _: pytest.fail("composed a second time")
    )
    changed = ["seed=1", "table.arm=large_r", "table.seeds=[1]", "optimizer.lr=0.5"]
    second = compose(["method=bam", *table, *changed])
    assert (first["seed"], second["seed"], second["optimizer"]["lr"]) == (0, 1, 0.5)
    assert (first["table"]["arm"], second["table"]["arm"]) == ("small_r", "large_r")
    assert first["method"]["bound"] != second["method"]["bound"]


def test_a_table_without_arms_takes_none():
    with pytest.raises(UserError, match=r"table\.arm"):
        compose(["+table=misalignment_table5", "table.arm=dpsgd"])


def test_values_of_a_table_refer_to_settings_and_to_each_other():
    table = ["+table=misalignment_table5", "table.title=${epochs} epochs of ${table.paper}"]
    config = compose(table)["table"]
    assert config["title"].startswith("20 epochs of Esipova")
