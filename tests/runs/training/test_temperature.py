"""The private temperature: sensitivity, noise, ledger, a reference by hand, and what it is for."""

import json
import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.comparison.verify.records import contradictions
from dpbench.learning.data.examples import Split
from dpbench.learning.metrics import calibration as exact
from dpbench.learning.metrics.builtin.calibration import ece
from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import GaussianMechanism, Poisson
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.runs.training import trainer
from dpbench.runs.training.loop import Training
from dpbench.runs.training.temperature import LogitScaling, PrivateTemperature
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.sampling import poisson_indices
from dpbench.step.mechanism.streams import seeded

SMALL = ["epochs=2", "model=logistic", "batch_size=256"]
FITTED = [*SMALL, "temperature=private", "temperature.share=0.3"]
DELTA = 1e-5
USUAL = PrivateTemperature(1, 0.3, 0.5, 50, 0.5, 4.0, 32.0)
ONE_STEP = replace(USUAL, sample_rate=1.0, steps=1)

values = st.floats(width=32) | st.floats(-30, 30, width=32)
rows_of = st.lists(st.lists(values, min_size=2, max_size=2), min_size=1, max_size=6)


def streams(purpose, key=0):
    return seeded(purpose, key, "", torch.device("cpu"))


def split(logits, targets=None):
    classes = torch.arange(len(logits)) % logits.shape[1] if targets is None else targets
    return Split(logits, classes, torch.zeros(len(logits), dtype=torch.long))


def overconfident(n, too_large=3.0, classes=4, seed=0):
    """Logits that are `too_large` times those that the classes were drawn from."""
    draw = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, classes, generator=draw)
    targets = torch.multinomial(logits.softmax(1), 1, generator=draw).squeeze(1)
    return split(too_large * logits, targets)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=rows_of, bound=st.floats(1e-3, 1e3), parameters=st.sampled_from([1, 2]))
def test_one_example_changes_the_sum_by_at_most_the_stated_sensitivity(rows, bound, parameters):
    with pytest.MonkeyPatch.context() as patch:
        made = []

        def listening(self, total, sensitivity, multiplier, stream):
            made.append((total.clone(), sensitivity, multiplier))
            return total

        patch.setattr(Gaussian, "add", listening)
        fit = replace(ONE_STEP, bound=bound, parameters=parameters)
        logits = torch.tensor(rows)
        for examples in (split(logits), split(logits).take(torch.arange(1, len(rows)))):
            fit.fitted(examples, 100, streams)
    (with_it, sensitivity, multiplier), (without, *same) = made
    assert [sensitivity, multiplier] == same
    assert (sensitivity, multiplier) == (bound, fit.step.releases[0].mechanism.noise_multiplier)
    # The sum of the others is rounded as well, at another place.
    rounding = 2e-6 * len(rows) * bound
    assert (with_it - without).double().norm() <= sensitivity + rounding


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_scale_in_the_ledger(scale, variance_p):
    fit = replace(ONE_STEP, noise_multiplier=scale * 32, lr=0.1)
    nothing = split(torch.empty(0, 3))
    scalings = [fit.fitted(nothing, 100, lambda p, k=k: streams(p, k)) for k in range(150)]
    noise = torch.cat([-100 / 0.1 * s.log_temperature.detach() for s in scalings])
    (release,) = ONE_STEP.step.releases
    fits = variance_p(noise, ONE_STEP.bound * release.mechanism.noise_multiplier)
    assert fits > 1e-3 if scale == 1 else fits < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [1, 2])
def test_the_fit_is_dp_sgd_written_by_hand(parameters, released):
    fit = replace(USUAL, parameters=parameters, noise_multiplier=3.0, steps=20)
    examples = overconfident(300, classes=2)
    scaling = fit.fitted(examples, 290, streams)
    noise, batches = (streams(f"temperature {what}") for what in ("noise", "batches"))
    theta = np.zeros(parameters)
    for step in range(20):
        total = np.zeros(parameters)
        for place in poisson_indices(300, 0.5, batches).tolist():
            z, y = examples.inputs[place].double().numpy(), int(examples.targets[place])
            scaled = z * math.exp(-theta[0]) + np.array([0.0, theta[1] if parameters == 2 else 0])
            p = np.exp(scaled - scaled.max()) / np.exp(scaled - scaled.max()).sum()
            error = p - np.eye(2)[y]
            gradient = np.array([-(error @ z) * math.exp(-theta[0]), error[1]])[:parameters]
            total += gradient / max(1, np.linalg.norm(gradient) / 4)
        rate = 0.5 * (1 - step / 20)
        theta = theta - rate * released(total, 3 * 4.0, noise) / (0.5 * 290)
    expected = [math.exp(theta[0]), *theta[1:]]
    assert list(scaling.metrics.values()) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_batches_are_poisson_samples_at_the_rate_of_the_ledger(monkeypatch):
    sizes = []

    def listening(*arguments):
        sizes.append(len(poisson_indices(*arguments)))
        return poisson_indices(*arguments)

    monkeypatch.setattr("dpbench.training.temperature.poisson_indices", listening)
    replace(USUAL, sample_rate=0.2, steps=200).fitted(overconfident(500), 500, streams)
    law = replace(USUAL, sample_rate=0.2).step.sampling
    assert law == Poisson(0.2)
    assert np.mean(sizes) == pytest.approx(500 * law.rate, abs=4 * (80 / 200) ** 0.5)
    assert 60 < np.var(sizes) < 105


@pytest.mark.slow
def test_with_little_noise_it_is_the_best_temperature():
    quiet = replace(USUAL, noise_multiplier=1e-6, steps=200, bound=100.0)
    rows = overconfident(4000)
    found = quiet.fitted(rows, 4000, streams).metrics["temperature"]
    assert found == pytest.approx(exact.fitted_temperature(rows.inputs, rows.targets), rel=0.02)


def test_a_temperature_changes_no_class_and_a_bias_may():
    examples, scaling = overconfident(500, classes=2), LogitScaling(2)
    with torch.no_grad():
        scaling.log_temperature += 1.7
        assert torch.equal(scaling(examples.inputs).argmax(1), examples.inputs.argmax(1))
        scaling.bias += 3
        assert not torch.equal(scaling(examples.inputs).argmax(1), examples.inputs.argmax(1))


def test_an_overconfident_model_is_calibrated_despite_the_noise():
    scaling = USUAL.fitted(overconfident(4000, seed=1), 4000, streams)
    examples = overconfident(10_000)
    with torch.no_grad():
        after = ece(scaling(examples.inputs), examples.targets)
    assert 3 * after < ece(examples.inputs, examples.targets)


def their_epsilon(accountant, ledger):
    for step, times in ledger.entries:
        (release,) = step.releases
        event = dp_accounting.GaussianDpEvent(release.mechanism.noise_multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(step.sampling.rate, event)
        accountant.compose(dp_accounting.SelfComposedDpEvent(sampled, times))
    return accountant.get_epsilon(DELTA)


@pytest.mark.slow
def test_a_target_epsilon_is_met_with_the_fit_and_other_accountants_agree(no_statement):
    plain, fitted = (
        prepare(run_config([*o, "privacy=eps3", "privacy.accountant=pld"]))[1]
        for o in (SMALL, FITTED)
    )
    assert fitted.noise_multiplier > plain.noise_multiplier
    assert 2.98 < pld(fitted.ledger, DELTA) <= 3
    assert pld(fitted.ledger, DELTA) == pytest.approx(
        their_epsilon(PLDAccountant(), fitted.ledger), rel=1e-3
    )
    assert rdp(fitted.ledger, DELTA) == pytest.approx(
        their_epsilon(RdpAccountant(), fitted.ledger), rel=2e-3
    )
    training, fit = fitted.ledger.entries
    assert training[1] == fitted.steps
    assert fit == (USUAL.step, 50)
    assert fit[0].releases[0].mechanism == GaussianMechanism(32.0)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    return load(load_or_run(run_config([*FITTED, f"results_dir={folder}"])))


@pytest.mark.slow
def test_a_record_has_both_models_and_an_epsilon_that_follows(record):
    found = {name: record.metrics[f"test/{name}"] for name in ("accuracy", "nll", "ece", "mce")}
    before = {name: record.metrics[f"test/{name}_unscaled"] for name in found}
    assert before["accuracy"] == found["accuracy"]
    assert all(before[name] != found[name] for name in ("nll", "ece", "mce"))
    assert found["nll"] == pytest.approx(record.metrics["test/loss"])
    assert record.metrics["test/temperature"] > 0
    entries = record.privacy["ledger"]
    assert entries[-1]["releases"][0]["what"] == "gradient sum of the temperature"
    assert [entry["times"] for entry in entries] == [record.privacy["steps"] - 50, 50]
    unclean = {"was made with uncommitted changes."}
    assert {*contradictions(record)} <= unclean
    forged = json.loads(json.dumps(record.privacy)) | {"ledger": entries[:1]}
    assert any("ledger" in found for found in contradictions(replace(record, privacy=forged)))


@pytest.mark.slow
def test_a_run_that_diverges_is_verified_with_what_it_released(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Training, "diverged", property(lambda self: True))
        diverged = load(load_or_run(run_config([*FITTED, f"results_dir={tmp_path}"])))
    assert diverged.status == "diverged"
    assert math.isnan(diverged.metrics["test/ece"])
    assert [entry["times"] for entry in diverged.privacy["ledger"]] == [8, 50]  # as planned
    assert {*contradictions(diverged)} <= {"was made with uncommitted changes."}


@pytest.mark.slow
def test_training_reads_nothing_of_the_part_nor_the_fit_of_the_test_set(record, tmp_path):
    run, _ = prepare(run_config(FITTED))

    def metrics(change):
        data = run.load(tmp_path)
        changed = replace(run)
        object.__setattr__(changed, "load", lambda _: change(data))
        return trainer.fit(changed, tmp_path, quiet=True).metrics

    def darker(examples):
        return replace(examples, inputs=examples.inputs * 0.3)

    ours = record.metrics
    other_part = metrics(lambda d: replace(d, calibration=darker(d.calibration)))
    assert other_part["test/nll_unscaled"] == ours["test/nll_unscaled"]
    assert other_part["test/temperature"] != ours["test/temperature"]
    other_test = metrics(lambda d: replace(d, test=darker(d.test)))
    assert other_test["test/temperature"] == ours["test/temperature"]
    assert other_test["test/nll_unscaled"] != ours["test/nll_unscaled"]


@pytest.mark.slow
@pytest.mark.parametrize("ends", [0, 3])
@pytest.mark.parametrize("how", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_ends_by_the_fit_goes_on_to_the_same_bits(
    how, ends, record, tmp_path, monkeypatch
):
    """With a checkpoint after the last step, as the training is not to be repeated."""
    drawn = []

    def interrupted(*arguments):
        drawn.append(0)
        if len(drawn) > ends:
            raise how
        return poisson_indices(*arguments)

    overrides = [*FITTED, f"results_dir={tmp_path}"]
    with monkeypatch.context() as patch:
        patch.setattr("dpbench.training.temperature.poisson_indices", interrupted)
        with pytest.raises(how):
            load_or_run(run_config(overrides))
    again = load(load_or_run(run_config(overrides)))
    assert again.provenance["resumed"] == 1
    assert again.metrics == record.metrics
    assert again.privacy == record.privacy


def test_a_private_search_pays_for_it_beside_the_score(no_statement):
    scored = [*FITTED, "validation=0.2", "score_noise_multiplier=10"]
    entries = prepare(run_config(scored))[1].ledger.entries
    assert [step.releases[0].what for step, _ in entries] == [
        "gradient sum",
        "right answers on the validation split",
        "gradient sum of the temperature",
    ]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("parameters", [1, 2])
def test_the_calibration_error_of_dp_sgd_on_dutch_falls_by_three(parameters, data_folder, tmp_path):
    overrides = ["dataset=dutch", "model=logistic", "privacy=eps3", "epochs=5"]
    fit = ["temperature=private", f"temperature.parameters={parameters}"]
    folders = [f"data_dir={data_folder}", f"results_dir={tmp_path}"]
    found = load(load_or_run(run_config([*overrides, *fit, *folders])))
    assert min(found.privacy["rdp"], found.privacy["pld"]) <= 3
    assert 3 * found.metrics["test/ece"] < found.metrics["test/ece_unscaled"]
    assert found.metrics["test/nll"] < found.metrics["test/nll_unscaled"]
