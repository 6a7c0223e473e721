"""The search spaces of conf/search."""

import pytest

from dpbench.config.buildable import settings_of
from dpbench.config.compose import compose, options
from dpbench.config.overrides import split_ranges
from dpbench.config.search_path import SPACES, file_of, searching
from dpbench.config.settings import leaves
from dpbench.config.space import Interval
from dpbench.search.request import parse
from dpbench.search.spaces import ranges_of, with_space
from dpbench.system.errors import UserError

PRIVATE = [name for name in options("method") if name not in ("sgd", "signsgd")]
BESIDE = {"dpsgld": ["privacy=follows"], "dpsghmc": ["privacy=follows", "optimizer=momentum"]}


@pytest.mark.parametrize("method", options("method"))
def test_every_method_has_a_space_with_its_source(method):
    path = file_of(SPACES, method)
    assert path is not None, "conf/search has no file of that name"
    assert path.read_text(encoding="utf-8").startswith("# Source: ")
    assert "optimizer.lr" in ranges_of(method)


def test_every_space_is_that_of_a_method():
    assert options(SPACES) == options("method")


@pytest.mark.parametrize("method", options("method"))
def test_a_space_is_of_settings_of_the_method_and_includes_its_defaults(method):
    config = compose([f"method={method}"])
    known = dict(leaves(config))
    ranges, fixed = split_ranges([f"{k}={v}" for k, v in ranges_of(method).items()])
    assert {r.key for r in ranges} <= known.keys()
    assert all(override.startswith("method.bound=") for override in fixed)
    for found in ranges:
        if found.key.startswith("method.") and isinstance(found, Interval):
            assert found.low <= known[found.key] <= found.high, found.key
    if "bound" in settings_of(config["method"]):
        assert "method.bound" in ranges_of(method)


@pytest.mark.parametrize("method", PRIVATE)
def test_a_bound_and_a_learning_rate_range_over_decades(method):
    ranges, _ = split_ranges([f"{k}={v}" for k, v in ranges_of(method).items()])
    for found in ranges:
        if found.key in ("method.bound", "optimizer.lr"):
            assert found.log
            assert found.high >= 100 * found.low


def test_the_ranges_are_those_of_the_method_that_is_run():
    request = parse(["space=method", "method=dpsgd_quantile", "dataset=digits", "model=mlp"])
    assert {r.key for r in request.space.ranges} == {*ranges_of("dpsgd_quantile")}
    arm = parse(["space=method", "+table=frontier_table1", "table.arm=slaclip", "dataset=digits"])
    assert "method.slots" in {r.key for r in arm.space.ranges}


def test_what_the_user_sets_is_not_searched_by_the_space():
    given = ["space=method", "method=dpsgd_quantile", "method.bound=1", "optimizer.lr=0.1,0.3"]
    request = parse([*given, "dataset=digits", "model=mlp"])
    texts = {r.key: r.text for r in request.space.ranges}
    assert "method.bound" not in texts
    assert texts["optimizer.lr"] == "0.1,0.3"
    assert "method.quantile" in texts


def test_an_added_folder_brings_the_space_of_its_method(tmp_path):
    (tmp_path / SPACES).mkdir()
    (tmp_path / SPACES / "mine.yaml").write_text("optimizer.lr: 0.1,0.2\n")
    with searching([tmp_path]):
        assert with_space("mine", ["epochs=1"]) == ["optimizer.lr=0.1,0.2", "epochs=1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["space=methods"], "space=methods is unknown"),
        (["space=method", "method=dpsgd,bam"], "is that of one method, not of bam,dpsgd"),
    ],
)
def test_an_unknown_space_is_refused(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        parse([*arguments, "dataset=digits", "model=mlp"])
