"""A temperature for the trained model, fitted by DP-SGD on held-out training examples.

The temperature is from Guo et al. 2017, section 4.2, the scale with bias from Platt 1999; Zhang et
al. 2023, "A Closer Look at the Calibration of Differentially Private Learners", fit both by DP-SGD.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from dpbench.learning.data.dataset import Dataset
from dpbench.learning.data.examples import Batch, Split
from dpbench.learning.models.architecture import LOSSES
from dpbench.privacy.guarantee import PROVEN
from dpbench.privacy.ledger import Poisson, Step
from dpbench.step.clipping import Abadi
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.physical_batches import PhysicalBatches
from dpbench.step.mechanism.sampling import poisson_indices
from dpbench.step.mechanism.schedules import Linear, Schedules
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError
from dpbench.system.validate import Fraction, Positive, fraction, integer, positive

MAX_NOISE = 0.1
"""The standard deviation that the noise of all steps together may have in the mean gradient of the
log temperature, in nats: with more, noise dominates the fit."""

UNSCALED = ("accuracy", "nll", "ece", "mce")
"""The metrics that a record also has for the model before scaling."""


class LogitScaling(nn.Module):
    """Logits [B, K] over exp(log_temperature), plus a bias of the second of two classes, if any."""

    def __init__(self, parameters: int):
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(1)) if parameters == 2 else None

    def forward(self, logits: Tensor) -> Tensor:
        scaled = logits * (-self.log_temperature).exp()
        return scaled if self.bias is None else scaled + nn.functional.pad(self.bias, (1, 0))

    @property
    def metrics(self) -> dict[str, float]:
        """The fitted parameters, as metrics of a record."""
        bias = {} if self.bias is None else {"bias": self.bias.item()}
        return {"temperature": self.log_temperature.exp().item(), **bias}


@dataclass(frozen=True)
class PrivateTemperature:
    """The fit of a temperature, or for two classes of a temperature and a bias (parameters=2).

    share: of the training examples, each held out independently. sample_rate, steps, lr, bound: of
    DP-SGD on the logarithm of the temperature (which stays positive), lr falling to zero. Its noise
    is never calibrated: privacy.epsilon is met by that of training.
    """

    parameters: int
    share: Fraction
    sample_rate: float
    steps: int
    lr: Positive
    bound: Positive
    noise_multiplier: Positive

    def __post_init__(self) -> None:
        integer("temperature.parameters", self.parameters, most=2)
        rate = positive("temperature.sample_rate", self.sample_rate)  # of which 1/rate is finite
        fraction("temperature.sample_rate", rate, one=True)
        integer("temperature.steps", self.steps, most=10_000)

    @property
    def method(self) -> Method:
        return Method("dpsgd", Abadi(self.bound), PROVEN)

    @property
    def step(self) -> Step:
        """The release of one step, for the ledger."""
        (release,) = self.method.releases(self.noise_multiplier)
        what = f"{release.what} of the temperature"
        return Step(Poisson(self.sample_rate), (replace(release, what=what),))

    @property
    def least_size(self) -> int:
        """The least number of held-out examples at which the noise is at most MAX_NOISE."""
        noise = self.noise_multiplier * self.bound / (self.sample_rate * math.sqrt(self.steps))
        return math.ceil(noise / MAX_NOISE)

    def check(self, dataset: Dataset) -> None:
        """UserError for a bias where there are not two classes."""
        if self.parameters == 2 and dataset.classes != 2:
            raise UserError(
                "temperature.parameters=2 is a scale and a bias for two classes, and "
                f"{dataset.name} has {dataset.classes}: set temperature.parameters=1."
            )

    def fitted(
        self, logits: Split, expected_size: int, stream: Callable[[str], Stream]
    ) -> LogitScaling:
        """The scaling fitted on logits [n, K] and their classes. expected_size: the public number
        of examples, which the gradient sums are divided by. stream: the random one for a purpose.
        """
        scaling, noise = LogitScaling(self.parameters), stream("temperature noise")
        loss, classes = LOSSES["classification"], logits.inputs.shape[1]
        number = torch.arange(2)
        engine = make_engine("vmap", scaling, loss, Batch(torch.eye(2, classes), number, number))
        step = PrivateStep(
            engine=engine,
            method=self.method,
            optimizer=torch.optim.SGD([engine.parameters.theta], lr=self.lr),
            noise_multiplier=self.noise_multiplier,
            expected_batch_size=self.sample_rate * expected_size,
            physical=PhysicalBatches(),
            noise_stream=noise,
            count_stream=noise.derived("counts"),
            steps=self.steps,
            schedule=Schedules(1.0, Linear(1.0, 0.0), 1.0),
        )
        batches = stream("temperature batches")
        for _ in range(self.steps):
            step(logits.at(poisson_indices(len(logits), self.sample_rate, batches)))
        return scaling
