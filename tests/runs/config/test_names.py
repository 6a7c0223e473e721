"""Every method has a display name, and no two the same."""

import pytest

from dpbench.runs.config.search_path import method_name, options


def test_each_method_has_a_name_of_its_own():
    names = {method: method_name(method) for method in options("method")}
    assert all(name != method for method, name in names.items())
    assert len(set(names.values())) == len(names)
    assert names["dpsgd_global_adapt"] == "DP-SGD (global, adaptive)"


@pytest.mark.parametrize("method", ["removed", "../privacy/eps1", "<b>", ""])
def test_what_is_no_method_here_is_named_by_itself(method):
    assert method_name(method) == method


def test_a_file_without_a_name_is_named_by_the_option(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("# What it does.\nbound: 1\n")
    monkeypatch.setattr(
        "dpbench.config.search_path.file_of", lambda group, name: tmp_path / "mine.yaml"
    )
    assert method_name("mine") == "mine"
