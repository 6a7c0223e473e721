"""From overrides to a record, through whatever comes between."""

import errno
import io
import json
import os
import warnings
from pathlib import Path

import pytest
import torch

from dpbench.runs.execution import load_or_run as runs
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.code import CHECKSUM_KEY
from dpbench.runs.training import evaluation, provenance, trainer
from dpbench.runs.training.checkpoints import serialise
from dpbench.runs.training.loop import Training
from dpbench.runs.training.tracking import Tracking
from dpbench.system.errors import UserError

USUAL = ["batch_size=360", "epochs=2", "model.widths=[8]"]  # 8 steps on digits


class Interrupted(Exception):
    """Stands in for whatever ends a process."""


pytestmark = pytest.mark.usefixtures("no_statement")


@pytest.fixture
def steps(monkeypatch):
    """The numbers of all steps that were made; `steps.until` is the one before which a run ends."""

    class Steps(list):
        until: int | None = None

    made, make = Steps(), Training._do_step

    def counted(training, batch):
        if training.steps_done == made.until:
            raise Interrupted
        made.append(training.steps_done)
        make(training, batch)

    monkeypatch.setattr(Training, "_do_step", counted)
    return made


@pytest.fixture
def asked(tmp_path):
    """Overrides of a run that is put away after each step."""
    return [*USUAL, f"results_dir={tmp_path}", "checkpoint_minutes=1e-9"]


def interrupted(asked, steps, before):
    steps.until = before
    with pytest.raises(Interrupted):
        load_or_run(run_config(asked), quiet=True)
    steps.until = None


def measured(path: Path) -> dict:
    said = json.loads(path.read_text())
    return {name: said[name] for name in ("metrics", "history", "privacy", "status", "config")}


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.slow
def test_the_same_command_goes_on_where_the_last_one_ended(asked, steps, tmp_path):
    interrupted(asked, steps, before=3)
    interrupted(asked, steps, before=6)
    path = load_or_run(run_config(asked), quiet=True)
    assert steps == list(range(8))
    assert json.loads(path.read_text())["provenance"]["resumed"] == 2
    assert files(tmp_path) == [f"runs/{path.name}"]
    whole = load_or_run(run_config([*USUAL, f"results_dir={tmp_path / 'whole'}"]), quiet=True)
    assert measured(path) == measured(whole)
    assert json.loads(whole.read_text())["provenance"]["resumed"] == 0


@pytest.mark.slow
def test_a_resumed_run_is_reported(asked, steps, capsys):
    interrupted(asked, steps, before=3)
    load_or_run(run_config(asked))
    assert "dpbench: resumed after step 3 of 8.\n" in capsys.readouterr().err
    load_or_run(run_config([*asked, "again=true"]))
    assert "resumed" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_ended_after_its_last_step_only_has_to_be_tested(asked, steps, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "predict", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            load_or_run(run_config(asked), quiet=True)
    load_or_run(run_config(asked), quiet=True)
    assert steps == list(range(8))


@pytest.mark.slow
def test_again_is_from_the_start(asked, steps, tmp_path):
    interrupted(asked, steps, before=3)
    load_or_run(run_config([*asked, "again=true"]), quiet=True)
    assert steps == [*range(3), *range(8)]
    assert len(files(tmp_path)) == 1


@pytest.mark.slow
def test_null_writes_none_and_yet_goes_on_from_what_there_is(asked, steps, tmp_path):
    never = [*asked, "checkpoint_minutes=null"]
    interrupted(never, steps, before=3)
    assert files(tmp_path) == []
    interrupted(asked, steps, before=2)
    load_or_run(run_config(never), quiet=True)
    assert steps == [*range(3), *range(8)]


def test_a_finished_run_is_looked_up_before_any_accountant_is_asked(asked, monkeypatch):
    path = load_or_run(run_config(asked), quiet=True)
    monkeypatch.setattr(runs, "plan", lambda run: pytest.fail("it was planned"))
    assert load_or_run(run_config(asked), quiet=True) == path
    with pytest.raises(pytest.fail.Exception, match="it was planned"):
        load_or_run(run_config([*asked, "seed=1"]), quiet=True)


def test_short_runs_write_none(asked, steps, monkeypatch):
    monkeypatch.setattr(runs.Checkpoints, "save", lambda *_: pytest.fail("it was put away"))
    load_or_run(run_config([*asked, "checkpoint_minutes=10"]), quiet=True)
    assert len(steps) == 8


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("physical_batch_size=100", "physical_batch_size=None instead of physical_batch_size=100"),
        ("engine=loop", "engine=ghost instead of engine=loop"),
    ],
)
def test_one_carried_out_otherwise_is_not_mixed_with_it(asked, steps, tmp_path, other, why):
    interrupted(asked, steps, before=3)
    with pytest.warns(UserWarning, match=why):
        path = load_or_run(run_config([*asked, other]), quiet=True)
    assert steps == [*range(3), *range(8)]
    same = load_or_run(run_config([*USUAL, other, f"results_dir={tmp_path / 'whole'}"]), quiet=True)
    assert measured(path) == measured(same)


@pytest.mark.slow
def test_other_code_starts_anew(asked, steps, monkeypatch):
    interrupted(asked, steps, before=3)
    monkeypatch.setattr(trainer, "imported_code_of", lambda *_: "other")
    with pytest.warns(UserWarning, match=f"instead of {CHECKSUM_KEY}=other"):
        load_or_run(run_config(asked), quiet=True)
    assert steps == [*range(3), *range(8)]


@pytest.mark.slow
def test_a_change_of_code_that_the_run_does_not_reach_costs_no_work(asked, steps, monkeypatch):
    interrupted(asked, steps, before=3)
    monkeypatch.setattr(provenance, "code", lambda: "other")
    load_or_run(run_config(asked), quiet=True)
    assert steps == [*range(8)]


def forge(folder, change):
    """Change the state in the last checkpoint, with a checksum as if the run had written it."""
    last = max(folder.glob("checkpoints/*/*.ckpt"))
    first_line, content = last.read_bytes().split(b"\n", 1)
    state = torch.load(io.BytesIO(content), weights_only=True)
    change(state)
    last.write_bytes(b"".join(serialise(state, json.loads(first_line)["conditions"])))


FORGERIES = {
    "more steps than there are": lambda s: s["parts"]["step"].update(made=10**9),
    "fewer steps": lambda s: s["parts"]["step"].update(made=1),
    "an epoch that never ends": lambda s: s["parts"]["batches"].update(drawn=10**12),
    "another place in the epoch": lambda s: s["parts"]["batches"].update(drawn=0),
    "a ledger of more noise": lambda s: s["noise_runs"].__setitem__(0, [100.0, 3]),
    "a ledger of fewer steps": lambda s: s["noise_runs"].__setitem__(0, [1.0, 1]),
    "epochs that never were": lambda s: s["history"]["train/loss"].append(0.0),
    "no parts": lambda s: s.pop("parts"),
    "no noise": lambda s: s["parts"]["step"].pop("noise"),
    "another model": lambda s: s["parts"]["step"].update(model={"0.weight": torch.zeros(3)}),
    "another bound": lambda s: s["parts"]["step"]["clip"].update(bound=torch.tensor(9.0)),
    "a query that never was": lambda s: s["parts"]["step"]["clip"].update(query={}),
    "a gradient of another model": lambda s: s["parts"]["step"].update(gradient=torch.zeros(3)),
    "moments of another model": lambda s: s["parts"]["step"]["optimizer"]["state"].update(
        {0: {"momentum_buffer": torch.zeros(3)}}
    ),
    "a list": lambda s: s.update(parts=[]),
    "seconds that are none": lambda s: s["parts"]["usage"].update(seconds="many"),
}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_checkpoint_is_passed_over(asked, steps, tmp_path, name):
    whole = load_or_run(run_config([*USUAL, f"results_dir={tmp_path / 'whole'}"]), quiet=True)
    steps.clear()
    interrupted(asked, steps, before=3)
    forge(tmp_path, FORGERIES[name])
    with pytest.warns(
        UserWarning, match="000003.ckpt does not belong to this run .*: it is ignored"
    ):
        path = load_or_run(run_config(asked), quiet=True)
    assert steps == [*range(3), *range(2, 8)]
    assert measured(path) == measured(whole)


@pytest.mark.slow
def test_another_seed_is_another_run(asked, steps):
    interrupted(asked, steps, before=3)
    load_or_run(run_config([*asked, "seed=1"]), quiet=True)
    load_or_run(run_config(asked), quiet=True)
    assert steps == [*range(3), *range(8), *range(3, 8)]


def test_a_record_that_another_process_made_is_not_made_again(asked, steps, monkeypatch, tmp_path):
    """The other one comes between this one's look at the records and its claim to the run."""
    claimed = runs.locked_checkpoints

    def late(*arguments):
        monkeypatch.setattr(runs, "locked_checkpoints", claimed)
        load_or_run(run_config(asked), quiet=True)
        return claimed(*arguments)

    monkeypatch.setattr(runs, "locked_checkpoints", late)
    load_or_run(run_config(asked), quiet=True)
    assert steps == list(range(8))
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("minutes", ["0", "-1", "often", "true", "nan"])
def test_minutes_that_are_none_are_refused(tmp_path, minutes):
    with pytest.raises(UserError, match="checkpoint_minutes must be a positive number"):
        load_or_run(
            run_config([*USUAL, f"checkpoint_minutes={minutes}", f"results_dir={tmp_path}"])
        )
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_checkpoints_is_refused_before_any_work(asked, steps, tmp_path):
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(UserError, match=r"checkpoints.* cannot be written"):
        load_or_run(run_config(asked), quiet=True)
    assert steps == []


def test_parts_left_beside_a_record_are_removed(asked, steps, tmp_path):
    """It was killed after it had saved the record."""
    path = load_or_run(run_config(asked), quiet=True)
    left = tmp_path / "checkpoints" / path.stem
    left.mkdir(parents=True)
    (left / "lock").write_text("process 1 on nowhere")
    (left / "000001.ckpt").write_bytes(b"")
    assert load_or_run(run_config(asked), quiet=True) == path
    assert steps == list(range(8))
    assert files(tmp_path) == [f"runs/{path.name}"]


def test_trackers_that_were_interrupted_after_the_record_are_completed(asked, steps, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    tracked = [*asked, "tracker=csv", "tracker_curves=false"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tracking, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            load_or_run(run_config(tracked), quiet=True)
    (log,) = tmp_path.glob("tracking/csv/*.csv")
    assert "test/accuracy" not in log.read_text()
    assert run_config(tracked).is_unfinished()
    load_or_run(run_config(tracked), quiet=True)
    assert "test/accuracy" in log.read_text()
    assert steps == list(range(8))
    assert not run_config(tracked).is_unfinished()


def test_a_checkpoint_that_cannot_be_removed_is_a_warning(asked, steps, monkeypatch, tmp_path):
    interrupted(asked, steps, before=3)
    unlink = os.unlink

    def refused(path, *rest, **named):
        if str(path).endswith(".ckpt"):
            raise OSError(errno.ENOSPC, "No space left on device")
        unlink(path, *rest, **named)

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.warns(UserWarning, match=r"cannot be removed \(No space left on device\)"):
        path = load_or_run(run_config([*asked, "checkpoint_minutes=null"]), quiet=True)
    assert path.exists()


def test_a_full_disk_ends_no_run(asked, steps, monkeypatch, tmp_path):
    """Records are small, and so are these checkpoints: only these are refused here."""

    def refused(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dpbench.training.checkpoints.replace_file", refused)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        path = load_or_run(run_config(asked), quiet=True)
    assert ["No space left on device" in str(one.message) for one in said] == [True]
    assert steps == list(range(8))
    assert files(tmp_path) == [f"runs/{path.name}"]
