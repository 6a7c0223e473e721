"""Private prediction sets: sensitivity, noise, ledger, coverage, and a run with them."""

import math
from dataclasses import replace

import dp_accounting
import pytest
import torch
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from scipy.stats import norm

from dpbench.comparison.verify.records import contradictions
from dpbench.privacy.accountants import ORDERS, pld, rdp
from dpbench.privacy.ledger import GaussianMechanism, Ledger
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.runs.training import trainer
from dpbench.runs.training.conformal import PrivateConformal
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.streams import CipherStream, seeded

SMALL = ["epochs=2", "model=logistic", "batch_size=256"]
WITH_SETS = [*SMALL, "conformal=private", "conformal.share=0.6"]
DELTA = 1e-5
USUAL = PrivateConformal(0.9, 0.01, 0.1, 8, 24.0)


def stream(key=0):
    return seeded("conformal", key, "", torch.device("cpu"))


@pytest.mark.parametrize("coverage", [0.05, 0.5, 0.9])
def test_one_example_changes_an_excess_by_at_most_the_stated_sensitivity(coverage, monkeypatch):
    sums = []

    def listening(self, total, sensitivity, multiplier, stream):
        sums.append((total.item(), sensitivity, multiplier))
        return total

    monkeypatch.setattr(Gaussian, "add", listening)
    fit, draw, most = replace(USUAL, coverage=coverage), torch.Generator().manual_seed(0), 0.0
    for _ in range(500):
        scores, threshold = torch.rand(20, generator=draw), torch.rand(1, generator=draw).item()
        fit.noisy_excess(scores, threshold, stream())
        fit.noisy_excess(scores[1:], threshold, stream())
        (with_it, sensitivity, multiplier), (without, *_) = sums[-2:]
        most = max(most, abs(with_it - without))
    assert sensitivity * (1 - 1e-9) < most < sensitivity * (1 + 1e-9)
    assert multiplier == fit.step.releases[0].mechanism.noise_multiplier


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_scale_in_the_ledger(scale, variance_p):
    fit = replace(USUAL, noise_multiplier=scale * 24)
    secret = CipherStream(bytes(32))
    noise = torch.tensor([fit.noisy_excess(torch.empty(0), 0.5, secret) for _ in range(300)])
    (release,) = USUAL.step.releases
    fits = variance_p(noise, USUAL.sensitivity * release.mechanism.noise_multiplier)
    assert fits > 1e-3 if scale == 1 else fits < 1e-6


def least_threshold(scores, level):
    """That of split conformal prediction, rounded up to a multiple of 1/256."""
    needed = level * (len(scores) + 1)
    return next(k / 256 for k in range(257) if k == 256 or (scores <= k / 256).sum() >= needed)


def test_without_noise_it_is_the_least_threshold_of_split_conformal_prediction():
    fit = replace(USUAL, noise_multiplier=1e-9, failure=1e-6)
    for seed in range(20):
        scores = torch.rand(50 + seed, generator=torch.Generator().manual_seed(seed))
        assert fit.threshold(scores, stream()) == least_threshold(scores, fit.level)


@pytest.mark.parametrize("failure", [0.01, 1e-12, 1e-17, 1e-30])
def test_all_noise_stays_below_the_margin_but_for_the_stated_failure(failure):
    fit = replace(USUAL, failure=failure)
    largest = (fit.margin - fit.level) / (fit.noise_multiplier * fit.sensitivity)
    above = -math.expm1(fit.steps * math.log1p(-norm.sf(largest)))
    assert above == pytest.approx(failure, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("size", [900, 3000])
def test_noise_accepts_too_low_a_threshold_as_rarely_as_stated(size):
    fit, key = replace(USUAL, coverage=0.6, failure=0.1), stream(2)
    scores = torch.rand(size, generator=torch.Generator().manual_seed(0))
    least = least_threshold(scores, fit.level)
    too_low = sum(fit.threshold(scores, key) < least for _ in range(1000))
    assert too_low < 1000 * fit.failure


def covered(fit, size, power, trials=400):
    """The mean coverage of thresholds, each for `size` scores of distribution function s^power."""
    draw, key = torch.Generator().manual_seed(1), stream(1)
    scores = torch.rand(trials, size, generator=draw).double() ** (1 / power)
    return torch.tensor([fit.threshold(row, key) ** power for row in scores]).mean().item()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "power"), [(900, 1.0), (900, 0.3), (3000, 1.0), (200, 4.0)])
def test_sets_cover_as_often_as_asked_for_with_the_noise(size, power):
    """Up to the standard error, which is below 0.002; and not by more than the noise requires."""
    fit = replace(USUAL, noise_multiplier=4.0) if size == 200 else USUAL
    most = fit.level + 2 * fit.margin / size + 0.02
    assert 0.9 < covered(fit, size, power) < most


@pytest.mark.slow
def test_without_a_margin_for_the_noise_sets_cover_too_rarely(monkeypatch):
    monkeypatch.setattr(PrivateConformal, "margin", 0.9)
    assert covered(replace(USUAL, failure=1e-6, noise_multiplier=40.0), 300, 1.0) < 0.89


def event(ledger):
    parts = [
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(
                step.sampling.rate,
                dp_accounting.GaussianDpEvent(step.releases[0].mechanism.noise_multiplier),
            ),
            times,
        )
        for step, times in ledger.entries
    ]
    return dp_accounting.ComposedDpEvent(parts)


def test_other_accountants_agree_on_twenty_settings():
    for multiplier in (2.0, 8.0, 24.0, 50.0, 200.0):
        for steps in (1, 5, 8, 20):
            fit = replace(USUAL, noise_multiplier=multiplier, steps=steps)
            ledger = Ledger().after(fit.step, fit.steps)
            theirs = RdpAccountant(ORDERS).compose(event(ledger)).get_epsilon(DELTA)
            assert rdp(ledger, DELTA) == pytest.approx(theirs, rel=1e-6)
            together = GaussianPrivacyLoss(multiplier / math.sqrt(steps))
            spent = together.get_delta_for_epsilon(pld(ledger, DELTA))
            assert spent == pytest.approx(DELTA, rel=1e-4)


@pytest.mark.slow
def test_a_target_epsilon_is_met_with_the_sets(no_statement):
    plain, fitted = (
        prepare(run_config([*o, "privacy=eps3", "privacy.accountant=rdp"]))[1]
        for o in (SMALL, WITH_SETS)
    )
    assert fitted.noise_multiplier > plain.noise_multiplier
    assert 2.98 < rdp(fitted.ledger, DELTA) <= 3
    theirs = RdpAccountant(ORDERS).compose(event(fitted.ledger)).get_epsilon(DELTA)
    assert rdp(fitted.ledger, DELTA) == pytest.approx(theirs, rel=1e-6)
    training, search = fitted.ledger.entries
    assert (training[1], search) == (fitted.steps, (USUAL.step, 8))
    assert search[0].releases[0].mechanism == GaussianMechanism(24.0)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return load(load_or_run(run_config([*WITH_SETS, f"results_dir={folder}"])))


@pytest.mark.slow
def test_a_record_has_the_sets_and_an_epsilon_that_follows(record):
    groups = [v for k, v in record.metrics.items() if k.startswith("test/coverage/")]
    assert min(groups) == record.metrics["test/worst_group_coverage"]
    assert min(groups) <= record.metrics["test/coverage"] <= max(groups)
    assert 1 <= record.metrics["test/set_size"] <= 10
    assert 256 * record.metrics["test/conformal_threshold"] % 1 == 0
    assert record.privacy["adjacency"] == "zero out one example"
    assert record.privacy["ledger"][-1]["times"] == 8
    assert {*contradictions(record)} <= {"was made with uncommitted changes."}


@pytest.mark.slow
def test_training_reads_nothing_of_the_part_nor_the_search_of_the_test_set(record, tmp_path):
    run, _ = prepare(run_config(WITH_SETS))
    data = run.load(tmp_path)

    def metrics(**changed):
        other = replace(run)
        object.__setattr__(other, "load", lambda _: replace(data, **changed))
        return trainer.fit(other, tmp_path, quiet=True).metrics

    def darker(examples):
        return replace(examples, inputs=examples.inputs * 0.3)

    ours, threshold = record.metrics, "test/conformal_threshold"
    other_part = metrics(calibration=darker(data.calibration))
    assert other_part["test/nll"] == ours["test/nll"]
    assert other_part[threshold] != ours[threshold]
    other_test = metrics(test=darker(data.test))
    assert other_test[threshold] == ours[threshold]
    assert other_test["test/nll"] != ours["test/nll"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fit", "released"), [("conformal", "conformal_threshold"), ("temperature", "temperature")]
)
def test_it_is_released_too_if_by_chance_no_example_is_held_out(fit, released, tmp_path):
    run, _ = prepare(run_config([*SMALL, "epochs=1", f"{fit}=private", f"{fit}.share=0.6"]))
    data = run.load(tmp_path)
    none = replace(data, calibration=data.calibration.take(torch.arange(0)))
    object.__setattr__(run, "load", lambda _: none)
    assert f"test/{released}" in trainer.fit(run, tmp_path, quiet=True).metrics
