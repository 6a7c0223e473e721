"""Learning curves: how the run does on the split that it is tested on, as it goes.

Figures 4, 6, 8 and 10 of Bu et al. 2023 (calibration). Every point reads private data outside the
account: it explains a run and must not choose when to stop one.
"""

from dataclasses import dataclass

from dpbench.data.dataset import Batch, Split
from dpbench.diagnostics.batch import isolated_evaluation
from dpbench.diagnostics.observer import ColumnObserver
from dpbench.errors import UserError
from dpbench.mechanism.step import PrivateStep
from dpbench.metrics import calibration, classification
from dpbench.models.predict import predict
from dpbench.validate import integer


@dataclass(frozen=True)
class CurveDiagnostics:
    """Loss, and of classes accuracy, ECE and MCE, on all tested examples every so often.

    steps or epochs: so many lie between two measurements; the other one is null. The parameters
    that a run begins and ends with are measured in any case. train: whether the loss on the
    training split is measured too, which takes as much longer as that split is larger.
    """

    steps: int | None
    epochs: int | None
    train: bool

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise UserError(
                "diagnostics takes either steps or epochs: set one, leave the other null."
            )
        for name in ("steps", "epochs"):
            if getattr(self, name) is not None:
                integer(f"diagnostics.{name}", getattr(self, name))

    def observer(self, step: PrivateStep, train: Split, test: Split) -> "CurveObserver":
        """Watches `step` on the split that the run is tested on."""
        return CurveObserver(self, step, train if self.train else None, test)


class CurveObserver(ColumnObserver):
    """Measures between steps, in test mode, and leaves parameters and generators alone.

    Columns of `series`, one entry per measurement: `step` and `epoch` (how many were made),
    `tested/loss`, of classes `tested/accuracy`, `tested/ece` and `tested/mce`, and, if asked for,
    `trained/loss`. Losses are the training loss, unweighted, in the unit of the records; with a
    moving average of the weights these are still the weights themselves.
    """

    def __init__(
        self, settings: CurveDiagnostics, step: PrivateStep, train: Split | None, test: Split
    ):
        super().__init__(step)
        self._settings, self._train, self._test = settings, train, test
        self._epochs = 0

    def before(self, batch: Batch) -> None:
        every = self._settings.steps
        if self._steps == 0 or (every and self._steps % every == 0):
            self._measure()
        self._steps += 1

    def end_of_epoch(self) -> None:
        self._epochs += 1
        every = self._settings.epochs
        if every and self._epochs % every == 0:
            self._measure()

    def series(self) -> dict[str, list]:
        """The columns; the last parameters are measured now, if they were not yet."""
        self._measure()
        return super().series()

    def state_dict(self) -> dict:
        return super().state_dict() | {"epochs": self._epochs}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self._epochs = state["epochs"]

    def _measure(self) -> None:
        if self._columns["step"][-1:] == [self._steps]:
            return
        self._columns["step"].append(self._steps)
        self._columns["epoch"].append(self._epochs)
        for name, value in tested(self._step, self._test).items():
            self._columns[f"tested/{name}"].append(value)
        if self._train is not None:
            self._columns["trained/loss"].append(tested(self._step, self._train)["loss"])


def tested(step: PrivateStep, split: Split) -> dict[str, float]:
    """`loss`, and of classes `accuracy`, `ece` and `mce`, at the present parameters.

    NaN for what outputs that are not finite make of it.
    """
    with isolated_evaluation(step.engine.model):
        outputs, losses = (t.cpu() for t in predict(step.engine.model, step.engine.loss, split))
    measured, targets = {"loss": classification.mean(losses)}, split.targets.cpu()
    if targets.is_floating_point():
        return measured
    bins = calibration.equal_width(calibration.ranked(outputs, targets))
    return measured | {
        "accuracy": classification.mean(classification.correct(outputs, targets)),
        "ece": calibration.expected(bins),
        "mce": calibration.maximum(bins),
    }
