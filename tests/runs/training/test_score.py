"""The noisy accuracy on the validation split: its noise, its ledger entry, and its refusals."""

import json
import math

import numpy as np
import pytest
import torch
from scipy.stats import kstest, norm

from dpbench.learning.metrics.registry import NOISY_ACCURACY
from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import GaussianMechanism
from dpbench.runs.execution.load_or_run import load_or_run
from dpbench.runs.execution.prepare import prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.reading import load
from dpbench.runs.training.plan import privacy_statement
from dpbench.runs.training.score import SENSITIVITY, noisy_accuracy
from dpbench.step.mechanism.streams import CipherStream

PLAIN = ["epochs=1", "model=logistic", "batch_size=512", "validation=0.2"]
SMALL = [*PLAIN, "privacy=noise1"]
SCORED = [*SMALL, "score_noise_multiplier=4"]


def ledger(overrides):
    return prepare(run_config(overrides))[1].ledger


def test_one_example_changes_the_number_of_right_answers_by_at_most_the_sensitivity():
    draw = torch.Generator().manual_seed(0)
    for _ in range(50):
        outputs, targets = torch.randn(30, 4, generator=draw), torch.randint(4, (30,))
        for changed in range(30):
            kept = torch.arange(30) != changed
            both = [(outputs[k].argmax(1) == targets[k]).sum() for k in (kept, kept | ~kept)]
            assert abs(both[1] - both[0]) <= SENSITIVITY


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 2 / 3, 3 / 2])
def test_the_noise_has_the_scale_in_the_ledger(scale):
    step, times = ledger(SCORED).entries[-1]
    (release,) = step.releases
    assert (release.mechanism, times, step.sampling.rate) == (GaussianMechanism(4), 1, 1.0)
    outputs, targets = torch.eye(50), torch.zeros(50, dtype=torch.long)
    stream = CipherStream(bytes(32))
    drawn = [noisy_accuracy(outputs, targets, scale * 4, stream) for _ in range(4000)]
    noise = 50 * np.array(drawn) - 1  # one right answer
    fits = kstest(noise, norm(0, release.mechanism.noise_multiplier * SENSITIVITY).cdf).pvalue
    assert fits > 1e-3 if scale == 1 else fits < 1e-6


def adjacency(overrides):
    run, planned = prepare(run_config(overrides))
    return privacy_statement(run, planned)["adjacency"]


@pytest.mark.slow
def test_a_split_by_place_that_epsilon_covers_makes_adjacency_zero_out():
    """Without its place, an example would move all after it from one part to the other."""
    assert adjacency(SMALL) == "add or remove one example"
    assert adjacency(SCORED) == "zero out one example"
    fitted = ["temperature=private", "temperature.share=0.3", "temperature.noise_multiplier=1"]
    assert adjacency([*SMALL, *fitted]) == "zero out one example"


def test_outputs_that_are_not_finite_have_a_score_like_any_other():
    outputs, targets = torch.full((20, 3), math.nan), torch.zeros(20, dtype=torch.long)
    assert -0.5 < noisy_accuracy(outputs, targets, 1.0, CipherStream(bytes(32))) < 1.5


def test_a_run_with_a_score_is_the_same_run_and_its_ledger_has_one_release_more(tmp_path):
    plain, scored = (
        load(load_or_run(run_config([*o, f"results_dir={tmp_path}"]))) for o in (SMALL, SCORED)
    )
    assert scored.metrics.keys() - plain.metrics.keys() == {NOISY_ACCURACY}
    exact, noisy = (scored.metrics[name] for name in ("validation/accuracy", NOISY_ACCURACY))
    assert 0 < abs(exact - noisy) < 6 * 4 / 287
    extra = scored.privacy["ledger"][len(plain.privacy["ledger"]) :]
    assert [e["releases"][0]["what"] for e in extra] == ["right answers on the validation split"]
    assert scored.privacy["rdp"] > plain.privacy["rdp"]
    assert "ended early" not in scored.privacy["why"]
    assert json.dumps(scored.privacy["ledger"][:-1]) == json.dumps(plain.privacy["ledger"])


@pytest.mark.slow
def test_a_target_epsilon_is_met_with_the_score(no_statement):
    scores = ([], ["score_noise_multiplier=4"])
    plain, scored = (prepare(run_config([*PLAIN, "privacy=eps3", *score]))[1] for score in scores)
    assert scored.noise_multiplier > plain.noise_multiplier
    assert 2.98 < min(bound(scored.ledger, 1e-5) for bound in (rdp, pld)) <= 3


def test_trials_of_one_configuration_differ_in_noise_alone(tmp_path):
    runs = [[*SCORED, f"trial=a-{k}", f"results_dir={tmp_path}"] for k in (1, 2)]
    one, two = (load(load_or_run(run_config(run))) for run in runs)
    assert one.digest != two.digest
    assert one.privacy["ledger"] == two.privacy["ledger"]
    assert one.metrics["train_set/loss"] != two.metrics["train_set/loss"]
    noise = [r.metrics[NOISY_ACCURACY] - r.metrics["validation/accuracy"] for r in (one, two)]
    assert noise[0] != noise[1]


@pytest.mark.slow
def test_a_run_that_diverged_has_a_score_too(tmp_path, monkeypatch):
    """That its metrics are not finite is not released."""
    from dpbench.runs.training.loop import Training

    monkeypatch.setattr(Training, "diverged", property(lambda self: True))
    overrides = ["epochs=3", *SMALL[1:], f"results_dir={tmp_path}"]
    plain, scored = (
        load(load_or_run(run_config([*overrides, *more])))
        for more in ([], ["score_noise_multiplier=4"])
    )
    assert plain.privacy["steps"] == 9  # all planned ones, as it ended early
    assert scored.privacy["steps"] == 9 + 1
    assert scored.status == plain.status == "diverged"
    assert math.isfinite(scored.metrics[NOISY_ACCURACY])
