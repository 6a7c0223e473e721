"""Audits of single steps: what is right holds, and what is broken is refuted."""

import pytest

from dpbench.audit.audit import audit
from dpbench.audit.request import prepare_audit
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.step import PrivateStep
from dpbench.system.errors import UserError
from tests.audit.attacking import is_refuted, less_noise

# So few canaries are no data set: attacks are sharper at a large delta.
pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")


def step_is_refuted(*overrides: str, trials: int = 1500) -> bool:
    return is_refuted(*overrides, canaries=trials, game="step")


def test_single_steps_of_correlated_noise_are_not_attacked():
    with pytest.raises(UserError, match="noise of dp_mf is correlated over 4: use game=run"):
        step_is_refuted("method=dp_mf")
    with pytest.raises(UserError, match="noise of dp_mf_blt is correlated over all: use game=run"):
        step_is_refuted("method=dp_mf_blt")


COUNTS = ("method=dpsgd_quantile", "method.count_noise=0.15")  # of half counts: 0.3


@pytest.mark.long
@pytest.mark.slow
def test_a_step_with_its_counts_holds():
    assert not step_is_refuted(*COUNTS)


@pytest.mark.slow
def test_counts_without_noise_are_refuted(monkeypatch):
    answer = PrivateStep._release_counts

    def mutant(self, query, counts, divisor):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Gaussian, "add", lambda self, total, s, m, stream: total)
            answer(self, query, counts, divisor)

    monkeypatch.setattr(PrivateStep, "_release_counts", mutant)
    assert step_is_refuted(*COUNTS)


@pytest.mark.slow
def test_counts_that_the_ledger_does_not_know_are_refuted(monkeypatch):
    from dpbench.step.mechanism.method import Method

    releases = Method.releases
    monkeypatch.setattr(Method, "releases", lambda self, multiplier: releases(self, multiplier)[:1])
    assert step_is_refuted(*COUNTS, trials=500)


@pytest.mark.slow
def test_a_step_without_the_canary_that_releases_nothing_is_refuted(monkeypatch):
    take = PrivateStep.__call__

    def mutant(self, batch):
        return take(self, batch) if len(batch) else None

    monkeypatch.setattr(PrivateStep, "__call__", mutant)
    assert step_is_refuted("method=dpsgd", trials=1000)


@pytest.mark.slow
def test_a_division_by_the_real_size_of_a_batch_is_refuted():
    assert step_is_refuted("method=dpsgd", "method.variant=paper", trials=1000)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpsgd", "bam", "dpsgd_coordinate", "dp_signlosgd"])
def test_a_step_that_is_right_holds(method):
    assert not step_is_refuted(f"method={method}")


@pytest.mark.slow
def test_a_step_of_a_sample_holds_and_is_refuted_with_less_noise(monkeypatch):
    asked = {"canaries": 1500, "rate": 0.5, "steps": 2, "game": "step"}
    assert not is_refuted("method=dpsgd", "privacy.noise_multiplier=0.5", **asked)
    less_noise(0.5)(monkeypatch)
    assert is_refuted("method=dpsgd", "privacy.noise_multiplier=0.5", **asked)


@pytest.mark.long
@pytest.mark.slow
def test_the_notes_epsilon_of_a_sampled_sign_is_refuted():
    """It scales the loss by the rate, which is not how sampling amplifies."""
    words = ["privacy.noise_multiplier=0.2", "batch_size=2000", "method=dp_signlosgd"]
    run, canaries = prepare_audit(words, 4000, game="step")
    result = audit(run, canaries, game="step", quiet=True)
    assert result.verdict == "not refuted"
    stated = result.of_paper
    assert stated is not None
    assert stated.epsilon < result.bounds.family < result.nominal.epsilon
    assert result.against(stated).verdict == "refuted"
