"""What a run is called at trackers: what is aimed at is not called what holds."""

import re
from pathlib import Path

from dpbench.runs.config.compose import compose
from dpbench.runs.records.trackers.tracker import run_info


def test_an_epsilon_aimed_at_a_variant_and_settings_of_one_s_own_are_in_the_name():
    plain = run_info(compose(["privacy=eps1", "seed=3"]), Path("x"))
    paper = run_info(compose(["privacy=eps1", "method.variant=paper"]), Path("x"))
    noise = run_info(compose(["privacy=noise1", "privacy.noise_multiplier=2"]), Path("x"))
    assert plain.name == "dpsgd digits target_epsilon=1.0 seed=3"
    assert re.fullmatch(r"digits/dpsgd/target_epsilon=1\.0/[0-9a-f]{8}", plain.group)
    assert "target_epsilon=1.0" in plain.tags
    assert paper.name == "dpsgd (paper) digits target_epsilon=1.0 seed=0"
    assert paper.group.startswith("digits/dpsgd (paper)/target_epsilon=1.0/")
    assert noise.name == "dpsgd digits noise_multiplier=2 seed=0"
    config = compose(["optimizer.lr=0.1", "epochs=3"])
    info = run_info(config, Path("x"), sweeps=["run-0a1b2c3d"])
    assert info.name == "dpsgd digits target_epsilon=3.0 seed=0 epochs=3 lr=0.1"
    assert info.tags[-1] == "run-0a1b2c3d"


def test_a_group_has_seeds_alone_and_names_are_single_components_of_a_path():
    def group(*overrides):
        return run_info(compose(list(overrides)), Path("x")).group

    assert group("seed=0") == group("seed=1")
    assert group("optimizer.lr=0.1") != group("optimizer.lr=0.2")
    assert group("batch_size=32") != group("batch_size=64")
    config = compose([])
    config["choices"] |= {"dataset": "..", "method": "../a"}
    config["method"]["variant"] = "b/../../c"
    config["privacy"] = {"noise_multiplier": "/../../d" + 1000 * "e"}
    dataset, method, budget, _ = run_info(config, Path("x")).group.split("/")
    assert (dataset, method) == ("_", ".._a (b_.._.._c)")
    assert budget.startswith("noise_multiplier=_.._.._d")
    assert len(budget) == 200
