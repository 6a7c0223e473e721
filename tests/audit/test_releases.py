"""Each release of a ledger has a score and an account of its own, at every method's defaults."""

import numpy as np
import pytest
from scipy import stats

from dpbench.audit import inference
from dpbench.audit.audit import GAMES, NominalEpsilon, audit, refuted_parts
from dpbench.audit.game import Game, parts_of
from dpbench.audit.inference import Scores, refutation_level, refutes
from dpbench.audit.request import prepare_audit
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.config.search_path import options
from dpbench.runs.training import statistics
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.step import PrivateStep
from tests.audit.attacking import what_is_refuted
from tests.step.methods.every_method import method_of

COUNTED = (
    "asc",
    "dc_sgd",
    "dpsgd_bounded",
    "dpsgd_f",
    "dpsgd_global_adapt",
    "dpsgd_quantile",
    "raco",
    "slaclip",
)
"""The methods that release counts."""

PROVEN = NominalEpsilon(0.0, "PLD", proven=True)


def played(game: str, *overrides: str, trials: int = 160) -> Game:
    return GAMES[game](*prepare_audit([*overrides], trials, game), True)


def silenced(patch, owner: type, name: str) -> None:
    """A mutant of a method that draws no noise."""
    inner = getattr(owner, name)

    def mutant(*arguments):
        with pytest.MonkeyPatch.context() as within:
            within.setattr(Gaussian, "add", lambda self, total, *others: total)
            return inner(*arguments)

    patch.setattr(owner, name, mutant)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("method", COUNTED)
@pytest.mark.parametrize(
    ("silent", "refuted"),
    [("_release_counts", "counts for the clip"), ("_with_noise", "gradient sum"), ("", "")],
)
def test_counts_and_sums_hold_and_are_refuted_without_noise(method, silent, refuted, monkeypatch):
    if silent:
        silenced(monkeypatch, PrivateStep, silent)
    found = what_is_refuted(played("step", f"method={method}"))
    assert refuted in found if silent else not found


def test_every_method_that_releases_counts_is_here():
    counted = {name for name in options("method") if method_of(name, None).clip.query}
    assert counted == {*COUNTED}


@pytest.mark.slow
@pytest.mark.parametrize("silent", range(4))
def test_each_statistic_is_refuted_without_its_noise(silent, monkeypatch):
    """The four are drawn in the order of the ledger."""
    drawn = iter(range(10**6))

    class Mutant(Gaussian):
        def add(self, total, *others):
            return total if next(drawn) % 4 == silent else super().add(total, *others)

    monkeypatch.setattr(statistics, "Gaussian", Mutant)
    game = played("normalization")
    assert game.parts[silent].what in what_is_refuted(game)


@pytest.mark.slow
@pytest.mark.parametrize("game", ["normalization", "search"])
def test_statistics_and_scores_hold(game):
    assert what_is_refuted(played(game)) == ()


@pytest.mark.slow
def test_the_score_of_a_search_is_refuted_without_its_noise(monkeypatch):
    monkeypatch.setattr(Gaussian, "add", lambda self, total, *others: total)
    assert "right answers" in what_is_refuted(played("search"))


@pytest.mark.slow
def test_the_sentence_says_what_is_refuted(monkeypatch):
    silenced(monkeypatch, PrivateStep, "_release_counts")
    result = audit(*prepare_audit(["method=dpsgd_f"], 160, "step"), game="step")
    assert result.verdict == "refuted"
    assert "the scores of counts for the clip would be all but impossible" in result.sentence


def release(multiplier: float) -> Release:
    return Release("answer", GaussianMechanism(multiplier))


def gaussian(multiplier: float, number: int, seed: int) -> Scores:
    """Those of one release whose noise has this multiplier."""
    draw = np.random.default_rng(seed)
    included = draw.random(number) < 0.5
    return Scores(draw.standard_normal(number) + included / multiplier, included)


def right_game(seed: int) -> Game:
    """Of two releases together, and each alone."""
    step = Step(Poisson(1.0), (release(1.0), release(10.0)))
    first, second = gaussian(1.0, 1000, 2 * seed), gaussian(10.0, 1000, 2 * seed + 1)
    parts = parts_of(step, (first, second))
    return Game("step", "right", (first,), Ledger().after(step), 1e-3, seed, parts=parts)


@pytest.mark.slow
def test_all_releases_together_raise_a_false_alarm_as_rarely_as_one(monkeypatch):
    assert 3 * (1 - refutation_level(3)) == pytest.approx(1e-4)
    monkeypatch.setattr(inference, "REFUTATION_LEVEL", 0.8)
    games = map(right_game, range(40))
    alarms = sum(bool(refuted_parts(game, game.attacks[0], PROVEN)) for game in games)
    assert alarms <= stats.binom.ppf(0.999, 40, 0.2)


SMALLEST = {
    "gradient sum": (1.0, 5000, 3, 0.7),
    "counts of raco": (5.0, 5000, 3, 0.3),
    "counts of dpsgd_f and dpsgd_global_adapt": (10.0, 5000, 3, 0.2),
    "counts of dpsgd_quantile and dpsgd_bounded": (25.6, 5000, 3, 0.07),
    "histograms": (16.0, 5000, 5, 0.1),
    "score": (1.0, 20_000, 2, 0.8),
}
"""Of releases: noise multiplier, default trials, tests, and the largest share that is found."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_the_smallest_fault_of_a_release_is_found_and_a_right_one_spared(name):
    multiplier, trials, tests, share = SMALLEST[name]
    account = Ledger().after(Step(Poisson(1.0), (release(multiplier),)))

    def found(share: float) -> int:
        noise = share * multiplier
        return sum(refutes(gaussian(noise, trials, s), account, 1e-6, s, tests) for s in range(10))

    assert found(share) >= 9
    assert found(1.0) == 0
