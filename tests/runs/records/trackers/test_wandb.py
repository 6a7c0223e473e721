"""What is in the files that `wandb sync` would send, read by the format that W&B documents."""

import json
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.omissions import extra

pytest.importorskip("wandb", reason=extra("tracking"))

from dpbench.comparison.dashboard.track import track
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.trackers.tracker import RunInfo, run_info
from dpbench.runs.records.trackers.wandb import WandbTracker
from dpbench.system.errors import UserError

ROOT = Path(__file__).parents[4]
BLOCK, HEADER = 32768, 7

DATA, BUDGET = "digits_unbalanced", "noise_multiplier=1.0"


def records(path):
    """The records of a .wandb file: LevelDB's log format after seven bytes of its own."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, parts, found = path.read_bytes(), 7, b"", []
    while place + HEADER <= len(content):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + HEADER])
        parts += content[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            found.append(Record.FromString(parts))
            parts = b""
    return found


def until_complete(path):
    """W&B writes in a process of its own, which may be a moment behind."""
    for _ in range(100):
        kept = records(path)
        if any(r.HasField("exit") for r in kept):
            return kept
        time.sleep(0.1)
    pytest.fail(f"{path} has no end: {[r.WhichOneof('record_type') for r in kept]}")


def offline(folder):
    """Run, history and summary of every offline run in a folder, the earliest first."""
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        kept = until_complete(path)
        history = [
            {".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in r.history.item}
            for r in kept
            if r.HasField("history")
        ]
        summary = {
            i.key or ".".join(i.nested_key): i.value_json
            for r in kept if r.HasField("summary") for i in r.summary.update
        }  # fmt: skip
        yield next(r.run for r in kept if r.HasField("run")), history, summary, kept


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "x/../../../../victim"}',
        '{"id": "*"}',
        '{"id": "another-00000000"}',
        '{"id": ["abc-00000000"]}',
        "[" * 100_000,
        "\0",
    ],
)
def test_an_id_that_is_not_this_run_s_deletes_nothing(text, tmp_path):
    """As in a results folder of somebody else."""
    victim, path = tmp_path / "victim", tmp_path / "theirs" / "wandb" / "abc.json"
    victim.mkdir()
    (path.parent / "offline-run-1-x").mkdir(parents=True)
    path.write_text(text)
    interrupted_start(RunInfo("abc", "a run", "g", (), {}, path.parents[1]))
    assert victim.is_dir()
    assert (path.parent / "offline-run-1-x").is_dir()


def test_an_id_in_a_pipe_is_not_waited_for(tmp_path):
    (tmp_path / "wandb").mkdir()
    os.mkfifo(tmp_path / "wandb" / "abc.json")
    interrupted_start(RunInfo("abc", "a run", "g", (), {}, tmp_path))


def interrupted_start(info):
    """A start that ends when W&B would be asked for a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WandbTracker, "_init", lambda *_, **about: started.append(about["id"]) or 1)
        started = []
        with pytest.raises(AttributeError):  # what is not a run of W&B
            WandbTracker("dpbench", "offline").start(info)
    assert re.fullmatch("abc-[0-9a-f]{8}", started[0])


@pytest.mark.slow
def test_a_run_is_kept_offline_under_its_digest(tracked, tmp_path):
    record = tracked(
        "wandb", "+table=demo", "method=dpsgd", "epochs=2", "tracker.wandb.tags=[mine]"
    )
    ((run, history, summary, _),) = offline(tmp_path / "tracking")
    assert run.project == "dpbench"
    assert run.run_group.startswith(f"demo/dpsgd/{BUDGET}/")
    assert run.display_name.startswith(f"dpsgd {DATA} {BUDGET} seed=0 batch_size=512 epochs=2")
    assert sorted(run.tags) == sorted(["demo", DATA, "logistic", "dpsgd", BUDGET, "mine"])
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (config["epochs"], config["digest"]) == (2, record.digest)
    assert config["method"] == record.config["method"]
    told = [row for row in history if "train/loss" in row]
    assert [row["train/loss"] for row in told] == record.history["train/loss"]
    assert [row["step"] for row in told] == [record.privacy["steps"] // 2, record.privacy["steps"]]
    assert told[-1]["privacy/epsilon_rdp"] == pytest.approx(record.privacy["rdp"])
    assert float(summary["test/accuracy"]) == record.metrics["test/accuracy"]
    assert json.loads(summary["ledger"]) == record.privacy["ledger"]
    assert any(key.startswith("reliability") for row in history for key in row)
    (files,) = tmp_path.glob("tracking/wandb/offline-run-*/files")
    assert {path.name for path in files.iterdir()} <= {"media", "config.yaml"}
    media = "tracking/wandb/offline-run-*/files/media"
    assert list(tmp_path.glob(f"{media}/images/reliability*"))
    (bins,) = tmp_path.glob(f"{media}/table/reliability/points*")
    assert json.loads(bins.read_text())["columns"][:4] == ["label", "seed", "low", "high"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["n" * 65, "n" * 5000, "é" * 300, "a, b", "a\tb", "日本"])
def test_a_data_set_with_any_name_is_logged(name, tmp_path):
    config = compose([])
    config["choices"]["dataset"] = f"csv:{name}"
    log = WandbTracker("dpbench", "offline").start(run_info(config, tmp_path))
    log.log(1, {"test/accuracy": 0.5})
    finished(log)
    ((run, history, _, _),) = offline(tmp_path)
    assert f"csv:{name}"[:64] in run.tags
    assert run.display_name.startswith(f"dpsgd csv:{name}"[:128])
    assert history[0]["test/accuracy"] == 0.5


@pytest.mark.parametrize("tag", ["", "t" * 65])
def test_a_tag_that_wandb_refuses_is_refused_before_the_run(tag):
    WandbTracker("dpbench", "offline", tags=["t" * 64])
    with pytest.raises(UserError, match="is not a valid tag: use 1 to 64 characters"):
        WandbTracker("dpbench", "offline", tags=[tag])


def finished(log):
    """What W&B's own process does once the run's process is gone."""
    log._run.finish()


def test_a_run_that_is_killed_and_goes_on_is_one_run_without_a_gap(interrupted, tmp_path):
    interrupted(WandbTracker("dpbench", "offline"), finished)
    ((_, history, summary, _),) = offline(tmp_path)
    assert [row["step"] for row in history] == [10, 20, 30, 0]
    assert json.loads(summary["test/accuracy"]) == 0.5
    # Nothing is remembered of a run that is over: made again, it is another one there.
    assert not list(tmp_path.glob("wandb/*.json"))


@pytest.mark.slow
def test_a_run_that_is_repeated_is_another_one(interrupted, tmp_path):
    for _ in range(2):
        interrupted(WandbTracker("dpbench", "offline"), finished)
    first, second = offline(tmp_path)
    assert first[0].run_id != second[0].run_id


@pytest.mark.slow
def test_a_run_that_wandb_has_is_not_logged_again(tracked, tmp_path):
    record = tracked("wandb", "epochs=1")
    words = ["tracker=wandb", f"results_dir={tmp_path}"]
    assert track(words) == "0 runs logged, and 1 before, which again=true repeats."
    assert len([*offline(tmp_path / "tracking")]) == 1
    assert track([*words, "tracker.wandb.project=other"]) == "1 run logged."
    (mark,) = (tmp_path / "tracking/wandb/logged/own-dpbench-offline").iterdir()
    assert mark.name == record.digest
    mark.unlink()  # an interrupted run has none
    assert track(words) == "1 run logged."


def test_the_variables_of_wandb_say_what_the_settings_leave_open(monkeypatch):
    for name, value in (("PROJECT", "theirs"), ("ENTITY", "team"), ("MODE", "online")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    open_, own = WandbTracker(), WandbTracker("mine", "offline", "me")
    assert (open_.project, open_.entity, open_.mode) == ("theirs", "team", "online")
    assert (own.project, own.entity, own.mode) == ("mine", "me", "offline")
    monkeypatch.setenv("WANDB_MODE", "dissabled")
    with pytest.raises(
        UserError, match=r"\(or WANDB_MODE\)=dissabled is unknown: did you mean dis"
    ):
        WandbTracker()


@pytest.mark.parametrize("setting", ["WANDB_MODE", "tracker.wandb.mode"])
def test_nothing_is_tracked_where_wandb_is_disabled(setting, tmp_path, monkeypatch):
    if own := setting.islower():
        monkeypatch.setenv("WANDB_MODE", "online")
    else:
        monkeypatch.setenv(setting, "disabled")
    words = ["tracker=[csv,wandb]", *[f"{setting}=disabled"] * own, f"results_dir={tmp_path}"]
    assert [*run_config(words).trackers] == ["csv"]
    with pytest.raises(UserError, match="in another mode than disabled, or another of `dpb"):
        track(["tracker=wandb", *words[1:]])


@pytest.mark.parametrize("setting", ["project", "entity"])
def test_a_name_that_wandb_refuses_is_refused_at_once(setting):
    settings = {"project": "mine", "mode": "offline"} | {setting: "a/b"}
    with pytest.raises(UserError, match=rf"tracker.wandb.{setting}='a/b' is not a valid name"):
        WandbTracker(**settings)


def test_a_table_is_an_artifact(tmp_path):
    WandbTracker("dpbench", "offline").table(
        "some", {"md": b"# Some", "csv": b"a,b\n1,x\n", "html": b"<p>Better"}, tmp_path
    )
    ((run, _, _, kept),) = offline(tmp_path)
    assert (run.job_type, run.run_group) == ("table", "some")
    artifacts = [r.request.log_artifact.artifact for r in kept if r.HasField("request")
                 and r.request.HasField("log_artifact")] or [
                r.artifact for r in kept if r.HasField("artifact")]  # fmt: skip
    (artifact,) = [artifact for artifact in artifacts if artifact.type == "table"]
    assert artifact.name == "some"
    (rows,) = tmp_path.glob("wandb/offline-run-*/files/media/table/some*.json")
    table = json.loads(rows.read_text())
    assert (table["columns"], table["data"]) == (["a", "b"], [[1, "x"]])
    (page,) = tmp_path.glob("wandb/offline-run-*/files/media/html/some/page*.html")
    assert page.read_text() == "<p>Better"
    names = sorted(entry.path for entry in artifact.manifest.contents)
    assert names == ["some.csv", "some.html", "some.md"]


@pytest.mark.long
def test_an_agent_of_a_sweep_finds_its_run_and_its_metric(tmp_path):
    """The guide's sweep, by W&B's own function from parameters to the command of an agent."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    guide = (ROOT / "docs/clusters.md").read_text()
    sweep = yaml.safe_load(re.search(r"```yaml\n(method: random.*?)```", guide, re.DOTALL)[1])
    chosen = {"method": "dpsgd_global", "optimizer.lr": 0.7, "seed": 2}
    assert chosen.keys() == sweep["parameters"].keys()
    given = create_sweep_command_args({"args": {k: {"value": v} for k, v in chosen.items()}})
    words = create_sweep_command(sweep["command"])
    place = words.index("${args_no_hyphens}")
    words[place : place + 1] = given["args_no_hyphens"]
    assert words[0] == "dpbench"
    agent = {"WANDB_SWEEP_ID": "s1", "WANDB_RUN_ID": "r7", "WANDB_MODE": "offline"}
    small = ["model=logistic", f"results_dir={tmp_path}"]
    command = [sys.executable, "-m", "dpbench", *words[1:], *small]
    subprocess.run(command, env=os.environ | agent, check=True, capture_output=True)
    ((run, _, summary, _),) = offline(tmp_path / "tracking")
    assert (run.run_id, run.sweep_id) == ("r7", "s1")
    assert sweep["metric"]["name"] in summary
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (config["seed"], config["optimizer"]["lr"]) == (2, 0.7)
