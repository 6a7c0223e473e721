"""The game of a network in training: a canary with a known gradient (Nasr et al. 2023).

Data, network, engine, clip, noise and update are those of a run. As the attacker knows the
parameters and all other examples, the canary is chosen anew for each step, so that its gradient is
clipped to the bound, and its part of the noisy sum is looked for along that gradient.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpbench.audit.canaries import coins
from dpbench.audit.game import RunGame, last_release, recorded_step, run_game
from dpbench.audit.inference import Scores
from dpbench.audit.steps import check_single_steps
from dpbench.learning.data.digits import Digits
from dpbench.learning.data.examples import Batch
from dpbench.learning.data.splits import joined
from dpbench.learning.models.mlp import Mlp
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Step
from dpbench.runs.training.run import Run
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.errors import UserError

DATA, NETWORK = Digits(test_share=0.2), Mlp(widths=(32,), activation="tanh")


def play_network(run: Run, trials: int) -> RunGame:
    """Train the network for `trials` steps, with the canary in a batch by a coin; the ledger is
    that of one step at rate 1. UserError for methods whose noisy sum is not Gaussian, and as
    `play_steps`."""
    check_single_steps(run, "network")
    run = replace(run, dataset=DATA, model=NETWORK)
    recorded = planned, step, _ = recorded_step(run)
    if not isinstance(planned.step.releases[0].mechanism, GaussianMechanism):
        raise UserError(f"game=network attacks Gaussian noise; {run.method.name} needs game=step.")
    data = run.load(Path()).train
    included = coins(run.seed, "canary's coins", trials)
    batches = planned.sampler.batches(len(data), run.stream("batches", torch.device("cpu")))
    scores = [_score(step, data.at(next(batches)), coin) for coin in included.tolist()]
    attack = Scores(np.array(scores), included.numpy())
    ledger = Ledger().after(Step(Poisson(1.0), planned.step.releases))
    return run_game("network", (attack,), ledger, run, recorded)


def _score(step: PrivateStep, batch: Batch, present: bool) -> float:
    """The log-likelihood ratio of the noisy sum of a step, with or without the canary."""
    canary = _canary(step)
    known, own = _clipped_sum(step, batch), _clipped_sum(step, canary)
    step(joined(batch, canary) if present else batch)
    mechanism, noisy = last_release(step)
    assert isinstance(mechanism, GaussianMechanism)
    return float((noisy - known - own / 2) @ own) / mechanism.noise_multiplier**2


def _canary(step: PrivateStep) -> Batch:
    """A white image of the class that the network finds least likely."""
    image = torch.ones(1, *DATA.shape)
    with torch.no_grad():
        target = step.engine.model(image).argmin(1)
    return Batch(image, target, target)


def _clipped_sum(step: PrivateStep, batch: Batch) -> Tensor:
    """The sum [D] of a batch as the next step would clip it, in units of its sensitivity."""
    gradients = step.gradient(step.engine, batch, step.clip, step.released)
    total = step.clip.finish(step.clipped_sum(gradients, batch).total)
    return total.detach().double() / step.clip.sensitivity.bound
