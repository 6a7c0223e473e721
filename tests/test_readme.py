"""What the README says is so."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from dpbench.audit.command import DEFAULTS, prepare_audit
from dpbench.config import compose as config
from dpbench.config.overrides import expand
from dpbench.config.search_path import groups
from dpbench.config.settings import split_settings
from dpbench.dashboard.command import parse as parse_report
from dpbench.execution.prepare import prepare
from dpbench.search.request import parse

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^dpbench (.+?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_it_is_short():
    assert README.count("\n") < 120


def test_its_table_is_the_committed_one():
    cells = pd.read_csv(ROOT / "results/tables/misalignment_table5.csv", dtype={"published": str})
    for method in ("sgd", "dpsgd", "fairlens", "dpsgd_f", "dpsgd_global", "dpsgd_global_adapt"):
        of = cells[cells["method"] == method].set_index("column")
        accuracies = [
            f"{of.ours[c]:.1f} ± {of.spread[c]:.1f} [{of.published[c]}]" for c in ("acc_a", "acc_b")
        ]
        loss = f"{of.ours['loss_a']:.3f} [{of.published['loss_a']}]"
        assert f"| `{method}` | {' | '.join([*accuracies, loss])} |" in README


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_ones_that_the_suite_takes(command):
    verb, *arguments = shlex.split(command)
    if verb in ("run", "epsilon"):
        for overrides in expand([a for a in arguments if a != "-m"]):
            prepare(overrides)
    elif verb == "audit":
        assert prepare_audit(split_settings("audit", DEFAULTS, arguments)[1])[1] > 0
    elif verb == "search":
        assert parse(arguments).space.ranges
    elif verb == "reproduce":
        assert arguments[0] in config.options("table")
        prepare([f"+table={arguments[0]}", *arguments[1:]])
    elif verb == "report":
        assert parse_report(arguments)[1].suffix == ".html"
    else:
        known = config.options("dataset") if verb == "data" else groups()
        assert verb in ("data", "list")
        assert set(arguments) <= set(known)


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 7
