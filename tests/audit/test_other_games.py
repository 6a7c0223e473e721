"""Attacks on what is released beside steps, on a network in training and on a private search."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from dpbench.audit.audit import audit
from dpbench.audit.releases import REPETITIONS, play_search
from dpbench.audit.request import prepare_audit
from dpbench.system.errors import UserError
from tests.audit.attacking import is_refuted, less_noise

# So few canaries are no data set: attacks are sharper at a large delta.
pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "trials"),
    [
        ("normalization", 600),
        ("columns", 600),
        ("search", 600),
        pytest.param("temperature", 200, marks=pytest.mark.long),
    ],
)
def test_a_release_beside_the_steps_holds_and_is_refuted_with_a_tenth_of_the_noise(
    game, trials, monkeypatch
):
    assert not is_refuted("privacy.noise_multiplier=2", canaries=trials, game=game)
    less_noise(0.1)(monkeypatch)
    assert is_refuted("privacy.noise_multiplier=2", canaries=trials, game=game)


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
)
@pytest.mark.parametrize("method", ["dpsgd", "dpsgd_quantile"])
def test_a_network_in_training_holds_and_is_refuted_with_half_of_the_noise(
    method, seed, monkeypatch
):
    arguments = (f"method={method}", "optimizer.lr=0.5", "batch_size=35", f"seed={seed}")
    assert not is_refuted(*arguments, canaries=1000, game="network")
    less_noise(0.5)(monkeypatch)
    assert is_refuted(*arguments, canaries=1000, game="network")


@pytest.mark.parametrize(
    ("method", "said"), [("dp_signsgd_laplace", "Gaussian noise"), ("dp_mf", "is correlated over")]
)
def test_what_a_network_cannot_show_is_refused(method, said):
    run, canaries = prepare_audit([f"method={method}"], 300, "network")
    with pytest.raises(UserError, match=f"game=network.*{said}"):
        audit(run, canaries, game="network")


def test_an_attacked_search_spends_what_the_note_says():
    """The density of the chosen score is q(y) f'(F(y)), f the generating function of the number of
    trials (docs/privacy/search_and_temperature.md)."""
    scores, step = np.linspace(-12, 13, 100_001, retstep=True)
    gamma = REPETITIONS.gamma

    def chosen(mean):
        below = stats.norm.cdf(scores, mean)
        return stats.norm.pdf(scores, mean) * gamma / (1 - (1 - gamma) * below) ** 2 * step

    present, absent = chosen(1), chosen(0)

    def excess(epsilon):
        odds = math.exp(epsilon)
        ends = (present - odds * absent), (absent - odds * present)
        return max(end.clip(min=0).sum() for end in ends) - 1e-6

    spent = optimize.brentq(excess, 0, 12)
    run, _ = prepare_audit(["privacy.noise_multiplier=1"], game="search")
    account = play_search(run, 1).ledger
    assert spent == pytest.approx(5.35, abs=0.005)
    assert account.cost(1e-6).epsilon == pytest.approx(7.08, abs=0.005)
