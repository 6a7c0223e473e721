"""Attacks that know the ledger, by the game that they play: whole runs, single steps and others."""

import itertools
import json
import math
import os

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from dpbench.audit.audit import GAMES, audit
from dpbench.audit.canaries import MAX_NORM, OneHotPatterns, WalshPatterns, worst_case_norm
from dpbench.audit.game import on_canaries, play_run
from dpbench.audit.inference import REFUTATION_LEVEL, gdp_epsilon, refutes
from dpbench.audit.releases import REPETITIONS, play_search
from dpbench.audit.request import prepare_audit
from dpbench.audit.scores import AllocationScores
from dpbench.audit.tradeoff import profiles
from dpbench.cli.main import main
from dpbench.privacy.ledger import Allocation, GaussianMechanism
from dpbench.runs.records.reading import read
from dpbench.runs.records.record import Record
from dpbench.runs.training.plan import privacy_statement
from dpbench.step.clipping import Coordinates
from dpbench.step.clipping.clip import Memory
from dpbench.step.mechanism import sampling
from dpbench.step.mechanism.noise import CorrelatedGaussian, Gaussian
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.methods.dp_mf import BandedGaussian
from dpbench.system.errors import UserError
from tests.audit.attacking import SHORT, is_refuted, less_noise, run_of

# So few canaries are no data set: attacks are sharper at a large delta.
pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")


@pytest.mark.parametrize(
    "method", ["dpsgd", "dpsgd_global", "bam", "dpsat", "dp_signsgd", "dpsgd_jl"]
)
def test_a_canary_moves_the_sum_as_far_as_the_ledger_says_and_no_further(method):
    """The mean score of those in the data is mu^2/2, of the others -mu^2/2."""
    run = run_of(f"method={method}", canaries=4000)
    scores = play_run(on_canaries(run, 4000), quiet=True).attacks[0]
    moved = scores.values[scores.included].mean() / 9 + 0.5
    assert scores.values[~scores.included].mean() == pytest.approx(-4.5, abs=0.25)
    at_least = 0.55 if method == "dpsgd_jl" else 0.97  # which estimates norms, and errs upwards
    assert at_least < moved < 1.03


def test_canaries_that_share_coordinates_move_them_in_orthogonal_patterns():
    patterns = WalshPatterns(20, 32)
    signs = patterns.signs(torch.arange(20))
    assert (signs @ signs.T).equal(32 * torch.eye(20))
    assert not signs.sum(1).any()  # as many ups as downs
    up, down = torch.arange(32.0), -(torch.arange(32.0) ** 2)
    assert patterns.sum_along(up, down).equal(torch.where(signs > 0, up, down).sum(1).double())


CYCLIC = {"canaries": 4000, "rate": 1 / 8, "steps": 64}


@pytest.mark.slow
def test_decoded_noise_that_is_correlated_holds_and_too_little_of_it_is_refuted(monkeypatch):
    assert not is_refuted("method=dp_mf", "method.bands=4", **CYCLIC)
    add = BandedGaussian.add

    def halved(noise, total, sensitivity, multiplier, stream):
        return add(noise, total, sensitivity, multiplier / 2, stream)

    monkeypatch.setattr(BandedGaussian, "add", halved)
    assert is_refuted("method=dp_mf", "method.bands=4", **CYCLIC)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "multiplier"), [("dp_mf_blt", 5), ("dp_mf_bisr", 5), ("dp_lambda_cgd", 2.5)]
)
def test_noise_that_is_correlated_over_the_whole_run_holds_and_half_of_it_is_refuted(
    name, multiplier, monkeypatch
):
    run = (f"method={name}", f"privacy.noise_multiplier={multiplier}")
    assert not is_refuted(*run, **CYCLIC)
    add = CorrelatedGaussian.add

    def halved(noise, total, sensitivity, multiplier, stream):
        return add(noise, total, sensitivity, multiplier / 2, stream)

    monkeypatch.setattr(CorrelatedGaussian, "add", halved)
    assert is_refuted(*run, **CYCLIC)


def test_batches_without_turns_are_refuted_where_an_account_has_them(monkeypatch):
    def mutant(sampler, size, stream):
        return [torch.arange(size)] * sampler.cycle

    monkeypatch.setattr(sampling.PoissonSampler, "_members", mutant)
    assert is_refuted("method=dp_mf", "method.bands=4", **CYCLIC)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        "dpsgd",
        "dpsgd_global_adapt",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("dpsgd_quantile", "dpsgd_f")),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("dp_fedsgd", "bam", "dpsgd_jl")),
    ],
)
def test_a_correct_run_is_not_refuted(method):
    assert not is_refuted(f"method={method}", canaries=4000)
    assert not is_refuted(f"method={method}", canaries=4000, rate=0.1, steps=40)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["dp_losgd", pytest.param("dp_signlosgd", marks=pytest.mark.long), "dpsgd_coordinate"]
)
def test_a_correct_run_with_shared_coordinates_is_not_refuted(method):
    assert not is_refuted(f"method={method}", canaries=400, rate=0.1, steps=40)


ALLOCATED = ["method=dpsgd", "sampler=allocation", "participations=2"]


@pytest.mark.slow
def test_random_allocation_holds_and_is_refuted_with_less_noise(monkeypatch):
    assert not is_refuted(*ALLOCATED, canaries=2000, rate=1 / 8, steps=16)
    less_noise(0.5)(monkeypatch)
    assert is_refuted(*ALLOCATED, canaries=2000, rate=1 / 8, steps=16)


def test_an_allocated_canary_is_scored_by_the_mean_over_all_sets_of_its_steps():
    draw = torch.Generator().manual_seed(0)
    sums = torch.randn(2, 5, 3, generator=draw).double()  # two epochs, five steps, three canaries
    scores = AllocationScores(OneHotPatterns(3), 3, Allocation(5, 2))
    for noisy in sums.flatten(0, 1):
        scores.add(GaussianMechanism(1.0), 1.0, noisy, noisy)
    ratios = (sums - 0.5).exp()
    sets = [ratios[:, list(pair)].prod(1) for pair in itertools.combinations(range(5), 2)]
    expected = torch.stack(sets).mean(0).log().sum(0)
    assert scores.attacks(torch.ones(3))[0].values == pytest.approx(expected.numpy())


DICE = ("method=dicesgd", "method.error_bound=5", "privacy.noise_multiplier=2")


def memory_is_refuted() -> bool:
    run = prepare_audit([*SHORT, *DICE, "epochs=3"], 200, "memory")[0]
    played = GAMES["memory"](run, 200, True)
    return refutes(played.attacks[0], played.ledger, 1e-3, 1)


@pytest.mark.slow
def test_an_error_that_a_canary_turns_holds_and_is_refuted_if_it_is_not_accounted_for(monkeypatch):
    assert not memory_is_refuted()
    monkeypatch.setattr(Memory, "multipliers", lambda memory, multiplier: (multiplier, 1e3))
    assert memory_is_refuted()


CUT = ("method=dpsgd", "sampler=truncated", "batch_limit=20", "privacy.noise_multiplier=0.7")


@pytest.mark.slow
def test_a_canary_that_takes_a_place_holds_and_is_refuted_as_a_poisson_sample(monkeypatch):
    assert not is_refuted(*CUT, canaries=1200, game="cut")
    monkeypatch.setattr("dpbench.privacy.entries.cut_probability", lambda law: 0.0)
    profiles.cache_clear()
    assert is_refuted(*CUT, canaries=1200, game="cut")
    profiles.cache_clear()


@pytest.mark.slow
def test_no_correct_run_is_refuted():
    """Each has a false alarm with a chance of 1e-4 at most; AUDIT_ROUNDS=200 says of how many."""
    refuted = [
        seed
        for seed in range(int(os.environ.get("AUDIT_ROUNDS", "5")))
        if is_refuted("method=dpsgd", f"seed={seed}", canaries=1000, rate=0.1, steps=20)
    ]
    assert not refuted


@pytest.mark.slow
def test_dpsgd_f_as_published_is_refuted():
    run = run_of("method=dpsgd_f", "method.variant=paper", canaries=4000)
    played = GAMES["run"](run, 4000, True)
    claim = privacy_statement(played.run, played.planned, played.ledger)["claimed"]
    assert gdp_epsilon(*played.attacks[0].halves(1), run.privacy.delta, REFUTATION_LEVEL) > claim


@pytest.mark.parametrize("strict", [1.0, 50.0, 3e4])
def test_the_worst_length_of_global_scaling_is_just_below_its_strict_bound(strict):
    (run, _) = prepare_audit(["method=dpsgd_global", f"method.strict_bound={strict}"], 100)
    assert 0.999 * strict < worst_case_norm(run.method.clip) <= strict
    assert worst_case_norm(Coordinates(1.0)) == pytest.approx(MAX_NORM, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("game", [["epochs=1", "canaries=1000"], ["game=network", "canaries=200"]])
def test_the_command_prints_a_table_and_one_object_and_a_record(
    game, capsys, monkeypatch, tmp_path
):
    words = ["audit", *game, "privacy.delta=1e-3", f"results_dir={tmp_path}"]
    monkeypatch.setattr("sys.argv", ["dpbench", *words])
    main()
    *_, last = capsys.readouterr().out.splitlines()
    said = json.loads(last)
    assert said["verdict"] == "not refuted"
    (path,) = tmp_path.glob("runs/*.json")
    record = read(path)
    assert isinstance(record, Record)
    assert record.privacy["audit"]["epsilon"] == said["epsilon"] <= record.privacy["pld"]


# So few canaries are no data set: attacks are sharper at a large delta.


def step_is_refuted(*overrides: str, trials: int = 1500) -> bool:
    return is_refuted(*overrides, canaries=trials, game="step")


def test_single_steps_of_correlated_noise_are_not_attacked():
    with pytest.raises(UserError, match="noise of dp_mf is correlated over 4: use game=run"):
        step_is_refuted("method=dp_mf")
    with pytest.raises(UserError, match="noise of dp_mf_blt is correlated over all: use game=run"):
        step_is_refuted("method=dp_mf_blt")


COUNTS = ("method=dpsgd_quantile", "method.count_noise=0.15")  # of half counts: 0.3


@pytest.mark.long
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


# So few canaries are no data set: attacks are sharper at a large delta.


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "trials"),
    [
        ("normalization", 600),
        ("columns", 600),
        ("search", 600),
        ("conformal", 600),
        pytest.param("temperature", 200, marks=pytest.mark.long),
    ],
)
def test_a_release_beside_the_steps_holds_and_is_refuted_with_less_noise(game, trials, monkeypatch):
    assert not is_refuted("privacy.noise_multiplier=2", canaries=trials, game=game)
    less_noise(0.1)(monkeypatch)
    assert is_refuted("privacy.noise_multiplier=2", canaries=trials, game=game)


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
)
@pytest.mark.parametrize("method", ["dpsgd", "dpsgd_quantile"])
def test_a_network_in_training_holds_and_is_refuted_with_half_the_noise(method, seed, monkeypatch):
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
