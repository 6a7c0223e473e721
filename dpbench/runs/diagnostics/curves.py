"""Learning curves: metrics on the evaluated split during a run.

Figures 4, 6, 8 and 10 of Bu et al. 2023 (calibration). None is for early stopping.
"""

from dataclasses import dataclass

from dpbench.learning.data.examples import Batch, Split
from dpbench.learning.metrics import calibration, classification
from dpbench.learning.models.predict import predict
from dpbench.runs.diagnostics.batch import isolated_evaluation
from dpbench.runs.diagnostics.observer import Observer
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.errors import UserError
from dpbench.system.validate import Count


@dataclass(frozen=True)
class CurveDiagnostics:
    """Loss, and for classification accuracy, ECE and MCE, at regular intervals.

    steps or epochs: between two measurements, the other is null; the first and the last parameters
    are always measured. train: whether the loss is measured on the training split too.
    """

    steps: Count | None
    epochs: Count | None
    train: bool

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise UserError(
                "diagnostics takes either steps or epochs: set one, leave the other null."
            )

    def observer(self, step: PrivateStep, train: Split, test: Split) -> "CurveObserver":
        """An observer of `step` on the split that the run is evaluated on."""
        return CurveObserver(self, step, train if self.train else None, test)


class CurveObserver(Observer):
    """Measures between steps, in evaluation mode, without changing parameters or generators.

    Columns, one entry per measurement: `step` and `epoch` (numbers completed), `tested/NAME` of
    `evaluate_split`, and, if configured, `trained/loss`. Losses are the training loss, unweighted.
    A moving average of the weights is not used.
    """

    def __init__(
        self, settings: CurveDiagnostics, step: PrivateStep, train: Split | None, test: Split
    ):
        super().__init__(step)
        self._settings, self._train, self._test = settings, train, test
        self._epochs = 0

    def before(self, batch: Batch) -> None:
        every = self._settings.steps
        if self._steps_done == 0 or (every and self._steps_done % every == 0):
            self._measure()

    def end_of_epoch(self) -> None:
        self._epochs += 1
        every = self._settings.epochs
        if every and self._epochs % every == 0:
            self._measure()

    def series(self) -> dict[str, list]:
        """The columns; measures the last parameters if that was not done yet."""
        self._measure()
        return super().series()

    def state_dict(self) -> dict:
        return super().state_dict() | {"epochs": self._epochs}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self._epochs = state["epochs"]

    def _measure(self) -> None:
        if self.columns["step"][-1:] == [self._steps_done]:
            return
        self.columns["step"].append(self._steps_done)
        self.columns["epoch"].append(self._epochs)
        for name, value in evaluate_split(self._step, self._test).items():
            self.columns[f"tested/{name}"].append(value)
        if self._train is not None:
            self.columns["trained/loss"].append(evaluate_split(self._step, self._train)["loss"])


def evaluate_split(step: PrivateStep, split: Split) -> dict[str, float]:
    """`loss`, and for classification `accuracy`, `ece` and `mce`, and of several groups
    `accuracy/k` by number, at the current parameters; NaN where outputs are not finite."""
    with isolated_evaluation(step.engine.model):
        outputs, losses = (t.cpu() for t in predict(step.engine.model, step.engine.loss, split))
    measured, targets = {"loss": classification.mean(losses)}, split.targets.cpu()
    if targets.is_floating_point():
        return measured
    bins = calibration.equal_width(calibration.rank_by_confidence(outputs, targets))
    correct = classification.correct(outputs, targets)
    groups = split.groups.cpu()
    present = groups.unique().tolist()
    return measured | {
        "accuracy": classification.mean(correct),
        "ece": calibration.expected(bins),
        "mce": calibration.maximum(bins),
        **{
            f"accuracy/{k}": classification.mean(correct[groups == k])
            for k in (present if len(present) > 1 else ())
        },
    }
