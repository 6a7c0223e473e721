"""Models of runs as files: those that were measured, written when asked for, and read safely."""

import errno
import io
import os
import re
import sys

import pytest
import torch
from torch import nn

from dpbench import load_model
from dpbench.cli import commands
from dpbench.learning.data.digits import Digits
from dpbench.learning.models.logistic import Logistic
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.runs.records.trained_model import model_path, serialised
from dpbench.runs.training import trainer
from dpbench.system import files
from dpbench.system.errors import UserError
from dpbench.system.files import replace_file

SMALL = ["epochs=2", "model.widths=[8]", "batch_size=512", "method=dpsgd"]


@pytest.fixture
def made(tmp_path):
    """made(*overrides): the record of a small run, and the path of its model."""

    def make(*overrides):
        path = load_or_run(run_config([*SMALL, *overrides, f"results_dir={tmp_path}"]), quiet=True)
        record = load(path)
        return record, model_path(tmp_path, path.stem, record.config["noise"])

    return make


@pytest.mark.parametrize("average", ["null", "0.5"])
def test_the_file_has_the_model_that_was_measured(made, average):
    record, path = made("save_model=true", f"ema_decay={average}")
    test = Digits(0.2).load(path, 0).test
    model = load_model(path)
    assert not model.training
    with torch.no_grad():
        right = model(test.inputs).argmax(1) == test.targets
    assert float(right.float().mean()) == pytest.approx(record.metrics["test/accuracy"])


def test_the_name_of_a_model_to_be_released_says_nothing_of_the_data(made, tmp_path):
    record, path = made("save_model=true", "noise=secure")
    assert path.exists()
    assert record.digest not in path.name
    assert model_path(tmp_path / "elsewhere", record.digest, "secure").name != path.name
    assert (path.parent / ".salt").stat().st_mode & 0o077 == 0


def test_the_file_says_what_its_epsilon_is_the_epsilon_of_and_all_notes(made):
    record, path = made("save_model=true")
    privacy = torch.load(path)["privacy"]
    assert re.fullmatch(r"epsilon [\d.]+ \(PLD, delta 1e-05.*, Poisson batches, proven.*", privacy)
    assert all(note in privacy for note in record.privacy["notes"])
    assert "of the record" not in privacy


@pytest.mark.slow
def test_a_model_of_an_older_version_has_no_terms_and_is_read(made):
    _, path = made("save_model=true")
    saved = torch.load(path)
    del saved["privacy"]
    torch.save(saved, path)
    load_model(path)


def test_a_finished_run_is_trained_again_for_its_model_and_measures_the_same(made):
    first, path = made()
    assert not path.exists()
    again, _ = made("save_model=true")
    written = path.stat().st_mtime_ns
    assert again.metrics == first.metrics
    made("save_model=true")
    assert path.stat().st_mtime_ns == written, "it was there"


def test_a_second_model_by_secret_noise_is_not_taken_for_the_first(made):
    record, path = made("noise=secure")
    with pytest.raises(UserError, match=r"its model was not saved, .* at an epsilon of its own"):
        made("noise=secure", "save_model=true")
    other, _ = made("noise=secure", "save_model=true", "again=true")
    assert path.exists()
    assert other.metrics != record.metrics


def test_a_training_that_keeps_no_model_leaves_none_of_an_earlier_one(made):
    """Its numbers and its epsilon would be taken for those of the new record."""
    _, path = made("noise=secure", "save_model=true")
    made("noise=secure", "again=true")
    assert not path.exists()


def full(suffix):
    """A disk without room for the files of that suffix."""

    def write(path, *contents, **named):
        if path.suffix == suffix:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace_file(path, *contents, **named)

    patch = pytest.MonkeyPatch()
    patch.setattr(files, "replace_file", write)
    return patch


@pytest.mark.parametrize("suffix", [".pt", ".json"])
def test_a_full_disk_does_not_cost_the_model_whose_epsilon_is_spent(suffix, made, tmp_path):
    asked = ("noise=secure", "save_model=true")
    patch = full(suffix)
    with pytest.raises(UserError, match=rf"\{suffix} cannot be written \(No space left on device"):
        made(*asked)
    patch.undo()
    assert not [*tmp_path.glob("runs/*")], "the run is not finished before its model is there"
    (checkpoint,) = tmp_path.glob("checkpoints/*/*.ckpt")
    saved = torch.load(io.BytesIO(checkpoint.read_bytes().partition(b"\n")[2]))
    trained = saved["parts"]["step"]["model"]
    record, path = made(*asked)
    assert record.provenance["resumed"] == 1
    kept = load_model(path).state_dict()
    assert all(torch.equal(kept[name], value) for name, value in trained.items())
    assert not [*tmp_path.glob("checkpoints/*")]


def test_a_training_that_fails_leaves_the_model_of_the_record_that_is_there(made, monkeypatch):
    record, path = made("noise=secure", "save_model=true")
    before = path.read_bytes()
    monkeypatch.setattr(trainer.evaluation, "evaluate", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made("noise=secure", "again=true")
    assert path.read_bytes() == before
    assert load(path.parents[1] / "runs" / f"{record.digest}.json") == record


@pytest.mark.parametrize("group", ["temperature", "conformal", "normalization"])
def test_a_model_is_not_kept_without_what_it_is_measured_with(made, group):
    with pytest.raises(UserError, match=f"a model is saved without its {group}, which is measured"):
        made("save_model=true", f"{group}=private")


def test_a_model_with_seeded_noise_is_not_for_others(tmp_path, capsys):
    for noise, said in (("seeded", True), ("secure", False)):
        commands.run([*SMALL, "save_model=true", f"noise={noise}", f"results_dir={tmp_path}"])
        err = capsys.readouterr().err
        assert f"dpbench: its trained model is {tmp_path}/models/" in err
        assert ("keep it to yourself" in err) == said


def test_a_folder_that_cannot_be_written_is_found_before_the_training(made, tmp_path, monkeypatch):
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    (tmp_path / "models").touch()
    with pytest.raises(UserError, match="models cannot be written"):
        made("save_model=true")


def test_a_folder_in_the_model_s_place_is_found_before_the_training(made, monkeypatch):
    _, path = made()
    path.mkdir(parents=True)
    monkeypatch.setattr("dpbench.execution.load_or_run.fit", lambda *_: pytest.fail("trained"))
    with pytest.raises(UserError, match=r"\.pt is a folder in the place"):
        made("again=true")


LOGISTIC = {"_target_": "dpbench.models.logistic.Logistic", "squashed": False}


def content(**changes):
    """A file with another content than runs write."""
    saved = torch.load(
        io.BytesIO(serialised(Logistic(False).build((2,), 3), LOGISTIC, INPUTS, 3, ""))
    )
    buffer = io.BytesIO()
    torch.save(saved | changes, buffer)
    return buffer.getvalue()


INPUTS = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"settings": {"_target_": "torch.nn.Linear"}}, r"_target_='torch.nn.Linear' is refused"),
        ({"settings": {"_target_": LOGISTIC["_target_"]}}, "squashed is missing"),
        ({"shape": [64]}, "does not fit the model that its settings build"),
        ({"shape": 3}, "does not fit the model that its settings build"),
        ({"classes": "x"}, "does not fit the model that its settings build"),
        ({"state": None}, "does not fit the model that its settings build"),
        ({"state": {}}, "does not fit the model that its settings build: Error"),
        ({"outputs": torch.ones(2, 3)}, "its outputs are not those that it was saved with"),
        ({"more": 1}, "is not the model of a run with save_model=true"),
    ],
)
def test_only_models_of_runs_are_read(changes, sentence, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content())
    assert load_model(path)(INPUTS).shape == (2, 3)
    path.write_bytes(content(**changes))
    with pytest.raises(UserError, match=sentence):
        load_model(path)
    path.write_bytes(content()[:-100])
    with pytest.raises(UserError, match="is not the model of a run"):
        load_model(path)
    path.unlink()
    with pytest.raises(UserError, match=r"model.pt does not exist: models are written by runs"):
        load_model(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": torch.ones(1, 1).expand(10**9, 2)},
        {"state": {"1.weight": torch.ones(1).expand(9)}},
    ],
    ids=["inputs", "state"],
)
def test_a_small_file_does_not_stand_for_much_memory(changes, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content(**changes))
    with pytest.raises(UserError, match="a tensor that is not stored whole"):
        load_model(path)


def test_a_model_larger_than_its_file_is_not_made(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content(shape=[10**13]))
    with pytest.raises(UserError, match=r"does not fit .* size mismatch|does not fit .*Error"):
        load_model(path)


@pytest.mark.slow
def test_nothing_that_a_file_names_is_read(tmp_path, opened):
    """The settings of a model of somebody else, with weights of this machine or of the hub."""
    weights = tmp_path / "weights"
    weights.write_text("mine")
    opened.clear()
    settings = compose(["model=vit_tiny", "dataset=cifar10"])["model"]
    for named in ({"weights": str(weights)}, {"weights": None}):
        saved = content(settings={**settings, "pretrained": True, **named}, shape=[3, 32, 32])
        (tmp_path / "model.pt").write_bytes(saved)
        with pytest.raises(UserError, match="does not fit the model that its settings build"):
            load_model(tmp_path / "model.pt")
    assert str(weights) not in opened


@pytest.fixture
def opened(monkeypatch):
    """The paths that Python has opened; a connection to anywhere is refused."""
    paths, watching = [], [True]
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected"))
    sys.addaudithook(lambda event, a: event == "open" and watching and paths.append(a[0]))
    yield paths
    watching.clear()  # a hook stays


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_only_regular_files_are_opened(kind, tmp_path):
    path = tmp_path / "model.pt"
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "device": lambda p: p.symlink_to("/dev/zero")}
    make[kind](path)
    with pytest.raises(UserError, match=r"model\.pt is not a file"):
        load_model(path)


def test_the_model_of_a_diverged_run_is_read_too(tmp_path):
    model, path = Logistic(False).build((2,), 3), tmp_path / "model.pt"
    nn.init.constant_(next(model.parameters()), torch.nan)
    path.write_bytes(serialised(model, LOGISTIC, INPUTS, 3, ""))
    assert load_model(path)(INPUTS).isnan().all()


class Fixed(nn.Module):
    """A random direction that is no parameter, kept or not in the state of the model."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.register_buffer("direction", torch.randn(3), persistent=False)

    def forward(self, x):
        return self.linear(x) + self.direction


def test_buffers_that_are_in_no_state_are_kept_and_no_generator_is_moved(tmp_path, monkeypatch):
    monkeypatch.setattr(Logistic, "build", lambda *_: Fixed())
    model, path = Fixed(), tmp_path / "model.pt"
    path.write_bytes(serialised(model, LOGISTIC, INPUTS, 3, ""))
    before = torch.get_rng_state()
    assert torch.equal(load_model(path)(INPUTS), model(INPUTS))
    assert torch.equal(torch.get_rng_state(), before)
