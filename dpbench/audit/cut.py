"""The game of batches that are cut: steps on a full batch, where a canary takes another's place.

As many companions as the limit allows are in every batch, with gradients down; the canary's is up.
With it one of them all is left out, nearly always a companion: the sum moves by twice the
sensitivity, as far as the ledger says an example may (Ganesh 2025, arXiv:2508.15089).
"""

import warnings
from dataclasses import replace

import numpy as np
import torch

from dpbench.audit.canaries import Canaries, OneHotPatterns, coins
from dpbench.audit.game import RunGame, attacked, last_release, on_canaries
from dpbench.audit.inference import Scores
from dpbench.privacy.ledger import Ledger
from dpbench.runs.training.plan import plan
from dpbench.runs.training.provenance import ResourceUsage
from dpbench.runs.training.run import Run
from dpbench.runs.training.start import private_step
from dpbench.step.mechanism.step import Recorder
from dpbench.system.errors import UserError

COORDINATES = 8


def play_cut(run: Run, trials: int) -> RunGame:
    """Take `trials` steps, each on `batch_limit` companions and, by a coin, a canary.

    Raises UserError for a sampler that has no limit.
    """
    limit = run.batch_limit
    if limit is None:
        raise UserError(
            "game=cut attacks batches that are cut: set sampler=truncated, batch_limit."
        )
    usage, patterns = ResourceUsage(torch.device("cpu")), OneHotPatterns(COORDINATES)
    run = replace(on_canaries(run, limit + 1, patterns), batch_size=limit + 1, epochs=1)
    assert isinstance(run.dataset, Canaries)
    with warnings.catch_warnings(action="ignore"):  # that most batches are cut
        planned = plan(run)
    step = private_step(run, planned, torch.device("cpu"))
    step.recorder = Recorder()
    examples = run.dataset.split(torch.zeros(limit + 1, dtype=torch.long))
    examples = replace(examples, targets=-examples.targets)
    examples.targets[-1] *= -1  # the canary
    included = coins(run.seed, "canary's coins", trials)
    stream = run.stream("batches", torch.device("cpu"))
    batches = [planned.sampler.batches(limit + more, stream) for more in (0, 1)]
    sums = []
    for coin in included.tolist():
        step(examples.at(next(batches[coin])))
        sums.append(float(last_release(step)[1][0]))
    attack = Scores(np.array(sums), included.numpy())
    ledger, parts = Ledger().after(planned.step), (planned, step, usage, run)
    return RunGame("cut", attacked(run), (attack,), ledger, run.privacy.delta, run.seed, *parts)
