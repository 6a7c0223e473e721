"""Games of a canary and companions whose gradients point the other way. They attack batches that
are cut, and an error that is fed back."""

import warnings
from dataclasses import replace

import numpy as np
import torch

from dpbench.audit.canaries import Canaries, OneHotPatterns, coins
from dpbench.audit.game import RunGame, last_release, on_canaries, recorded_step, run_game
from dpbench.audit.inference import Scores
from dpbench.learning.data.examples import Batch, Split
from dpbench.privacy.ledger import Ledger
from dpbench.runs.training.run import Run
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.errors import UserError

COORDINATES = 8

WEAKER = 1e-6
"""The companion's gradient over the canary's, where an error is fed back."""


def play_cut(run: Run, trials: int) -> RunGame:
    """Take `trials` steps, each on `batch_limit` companions and, by a coin, a canary.

    As many companions as the limit allows are in every batch, with gradients down; the canary's is
    up. With it one of them all is left out, nearly always a companion: the sum moves by twice the
    sensitivity, as far as the ledger says an example may (Ganesh 2025, arXiv:2508.15089). Raises
    UserError for a sampler that has no limit.
    """
    limit = run.batch_limit
    if limit is None:
        raise UserError(
            "game=cut attacks batches that are cut: set sampler=truncated, batch_limit."
        )
    run = replace(
        on_canaries(run, limit + 1, OneHotPatterns(COORDINATES)), batch_size=limit + 1, epochs=1
    )
    with warnings.catch_warnings(action="ignore"):  # that most batches are cut
        recorded = planned, step, _ = recorded_step(run)
    examples = _along_one_coordinate(run, torch.tensor([*[-1.0] * limit, 1.0]))
    included = coins(run.seed, "canary's coins", trials)
    stream = run.stream("batches", torch.device("cpu"))
    batches = [planned.sampler.batches(limit + more, stream) for more in (0, 1)]
    sums = []
    for coin in included.tolist():
        step(examples.at(next(batches[coin])))
        sums.append(float(last_release(step)[1][0]))
    attack = Scores(np.array(sums), included.numpy())
    return run_game("cut", (attack,), Ledger().after(planned.step), run, recorded)


def play_memory(run: Run, trials: int) -> RunGame:
    """Train `trials` runs, whose batches are all of the data: a companion and, by a coin, a canary.

    The error of DiceSGD is all that clipping has removed, clipped to C2. The companion, far above
    the bound, makes it point down; the canary, much larger, up in all steps after its first, and so
    all later sums move by 2 C2: as far as the ledger says (Zhang et al. 2024 have no account of
    this). Raises UserError for methods that feed no error back.
    """
    memory = run.method.clip.memory
    if memory is None:
        raise UserError(
            f"game=memory attacks an error that is fed back; {run.method.name} has none."
        )
    run = replace(on_canaries(run, 1, OneHotPatterns(COORDINATES)), batch_size=1)
    recorded = planned, step, _ = recorded_step(run)
    # How far the canary moves each sum, in units of the clip's sensitivity.
    moves = torch.full((planned.steps,), 1 + memory.sensitivity, dtype=torch.float64)
    moves[0] = 1
    included = coins(run.seed, "canary's coins", trials)
    both = _along_one_coordinate(run, torch.tensor([1, -WEAKER]))
    members = [both.at(torch.tensor(present)) for present in ([1], [0, 1])]
    scores = [
        float(moves @ _sums(step, members[coin], planned.steps)) for coin in included.tolist()
    ]
    attack = Scores(np.array(scores), included.numpy())
    ledger = Ledger().after(planned.step, planned.steps)
    return run_game("memory", (attack,), ledger, run, recorded)


def _along_one_coordinate(run: Run, signs: torch.Tensor) -> Split:
    """Examples that move the first coordinate up or down, by signs [n]."""
    assert isinstance(run.dataset, Canaries)
    examples = run.dataset.split(torch.zeros(len(signs), dtype=torch.long))
    return replace(examples, targets=examples.targets * signs)


def _sums(step: PrivateStep, batch: Batch, steps: int) -> torch.Tensor:
    """The first coordinate of all noisy sums [steps] of a run that starts with no error."""
    step.clip = step.method.clip
    sums = []
    for _ in range(steps):
        step(batch)
        sums.append(last_release(step)[1][0])
    return torch.stack(sums).double()
