"""The settings of a run, checked one by one before any data is read."""

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from dpbench.learning.data.dataset import Dataset, Fact, check_declared, check_loaded, facts_of
from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.derive.normalization import Normalization, with_transform
from dpbench.learning.data.derive.users import Users
from dpbench.learning.data.examples import Data
from dpbench.learning.models.architecture import Architecture
from dpbench.privacy.accountants import PAPER_ACCOUNTANTS
from dpbench.privacy.guarantee import DEFAULT_PAPER_ACCOUNTANT
from dpbench.runs.config.settings import check_compute, check_numbers
from dpbench.runs.diagnostics.observer import Diagnostics
from dpbench.runs.records.digest import digest
from dpbench.runs.training.accounting import ARITHMETIC
from dpbench.runs.training.budget import Privacy
from dpbench.runs.training.class_weights import COUNT_NOTE, WEIGHTED_SAMPLING
from dpbench.runs.training.conformal import PrivateConformal
from dpbench.runs.training.score import SCORE_NOTE
from dpbench.runs.training.statistics import PrivateStatistics
from dpbench.runs.training.temperature import PrivateTemperature
from dpbench.step.gradients import ENGINES
from dpbench.step.gradients.precision import PRECISIONS
from dpbench.step.gradients.products import check_sums
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.sampling import SAMPLERS
from dpbench.step.mechanism.schedules import Schedules
from dpbench.step.mechanism.streams import Stream, secure, seeded
from dpbench.system.errors import UserError, first_line
from dpbench.system.seeds import derived, seed_torch, torch_state_kept
from dpbench.system.validate import boolean, check_fields, one_of, typed

CPU = torch.device("cpu")

PAYS = re.compile(", and epsilon pays for (it|them)")
"""What notes say of statistics that are measured with noise, which training without privacy has no
epsilon for."""


@dataclass(frozen=True)
class Run:
    """The checked settings of a run; no data is read yet.

    optimizer maps a list of parameters to a torch optimiser. noise: "seeded" (reproducible) or
    "secure". config: the plain configuration stored in the record; without it, or with that of
    another run as after `dataclasses.replace`, runs of one seed share their seeded noise, and at
    most one may be released. score_noise_multiplier: of the accuracy on the validation split.
    trial: tells apart runs of one configuration, which then share no noise. temperature, conformal:
    fitted on the part that the data set holds out for one of them. head_lr_factor: of the last
    layer.
    """

    dataset: Dataset
    model: Architecture
    method: Method
    privacy: Privacy
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    sampler: str
    epochs: int
    batch_size: int
    seed: int
    engine: str = "auto"
    graph: bool = False
    physical_batch_size: int | str | None = None
    precision: str = "float32"
    sums: str = "float32"
    channels_last: bool = False
    device: str = "auto"
    diagnostics: Diagnostics | None = None
    normalization: Normalization | PrivateStatistics | None = None
    augmentation: ShiftsFlips | None = None
    head_lr_factor: float | None = None
    ema_decay: float | None = None
    schedule: Schedules | None = None
    users: Users | None = None
    noise: str = "seeded"
    score_noise_multiplier: float | None = None
    class_weights: list[float] | None = None
    class_count_noise_multiplier: float | None = None
    trial: str | None = None
    temperature: PrivateTemperature | None = None
    conformal: PrivateConformal | None = None
    batch_limit: int | None = None
    participations: int | None = None
    paper_accountant: str = DEFAULT_PAPER_ACCOUNTANT
    config: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_numbers(vars(self))
        check_compute(vars(self))
        check_declared(self.dataset)
        for name, part in vars(self).items():
            check_fields(name, part)
        if self.sampler == "weighted":
            raise UserError(WEIGHTED_SAMPLING)
        one_of("sampler", self.sampler, SAMPLERS)
        one_of("table.claimed_by", self.paper_accountant, PAPER_ACCOUNTANTS)
        one_of("precision", self.precision, PRECISIONS)
        check_sums(self.sums)
        one_of("noise", self.noise, ARITHMETIC)
        typed("trial", self.trial, str | None)
        one_of("engine", self.engine, ["auto", *ENGINES])
        boolean("engine.graph", self.graph)
        if self.temperature and self.conformal:
            raise UserError(
                "prediction sets are not sure to cover after a temperature that is fitted on the "
                "same held-out examples: set temperature=none or conformal=none."
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on data and weights for readers, such as what no epsilon covers."""
        scored = [SCORE_NOTE] if self.score_noise_multiplier else []
        constants = [self.normalization.note] if self.normalization else []
        people = [self.users.note] if self.users and self.users.note else []
        counted = [COUNT_NOTE] if self.class_count_noise_multiplier else []
        weights = [note] if (note := getattr(self.model, "note", "")) else []
        notes = (*self.dataset.notes, *people, *scored, *counted, *constants, *weights)
        return notes if self.method.private else tuple(PAYS.sub("", note) for note in notes)

    @property
    def facts(self) -> dict[str, Fact]:
        """How the run comes by the facts of the data that it depends on, as far as these have
        names."""
        facts = {**facts_of(self.dataset)}
        if isinstance(self.normalization, PrivateStatistics):
            facts |= self.normalization.facts(self.dataset)
        if self.class_weights or self.class_count_noise_multiplier:
            facts["weights of the classes"] = "public" if self.class_weights else "epsilon"
        return facts

    @property
    def zero_out(self) -> bool:
        """Whether adjacency leaves the place of a removed example empty.

        Epsilon then covers examples that are trained on and examples that are held out. The seed
        assigns places to one or the other, so without the place all others would be assigned anew.
        """
        return self.score_noise_multiplier is not None or bool(self.temperature or self.conformal)

    def load(self, folder: Path) -> Data:
        """The training and test sets, read from below `folder` or downloaded to it."""
        data = self._loaded(folder)
        match self.normalization:
            case None:
                return data
            case Normalization() as public:
                return with_transform(data, public)
            case statistics:
                noise, delta = self.stream("statistics"), self.privacy.delta
                measured = statistics.measured(data.train, self.dataset, delta, noise)
                return with_transform(data, measured)

    def _loaded(self, folder: Path) -> Data:
        try:
            data = self.dataset.load(folder, self.seed)
        except (LookupError, ValueError) as error:
            raise UserError(
                f"the data of {self.dataset.name} cannot be read from {folder}: "
                f"{type(error).__name__}: {first_line(error)}."
            ) from error
        check_loaded(self.dataset, data)
        return data

    def initial_model(self, device: torch.device) -> nn.Module:
        """The model with the initial weights of the seed, on a device."""
        with torch_state_kept(device):
            seed_torch(derived(self.seed, "initial weights"), device)
            return self.model.build(self.dataset.shape, self.dataset.classes).to(device)

    def draws_seed(self) -> int:
        """The seed of the draws inside a step: augmentation, dropout, and those of the method.

        Shared with no other run, if the run has a configuration: an additional example changes the
        draws of others, which would show in the difference of two runs with the same draws. With
        secure noise it is a secret, different in each call.
        """
        if self.noise == "secure":
            return secrets.randbits(256)
        return derived(self.seed, f"draws/{digest(self.config)}") if self.config else self.seed

    def stream(self, purpose: str, device: torch.device = CPU) -> Stream:
        """The random stream for one purpose, shared with no other run."""
        if self.noise == "secure":
            return secure(device)
        return seeded(purpose, self.seed, digest(self.config) if self.config else "", device)
