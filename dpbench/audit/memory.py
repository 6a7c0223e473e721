"""The game of a memory: short runs of one canary, which turns an error that is fed back.

The error of DiceSGD is all that clipping has ever removed, and is itself clipped to C2. A companion
in every batch, whose gradient is far above the bound, makes it point down; a canary with a much
larger one makes it point up in all steps after its first. So all later sums move by 2 C2, too: as
far as the ledger says an example may (Zhang et al. 2024 have no account of this).
"""

from dataclasses import replace

import numpy as np
import torch

from dpbench.audit.canaries import Canaries, OneHotPatterns, coins
from dpbench.audit.game import RunGame, attacked, last_release, on_canaries
from dpbench.audit.inference import Scores
from dpbench.learning.data.dataset import Batch
from dpbench.privacy.ledger import Ledger
from dpbench.runs.training.plan import plan
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.run import Run
from dpbench.runs.training.start import private_step
from dpbench.step.mechanism.step import PrivateStep, Recorder
from dpbench.system.errors import UserError

COORDINATES = 8

WEAKER = 1e-6
"""The companion's gradient over the canary's."""


def play_memory(run: Run, trials: int) -> RunGame:
    """Train `trials` runs, whose batches are all of the data: a companion and, by a coin, a canary.

    Raises UserError for methods that feed no error back.
    """
    memory = run.method.clip.memory
    if memory is None:
        raise UserError(
            f"game=memory attacks an error that is fed back; {run.method.name} has none."
        )
    usage, patterns = ResourceUsage(torch.device("cpu")), OneHotPatterns(COORDINATES)
    run = replace(on_canaries(run, 1, patterns), batch_size=1)
    planned = plan(run)
    step = private_step(run, planned, torch.device("cpu"))
    step.recorder = Recorder()
    # How far the canary moves each sum, in units of the clip's sensitivity.
    moves = torch.full((planned.steps,), 1 + memory.sensitivity, dtype=torch.float64)
    moves[0] = 1
    included = coins(run.seed, "canary's coins", trials)
    canary, companion = _members(run)
    scores = [
        float(moves @ _sums(step, canary if coin else companion, planned.steps))
        for coin in included.tolist()
    ]
    ledger = Ledger().after(planned.step, planned.steps)
    attack = Scores(np.array(scores), included.numpy())
    parts = planned, step, usage, run
    return RunGame("memory", attacked(run), (attack,), ledger, run.privacy.delta, run.seed, *parts)


def _members(run: Run) -> tuple[Batch, Batch]:
    """The data with the canary, and without it: gradients up and down the first coordinate."""
    assert isinstance(run.dataset, Canaries)
    both = run.dataset.split(torch.tensor([0, 0]))
    both = replace(both, targets=both.targets * torch.tensor([1, -WEAKER]))
    return both.at(torch.tensor([0, 1])), both.at(torch.tensor([1]))


def _sums(step: PrivateStep, batch: Batch, steps: int) -> torch.Tensor:
    """The first coordinate of all noisy sums [steps] of a run that starts with no error."""
    step.clip = step.method.clip
    sums = []
    for _ in range(steps):
        step(batch)
        sums.append(last_release(step)[1][0])
    return torch.stack(sums).double()
