"""What a run is called at trackers: what is aimed at is not called what holds."""

from pathlib import Path

from dpbench.config.compose import compose
from dpbench.records.trackers.tracker import run_info


def test_an_epsilon_that_was_aimed_at_is_named_as_such_and_a_variant_too():
    plain = run_info(compose(["privacy=eps1", "seed=3"]), Path("x"))
    paper = run_info(compose(["privacy=eps1", "method.variant=paper"]), Path("x"))
    noise = run_info(compose(["privacy=noise1", "privacy.noise_multiplier=2"]), Path("x"))
    assert plain.name == "dpsgd digits target_epsilon=1.0 seed=3"
    assert plain.group == "digits/dpsgd/target_epsilon=1.0"
    assert "target_epsilon=1.0" in plain.tags
    assert paper.name == "dpsgd (paper) digits target_epsilon=1.0 seed=0"
    assert paper.group == "digits/dpsgd (paper)/target_epsilon=1.0"
    assert noise.name == "dpsgd digits noise_multiplier=2 seed=0"


def test_names_from_a_record_are_single_components_of_a_path():
    config = compose([])
    config["choices"] |= {"dataset": "..", "method": "../a"}
    config["method"]["variant"] = "b/../../c"
    config["privacy"] = {"noise_multiplier": "/../../d" + 1000 * "e"}
    dataset, method, budget = run_info(config, Path("x")).group.split("/")
    assert (dataset, method) == ("_", ".._a (b_.._.._c)")
    assert budget.startswith("noise_multiplier=_.._.._d")
    assert len(budget) == 200
