"""Audits of other libraries: each trains on canaries with its own code, and is attacked."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from dpbench.audit.audit import GIVEN, AuditResult, NominalEpsilon, nominal_of, result_of
from dpbench.audit.canaries import Canaries, OneHotPatterns, coins
from dpbench.audit.game import Game, on_canaries
from dpbench.audit.inference import Scores
from dpbench.audit.peers.jax_peer import JaxPrivacy
from dpbench.audit.peers.opacus_peer import Opacus, OpacusSettings
from dpbench.audit.peers.peer import Peer, PeerTask
from dpbench.audit.request import FOR_CONTENDERS, check_for_contender, prepare_audit
from dpbench.audit.scores import ScoreAccumulator
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.config.commands import RunAuditCommand
from dpbench.runs.training.plan import plan
from dpbench.runs.training.run import Run
from dpbench.step.mechanism.method import GRADIENT_SUM
from dpbench.system.errors import Unavailable
from dpbench.system.progress import counting
from dpbench.system.seeds import derived, torch_state_kept
from dpbench.system.validate import one_of

Make = Callable[[PeerTask], Peer]
"""Builds the training of a task by another library; Unavailable if it is not installed."""

IMPOSSIBLE = -1e6
"""The score of a sum that could not occur with the canary."""


def jax_privacy(task: PeerTask) -> JaxPrivacy:
    """jax_privacy; Unavailable if it is not installed."""
    try:
        return JaxPrivacy(task)
    except ImportError as error:
        raise Unavailable(
            f"contender=jax_privacy needs a package that is not installed ({error}): try "
            "pip install jax_privacy."
        ) from error


def fastdp(task: PeerTask) -> Peer:
    """fastDP cannot be installed by its name."""
    raise Unavailable("contender=fastdp is not on the package index: choose another one.")


OPACUS = {
    **{mode: OpacusSettings(mode, mode) for mode in ("hooks", "functorch", "ew", "ghost")},
    "ghost_column": OpacusSettings("ghost, losses [B, 1]", "ghost", column=True),
    "adaptive": OpacusSettings("adaptive clip", adaptive=True),
    "shuffled": OpacusSettings("poisson_sampling=False", poisson=False),
}

CONTENDERS: dict[str, Make] = {
    **{f"opacus_{name}": partial(Opacus, settings=chosen) for name, chosen in OPACUS.items()},
    "jax_privacy": jax_privacy,
    "fastdp": fastdp,
}


def contender_audit(settings: RunAuditCommand, overrides: list[str]) -> AuditResult:
    """Attack another library at the sampling rate, noise, number of steps, delta and seed of a run.

    Without a claim, the epsilon under attack is that of the library's own accountant. It is tested
    by the trade-off curve of what the library accounts for; if it is below our PLD epsilon, only as
    a number. Raises UserError for settings that only methods of dpbench have.
    """
    name, game = one_of("contender", settings.contender, CONTENDERS), settings.game
    check_for_contender(name, overrides)
    run, canaries = prepare_audit(overrides, settings.canaries or FOR_CONTENDERS[game], game)
    delta, task = run.privacy.delta, _task(run, canaries)
    with torch_state_kept(torch.device("cpu")):  # libraries draw from the global generator
        torch.manual_seed(derived(run.seed, "a contender's own draws"))
        played, peer = GAMES[game](CONTENDERS[name], task, delta)
    if settings.claim is not None:
        return result_of(played, NominalEpsilon(settings.claim, GIVEN), settings.confidence)
    exact, epsilon = nominal_of(played).epsilon, peer.epsilon(delta)
    source = f"{peer.accountant} (our PLD: {exact:.3f})"
    nominal = NominalEpsilon(epsilon, source, proven=epsilon >= exact)
    return result_of(played, nominal, settings.confidence)


def _task(run: Run, canaries: int) -> PeerTask:
    run = on_canaries(run, canaries)
    planned, dataset = plan(run), run.dataset
    assert isinstance(dataset, Canaries)
    assert isinstance(planned.sampler.law, Poisson)
    return PeerTask(
        size=canaries,
        members=dataset.included(run.seed).nonzero().flatten(),
        rate=planned.sampler.law.rate,
        noise_multiplier=planned.noise_multiplier,
        steps=planned.steps,
        seed=run.seed,
    )


def play_contender_run(make: Make, task: PeerTask, delta: float) -> tuple[Game, Peer]:
    """Train all steps of a task in one run, and score each canary by all noisy sums."""
    peer, accumulator = make(task), ScoreAccumulator(OneHotPatterns(task.size), task.size)
    with counting("steps", task.steps) as count:
        for release in peer.steps():
            ((noise_multiplier, rate, _),) = peer.history()
            accumulator.add(GaussianMechanism(noise_multiplier), rate, release.noisy, release.noisy)
            count()
    included = torch.zeros(task.size, dtype=torch.bool)
    included[task.members] = True
    return _game("run", peer, accumulator.attacks(included), task, delta), peer


def play_contender_steps(
    make: Make, task: PeerTask, delta: float, bits: bool = False
) -> tuple[Game, Peer]:
    """Take `task.size` steps, each on a blank example and, by a fair coin, a canary, scored by the
    noisy sum, and by how little the bound of an adaptive clip then moved; `bits`: by the bits of
    the sum."""
    trials = task.size
    single = replace(task, size=1, rate=1.0, blanks=1, steps=1)
    without, with_canary = (
        iter(make(replace(single, members=torch.arange(k), steps=trials, seed=seed)).steps())
        for k, seed in enumerate((2 * task.seed, 2 * task.seed + 1))  # independent noise
    )
    included = coins(task.seed, "a contender's coins", trials)
    releases = [next(with_canary if coin else without) for coin in included]
    peer = make(replace(single, members=torch.arange(0)))
    for _ in peer.steps():
        pass
    sums = np.array([float(release.noisy) for release in releases])
    by_bound = -np.abs(np.log([release.bound_change for release in releases]))
    by_bits = bit_scores(sums, task.noise_multiplier)
    attacks = tuple(Scores(v, included.numpy()) for v in ((by_bits,) if bits else (sums, by_bound)))
    return _game("bits" if bits else "step", peer, attacks, task, delta), peer


def bit_scores(sums: np.ndarray, noise_multiplier: float) -> np.ndarray:
    """Log-likelihood ratios [n] of float32 sums: the rounded sum of 1 and noise, or only noise.
    Large noise has coarser last bits than a sum near 0, so that many numbers are impossible with
    the canary (Mironov 2012)."""
    noise = (sums - 1).astype(np.float32)
    spacing = np.spacing(np.abs(sums).astype(np.float32))
    coarser = np.maximum(np.spacing(np.abs(noise)), spacing) / spacing
    ratios = (2 * sums - 1) / (2 * noise_multiplier**2) + np.log(coarser)
    return np.where(noise.astype(np.float64) == sums - 1, ratios, IMPOSSIBLE)


GAMES: dict[str, Callable[[Make, PeerTask, float], tuple[Game, Peer]]] = {
    "run": play_contender_run,
    "step": play_contender_steps,
    "bits": partial(play_contender_steps, bits=True),
}


def _game(name: str, peer: Peer, attacks: tuple[Scores, ...], task: PeerTask, delta: float) -> Game:
    """The finished game with a library, whose ledger is what the library has accounted for."""
    ledger = Ledger()
    for noise_multiplier, rate, times in peer.history():
        release = Release(GRADIENT_SUM, GaussianMechanism(noise_multiplier))
        ledger = ledger.after(Step(Poisson(rate), (release,)), times)
    return Game(name, peer.library, attacks, ledger, delta, task.seed)
