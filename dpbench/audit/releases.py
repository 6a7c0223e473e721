"""Attacks on what a run releases beside its steps: the constants of a private normalization, a
private temperature, the threshold of prediction sets, and the choice of a private search.

Each trial calls the code that runs call, with the canary or without it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from dpbench.audit.canaries import coins
from dpbench.audit.game import Game, parts_of
from dpbench.audit.inference import Scores
from dpbench.audit.tradeoff import Account, SearchAccount
from dpbench.comparison.search.private import best_of, draw_trials
from dpbench.learning.data.examples import Split
from dpbench.privacy.ledger import Ledger, Step, query
from dpbench.privacy.private_selection import Repetitions
from dpbench.runs.training.conformal import PrivateConformal
from dpbench.runs.training.run import Run
from dpbench.runs.training.score import noisy_accuracy
from dpbench.runs.training.statistics import PrivateColumns, PrivateNormalization
from dpbench.runs.training.temperature import PrivateTemperature
from dpbench.step.mechanism.streams import Stream
from dpbench.system.errors import UserError

COMPANIONS = 2000
"""Images of one pixel of -1 or 1, so many that they alone decide the medians of norms: 1."""

HUGE = 1e4
"""The canary's pixel, or the size of its logits."""

REPETITIONS = Repetitions("negative_binomial", mean=10.0, shape=1.0)
"""The number of trials of an attacked search: geometric, as by default."""


def play_normalization(run: Run, trials: int) -> Game:
    """Measure mean and mean square of a channel `trials` times, with the noise multiplier of a run.

    The canary adds to both sums as much as the medians allow, of which the attacker knows all other
    summands, and is alone in the last bin of both histograms.
    """
    multiplier = _multiplier(run)
    normalization = PrivateNormalization(multiplier, 16 * multiplier)
    pixels = torch.ones(COMPANIONS + 1)
    pixels[:COMPANIONS:2] = -1
    pixels[-1] = HUGE
    images, labels = pixels.view(-1, 1, 1, 1), torch.zeros(len(pixels), dtype=torch.long)
    data = {True: Split(images, labels, labels), False: Split(images[:-1], labels[1:], labels[1:])}

    def scores(canary: bool, stream: Stream) -> list[float]:
        answers = normalization.answers(data[canary], stream)
        alone = [float(answer[-1]) for pair in answers for answer in pair]
        return [alone[1] + alone[3], *alone]

    step = normalization.step(run.dataset, run.privacy.delta)
    return _played("normalization", run, trials, Ledger().after(step), scores, step)


def play_columns(run: Run, trials: int) -> Game:
    """Measure a table's number and its categories `trials` times, with a run's noise multiplier.

    The canary is at the end of the public range, where value and square are 1, with a category of
    its own: the norm by which the noise is scaled. The attacker knows that it is a candidate.
    """
    columns = PrivateColumns(_multiplier(run))
    table: Any = SimpleNamespace(bounded=1, selected=(1,))
    rows = torch.zeros(COMPANIONS + 1, 3)
    rows[-1, :2] = 1.0
    labels = torch.zeros(len(rows), dtype=torch.long)
    rows[0, 1] = 1.0
    data = {True: Split(rows, labels, labels), False: Split(rows[:-1], labels[1:], labels[1:])}

    def scores(canary: bool, stream: Stream) -> list[float]:
        sums, counts = columns.answers(data[canary], table, stream)
        return [float(sums.sum() + counts[1])]

    step = columns.step(table, run.privacy.delta)
    return _played("columns", run, trials, Ledger().after(step), scores)


def play_temperature(run: Run, trials: int) -> Game:
    """Fit a temperature `trials` times, in ten steps, with the noise multiplier of a run. The
    canary is alone, certain and wrong: every gradient of its loss has the norm of the bound."""
    fit = PrivateTemperature(1, 0.1, 0.5, 10, 0.01, 1.0, _multiplier(run))
    logits, wrong = torch.tensor([[HUGE, -HUGE]]), torch.ones(1, dtype=torch.long)
    data = {True: Split(logits, wrong, wrong), False: Split(logits[:0], wrong[:0], wrong[:0])}

    def scores(canary: bool, stream: Stream) -> list[float]:
        return [fit.fitted(data[canary], 1, stream.derived).log_temperature.item()]

    return _played("temperature", run, trials, Ledger().after(fit.step, fit.steps), scores)


def play_conformal(run: Run, trials: int) -> Game:
    """Make the noisy counts of a threshold `trials` times, with the noise multiplier of a run.

    The canary is alone, certain and wrong, so it lowers every count by the sensitivity; the
    attacker sees all of them, where a run releases only which are above the margin.
    """
    fit = PrivateConformal(0.9, 0.01, 0.1, 8, _multiplier(run))
    data = {True: torch.ones(1), False: torch.ones(0)}

    def scores(canary: bool, stream: Stream) -> list[float]:
        return [-sum(fit.noisy_excess(data[canary], 0.5, stream) for _ in range(fit.steps))]

    return _played("conformal", run, trials, Ledger().after(fit.step, fit.steps), scores)


def play_search(run: Run, trials: int) -> Game:
    """Make `trials` private searches, whose trials release their noisy accuracy alone, with the
    noise multiplier of a run.

    The canary is the only example that is held out, and all trials answer it rightly. The number of
    examples is public: where the canary is not in the data, there is one that none answers rightly.
    """
    multiplier = _multiplier(run)
    answer, rest = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    target = torch.ones(1, dtype=torch.long)

    def scores(canary: bool, stream: Stream) -> list[float]:
        drawn = draw_trials(stream, REPETITIONS, 1)
        outputs = answer if canary else rest
        noisy = [
            noisy_accuracy(outputs, target, multiplier, stream.derived(name)) for _, name in drawn
        ]
        return [noisy[best_of(noisy)], noisy[0]]

    step = query("right answers", multiplier)
    account = SearchAccount(Ledger().after(step), REPETITIONS)
    return _played("search", run, trials, account, scores, step)


def _multiplier(run: Run) -> float:
    multiplier = run.privacy.noise_multiplier
    if not isinstance(multiplier, float | int):
        raise UserError("this game needs a number as privacy.noise_multiplier.")
    return multiplier


def _played(
    what: str,
    run: Run,
    trials: int,
    account: Account,
    scores: Callable[[bool, Stream], list[float]],
    step: Step | None = None,
) -> Game:
    """The game of independent trials, each scored with the canary or without it: by all that is
    released, and then by each release of the step, if one is given."""
    included = coins(run.seed, "canary's coins", trials)
    stream = run.stream("noise", torch.device("cpu"))
    rows = [scores(coin, stream.derived(str(k))) for k, coin in enumerate(included.tolist())]
    attack, *alone = (Scores(values, included.numpy()) for values in np.array(rows).T)
    parts = parts_of(step, alone) if step else ()
    delta, seed = run.privacy.delta, run.seed
    return Game(what, f"private {what}", (attack,), account, delta, seed, parts=parts)
