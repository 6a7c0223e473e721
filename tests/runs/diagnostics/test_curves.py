import math

import pytest
import torch
from torch import nn

from dpbench.learning.data.examples import Split
from dpbench.learning.metrics.evaluation import evaluate
from dpbench.learning.models.architecture import squared_error
from dpbench.runs.config.buildable import check_settings
from dpbench.runs.diagnostics.curves import CurveDiagnostics
from dpbench.step.gradients import make_engine
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.system.errors import UserError


def split_of(batch_of, n, seed):
    batch = batch_of(n, seed=seed)
    return Split(batch.inputs, batch.targets, batch.groups)


@pytest.fixture
def parts(step_of, batch_of):
    """A private step, its training split and the split that is tested."""
    step = step_of(dpsgd(1.0, "corrected"))
    return step, split_of(batch_of, 40, 1), split_of(batch_of, 30, 2)


def watched(settings, parts, batch_of, steps=7, every=3):
    """Series of so many steps, an epoch being `every` of them, and theta before each of them."""
    step, train, test = parts
    observer, thetas = settings.observer(step, train, test), []
    for made in range(steps):
        batch = batch_of(8, seed=made)
        observer.before(batch)
        thetas.append(step.engine.parameters.theta.detach().clone())
        step(batch)
        if (made + 1) % every == 0:
            observer.end_of_epoch()
    thetas.append(step.engine.parameters.theta.detach().clone())
    return observer.series(), thetas


def directly(step, theta, split):
    """All metrics at some parameters, by the model itself."""
    with torch.no_grad():
        step.engine.parameters.theta.copy_(theta)
        outputs = step.engine.model(split.inputs)
        losses = nn.functional.cross_entropy(outputs, split.targets, reduction="none")
    return evaluate("classification", outputs, losses, split.targets, split.groups, ("a", "b", "c"))


def test_every_point_is_a_direct_evaluation(parts, batch_of):
    series, thetas = watched(CurveDiagnostics(steps=2, epochs=None, train=True), parts, batch_of)
    step, train, test = parts
    assert series["step"] == [0, 2, 4, 6, 7]
    for at, made in enumerate(series["step"]):
        wanted = directly(step, thetas[made], test)
        for name in ("loss", "accuracy", "ece", "mce"):
            assert series[f"tested/{name}"][at] == pytest.approx(wanted[name], rel=1e-6), name
        assert series["trained/loss"][at] == pytest.approx(
            directly(step, thetas[made], train)["loss"], rel=1e-6
        )
    assert len(set(series["tested/loss"])) == 5, "nothing moved"


@pytest.mark.parametrize(
    ("epochs", "count", "steps", "ended"),
    [(1, 7, [0, 3, 6, 7], [0, 1, 2, 2]), (2, 6, [0, 6], [0, 2])],
)
def test_once_an_epoch_and_the_first_and_the_last(parts, batch_of, epochs, count, steps, ended):
    settings = CurveDiagnostics(steps=None, epochs=epochs, train=False)
    series, _ = watched(settings, parts, batch_of, count)
    assert (series["step"], series["epoch"]) == (steps, ended)
    assert "trained/loss" not in series


def test_watching_changes_no_step(step_of, batch_of):
    after = []
    for watching in (False, True):
        torch.manual_seed(3)
        step = step_of(dpsgd(1.0, "corrected"))
        step.engine.model.train()
        train, test = split_of(batch_of, 40, 1), split_of(batch_of, 30, 2)
        observer = CurveDiagnostics(steps=1, epochs=None, train=True).observer(step, train, test)
        for made in range(3):
            if watching:
                observer.before(batch_of(8, seed=made))
            step(batch_of(8, seed=made))
        assert step.engine.model.training
        after.append((step.engine.parameters.theta.detach().clone(), torch.rand(1)))
    assert torch.equal(after[0][0], after[1][0])
    assert after[0][1] == after[1][1]


def test_a_regression_has_losses_only(step_of, batch_of):
    torch.manual_seed(0)
    model = nn.Linear(5, 1, dtype=torch.float64)
    step = step_of(dpsgd(1.0, "corrected"))
    batch = batch_of(20)
    split = Split(batch.inputs, batch.targets.double(), batch.groups)
    step.engine = make_engine("loop", model, squared_error, split.at(torch.arange(2)))
    observer = CurveDiagnostics(steps=1, epochs=None, train=False).observer(step, split, split)
    series = observer.series()
    wanted = nn.functional.mse_loss(model(split.inputs).squeeze(1), split.targets).item()
    assert series["tested/loss"] == [pytest.approx(wanted)]
    assert set(series) == {"step", "epoch", "tested/loss"}


def test_a_diverged_model_measures_nan(parts, batch_of):
    step, train, test = parts
    with torch.no_grad():
        step.engine.parameters.theta.fill_(math.nan)
    settings = CurveDiagnostics(steps=1, epochs=None, train=False)
    series = settings.observer(step, train, test).series()
    assert all(math.isnan(series[f"tested/{name}"][0]) for name in ("loss", "ece", "mce"))


@pytest.mark.parametrize("values", [(None, None), (1, 1)])
def test_one_interval_is_asked_for(values):
    with pytest.raises(UserError, match="diagnostics"):
        CurveDiagnostics(*values, train=False)


@pytest.mark.parametrize("values", [(0, None), (None, 0), (1.5, None)])
def test_an_interval_is_a_whole_number_of_at_least_1(values):
    settings = {"steps": values[0], "epochs": values[1], "train": False}
    with pytest.raises(UserError, match=r"diagnostics\.(steps|epochs) must be .*whole number"):
        check_settings(CurveDiagnostics, settings, "diagnostics.")
