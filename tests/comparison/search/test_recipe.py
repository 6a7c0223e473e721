"""A recipe names settings that run, keeps those that are given, and follows its stated rules."""

import pytest

from dpbench.comparison.search import recipe
from dpbench.comparison.search.recipe import BOUND, LENGTH, STEPS, WALK, choices
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError

GIVEN = ["dataset=digits", "privacy=eps3"]


@pytest.fixture(autouse=True)
def fast_machine(monkeypatch):
    """A machine on which a plain pass takes a microsecond an example."""
    monkeypatch.setattr(recipe, "_seconds_per_example", lambda run: 1e-6)


def settings(*given, minutes=1.0):
    return dict(each.setting.split("=") for each in choices([*GIVEN, *given], minutes))


def test_the_recipe_is_a_run():
    chosen = settings()
    run, planned = prepare(run_config([*GIVEN, *(f"{k}={v}" for k, v in chosen.items())]))
    assert run.method.name == "dpsgd"
    assert planned.steps == STEPS
    assert run.batch_size == run.dataset.train_size


def test_the_batches_are_those_that_the_time_allows():
    fewer = settings(minutes=0.005)  # 0.3 s: 52 passes of 1,438 examples at 4 microseconds
    assert (fewer["epochs"], fewer["batch_size"]) == ("52", "374")
    assert settings(minutes=1e-9)["epochs"] == "1"


def test_fewer_examples_than_the_usual_batch_are_all_of_one():
    assert settings("validation=0.95")["batch_size"] == "72"


def test_a_delta_that_could_publish_an_example_is_replaced(recwarn):
    """SNLI has 549,367 training pairs, and the option's delta is 1e-5."""
    on_pairs = ["dataset=snli", "features=minilm", "privacy=eps3"]
    chosen = [each.setting for each in choices(on_pairs, 1.0)]
    assert "privacy.delta=1e-6" in chosen
    given = [each.setting for each in choices([*on_pairs, "privacy.delta=1e-7"], 1.0)]
    assert not any("delta" in setting for setting in given)
    assert not recwarn.list


@pytest.mark.parametrize("epsilon", [0.1, 8])
def test_the_learning_rate_keeps_noise_within_its_limit(epsilon):
    chosen = settings(f"privacy.epsilon={epsilon}")
    run, planned = prepare(
        run_config([*GIVEN, f"privacy.epsilon={epsilon}", *(f"{k}={v}" for k, v in chosen.items())])
    )
    length = BOUND * float(chosen["optimizer.lr"])
    walk = length * planned.noise_multiplier * planned.steps**0.5 / run.batch_size
    assert length <= LENGTH
    assert walk <= WALK * 1.01
    assert length == pytest.approx(LENGTH) or walk == pytest.approx(WALK, rel=0.01)


def test_given_settings_stay():
    chosen = settings("method.bound=2", "epochs=7", "batch_size=100")
    assert set(chosen) == {"method", "model", "optimizer.lr"}
    assert float(chosen["optimizer.lr"]) <= LENGTH / 2


@pytest.mark.parametrize("other", ["method=bam", "optimizer=adam"])
def test_what_the_rules_are_not_about_is_refused(other):
    with pytest.raises(UserError, match=f"leave {other} out"):
        choices([*GIVEN, other], 1)


def test_what_a_run_refuses_is_refused_before_it_is_timed(monkeypatch):
    monkeypatch.setattr(recipe, "_seconds_per_example", lambda run: pytest.fail("timed"))
    with pytest.raises(UserError, match=r"takes no texts: use .* features=minilm for other models"):
        choices(["dataset=snli", "privacy=eps3", "privacy.delta=1e-6"], 1)


def test_the_page_has_the_command_and_a_reason_for_each_setting():
    page = recipe.recipe([*GIVEN, "minutes=1"])
    assert "dpbench run dataset=digits privacy=eps3 method=dpsgd" in page
    assert all(f"`{key}={value}`" in page for key, value in settings().items())
