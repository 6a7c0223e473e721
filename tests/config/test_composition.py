"""What is put together of files, and of what Hydra composed before, is what Hydra composes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from dpbench.config import composition, search_path
from dpbench.config.compose import _options_and_keys, check, compose, options
from dpbench.config.overrides import grammar, parse
from dpbench.config.search_path import groups


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
        ["+table=bam_fig2", "table.figure.band=range", "table.title='a, b'"],
    ],
)
def test_values_set_in_a_copy_are_what_hydra_composes(overrides):
    with grammar():
        parsed = check(overrides)
        ours = composition.composed(parsed)
        theirs = composition.composed_by_hydra([str(override.input_line) for override in parsed])
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
    composition._composed_beside(search_path.folders(), tuple(added)).update({(), ("",)})
    overrides += added
    with grammar():
        ours = composition.composed(parse(overrides))
        theirs = composition.composed_by_hydra(overrides)
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
    by_hydra = composition.composed_by_hydra
    monkeypatch.setattr(
        composition, "composed_by_hydra", lambda lines: composed.append(lines) or by_hydra(lines)
    )
    for cached in (composition._compose_options, composition._composed_beside, _options_and_keys):
        cached.cache_clear()
    numbers = []
    for dataset in ("dutch", "adult", "digits", "mnist"):
        for method in ("bam", "dpsat", "sgd", "dpsgd_f", "dp_losgd"):
            compose([*table, f"dataset={dataset}", f"method={method}", "epochs=17"])
            numbers.append(len(composed))
    assert numbers[0] == 1 + bool(table)  # the launcher as it is without the table
    assert numbers[-1] == numbers[0] + 2


def test_runs_that_differ_in_values_alone_share_what_hydra_composes(monkeypatch):
    table = ["+table=calibration_table2", "dataset=digits"]
    first = compose([*table, "method=bam", "table.arm=small_r", "seed=0"])
    monkeypatch.setattr(
        composition, "composed_by_hydra", lambda _: pytest.fail("composed a second time")
    )
    changed = ["seed=1", "table.arm=large_r", "table.seeds=[1]", "optimizer.lr=0.5"]
    second = compose(["method=bam", *table, *changed])
    assert (first["seed"], second["seed"], second["optimizer"]["lr"]) == (0, 1, 0.5)
    assert (first["table"]["arm"], second["table"]["arm"]) == ("small_r", "large_r")
    assert first["method"]["bound"] != second["method"]["bound"]
