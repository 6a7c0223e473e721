"""Only what is declared is built, of settings that fit; what can merely be imported never runs."""

import json
import pickle
import re
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from dpbench.cli.main import main
from dpbench.runs.config import buildable
from dpbench.runs.config.compose import compose
from dpbench.runs.config.search_path import groups
from dpbench.runs.execution.prepare import build, run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.system.errors import UserError
from dpbench.system.paths import option_folders
from dpbench.system.public_names import public_name
from dpbench.system.validate import fits

GROUPS = [group for group in groups() if group != "table"]

IMPORTABLE = (
    "dpbench.records.record.pd.read_pickle",
    "dpbench.training.checkpoints.torch.load",
    "torch.load",
    "torch.hub.load",
    "torch.optim.torch.load",
    "torch.optim.lr_scheduler.LambdaLR",
    "shutil.copyfile",
    "os.system",
    "builtins.eval",
    "dpbench.cli.main.main",
    "dpbench.records.reading.load",
    "dpbench.data.fetch.download.urlopen",
    "dpbench.methods.dpsgd.fixed_clip.__globals__",
    "hydra.utils.call",
    "",
)


class Bomb:
    """Unpickled, it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def bomb(tmp_path):
    """A pickle that nobody may open."""
    file, exploded = tmp_path / "F", tmp_path / "exploded"
    file.write_bytes(pickle.dumps(Bomb(exploded)))
    pickle.loads(file.read_bytes())
    assert exploded.exists()
    exploded.unlink()
    yield file
    assert not exploded.exists()


def call(name, file="F"):
    return f"{{_target_:{name},filepath_or_buffer:{file}}}"


PLACES = [
    "schedule=custom schedule.lr=CALL",
    "method=bam method.lambda_=CALL",
    "method.bound=CALL",
    "method.bound=[1.0,[CALL]]",
    "optimizer.lr=CALL",
    "+optimizer.betas=[CALL]",
    "dataset.test_share=CALL",
    "dataset=digits_unbalanced ++dataset.base=CALL",
    "model.widths=[CALL]",
    "privacy.delta=CALL",
    "diagnostics=bias diagnostics.quantiles=[CALL]",
    "users=iid users.spread=CALL",
    "+launcher.place=CALL",
    "tracker=csv ++tracker.csv=CALL",
    "+table=demo table.settings=[{set:{model:{widths:[CALL]}}}]",
    "+table=demo table.settings=[{set:{privacy:{_target_:NAME}}}]",
    "+table=demo table.settings=[{set:{dataset:{_target_:NAME}}}]",
]


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_called_wherever_a_configuration_names_it(place, bomb, tmp_path):
    name = "dpbench.records.record.pd.read_pickle"
    words = place.replace("CALL", call(name, bomb)).replace("NAME", name).split(" ")
    with pytest.raises(UserError, match=rf"_target_='{re.escape(name)}' is refused"):
        run_of(run_config([*words, f"results_dir={tmp_path}"]))


@pytest.mark.parametrize("name", IMPORTABLE)
@pytest.mark.parametrize("group", GROUPS)
def test_importable_names_are_not_declared(group, name):
    with pytest.raises(UserError, match="is refused: no file in conf/"):
        buildable.build(group, {"_target_": name, "_partial_": group == "optimizer"})


@pytest.mark.parametrize("target", [None, 3, ["os.system"], {"a": 1}, True])
def test_a_target_that_is_no_name_is_refused(target):
    with pytest.raises(UserError, match="is refused"):
        buildable.build("method", {"_target_": target})


@pytest.mark.slow
def test_a_forged_record_cannot_run_code(bomb, tmp_path, monkeypatch, capsys):
    attack = f"schedule.lr={call('dpbench.records.record.pd.read_pickle', bomb)}"
    for command in (["run"], ["run", "-m", "seed=0,1"], ["epsilon"], ["reproduce", "demo"]):
        words = [*command, "schedule=custom", attack, f"results_dir={tmp_path}"]
        monkeypatch.setattr("sys.argv", ["dpbench", *words])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert "is refused" in capsys.readouterr().err


def targets_in(node):
    """Every target in a plain node."""
    if isinstance(node, dict):
        yield from [node["_target_"]] if "_target_" in node else []
        node = list(node.values())
    if isinstance(node, list):
        for value in node:
            yield from targets_in(value)


@pytest.mark.parametrize("group", GROUPS)
def test_everything_that_conf_builds_is_declared_by_its_own_name(group):
    files = [path for folder in option_folders() for path in (folder / group).glob("*.yaml")]
    used = {name for f in files for name in targets_in(OmegaConf.to_object(OmegaConf.load(f)))}
    others = buildable.declared(group) - used
    assert used <= buildable.declared(group)
    parts = {*buildable.PARTS, *buildable.METHOD_PARTS}
    assert all(name in parts or name.startswith("torch.optim.") for name in others)
    for name in buildable.declared(group) - {n for n in others if n.startswith("torch.")}:
        made = buildable._resolve(name)
        if not name.startswith("torch."):
            assert public_name(f"{made.__module__}.{made.__qualname__}") == name


def test_the_optimizers_are_those_of_torch_and_nothing_else_that_it_has():
    names = {n for n in buildable.declared("optimizer") if n.startswith("torch.optim.")}
    assert {"torch.optim.SGD", "torch.optim.NAdam", "torch.optim.ASGD"} <= names
    for name in names:
        kind = getattr(torch.optim, name.removeprefix("torch.optim."))
        assert issubclass(kind, torch.optim.Optimizer)
    assert not any(n.startswith("torch.") for n in buildable.declared("schedule"))


def test_a_declared_name_that_its_module_only_imports_is_refused(monkeypatch):
    names = frozenset(["dpbench.records.record.pd.read_pickle", "dpbench.training.plan.Schedules"])
    monkeypatch.setattr(buildable, "declared", lambda group: names)
    with pytest.raises(UserError, match="cannot be imported"):
        buildable.build("schedule", {"_target_": "dpbench.records.record.pd.read_pickle"})
    with pytest.raises(UserError, match="its module does not define it"):
        buildable.build("schedule", {"_target_": "dpbench.training.plan.Schedules"})


@pytest.mark.parametrize(
    "key", ["_args_", "_recursive_", "_convert_", "_partial_", "_mode_", "__class__"]
)
def test_keys_that_tell_hydra_how_to_build_are_refused(key):
    config = compose([])
    for part in ("optimizer", "method"):
        spoiled = {**config, part: {**config[part], key: False if key == "_partial_" else []}}
        with pytest.raises(UserError, match=rf"^{part}\.{key} is "):
            build(spoiled)
    nested = {"_target_": "dpbench.mechanism.schedules.Constant", "value": 1.0, key: True}
    lr = {
        "_target_": "dpbench.mechanism.schedules.Schedules",
        "bound": 1.0,
        "lr": nested,
        "noise": 1.0,
    }
    with pytest.raises(UserError, match=rf"^schedule\.lr\.{key} is "):
        build({**config, "schedule": lr})


@pytest.mark.parametrize(
    "text",
    [
        *("${oc.decode:'3'}", "${a.${oc.env:HOME}}", "x${hydra:job.name}y", "${${a}:HOME}"),
        *("${oc.env:HOME,${oc.decode:3}}", "${ oc.env:HOME}", "${a"),
    ],
)
def test_an_interpolation_reaches_nothing_outside_the_configuration(text):
    with pytest.raises(UserError, match="is refused: an interpolation may name another setting"):
        compose([f"optimizer.lr={text}"])


def test_a_command_line_may_name_a_variable_of_the_environment(monkeypatch):
    monkeypatch.setenv("SCRATCH", "/big")
    assert compose(["results_dir=${oc.env:SCRATCH}/mine"])["results_dir"] == "/big/mine"
    monkeypatch.delenv("SCRATCH")
    with pytest.raises(UserError, match="Environment variable 'SCRATCH' not found"):
        compose(["results_dir=${oc.env:SCRATCH}/other"])


def test_an_interpolation_of_another_setting_is_read():
    assert compose(["optimizer.lr=${privacy.delta}"])["optimizer"]["lr"] == 1e-5


def test_a_part_of_another_kind_is_refused():
    config = compose(["dataset=snli"])
    for dataset in (config["dataset"]["tokens"], 3, [1], "digits"):
        with pytest.raises(UserError, match=r"dataset (must be an object of an|has no _target_)"):
            build({**config, "dataset": dataset})


@pytest.mark.parametrize("group", GROUPS)
def test_every_annotation_is_one_that_settings_can_be_held_against(group):
    for name in buildable.declared(group):
        settings = [*buildable._parameters(buildable._resolve(name)).values()]
        for parameter in settings[group == "optimizer" :]:
            for value in (None, True, 3, 0.5, "x", [1], {"a": 1}, object()):
                assert fits(value, parameter.annotation) in (True, False)


@pytest.mark.slow
def test_objects_are_built_as_by_hydra():
    from hydra.utils import instantiate

    for overrides in ([], ["dataset=snli"], ["schedule=noise_falls"], ["optimizer=nadam"]):
        config = compose(overrides)
        for group in ("dataset", "model", "privacy", "schedule"):
            ours, theirs = buildable.build(group, config.get(group)), None
            if config.get(group):
                theirs = instantiate(config[group], _convert_="all")
            assert repr(ours) == repr(theirs)
        ours, theirs = (
            buildable.build("optimizer", config["optimizer"]),
            instantiate(config["optimizer"], _convert_="all"),
        )
        parameter = torch.nn.Parameter(torch.zeros(1))
        assert repr(ours([parameter])) == repr(theirs([parameter]))


def test_a_configuration_is_as_plain_afterwards_as_before():
    config = compose(["schedule=noise_falls"])
    before = json.dumps(config)
    build(config)
    assert json.dumps(config) == before
