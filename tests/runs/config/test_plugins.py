"""Plug-ins: their options and targets are usable, and nothing else of them or of anybody runs."""

import shlex
import sys
from types import SimpleNamespace

import pytest
import torch

import dpbench
from dpbench.cli.run_summary import summary
from dpbench.comparison.search.command import search
from dpbench.comparison.tables.sweep.command import table
from dpbench.privacy.ledger import Ledger
from dpbench.runs.config import buildable
from dpbench.runs.config.compose import compose
from dpbench.runs.config.plugins import GROUP, plugins, published_files
from dpbench.runs.config.search_path import options
from dpbench.runs.execution.attempt import attempt
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import build, prepare, run_of
from dpbench.runs.execution.rerun import CommandBuilder
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.code import CHECKSUM_KEY, PLUGIN_PARTS_KEY, code_of
from dpbench.runs.records.digest import digest
from dpbench.runs.records.reading import read
from dpbench.runs.training.plan import privacy_statement
from dpbench.runs.training.trainer import _checkpoint_conditions
from dpbench.system.errors import UserError
from tests.plugin_files import OTHER, SHARP, write

# Diagnostics see the training examples, and the step that they could change by them.
WATCHING = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Watching:
    def observer(self, step, train, test):
        return None
"""
WATCH = "_target_: clipworks.watching.Watching\n"

OWN = """
from dataclasses import replace

from dpbench.privacy.guarantee import Guarantee
from dpbench.step.methods.dpsgd import dpsgd


def own():
    return replace(dpsgd(1.0, "corrected"), basis=Guarantee("none", "Leaks."))
"""

ODD_CLIP = """
from dataclasses import dataclass
from math import nan

from dpbench.step.clipping import Clip, Sensitivity


@dataclass(frozen=True)
class Odd(Clip):
    of: object

    @property
    def sensitivity(self):
        return Sensitivity(self.of)

    def factors(self, norms, groups):
        return norms


"""

SMALL = ["epochs=1", "batch_size=512"]


def test_without_any_there_are_none():
    assert plugins() == ()


def test_its_options_are_listed_and_its_package_is_not_imported(plugin):
    assert "net" in options("model")
    assert "softened" in options("method")
    compose(["model=net", "method=softened"])
    assert "clipworks" not in sys.modules


@pytest.mark.slow
def test_a_run_is_like_any_other_and_says_what_was_built(plugin, tmp_path):
    record = read(
        load_or_run(run_config(["model=net", "method=softened", *SMALL, f"results_dir={tmp_path}"]))
    )
    installed = {"package": "clip-works", "version": "1.2"}
    assert record.provenance[PLUGIN_PARTS_KEY] == {
        "model": {"target": "clipworks.Net", **installed},
        "method": {"target": "clipworks.clip.softened", **installed},
    }
    assert record.privacy["guarantee"] == "claimed"
    assert (
        "per example, add-or-remove adjacency, Poisson batches, claimed, notes on the data in "
        "privacy.notes of the record), " in summary(record)
    )
    assert (
        PLUGIN_PARTS_KEY
        not in read(load_or_run(run_config([*SMALL, f"results_dir={tmp_path}"]))).provenance
    )


CLAIM = "Claimed by clip-works, not checked by dpbench: Poisson-sampled Gaussian mechanism"


@pytest.mark.parametrize(
    ("overrides", "guarantee", "why"),
    [
        (["method=softened"], "claimed", CLAIM),
        (["method=dpsgd", "model=net"], "claimed", CLAIM),
        (["method=dpsgd", "diagnostics=watching"], "claimed", CLAIM),
        (["method=softened", "sampler=shuffled", "privacy=noise1"], "none", "Batches are shuffled"),
        (["method=own"], "none", "Leaks."),
        (["method=sharp"], "proven", "Poisson-sampled"),
    ],
)
def test_the_guarantee_of_a_plug_in_is_only_claimed(plugin, overrides, guarantee, why):
    methods = plugin / "clipworks/conf/method"
    write(plugin, {"clipworks/own.py": OWN, "clipworks/watching.py": WATCHING})
    write(plugin / "clipworks/conf/diagnostics", {"watching.yaml": WATCH})
    write(methods, {"own.yaml": "_target_: clipworks.own.own\n", "sharp.yaml": SHARP})
    run, planned = prepare(run_config(overrides))
    said = privacy_statement(run, planned)
    assert said["guarantee"] == guarantee
    assert said["why"].startswith(why)
    assert (said["pld"] is None) == (guarantee == "none")


@pytest.mark.slow
def test_a_claimed_epsilon_is_marked_wherever_it_is_shown(plugin, tmp_path):
    run = ["method=softened", "epochs=1", f"results_dir={tmp_path}"]
    record = read(load_or_run(run_config([*run, "batch_size=512"])))
    epsilon = f"{record.privacy['pld']:.2f} (claimed)"
    assert f" {epsilon} |" in table([str(tmp_path), f"out={tmp_path / 'made'}"])
    assert (tmp_path / "made.csv").read_text().splitlines()[1].endswith(",claimed")
    assert " (claimed) |" in search([*run, "N=1", "batch_size=512,1024"])
    noisy = ["private=true", "score_noise_multiplier=2", "trials=2", "name=noisy"]
    found = search([*run, "batch_size=512,1024", *noisy])
    assert found.count(" (claimed) |") == 4
    assert f"softened: {CLAIM}" in found


def test_a_target_replaces_the_option_and_all_of_its_settings(plugin):
    run = run_of(run_config(["model._target_=clipworks.Net", "+model.width=3"]))
    config = run.config
    assert config["model"] == {"_target_": "clipworks.Net", "width": 3}
    assert config["choices"]["model"] == "clipworks.Net"
    assert run.model.width == 3
    with pytest.raises(UserError, match=r"model\.width is missing"):
        run_of(run_config(["model._target_=clipworks.Net"]))


@pytest.mark.slow
def test_a_replaced_part_has_a_digest_of_its_own(plugin):
    names = {
        digest(compose(overrides))
        for overrides in (
            ["model=mlp"],
            ["model=net"],
            ["model._target_=clipworks.Net", "+model.width=8"],
            ["model._target_=clipworks.Net", "+model.width=9"],
        )
    }
    assert len(names) == 4
    assert digest(compose(["model=mlp"])) == digest(compose([])) == "f8be1abf4831bc9c"


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ["model=net", "model.width=5", "method=softened", "seed=2"],
        ["model._target_=clipworks.Net", "+model.width=5"],
    ],
    ids=" ".join,
)
def test_a_record_has_its_command_where_the_plug_in_is_installed(plugin, monkeypatch, overrides):
    config = compose(overrides)
    words = shlex.split(CommandBuilder()(config))[2:]
    assert digest(compose(words)) == digest(config)
    monkeypatch.undo()  # now it is not installed
    with pytest.raises(UserError, match=r"_target_='clipworks\..*' is refused"):
        CommandBuilder()(config)


@pytest.mark.parametrize(
    "target",
    [
        "clipworks.net.undeclared",
        "clipworks.net.Net",  # declared by another name
        "clipworks.clip.softened",  # declared in another group
        "clipworks.net.math.prod",
        "os.system",
    ],
)
def test_only_what_it_declares_is_built(plugin, target):
    with pytest.raises(UserError, match=r"is refused: no file in conf/model names it, of dpbench"):
        buildable.build("model", {"_target_": target, "width": 1})


@pytest.mark.slow
def test_a_plug_in_cannot_declare_targets_of_other_packages(plugin):
    write(plugin, {"clipworks/conf/model/shell.yaml": "_target_: os.system\ncommand: 'exit 3'\n"})
    with pytest.raises(UserError, match=r"_target_='os.system' is refused"):
        run_of(run_config(["model=shell"]))
    write(plugin, {"clipworks/conf/model/prod.yaml": "_target_: clipworks.net.math.prod\n"})
    with pytest.raises(UserError, match="cannot be imported"):
        run_of(run_config(["model=prod"]))
    write(plugin, {"clipworks/conf/model/linear.yaml": "_target_: clipworks.net.nn\n"})
    with pytest.raises(UserError, match="its module does not define it"):
        run_of(run_config(["model=linear"]))


def test_a_module_that_ends_the_process_is_refused(plugin):
    files = {
        "leaves.py": "raise SystemExit(0)\n",
        "conf/model/leaves.yaml": "_target_: clipworks.leaves.Net\n",
    }
    write(plugin, {f"clipworks/{name}": text for name, text in files.items()})
    with pytest.raises(UserError, match=r"leaves\.Net cannot be imported: its module exits"):
        run_of(run_config(["model=leaves"]))


@pytest.mark.parametrize("error", ["SystemExit", "BaseException"])
def test_a_part_that_ends_the_process_ends_one_run(plugin, tmp_path, error):
    net = plugin / "clipworks" / "net.py"
    net.write_text(net.read_text().replace("layers =", f"raise {error}(0)\n        layers ="))
    outcome = attempt(run_config(["model=net", *SMALL, f"results_dir={tmp_path}"]))
    assert outcome.reason == f"{error}: 0"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("replace(dpsgd(1.0, 'corrected'), clip=3)", "the sensitivity of int must be a dpbench"),
        ("replace(dpsgd(1.0, 'corrected'), noise=3)", "noise of dpsgd must be a dpbench.*Noise"),
        ("replace(dpsgd(1.0, 'corrected'), update=3)", "the update of dpsgd must be a dpbench"),
        ("replace(dpsgd(1.0, 'corrected'), basis='sure')", "the basis of dpsgd must be a dpbench"),
        ("replace(dpsgd(1.0, 'corrected'), clip=Odd(0.0))", "sensitivity of Odd must be a .* of a"),
        ("replace(dpsgd(1.0, 'corrected'), clip=Odd(nan))", "sensitivity of Odd must be a .* of a"),
        ("replace(dpsgd(1.0, 'corrected'), clip=Odd('1'))", "sensitivity of Odd must be a .* of a"),
    ],
)
def test_a_method_of_wrong_parts_is_refused(plugin, body, why):
    own = OWN.partition("def own")[0] + ODD_CLIP + f"def own():\n    return {body}\n"
    write(plugin, {"clipworks/own.py": own})
    write(plugin, {"clipworks/conf/method/own.yaml": "_target_: clipworks.own.own\n"})
    with pytest.raises(UserError, match=why):
        run_of(run_config(["method=own"]))


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        (
            "bound: float) -> 'Method'",
            "of clipworks.own.own must be .* NameError: name",
        ),
        ("bound: 'Gone'", "of clipworks.own.own must be .* NameError: name 'Gone'"),
        ("bound: 3", "of clipworks.own.own must be types .* TypeError: isinstance"),
        ("bound, /", "method.bound is not a setting"),
        ("*bound", "method.bound is not a setting"),
    ],
)
def test_a_signature_that_settings_cannot_be_checked_by_is_named(plugin, parameters, why):
    end = "" if ")" in parameters else ")"
    write(plugin, {"clipworks/own.py": f"def own({parameters}{end}:\n    return None\n"})
    write(plugin, {"clipworks/conf/method/own.yaml": "_target_: clipworks.own.own\nbound: 1.0\n"})
    with pytest.raises(UserError, match=why):
        run_of(run_config(["method=own"]))


@pytest.mark.slow
def test_changed_code_of_it_makes_its_records_stale_and_no_others(plugin):
    config = compose(["model=net"])
    before, plain = code_of(config), code_of(compose([]))
    for name in ("clipworks/net.py", "clipworks/sizes.py", "clipworks/__init__.py"):
        path = plugin / name
        path.write_text(path.read_text() + "# changed\n")
        assert code_of(config) != before
        before = code_of(config)
    assert code_of(compose([])) == plain


@pytest.mark.slow
def test_the_hash_of_a_run_is_that_of_its_record(plugin, tmp_path):
    config = compose(["model=net", *SMALL])
    record = read(load_or_run(run_config(["model=net", *SMALL, f"results_dir={tmp_path}"])))
    assert record.provenance[CHECKSUM_KEY] == code_of(config, record.metrics)


@pytest.mark.slow
def test_a_record_names_the_code_that_was_imported_and_not_what_it_says_by_now(plugin, tmp_path):
    asked = ["model=net", *SMALL, f"results_dir={tmp_path}"]
    config, net = compose(asked), plugin / "clipworks" / "net.py"
    measured = dpbench.run(*asked, quiet=True).metrics
    before = code_of(config, measured)
    net.write_text(net.read_text().replace("nn.Tanh()", "nn.ReLU()"))
    for more in ([], ["again=stale"]):
        with pytest.warns(
            UserWarning, match="a different version of the code; .* start Python again"
        ):
            record = dpbench.run(*asked, *more, quiet=True)
        assert record.provenance[CHECKSUM_KEY] == before != code_of(config, measured)


@pytest.mark.slow
def test_a_checkpoint_of_other_code_of_it_is_not_resumed(plugin):
    theta = SimpleNamespace(device=torch.device("cpu"))
    engine = SimpleNamespace(name="ghost", parameters=SimpleNamespace(theta=theta))
    training = SimpleNamespace(
        plan=SimpleNamespace(ledger=Ledger()), step=SimpleNamespace(engine=engine)
    )
    agreed = []
    for overrides in ([], ["model=net"]):
        run = build(compose(overrides))
        agreed.append(_checkpoint_conditions(run, training))
    assert agreed[0][CHECKSUM_KEY] == code_of(compose([])) != agreed[1][CHECKSUM_KEY]
    assert agreed[1][CHECKSUM_KEY] == code_of(compose(["model=net"]))


@pytest.mark.parametrize("value", ["clipworks.nowhere", "nowhere", "dpbench", "clipworks:Net"])
def test_a_broken_one_is_ignored_with_a_warning(plugin, tmp_path, monkeypatch, value):
    other = tmp_path / "other"
    metadata = "Metadata-Version: 2.1\nName: broken\nVersion: 0\n"
    entry = f"[{GROUP}]\nbroken = {value}\n"
    name = "broken-0.dist-info"
    write(other, {f"{name}/METADATA": metadata, f"{name}/entry_points.txt": entry})
    monkeypatch.syspath_prepend(other)
    with pytest.warns(UserWarning, match=f"the plug-in broken is ignored: {value} is not a packa"):
        assert [found.package for found in plugins()] == ["clipworks"]


def test_a_name_that_is_taken_is_refused(plugin):
    write(plugin, {"clipworks/conf/model/mlp.yaml": "_target_: clipworks.Net\nwidth: 2\n"})
    with pytest.raises(UserError, match=r"model/mlp.yaml has the name of an option in .*conf: ren"):
        compose([])


@pytest.mark.parametrize("name", ["mine/table1.csv", "bam/table1.csv"])
def test_numbers_of_another_study_of_the_same_name_are_no_substitute(plugin, name):
    theirs = {f"{package}/benchmarks/{name}": package for package in ("clipworks", "other")}
    write(plugin, OTHER | theirs)
    with pytest.raises(UserError, match=rf"{name} has the name of .*{name}: rename the folder"):
        published_files()
