"""The training loop of a run, whose state can be saved and restored after any step.

Every part that changes has its state in `state_dict`: nested dictionaries and lists of tensors and
plain values. A restored run is bit-identical to an uninterrupted one (on a CPU). Steps since the
last checkpoint are repeated with the same draws: the same releases, which the ledger counts once.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.learning.data.derive.users import Population
from dpbench.learning.data.examples import Batch, Split
from dpbench.learning.models.architecture import ClassWeighted
from dpbench.privacy.ledger import Ledger
from dpbench.runs.diagnostics.observer import Observer
from dpbench.runs.training.checkpoints import check_state, tensors
from dpbench.runs.training.plan import Plan
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.statistics import ChannelNormalization
from dpbench.step.gradients.parameters import at
from dpbench.step.mechanism.sampling import Sampler
from dpbench.step.mechanism.state import state_fields
from dpbench.step.mechanism.step import PrivateStep, StepReport
from dpbench.step.mechanism.streams import Stream, uniforms
from dpbench.system import seeds


class MovingAverage:
    """The exponential moving average of released parameters theta [D], which costs no privacy.

    average <- d average + (1 - d) theta with d = min(decay, (1 + t) / (10 + t)) after step t = 0,
    1, ...: De et al. 2022, with the warm-up of TensorFlow's.
    """

    def __init__(self, decay: float, theta: nn.Parameter):
        self.decay, self.theta = decay, theta
        self.average = theta.detach().clone()
        self._steps = 0

    @torch.no_grad()
    def update(self) -> None:
        """Include the current parameters."""
        decay = min(self.decay, (1 + self._steps) / (10 + self._steps))
        self.average.lerp_(self.theta, 1 - decay)
        self._steps += 1

    def state_dict(self) -> dict:
        return {"average": self.average, "steps": self._steps}

    def load_state_dict(self, state: dict) -> None:
        self.average, self._steps = state["average"].to(self.theta), state["steps"]

    def applied(self) -> AbstractContextManager:
        """Within the context, the average replaces the parameters."""
        return at(self.average, self.theta)


@dataclass(eq=False)
class Batches:
    """An endless iterator over the batches of a run, augmented if configured.

    An epoch depends only on the sampler's stream at its start, so the state is that of the stream
    at the start of the epoch, and the number of batches drawn since. sampling: the stream of the
    sampler; views: the generator of the augmentation. shares: of the examples that the sampler
    draws, those now kept by group (`Clip.group_shares`).
    """

    sampler: Sampler
    train: Split | Population
    augmentation: ShiftsFlips | None
    sampling: Stream
    views: torch.Generator
    shares: Callable[[], Tensor | None]

    def __post_init__(self) -> None:
        self._begin_epoch()

    def __next__(self) -> Batch:
        if self.drawn == self.sampler.steps_per_epoch:
            self._begin_epoch()
        batch = self.train.at(self._draw())
        return self.augmentation.of(batch, self.views) if self.augmentation else batch

    def _begin_epoch(self) -> None:
        self._epoch_start, self.drawn = self.sampling.state_dict(), 0
        self._indices = self.sampler.batches(len(self.train), self.sampling)

    def _draw(self) -> Tensor:
        self.drawn += 1
        indices, device = self._kept(next(self._indices)), self.train.device
        # From pinned memory, so that the processor does not wait for a GPU.
        pinned = indices.pin_memory() if device.type == "cuda" else indices
        return pinned.to(device, non_blocking=True)

    def _kept(self, indices: Tensor) -> Tensor:
        shares, train = self.shares(), self.train
        if shares is None:
            return indices
        assert isinstance(train, Split)  # users have no groups
        coins = uniforms(self.sampling, len(indices)).to(train.device)
        return indices[(coins < shares.to(train.device)[train.groups[indices]]).cpu()]

    def state_dict(self) -> dict:
        return {
            "epoch_start": self._epoch_start,
            "drawn": self.drawn,
            "views": self.views.get_state(),
        }

    def load_state_dict(self, state: dict) -> None:
        if not 0 <= state["drawn"] <= self.sampler.steps_per_epoch:
            raise ValueError("the state has more batches than an epoch")
        self.sampling.load_state_dict(state["epoch_start"])
        self._begin_epoch()
        while self.drawn < state["drawn"]:
            self._draw()
        self.views.set_state(state["views"])


@dataclass(eq=False)
class Training:
    """The training of a run; iterating takes the remaining steps one by one.

    history: one entry per epoch. Training ends early after an epoch with non-finite parameters or,
    without privacy, without any finite gradient. torch's default generators, which dropout uses,
    are seeded here and are part of the state.
    """

    plan: Plan
    step: PrivateStep
    batches: Batches
    observer: Observer | None
    average: MovingAverage | None
    usage: ResourceUsage
    statistics: ChannelNormalization | None
    weighted: ClassWeighted | None

    def __post_init__(self) -> None:
        self.history: dict[str, list] = {"train/loss": [], "train/not_finite": []}
        self._reports: list[StepReport] = []  # of the current epoch
        self._noise_runs: list[list] = []  # run-length encoding: [noise multiplier, steps]
        self._has_finite_gradients = True  # in the last epoch
        self.step.engine.model.train()
        seeds.seed_torch(seeds.derived(self.step.seed, "dropout"), self._device)
        seeds.seeded(torch.default_generator, self.step.seed, "dropout")

    def evaluated(self) -> AbstractContextManager:
        """The context in which the model has the parameters that the run is evaluated at."""
        return self.average.applied() if self.average else nullcontext()

    @property
    def steps_done(self) -> int:
        return self.step.released.steps_done

    @property
    def ledger(self) -> Ledger:
        """The ledger of the steps taken so far."""
        ledger = Ledger()
        for multiplier, times in self._noise_runs:
            ledger = ledger.after(self.plan.at(multiplier), times)
        return ledger

    @property
    def diverged(self) -> bool:
        """Whether a parameter is not finite or, without privacy, no gradient of the last epoch was.

        Non-finite gradients count as zero, so the parameters alone may stay finite. A private run
        releases only these: its end must not reveal whether gradients were finite.
        """
        finite = bool(torch.isfinite(self.step.engine.parameters.theta).all())
        return not finite or not (self.plan.method.private or self._has_finite_gradients)

    @property
    def between_epochs(self) -> bool:
        return self.steps_done % self.plan.sampler.steps_per_epoch == 0

    def __iter__(self) -> Iterator[None]:
        """Take the remaining steps; yields after each."""
        while not self._finished():
            self._do_step(next(self.batches))
            if self.between_epochs:
                self._end_epoch()
            yield

    def _finished(self) -> bool:
        done = self.steps_done
        if done in (0, self.plan.steps) or not self.between_epochs:
            return done == self.plan.steps
        return self.diverged

    def _do_step(self, batch: Batch) -> None:
        if self.observer:
            self.observer.before(batch)
        multiplier = self.step.noise_multiplier  # a schedule changes it after the step
        self._reports.append(self.step(batch))
        if self.average:
            self.average.update()
        if not self._noise_runs or self._noise_runs[-1][0] != multiplier:
            self._noise_runs.append([multiplier, 0])
        self._noise_runs[-1][1] += 1

    def _end_epoch(self) -> None:
        losses, finite = self._epoch_report()
        self.history["train/loss"].append(losses[losses.isfinite()].mean().item())
        self.history["train/not_finite"].append((~finite).sum().item())
        self._has_finite_gradients = bool(finite.any()) or not len(finite)
        self._reports = []
        if self.observer:
            self.observer.end_of_epoch()

    def _epoch_report(self) -> StepReport:
        return StepReport(*(torch.cat(parts) for parts in zip(*self._reports, strict=True)))

    @property
    def _parts(self) -> dict:
        parts = {
            "step": self.step,
            "batches": self.batches,
            "observer": self.observer,
            "average": self.average,
            "usage": self.usage,
            "weighted": self.weighted,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def state_dict(self) -> dict:
        return {
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            "history": self.history,
            "reports": [tuple(self._epoch_report())] if self._reports else [],
            "noise_runs": self._noise_runs,
            "has_finite_gradients": self._has_finite_gradients,
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None,
            **({"statistics": self.statistics.state_dict()} if self.statistics else {}),
        }

    def load_state_dict(self, state: dict) -> None:
        """Continue from a state. Raises ValueError for a state that this run cannot have had (apart
        from the values of tensors), or any other exception for a forged one; parts may already be
        loaded then."""
        self._check_structure(state)
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self.history, self._noise_runs = state["history"], state["noise_runs"]
        self._has_finite_gradients = state["has_finite_gradients"]
        self._reports = [
            StepReport(*(tensor.to(self._device) for tensor in report))
            for report in state["reports"]
        ]
        torch.set_rng_state(state["torch"])
        if state["cuda"] is not None:
            torch.cuda.set_rng_state(state["cuda"], self._device)
        self._check_steps()
        if self.statistics:  # last, since another training shares them if this one is refused
            self.statistics.load_state_dict(state["statistics"])

    def _check_structure(self, state: dict) -> None:
        check_state(state, self.state_dict())
        step, shape = state["parts"]["step"], self.step.engine.parameters.theta.shape
        like_theta = [step["gradient"], step["optimizer"]["state"]]
        if any(tensor.shape not in ((), (1,), shape) for tensor in tensors(like_theta)):
            raise ValueError("the checkpoint has parameters of another model")
        # Adaptive clips change their bounds, but never the noise of their query.
        method, clip = self.step.method, step["clip"]
        private = state_fields(method.clip) if method.clip.memory else set()
        if "query" in clip or (clip.keys() - private and method.clip.query is None):
            raise ValueError("the checkpoint has the state of another clip")
        if step["correlated_noise"].keys() - state_fields(method.noise):
            raise ValueError("the checkpoint has the state of another noise")

    def _check_steps(self) -> None:
        """ValueError if steps, batches, epochs and ledger are inconsistent with the plan. Otherwise
        a forged checkpoint could have a wrong ledger, or never reach its last step."""
        per_epoch = self.plan.sampler.steps_per_epoch
        epochs = {len(column) for column in self.history.values()}
        if not (
            self.ledger == self.plan.ledger.first(self.steps_done)
            and epochs == {self.steps_done // per_epoch}
            and self.batches.drawn % per_epoch == self.steps_done % per_epoch
        ):
            raise ValueError("the checkpoint's steps are inconsistent with the plan")

    @property
    def _device(self) -> torch.device:
        return self.step.engine.parameters.theta.device
