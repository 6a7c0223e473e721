"""What audited code is given and claims, the errors that it raises, and what a check finds."""

import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.records.epsilon import REFUTED
from dpbench.step.mechanism.method import GRADIENT_SUM
from dpbench.system.errors import UserError

NOT_THEIRS = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"), "<frozen")
"""How files begin that are no code of the owner's: those of dpbench and of Python itself."""

PASSED, FLAGGED, SKIPPED = "passed", "flagged", "not checked"


class AuditBatch(NamedTuple):
    """Examples: inputs [n, features] and targets [n], float32 unless they are their owner's."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def without(self, i: int) -> "AuditBatch":
        """The batch without its example i."""
        return self.at([k for k in range(len(self)) if k != i])

    def scaled(self, factor: float) -> "AuditBatch":
        """The examples with larger inputs."""
        return AuditBatch(factor * self.inputs, self.targets)

    def at(self, indices: Iterable[int]) -> "AuditBatch":
        """The examples with these indices."""
        chosen = torch.tensor([*indices], dtype=torch.long)
        return AuditBatch(self.inputs[chosen], self.targets[chosen])


@dataclass(frozen=True)
class Task:
    """What a factory is called with. features: numbers per input. inputs, targets [n, ...]: of a
    training, empty for a step. batch_size: the expected one, by which the noisy sum is divided.
    sample_rate, noise_multiplier, bound: of DP-SGD. physical_batch_size: to accumulate gradients.
    """

    features: int
    inputs: Tensor
    targets: Tensor
    batch_size: float
    sample_rate: float
    noise_multiplier: float
    bound: float
    steps: int
    learning_rate: float
    physical_batch_size: int
    seed: int


@dataclass(frozen=True)
class ClaimedDpsgd:
    """DP-SGD as the code is said to carry it out, for the epsilon of `steps` steps at `delta`."""

    noise_multiplier: float = 1.0
    bound: float = 1.0
    sample_rate: float = 0.125
    steps: int = 40
    delta: float = 1e-5

    def ledger(self, sample_rate: float, steps: int) -> Ledger:
        """So many of its steps, at a sampling rate."""
        release = Release(GRADIENT_SUM, GaussianMechanism(self.noise_multiplier))
        return Ledger().after(Step(Poisson(sample_rate), (release,)), steps)


@contextmanager
def reporting_errors(name: str) -> Iterator[None]:
    """Within the context, errors of the owner's code are told, and so is a call of sys.exit, which
    would otherwise end the audit like one that refutes nothing."""
    try:
        yield
    except (UserError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise UserError(error_report(name, error)) from error


def error_report(name: str, error: BaseException) -> str:
    """An error of the audited code in one sentence, with its last line that is in no library."""
    passed = traceback.extract_tb(error.__traceback__)
    theirs = (f for f in passed if not f.filename.startswith(NOT_THEIRS))
    own = [f for f in theirs if "site-packages" not in f.filename]
    what = f"{type(error).__name__}: {error!s:.200}".removesuffix(": ")
    where = f" (line {own[-1].lineno} of {own[-1].filename})" if own else ""
    return f"{name} raised {what}{where}; correct it first."


class Finding(NamedTuple):
    """A verdict (REFUTED: the claim is false; FLAGGED: see for yourself), and why."""

    verdict: str
    sentence: str = ""


refuted = partial(Finding, REFUTED)
"""The claim is false."""

flagged = partial(Finding, FLAGGED)
"""This is wrong, or costs accuracy, but the claim may hold."""

skipped = partial(Finding, SKIPPED)
"""The check says nothing of such code."""

NOTHING = Finding(PASSED)
