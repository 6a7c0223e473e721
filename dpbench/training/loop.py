"""The training of a run, step by step, as something that can be put away and taken up again.

Every part that changes as a run goes on says all of it as `state_dict`, and goes on from there
after `load_state_dict`: nested dictionaries and lists of tensors and plain values. A part that was
loaded does to the last bit what the one that was put away would have done (on a CPU; a GPU may add
up in another order). Steps made since the last checkpoint are then made again with the very same
draws: they are the same releases, and the ledger counts them once.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from dpbench import seeds
from dpbench.data.dataset import Batch, Split
from dpbench.data.derive.augmentation import ShiftsFlips
from dpbench.data.derive.users import Population
from dpbench.diagnostics import Observer
from dpbench.mechanism.sampling import Sampler
from dpbench.mechanism.step import PrivateStep, StepReport
from dpbench.mechanism.streams import Stream
from dpbench.privacy.ledger import Ledger
from dpbench.training.averaging import MovingAverage
from dpbench.training.form import check_form, tensors
from dpbench.training.plan import Plan
from dpbench.training.provenance import Effort


class Batches:
    """The batches of a run without end, each example in as many views as the engine takes.

    A sampler begins an epoch with nothing but its stream. Where it stands is thus that stream as it
    was then, and how many batches were drawn since. sampling: of the batches; views: of the views.
    """

    def __init__(
        self,
        sampler: Sampler,
        train: Split | Population,
        augmentation: ShiftsFlips | None,
        sampling: Stream,
        views: torch.Generator,
    ):
        self._sampler, self._train, self._augmentation = sampler, train, augmentation
        self._sampling, self._views = sampling, views
        self._begin_epoch()

    def __next__(self) -> Batch:
        if self.drawn == self._sampler.steps_per_epoch:
            self._begin_epoch()
        batch = self._train.at(self._draw())
        return self._augmentation.of(batch, self._views) if self._augmentation else batch

    def _begin_epoch(self) -> None:
        self._began, self.drawn = self._sampling.state_dict(), 0
        self._indices = self._sampler.batches(len(self._train), self._sampling)

    def _draw(self) -> Tensor:
        self.drawn += 1
        return next(self._indices).to(self._train.device)

    def state_dict(self) -> dict:
        return {"began": self._began, "drawn": self.drawn, "views": self._views.get_state()}

    def load_state_dict(self, state: dict) -> None:
        if not 0 <= state["drawn"] <= self._sampler.steps_per_epoch:
            raise ValueError("an epoch has not so many batches")
        self._sampling.load_state_dict(state["began"])
        self._begin_epoch()
        while self.drawn < state["drawn"]:
            self._draw()
        self._views.set_state(state["views"])


class Training:
    """All steps of a run, one at a time: iterating makes those that are left.

    history: one entry per epoch. It ends early after an epoch that leaves parameters that are not
    finite, or that had no finite gradient. torch's own generators, which dropout draws from, are
    seeded here and part of the state.
    """

    def __init__(
        self,
        plan: Plan,
        step: PrivateStep,
        batches: Batches,
        observer: Observer | None,
        average: MovingAverage | None,
        effort: Effort,
    ):
        self.plan, self.step, self._batches = plan, step, batches
        self.observer, self.average, self.effort = observer, average, effort
        self.history: dict[str, list] = {"train/loss": [], "train/not_finite": []}
        self._reports: list[StepReport] = []  # of the present epoch
        self._spent: list[list] = []  # noise multipliers, and for how many steps in a row
        self._learns = True  # whether any gradient of the last epoch was finite
        step.engine.model.train()
        torch.manual_seed(seeds.derived(step.seed, "dropout"))

    @property
    def steps_done(self) -> int:
        """Steps so far."""
        return self.step.released.steps_done

    @property
    def ledger(self) -> Ledger:
        """Of the steps that were made."""
        ledger = Ledger()
        for multiplier, times in self._spent:
            ledger = ledger.after(self.plan.at(multiplier), times)
        return ledger

    @property
    def sound(self) -> bool:
        """Whether all parameters are finite, and some gradient of the last epoch was.

        A run whose gradients all count as zero keeps finite parameters, and learns nothing.
        """
        return self._learns and self.finite

    @property
    def finite(self) -> bool:
        """Whether all parameters are."""
        return bool(torch.isfinite(self.step.engine.parameters.theta).all())

    @property
    def between_epochs(self) -> bool:
        return self.steps_done % self.plan.sampler.steps_per_epoch == 0

    def __iter__(self) -> Iterator[None]:
        """Make the steps that are left; whatever is to happen between two of them happens then."""
        while not self._finished():
            self._do_step(next(self._batches))
            if self.between_epochs:
                self._end_epoch()
            yield

    def _finished(self) -> bool:
        # Whether gradients were finite is not released: where a score is, only parameters decide.
        goes_on = self.finite if self.plan.score else self.sound
        diverged = self.steps_done > 0 and self.between_epochs and not goes_on
        return diverged or self.steps_done == self.plan.steps

    def _do_step(self, batch: Batch) -> None:
        if self.observer:
            self.observer.before(batch)
        multiplier = self.step.noise_multiplier  # which the step then changes for the next one
        self._reports.append(self.step(batch))
        if self.average:
            self.average.update()
        self._count(multiplier)

    def _count(self, multiplier: float) -> None:
        if not self._spent or self._spent[-1][0] != multiplier:
            self._spent.append([multiplier, 0])
        self._spent[-1][1] += 1

    def _end_epoch(self) -> None:
        losses, finite = self._epoch_report()
        self.history["train/loss"].append(losses[losses.isfinite()].mean().item())
        self.history["train/not_finite"].append((~finite).sum().item())
        self._learns = bool(finite.any()) or not len(finite)
        self._reports = []
        if self.observer:
            self.observer.end_of_epoch()

    def _epoch_report(self) -> StepReport:
        """All reports of the present epoch as one."""
        return StepReport(*(torch.cat(parts) for parts in zip(*self._reports, strict=True)))

    @property
    def _parts(self) -> dict:
        parts = {
            "step": self.step,
            "batches": self._batches,
            "observer": self.observer,
            "average": self.average,
            "effort": self.effort,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def state_dict(self) -> dict:
        return {
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
            "history": self.history,
            "reports": [tuple(self._epoch_report())] if self._reports else [],
            "spent": self._spent,
            "learns": self._learns,
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else None,
        }

    def load_state_dict(self, state: dict) -> None:
        """Go on from there. ValueError for a state that this run never had, but for the values of
        its tensors, and whatever else a forged one leads to; some parts may then have moved."""
        self._check_form(state)
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self.history, self._spent = state["history"], state["spent"]
        self._learns = state["learns"]
        self._reports = [
            StepReport(*(seen.to(self._device) for seen in report)) for report in state["reports"]
        ]
        torch.set_rng_state(state["torch"])
        if state["cuda"] is not None:
            torch.cuda.set_rng_state(state["cuda"], self._device)
        self._check_steps()

    def _check_form(self, state: dict) -> None:
        check_form(state, self.state_dict())
        step, shape = state["parts"]["step"], self.step.engine.parameters.theta.shape
        along = [step["gradient"], step["optimizer"]["state"]]
        if any(tensor.shape not in ((), (1,), shape) for tensor in tensors(along)):
            raise ValueError("a checkpoint holds parameters of another model")
        # Answers move bounds, never the noise of the next answer; without a query nothing moves.
        if "query" in step["clip"] or (step["clip"] and self.step.clip.query is None):
            raise ValueError("a checkpoint holds a clip that no answers lead to")

    def _check_steps(self) -> None:
        """ValueError where steps, batches, epochs and ledger are not those of one planned run.

        The ledger of a forged checkpoint is not to be believed, and its last step may never come.
        """
        per_epoch = self.plan.sampler.steps_per_epoch
        epochs = {len(column) for column in self.history.values()}
        if not (
            self.ledger == self.plan.ledger.first(self.steps_done)
            and epochs == {self.steps_done // per_epoch}
            and self._batches.drawn % per_epoch == self.steps_done % per_epoch
        ):
            raise ValueError("a checkpoint says of its steps what cannot be")

    @property
    def _device(self) -> torch.device:
        return self.step.engine.parameters.theta.device
