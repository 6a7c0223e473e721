"""Models of runs as files: those that were measured, written when asked for, and read safely."""

import pytest
import torch

from dpbench import load_model
from dpbench.data.digits import Digits
from dpbench.errors import UserError
from dpbench.execution.run import load_or_run
from dpbench.records.reading import load
from dpbench.records.trained_model import model_path, save_model

SMALL = ["epochs=2", "model.widths=[8]", "batch_size=512", "method=dpsgd"]


@pytest.fixture
def made(tmp_path):
    """made(*overrides): the record of a small run, and the path of its model."""

    def make(*overrides):
        path = load_or_run([*SMALL, *overrides, f"results_dir={tmp_path}"], quiet=True)
        return load(path), model_path(tmp_path, path.stem)

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


def test_only_models_of_runs_are_read(made, tmp_path):
    with pytest.raises(UserError, match=r"none.pt does not exist: models are written by runs with"):
        load_model(tmp_path / "none.pt")
    _, path = made("save_model=true")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="is not the model of a run"):
        load_model(path)
    torch.save({"parameters": {}}, path)
    with pytest.raises(UserError, match="is not the model of a run with save_model=true"):
        load_model(path)
    linear = torch.nn.Linear(2, 2)
    save_model(path, linear, {"_target_": "torch.nn.Linear"}, (2,), 2)
    with pytest.raises(UserError, match=r"model\._target_='torch.nn.Linear' is refused"):
        load_model(path)
    save_model(path, linear, {"_target_": "dpbench.models.logistic.Logistic"}, (64,), 10)
    with pytest.raises(UserError, match="squashed is missing"):
        load_model(path)
    settings = {"_target_": "dpbench.models.logistic.Logistic", "squashed": False}
    save_model(path, linear, settings, (64,), 10)
    with pytest.raises(UserError, match="the parameters of another model than its settings build"):
        load_model(path)
