"""What is put together of files, and of what Hydra composed before, is what Hydra composes."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dpbench.runs.config import search_path
from dpbench.runs.config.chosen_options import Composition, by_hydra, composed, option_node
from dpbench.runs.config.compose import compose
from dpbench.runs.config.overrides import grammar, parse
from dpbench.runs.config.search_path import groups, options

GROUPS = sorted({*groups()} - {"table"})


def of_hydra(overrides: list[str]) -> Composition:
    with grammar():
        return pickle.loads(by_hydra.__wrapped__(search_path.folders(), *overrides))


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["epochs=3", "model.widths=[3,4]", "optimizer.lr=1e-3", "ema_decay=null"],
        ["+optimizer.weight_decay=0.1", "~optimizer.momentum", "optimizer=sgd"],
        [
            "schedule=custom",
            "schedule.lr={_target_:dpbench.mechanism.schedules.Linear,start:1.0,end:0.5}",
        ],
        ["tracker=[csv,wandb]", "tracker.wandb.project=mine", "batch_size=${epochs}"],
        ["method=dpsgd", "method.bound=[0.1,0.2]", "method.style=layerwise"],
    ],
)
def test_values_set_in_a_copy_are_what_hydra_composes(overrides):
    ours, theirs = compose(overrides), of_hydra(overrides)
    assert ours.pop("choices") == theirs.choices
    assert ours == OmegaConf.to_container(theirs.config, resolve=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        [
            "+table=misalignment_table5",
            "table.seeds=[3]",
            "table.title=${epochs} epochs",
            "epochs=3",
        ],
        ["+table=misalignment_table5", "+table.arm=null", "seed=1"],
        ["+table=misalignment_table5", "table.groups=[women,men]"],  # which columns refer to
        ["+table=misalignment_table5", "table.columns={acc_a:{digits:3}}"],  # merged
        ["+table=bam_table1", "table.conditions=[{dataset:[cifar10],privacy.epsilon:[1]}]"],
        ["+table=bam_fig2", "table.figure.band=range", "table.title='a, b'"],
        ["+table=calibration_table2", "dataset=digits", "table.arm=large_r", "epochs=2"],
    ],
)
def test_a_table_with_changed_settings_is_what_hydra_composes(overrides):
    theirs = OmegaConf.to_container(of_hydra(overrides).config.table, resolve=True)
    assert compose(overrides)["table"] == theirs


@pytest.mark.parametrize(
    ("table", "option", "group"),
    [("bam_fig2", "diagnostics=bias", "diagnostics"), ("demo", "privacy=eps1", "privacy")],
)
def test_what_a_table_sets_in_a_group_holds_for_the_option_that_a_user_chooses(
    table, option, group
):
    overrides = [option, f"+table={table}"]
    with grammar():
        ours = composed(parse(overrides))
    assert (
        ours.config[group] == of_hydra(overrides).config[group] != option_node(*option.split("="))
    )


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=8)
@given(st.data())
def test_options_put_together_are_what_hydra_composes(data):
    table = data.draw(
        st.sampled_from([None, "misalignment_table5", "bam_fig2", "misalignment_fig8"])
    )
    drawn = data.draw(st.sets(st.sampled_from(GROUPS), min_size=2, max_size=6))
    overrides = [f"{group}={data.draw(st.sampled_from(options(group)))}" for group in sorted(drawn)]
    overrides += [f"+table={table}"] if table else []
    with grammar():
        ours = composed(parse(overrides))
    other = of_hydra(overrides)
    assert ours.choices == other.choices
    assert OmegaConf.to_container(ours.config) == OmegaConf.to_container(other.config)
    assert list(ours.config) == list(other.config)
    assert OmegaConf.is_struct(ours.config["method"]) == OmegaConf.is_struct(other.config["method"])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("table", [[], ["+table=misalignment_table5"]])
def test_hydra_composes_once_for_all_pairs_of_options(table):
    compose([*table, "epochs=17"])  # and once for the launcher as it is without the table
    before = by_hydra.cache_info().misses
    for dataset in ("dutch", "adult", "digits", "mnist"):
        for method in ("bam", "dpsat", "sgd", "dpsgd_f", "dp_losgd"):
            compose([*table, f"dataset={dataset}", f"method={method}", "epochs=17"])
    assert by_hydra.cache_info().misses == before


@pytest.mark.sampled(6)
@pytest.mark.parametrize("group", GROUPS)
def test_an_option_is_what_hydra_composes(group):
    for name in options(group)[:2]:
        assert option_node(group, name) == of_hydra([f"{group}={name}"]).config[group]


@pytest.mark.parametrize(
    "text", ["defaults: [other]\n", "# @package _global_\n", "a: ${b}\n", "- a\n", None]
)
def test_what_only_hydra_can_compose_is_left_to_it(tmp_path, monkeypatch, text):
    monkeypatch.setattr(search_path, "option_folders", lambda: (tmp_path,))
    (tmp_path / "method").mkdir()
    if text is not None:
        (tmp_path / "method/odd.yaml").write_text(text)
    assert option_node.__wrapped__("method", "odd") is None


def test_arms_of_a_table_share_what_hydra_composes():
    table = ["+table=calibration_table2", "dataset=digits"]
    first = compose([*table, "method=bam", "table.arm=small_r", "seed=0"])
    before = by_hydra.cache_info().misses
    changed = ["seed=1", "table.arm=large_r", "table.seeds=[1]", "optimizer.lr=0.5"]
    second = compose(["method=bam", *table, *changed])
    assert by_hydra.cache_info().misses == before
    assert (first["seed"], second["seed"], second["optimizer"]["lr"]) == (0, 1, 0.5)
    assert (first["table"]["arm"], second["table"]["arm"]) == ("small_r", "large_r")
    assert first["method"]["bound"] != second["method"]["bound"]
