"""The evaluation of a trained run: its metrics, its noisy accuracy, an attack's target losses."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dpbench.learning.data.dataset import calibration_size_of
from dpbench.learning.data.examples import Data, Split, Targets
from dpbench.learning.metrics.calibration import scores_of_truth, set_metrics
from dpbench.learning.metrics.evaluation import evaluate as metrics_of_split
from dpbench.learning.metrics.registry import NOISY_ACCURACY
from dpbench.learning.models.predict import predict
from dpbench.runs.diagnostics.batch import isolated_evaluation
from dpbench.runs.training.loop import Training
from dpbench.runs.training.run import Run
from dpbench.runs.training.score import noisy_accuracy
from dpbench.runs.training.temperature import UNSCALED
from dpbench.step.gradients import Engine
from dpbench.system.errors import warn


def warn_of_empty_groups(data: Data, names: Sequence[str]) -> None:
    """Warn of groups that no held-out example belongs to."""
    sizes = torch.bincount(data.test.groups.cpu(), minlength=len(names)).tolist()
    if empty := [name for name, size in zip(names, sizes, strict=True) if not size]:
        warn(
            f"no {data.tested_on} example is in group {' or '.join(empty)}: its accuracy and all "
            "gaps between groups are NaN."
        )


def evaluate(run: Run, engine: Engine, data: Data) -> tuple[Tensor, dict[str, float]]:
    """Outputs [n, K] for the test set, and the metrics of both sets; of the scaled model if a
    temperature is fitted, and of its prediction sets if these are calibrated."""
    model: nn.Module = engine.model
    outputs, tested = _on_split(run, model, engine, data, data.test)
    if data.calibration is not None:
        held_out = _with_logits(engine, data.calibration)
        if run.temperature:
            size, device = calibration_size_of(run.dataset), engine.parameters.theta.device
            scaling = run.temperature.fitted(held_out, size, run.stream).to(device)
            unscaled, model = tested, nn.Sequential(model, scaling)
            outputs, tested = _on_split(run, model, engine, data, data.test)
            tested |= {f"{name}_unscaled": unscaled[name] for name in UNSCALED} | scaling.metrics
        if run.conformal:
            scores = scores_of_truth(held_out.inputs, held_out.targets)
            threshold = run.conformal.threshold(scores, run.stream("conformal"))
            about = data.test.targets, data.test.groups, run.dataset.groups, threshold
            tested |= set_metrics(outputs, *about) | {"conformal_threshold": threshold}
    _, fitted = _on_split(run, model, engine, data, data.train, held_out=False)
    on_test = {f"{data.tested_on}/{name}": value for name, value in tested.items()}
    return outputs, on_test | {f"train_set/{name}": value for name, value in fitted.items()}


def tested(run: Run, training: Training, data: Data) -> dict[str, float]:
    """The metrics of the test set while a run goes on, without any change to it; a temperature is
    fitted at its end only."""
    engine = training.step.engine
    with training.evaluated(), isolated_evaluation(engine.model):
        _, metrics = _on_split(run, engine.model, engine, data, data.test)
    unscaled = UNSCALED if run.temperature else ()
    names = {name: f"{name}_unscaled" if name in unscaled else name for name in metrics}
    return {f"{data.tested_on}/{names[name]}": value for name, value in metrics.items()}


def _on_split(
    run: Run, model: nn.Module, engine: Engine, data: Data, split: Split, held_out: bool = True
) -> tuple[Tensor, dict[str, float]]:
    """The outputs for a split of the data, and their metrics in the unit of the targets."""
    outputs, losses = predict(model, engine.loss, split, by_row=engine.by_row)
    predicted, targets = outputs, split.targets
    if (unit := data.target_unit) != 1:
        predicted, targets = unit * outputs.double(), unit * targets.double()
    columns = (predicted, losses, targets, split.groups)
    return outputs, metrics_of_split(run.dataset.task, *columns, run.dataset.groups, held_out)


def _with_logits(engine: Engine, split: Split) -> Split:
    """A split on the CPU with the logits of its examples as inputs."""
    on_device = split.to(engine.parameters.theta.device)
    logits, _ = predict(engine.model, engine.loss, on_device, by_row=engine.by_row)
    return Split(logits, split.targets, split.groups).to(torch.device("cpu"))


def noisy_score(run: Run, outputs: Tensor, test: Split) -> dict[str, float]:
    """The noisy accuracy if configured, by its name; of a diverged run too, since that its metrics
    are not finite is not released."""
    if run.score_noise_multiplier is None:
        return {}
    score = noisy_accuracy(outputs, test.targets, run.score_noise_multiplier, run.stream("score"))
    return {NOISY_ACCURACY: score}


def target_losses(training: Training, targets: Targets | None) -> dict[str, list[float]]:
    """The losses of an attack's targets at the parameters that the run is evaluated at, their
    groups, and 1 for those that were trained on; no columns without targets."""
    if targets is None:
        return {}
    engine = training.step.engine
    with training.evaluated():
        examples = targets.examples.to(engine.parameters.theta.device)
        _, losses = predict(engine.model, engine.loss, examples, by_row=engine.by_row)
    columns = {"loss": losses, "group": examples.groups, "included": targets.included.long()}
    return {f"target/{name}": column.tolist() for name, column in columns.items()}
