"""The second game: one canary, known all others, and each step judged by itself.

A coin for each step decides whether the canary is the batch, or the batch is empty. The steps then
are independent trials of one step's guarantee, and what the attacker sees is all that the ledger
says is released: the noisy sum and the noisy counts of an adaptive clip.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.audit.canaries import Canaries
from dpbench.audit.game import Game, Overheard, Release, on_canaries
from dpbench.audit.inference import Scores
from dpbench.clipping import Clip
from dpbench.data.dataset import Split
from dpbench.errors import UserError
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.seeds import generator
from dpbench.training.plan import Run, plan
from dpbench.training.provenance import ResourceUsage
from dpbench.training.trainer import private_step


class OverheardClip:
    """A clip as it is, whose noisy counts are told."""

    def __init__(self, base: Clip, counts: list[Tensor]):
        self.base, self._counts = base, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def updated(self, counts: Tensor, expected_batch_size: float) -> "OverheardClip":
        self._counts.append(counts.detach().double())
        return OverheardClip(self.base.updated(counts, expected_batch_size), self._counts)

    def for_groups(self, groups: int) -> "OverheardClip":
        return OverheardClip(self.base.for_groups(groups), self._counts)

    def for_size(self, size: int) -> "OverheardClip":
        return OverheardClip(self.base.for_size(size), self._counts)

    def for_layers(self, names: list[str]) -> "OverheardClip":
        return OverheardClip(self.base.for_layers(names), self._counts)


def play_alone(run: Run, trials: int) -> Game:
    """So many steps with or without the canary, scored by all that each released.

    The ledger is that of one step that takes all examples. Raises UserError for users, and for
    noise or signs of coordinates, which `play` knows how to score.
    """
    if run.method.users_only or run.method.clip.per_coordinate:
        raise UserError(
            f"game=step has one example with Gaussian noise; {run.method.name} needs game=run."
        )
    usage = ResourceUsage(torch.device("cpu"))
    overheard, counts = Overheard(run.method.noise), list[Tensor]()
    clip: Any = OverheardClip(run.method.clip, counts)
    heard = replace(run.method, noise=overheard, clip=clip)
    run = replace(on_canaries(run, 1), batch_size=1, epochs=trials)
    assert isinstance(run.dataset, Canaries)
    canary = run.dataset.split(torch.zeros(1, dtype=torch.long))
    run = replace(run, method=heard)
    planned = plan(run)
    step = private_step(run, planned, torch.device("cpu"))
    draw = generator(run.seed, "canary's coins", torch.device("cpu"))
    present = torch.rand(trials, generator=draw) < 0.5
    scores = []
    for there in present:
        before = step.clip
        step(canary.at(torch.arange(int(there))))
        scores.append(_score(overheard.releases.pop(), before, counts, canary))
    ledger = Ledger().after(Step(Poisson(1.0), planned.step.releases))
    known = Scores(np.array(scores), present.numpy())
    return Game("step", (known,), ledger, planned, step, usage, run)


def _score(release: Release, clip: Clip, counts: list[Tensor], canary: Split) -> float:
    """The log-likelihood ratio of one step, which began with that clip."""
    one = torch.ones(1, dtype=torch.float64)
    score = _gaussian(release.noisy, one, release.multiplier)
    if clip.query:
        moved = clip.counts(-2 * canary.targets, canary.groups).double()
        score += _gaussian(counts.pop(), moved, clip.query.multiplier(release.multiplier))
    return score


def _gaussian(seen: Tensor, moved: Tensor, multiplier: float) -> float:
    """Of what was seen, if the canary moves it so far and if it does not."""
    return float((2 * seen @ moved - moved @ moved) / (2 * multiplier**2))
