"""Other libraries by the same gate: each trains canaries in its own code, and is attacked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from dpbench.audit.audit import GIVEN, Audit, Claim, judged
from dpbench.audit.canaries import Canaries, OneEach
from dpbench.audit.game import Game, on_canaries
from dpbench.audit.inference import Scores
from dpbench.audit.peers.jax_peer import JaxPrivacy
from dpbench.audit.peers.opacus_peer import ADAPTIVE, Opacus, Settings
from dpbench.audit.peers.peer import Peer, Task
from dpbench.audit.scores import Tally
from dpbench.errors import Unavailable
from dpbench.privacy.accountants import pld
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.seeds import derived, generator
from dpbench.training.plan import Run, plan
from dpbench.training.progress import counting

Make = Callable[[Task], Peer]
"""Builds another library's training of a task; Unavailable where it is not installed."""

IMPOSSIBLE = -1e6
"""The score of a sum that no canary can have moved."""


def opacus(settings: Settings, task: Task) -> Opacus:
    """Opacus with these settings; its adaptive clip takes a noise multiplier for its counts too."""
    if settings.more == ADAPTIVE:
        more = ADAPTIVE | {"unclipped_num_std": task.noise_multiplier}
        settings = replace(settings, more=more)
    return Opacus(task, settings)


def jax_privacy(task: Task) -> JaxPrivacy:
    """jax_privacy; Unavailable where it is not installed."""
    try:
        return JaxPrivacy(task)
    except ImportError as error:
        raise Unavailable(
            f"contender=jax_privacy needs a package that is not installed ({error}): try "
            "pip install jax_privacy."
        ) from error


def fastdp(task: Task) -> Peer:
    """fastDP cannot be installed by its name."""
    raise Unavailable("contender=fastdp is not on the package index: choose another one.")


CONTENDERS: dict[str, Make] = {
    **{
        f"opacus_{mode}": partial(opacus, Settings(mode, mode))
        for mode in ("hooks", "functorch", "ew", "ghost")
    },
    "opacus_ghost_column": partial(opacus, Settings("ghost, losses [B, 1]", "ghost", column=True)),
    "opacus_adaptive": partial(opacus, Settings("adaptive clip", more=ADAPTIVE)),
    "opacus_shuffled": partial(opacus, Settings("poisson_sampling=False", poisson=False)),
    "jax_privacy": jax_privacy,
    "fastdp": fastdp,
}


def audit_contender(
    name: str,
    run: Run,
    canaries: int,
    claimed: float | None = None,
    confidence: float = 0.95,
    game: str = "run",
) -> Audit:
    """Attack a library at the run's rate, noise, number of steps, delta and seed.

    The claim is the epsilon of the library's own accountant. It is held against the scores by the
    trade-off curve of what the library accounts for, or as a number where it is below our PLD.
    """
    make, delta = CONTENDERS[name], run.privacy.delta
    task = _task(run, canaries)
    with _own_random_numbers(run.seed):
        played, peer = GAMES[game](make, task, delta)
    exact = pld(played.ledger, delta)
    if claimed is not None:
        return judged(played, Claim(claimed, GIVEN), confidence)
    epsilon = peer.epsilon(delta)
    source = f"{peer.accountant} (our PLD: {exact:.3f})"
    return judged(played, Claim(epsilon, source, proven=epsilon >= exact), confidence)


def _task(run: Run, canaries: int) -> Task:
    """What the run asks of a library, with the canaries for which the coin says so."""
    run = on_canaries(run, canaries)
    planned, dataset = plan(run), run.dataset
    assert isinstance(dataset, Canaries)
    assert isinstance(planned.sampler.law, Poisson)
    return Task(
        size=canaries,
        members=dataset.included(run.seed).nonzero().flatten(),
        rate=planned.sampler.law.rate,
        noise_multiplier=planned.noise_multiplier,
        steps=planned.steps,
        seed=run.seed,
    )


@contextmanager
def _own_random_numbers(seed: int) -> Iterator[None]:
    """torch's global stream, which libraries draw from by default, set and restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived(seed, "a contender's own draws"))
        yield


def play_contender(make: Make, task: Task, delta: float) -> tuple[Game, Peer]:
    """Train all steps of a task in one run, and score each canary by all noisy sums."""
    peer, tally = make(task), Tally(OneEach(task.size), task.size)
    with counting("steps", task.steps) as count:
        for heard in peer.steps():
            ((noise_multiplier, rate, _),) = peer.history()
            tally.hear(GaussianMechanism(noise_multiplier), rate, heard.noisy, heard.noisy)
            count()
    included = torch.zeros(task.size, dtype=torch.bool)
    included[task.members] = True
    return _game("run", peer, tally.attacks(included), task, delta), peer


def play_contender_alone(
    make: Make, task: Task, delta: float, bits: bool = False
) -> tuple[Game, Peer]:
    """As many steps as there are canaries, each of all examples: one without a gradient and, if a
    coin says so, a canary.

    Two attacks: by the noisy sum, and by how little the bound of an adaptive clip then moved. With
    bits, one attack: by the noisy sum as the floating-point number that it is.
    """
    trials = task.size
    alone = replace(task, size=1, rate=1.0, blanks=1, steps=1)
    without, with_canary = (
        iter(make(replace(alone, members=torch.arange(k), steps=trials, seed=seed)).steps())
        for k, seed in enumerate((2 * task.seed, 2 * task.seed + 1))  # noise of their own
    )
    draw = generator(task.seed, "a contender's coins", torch.device("cpu"))
    included = torch.rand(trials, generator=draw) < 0.5
    heard = [next(with_canary if there else without) for there in included]
    peer = make(replace(alone, members=torch.arange(0)))
    for _ in peer.steps():
        pass
    sums = np.array([float(one.noisy) for one in heard])
    still = -np.abs(np.log([one.rebound for one in heard]))
    by_bits = bit_scores(sums, task.noise_multiplier)
    attacks = tuple(Scores(v, included.numpy()) for v in ((by_bits,) if bits else (sums, still)))
    return _game("bits" if bits else "step", peer, attacks, task, delta), peer


def bit_scores(sums: np.ndarray, noise_multiplier: float) -> np.ndarray:
    """Log-likelihood ratios [n] of sums in float32: noise, or the rounded sum of 1 and noise.

    Where the noise is large, its last bits are coarser than those of a sum near 0, so that many
    numbers are impossible with the canary, and the others the likelier. Source: Mironov 2012.
    """
    noise = (sums - 1).astype(np.float32)
    spacing = np.spacing(np.abs(sums).astype(np.float32))
    coarser = np.maximum(np.spacing(np.abs(noise)), spacing) / spacing
    ratios = (2 * sums - 1) / (2 * noise_multiplier**2) + np.log(coarser)
    return np.where(noise.astype(np.float64) == sums - 1, ratios, IMPOSSIBLE)


GAMES: dict[str, Callable[[Make, Task, float], tuple[Game, Peer]]] = {
    "run": play_contender,
    "step": play_contender_alone,
    "bits": partial(play_contender_alone, bits=True),
}


def _game(name: str, peer: Peer, attacks: tuple[Scores, ...], task: Task, delta: float) -> Game:
    """What was heard of a library, and the ledger of what it accounts for."""
    ledger = Ledger()
    for noise_multiplier, rate, times in peer.history():
        release = Release("gradient sum", GaussianMechanism(noise_multiplier))
        ledger = ledger.after(Step(Poisson(rate), (release,)), times)
    return Game(name, peer.library, attacks, ledger, delta, task.seed)
