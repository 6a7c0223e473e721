"""An option read from its file alone is what Hydra composes."""

import pytest

from dpbench.config import option_files
from dpbench.config.compose import compose, options
from dpbench.config.option_files import option_node
from dpbench.config.search_path import groups

GROUPS = [group for group in groups() if group != "table"]


@pytest.mark.parametrize("group", GROUPS)
def test_an_option_is_what_hydra_composes(group):
    for name in options(group)[:2]:
        assert option_node(group, name) == compose([f"{group}={name}"])[group]


@pytest.mark.parametrize(
    "text", ["defaults: [other]\n", "# @package _global_\n", "a: ${b}\n", None]
)
def test_what_only_hydra_can_compose_is_left_to_it(tmp_path, monkeypatch, text):
    monkeypatch.setattr(option_files, "conf_folder", lambda: tmp_path)
    (tmp_path / "method").mkdir()
    if text is not None:
        (tmp_path / "method/odd.yaml").write_text(text)
    assert option_node.__wrapped__("method", "odd") is None
