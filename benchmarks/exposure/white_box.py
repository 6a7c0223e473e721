"""The white-box game: a real run with gradient canaries, whose attacker sees every noisy sum."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dpbench.audit.canaries import worst_case_norm
from dpbench.audit.game import check_auditable, last_release
from dpbench.audit.inference import Scores
from dpbench.audit.scores import sampled
from dpbench.learning.data.examples import Data
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson
from dpbench.runs.training.plan import plan
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.run import Run
from dpbench.runs.training.start import private_step, start_training
from dpbench.runs.training.statistics import PrivateStatistics
from dpbench.step.mechanism.step import Recorder
from dpbench.step.methods.raco import Lagrangian
from dpbench.system.errors import UserError

from .gradient_canaries import (
    CanaryInsertion,
    GradientCanaries,
    draw_canaries,
    quiet_coordinates,
    with_canaries,
)


class Transcript(NamedTuple):
    """What the attacker observes in T steps about m canaries: the noisy sums at their coordinates
    [T, m] and the shifts that each would cause [T, m], both in units of the sensitivity; the noise
    multipliers [T], and the sampling rate."""

    sums: Tensor
    shifts: Tensor
    multipliers: Tensor
    rate: float


@dataclass(frozen=True)
class WhiteBox:
    """A finished game: the scores of the canaries, their groups [m], and the ledger of the run."""

    scores: Scores
    groups: Tensor
    ledger: Ledger

    def for_group(self, group: int | None) -> Scores:
        """The scores of one group's canaries; None for all groups."""
        if group is None:
            return self.scores
        chosen = (self.groups == group).numpy()
        return Scores(self.scores.values[chosen], self.scores.included[chosen])


def play_white_box(run: Run, folder: Path, number: int) -> WhiteBox:
    """Train a run on its data and `number` canaries, and score each canary by all noisy sums.

    Raises UserError for runs that the attack does not cover, such as those with users or with
    bounds per coordinate, and for more canaries than coordinates.
    """
    _check(run)
    run = replace(run, diagnostics=None, physical_batch_size=None, device="cpu")
    data, device = run.load(folder), torch.device("cpu")
    step = private_step(run, plan(run), device)
    size = len(step.engine.parameters)
    if number > size:
        raise UserError(f"{number} canaries need a coordinate each, and the model has {size}.")
    coordinates = quiet_coordinates(step, data.train, number, run.seed)
    length, groups = worst_case_norm(run.method.clip), len(run.dataset.groups)
    canaries = draw_canaries(coordinates, size, groups, length, run.seed)
    transcript, ledger = _train_recorded(run, canaries, data)
    scores = Scores(likelihood(transcript).numpy(), canaries.included.numpy())
    return WhiteBox(scores, canaries.groups, ledger)


def _check(run: Run) -> None:
    check_auditable(run)
    if run.users or run.augmentation or run.method.clip.sensitivity.per_coordinate:
        raise UserError(
            "inserted canaries are single examples with a bounded gradient norm: choose "
            "users=none, augmentation=none and a method without bounds per coordinate."
        )
    if isinstance(run.normalization, PrivateStatistics) or run.temperature or run.conformal:
        raise UserError(
            "inserted canaries are gradients, and the attacker does not see what else is released: "
            "choose other options than private for normalization, temperature and conformal."
        )
    if isinstance(run.method.gradient, Lagrangian):
        raise UserError(
            f"inserted canaries are gradients without predictions, which {run.method.name} counts: "
            "use dpbench audit, or another method."
        )
    if run.method.noise.bands != 1 or run.method.clip.memory:
        raise UserError(
            f"the attacks on inserted canaries take steps to be independent, and those of "
            f"{run.method.name} are not: use dpbench audit, or another method."
        )


def _train_recorded(run: Run, canaries: GradientCanaries, data: Data) -> tuple[Transcript, Ledger]:
    """Train the run with the canaries in its data, and record what the attacker observes."""
    gradient = CanaryInsertion(run.method.gradient, canaries)
    run = replace(run, method=replace(run.method, gradient=gradient))
    planned, data = plan(run), replace(data, train=with_canaries(data.train, canaries))
    training = start_training(run, planned, data, ResourceUsage(data.train.device))
    step, layers = training.step, training.step.engine.parameters.layers
    step.recorder, clip = Recorder(), step.clip
    observed = []
    for _ in training:
        mechanism, noisy = last_release(step)
        assert isinstance(mechanism, GaussianMechanism)
        # A query that is answered before clipping has already changed the clip of this step.
        query = step.clip.query
        shifts = canaries.shifts(step.clip if query and query.before else clip, layers)
        observed.append((noisy[canaries.coordinates], shifts, mechanism.noise_multiplier))
        clip = step.clip
    sums, moves, multipliers = zip(*observed, strict=True)
    assert isinstance(planned.sampler.law, Poisson)
    sigmas = torch.tensor(multipliers, dtype=torch.float64)
    transcript = Transcript(torch.stack(sums), torch.stack(moves), sigmas, planned.sampler.law.rate)
    return transcript, training.ledger


def likelihood(transcript: Transcript) -> Tensor:
    """Log-likelihood ratios [m] of the whole run, for each canary separately: the sum over steps of
    log(1 - q + q exp((2 x s - s^2)/(2 sigma^2))), where s is its shift of the sum x.

    The contributions of real examples are neglected, which makes the attack weaker, not invalid.
    """
    sums, shifts, multipliers, rate = transcript
    ratios = (2 * sums * shifts - shifts**2) / (2 * multipliers.unsqueeze(1) ** 2)
    return sampled(ratios, rate).sum(0)
