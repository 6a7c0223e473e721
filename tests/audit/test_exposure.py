"""Attacks on real runs: inserted canaries, and losses of mislabelled targets."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from dpbench.audit.exposure.gradient_canaries import (
    DiracGradients,
    JoinedGradients,
    MixedBatch,
    draw_canaries,
    quiet_coordinates,
    with_canaries,
)
from dpbench.audit.exposure.membership import (
    Exposure,
    Shadows,
    area,
    by_earlier_runs,
    confidences,
    exposure,
    leave_one_out,
    likelihood_ratios,
)
from dpbench.audit.exposure.page import _findings
from dpbench.audit.exposure.rows import Row, black_box
from dpbench.audit.exposure.white_box import Transcript, likelihood, play_white_box
from dpbench.audit.inference import Scores, gdp_epsilon, one_run_epsilon
from dpbench.config.compose import compose
from dpbench.data.dataset import Split
from dpbench.errors import UserError
from dpbench.execution.prepare import build, run_of
from dpbench.mechanism.noise import Gaussian
from dpbench.privacy.accountants import pld
from dpbench.records.reading import parse
from dpbench.reproduce.command import reproduce
from dpbench.reproduce.verify import unfounded
from dpbench.training.plan import plan
from dpbench.training.trainer import fit, private_step

pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")

CPU = torch.device("cpu")


def dirac_gradients(coordinates=(5, 0, 9), length=3.0, size=12):
    from dpbench.gradients import Layer

    layers = (Layer("first", slice(0, 8)), Layer("second", slice(8, size)))
    return DiracGradients(torch.tensor(coordinates), length, size, layers)


def test_a_dirac_gradient_is_what_its_materialised_gradient_says():
    gradients, draw = dirac_gradients(), torch.Generator().manual_seed(0)
    stack, vector = gradients.stack(), torch.rand(12, generator=draw)
    assert torch.equal(gradients.norms, stack.norm(dim=1))
    by_layer = torch.stack([stack[:, :8].norm(dim=1), stack[:, 8:].norm(dim=1)], 1)
    assert torch.equal(gradients.layer_norms, by_layer)
    assert torch.allclose(gradients.dot(vector), stack @ vector)
    factors = torch.rand(3, generator=draw)
    assert torch.allclose(gradients.weighted_sum(factors), factors @ stack)
    per_layer = torch.rand(3, 2, generator=draw)
    expected = torch.cat([per_layer[:, 0] @ stack[:, :8], per_layer[:, 1] @ stack[:, 8:]])
    assert torch.allclose(gradients.weighted_sum(per_layer), expected)


def test_joined_gradients_are_those_of_examples_and_then_of_canaries():
    run = build(compose([]))
    step, batch = private_step(run, plan(run), CPU), run.load(None).train.at(torch.arange(4))
    real, size = step.engine(batch), len(step.engine.parameters)
    both = JoinedGradients(
        real, DiracGradients(torch.tensor([7, 3]), 2.0, size, step.engine.parameters.layers)
    )
    stack = both.stack()
    assert stack.shape == (6, size)
    assert torch.allclose(both.norms, stack.norm(dim=1), rtol=1e-4)
    factors = torch.rand(6, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(both.weighted_sum(factors), factors @ stack, atol=1e-5)
    assert torch.allclose(both.dot(stack[0]), stack @ stack[0], atol=1e-4)
    assert both.losses.isnan().tolist() == [False] * 4 + [True] * 2


def test_a_split_has_the_included_canaries_after_its_examples():
    examples = Split(torch.rand(3, 2), torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    canaries = draw_canaries(torch.arange(40), 50, 2, 1.0, seed=0)
    split, included = with_canaries(examples, canaries), canaries.included.nonzero().flatten()
    assert len(split) == 3 + len(included)
    batch = split.at(torch.tensor([4, 1, 3]))
    assert isinstance(batch, MixedBatch)
    assert batch.numbers.tolist() == [int(included[1]), int(included[0])]
    assert torch.equal(batch.real.inputs, examples.inputs[1:2])
    assert batch.groups.tolist() == [0, *canaries.groups[batch.numbers].tolist()]
    assert len(batch) == len(batch.targets) == 3


def test_coins_and_groups_of_canaries_are_balanced():
    canaries = draw_canaries(torch.arange(4000), 5000, 2, 1.0, seed=1)
    for share in (canaries.included, canaries.groups == 1):
        assert abs(share.double().mean() - 0.5) < 0.04


def test_canaries_take_the_coordinates_that_examples_move_least():
    """The borders of the digits are blank: weights of blank pixels have no gradient."""
    run = build(compose(["model=logistic"]))
    step, train = private_step(run, plan(run), CPU), run.load(None).train
    places = quiet_coordinates(step, train, 20, seed=0)
    gradients = step.engine(train.at(torch.arange(len(train)))).stack()
    squares = gradients.square().sum(0)
    assert len(set(places.tolist())) == 20
    assert squares[places].max() <= squares.median()


SHORT = ["model.widths=[64]", "epochs=10", "batch_size=256", "privacy.delta=1e-3"]


@pytest.mark.parametrize(
    "overrides",
    [
        ["method=dpsgd"],
        ["method=dpsgd_global"],
        ["method=dpsgd_global_adapt"],
        ["method=dpsgd_f"],
        ["method=dpsgd", "method.style=layerwise"],
    ],
    ids=lambda overrides: overrides[-1],
)
def test_a_canary_moves_the_sum_by_the_sensitivity_at_most_and_mostly_by_all_of_it(
    overrides, monkeypatch
):
    """Without noise, what a canary adds is told by the sums."""
    heard = []
    add = Gaussian.add

    def silent(self, total, sensitivity, multiplier, stream):
        if total.dim() == 1 and total.numel() > 100:
            heard.append((total.double() / sensitivity).abs())
            return total
        return add(self, total, sensitivity, multiplier, stream)

    monkeypatch.setattr(Gaussian, "add", silent)
    _, run = run_of([*overrides, "model=logistic", "epochs=1", "seed=2"])
    monkeypatch.setattr("dpbench.audit.exposure.white_box.likelihood", lambda known: kept(known))
    transcripts = []

    def kept(known: Transcript):
        transcripts.append(known)
        return likelihood(known)

    play_white_box(run, None, 40, quiet=True)
    (known,) = transcripts
    assert known.shifts.max() <= 1 + 1e-5
    assert known.shifts.max() > (0.3 if "layerwise" in overrides[-1] else 0.99)
    moved = known.sums.abs() > 0.05
    assert moved.any()
    assert torch.allclose(known.sums[moved], known.shifts[moved], atol=0.05)


def test_the_score_is_the_ratio_of_densities_with_and_without_the_canary():
    draw = torch.Generator().manual_seed(0)
    sums = torch.randn(7, 3, generator=draw, dtype=torch.float64)
    shifts = torch.rand(7, 3, generator=draw, dtype=torch.float64)
    multipliers, rate = torch.linspace(0.8, 2, 7, dtype=torch.float64), 0.1
    found = likelihood(Transcript(sums, shifts, multipliers, rate))
    for canary in range(3):
        slow = 0.0
        for t in range(7):
            x, s, sigma = (float(v) for v in (sums[t, canary], shifts[t, canary], multipliers[t]))
            inside = rate * stats.norm.pdf(x, s, sigma) + (1 - rate) * stats.norm.pdf(x, 0, sigma)
            slow += math.log(inside / stats.norm.pdf(x, 0, sigma))
        assert float(found[canary]) == pytest.approx(slow)


@pytest.fixture(scope="module")
def attacked():
    """A private run on digits, with canaries."""
    _, run = run_of(["method=dpsgd", *SHORT])
    return run, play_white_box(run, None, 2000, quiet=True)


def test_a_white_box_shows_much_of_the_epsilon_and_no_more(attacked):
    run, played = attacked
    claimed = pld(played.ledger, 1e-3)
    assert played.ledger == plan(run).ledger
    halves = played.scores.halves(0)
    assert 0.4 * claimed < gdp_epsilon(*halves, 1e-3, 0.95) < claimed
    assert one_run_epsilon(*halves, 1e-3, 0.95) < claimed


def test_groups_divide_the_canaries(attacked):
    _, played = attacked
    sizes = [len(played.for_group(group).values) for group in range(10)]
    assert sum(sizes) == 2000
    assert min(sizes) > 100


def test_canaries_without_noise_are_found_at_once(monkeypatch):
    """A mutant that adds almost no noise is refuted by inserted canaries as well."""
    add = Gaussian.add

    def mutant(self, total, sensitivity, multiplier, stream):
        return add(self, total, sensitivity, 0.3 * multiplier, stream)

    monkeypatch.setattr(Gaussian, "add", mutant)
    _, run = run_of(["method=dpsgd", *SHORT])
    played = play_white_box(run, None, 1000, quiet=True)
    assert gdp_epsilon(*played.scores.halves(0), 1e-3, 0.95) > pld(played.ledger, 1e-3)


@pytest.mark.parametrize(
    ("overrides", "canaries", "why"),
    [
        (["method=sgd"], 100, "adds no noise"),
        (["method=dp_losgd"], 100, "single examples"),
        (["sampler=shuffled"], 100, "sampler=poisson"),
        (["model=logistic"], 1000, "the model has 650"),
    ],
)
def test_runs_without_a_place_for_canaries_are_refused(overrides, canaries, why):
    _, run = run_of(overrides)
    with pytest.raises(UserError, match=why):
        play_white_box(run, None, canaries, quiet=True)


def test_confidences_are_logits_of_the_probability_of_the_label():
    probabilities = np.array([0.01, 0.5, 0.999])
    expected = np.log(probabilities / (1 - probabilities))
    assert confidences(-np.log(probabilities)) == pytest.approx(expected)
    assert np.isfinite(confidences(np.array([0.0, 120.0]))).all()


def world(runs, targets, gain, seed, spread=0.0):
    """Confidences that being trained on raises by `gain` on average, of targets that differ."""
    draws = np.random.default_rng(seed)
    included = draws.random((runs, targets)) < 0.5
    gains = gain + spread * draws.standard_normal(targets)
    confidence = 3 * draws.standard_normal(targets) + draws.standard_normal((runs, targets))
    return Shadows(confidence + included * gains, included), gains


def slowly(shadows, attacked):
    """The attack by loops, with scipy's densities, and without estimating how much to trust."""
    scores = []
    residuals, freedom = 0.0, 0
    for t in range(shadows.included.shape[1]):
        for flag in (True, False):
            cell = shadows.confidences[shadows.included[:, t] == flag, t]
            residuals += ((cell - cell.mean()) ** 2).sum()
            freedom += len(cell) - 1
    deviation = math.sqrt(residuals / freedom)
    for t in range(shadows.included.shape[1]):
        inside = shadows.confidences[shadows.included[:, t], t].mean()
        outside = shadows.confidences[~shadows.included[:, t], t].mean()
        high = stats.norm.logpdf(attacked[t], inside, deviation)
        scores.append(high - stats.norm.logpdf(attacked[t], outside, deviation))
    return np.array(scores)


def test_with_many_runs_the_attack_is_the_ratio_of_fitted_normal_laws():
    shadows, _ = world(4000, 12, gain=1.0, seed=0, spread=2.0)
    attacked = shadows.confidences[0]
    found = likelihood_ratios(shadows.runs(slice(1, None)), attacked)
    assert found == pytest.approx(slowly(shadows.runs(slice(1, None)), attacked), abs=0.05)


def test_with_few_runs_what_targets_have_in_common_is_learned():
    """Of a common gain of 0.3 the best attack has an AUC of Phi(0.3/sqrt 2) = 0.584."""
    shadows, _ = world(8, 2000, gain=0.3, seed=1)
    counts = shadows.included[4:].sum(0)
    shadows = shadows.targets((counts > 0) & (counts < 4))
    few, attacked = shadows.runs(slice(4, None)), shadows.runs(slice(4))
    fitted, alone = (
        area(np.stack([attack(few, x) for x in attacked.confidences]), attacked.included)
        for attack in (likelihood_ratios, slowly)
    )
    assert 0.56 < fitted < 0.61
    assert alone < fitted - 0.015


def test_different_gains_are_learned_where_runs_are_many():
    shadows, _ = world(60, 500, gain=0.0, seed=2, spread=2.0)
    assert area(leave_one_out(shadows), shadows.included) > 0.8


def test_a_target_that_is_in_all_shadow_runs_or_in_none_is_scored_by_the_others_gain():
    shadows, _ = world(6, 300, gain=3.0, seed=3)
    shadows.included[:, 0], shadows.included[:, 1] = True, False
    scores = by_earlier_runs(shadows)
    assert scores.shape == (3, 300)
    assert np.isfinite(scores).all()


def test_earlier_runs_alone_decide_on_a_score():
    shadows, _ = world(8, 100, gain=1.0, seed=4)
    before = by_earlier_runs(shadows)
    changed = Shadows(shadows.confidences.copy(), shadows.included.copy())
    changed.confidences[6:] += 5
    changed.included[6:] ^= True
    after = by_earlier_runs(changed)
    assert np.array_equal(before[:2], after[:2])
    assert not np.array_equal(before[2], after[2])


@pytest.mark.parametrize("attack", [leave_one_out, by_earlier_runs])
def test_targets_without_any_gain_look_like_a_coin(attack):
    areas = []
    for seed in range(30):
        shadows, _ = world(8, 200, gain=0.0, seed=seed)
        scores = attack(shadows)
        areas.append(area(scores, shadows.included[-len(scores) :]))
    assert abs(np.mean(areas) - 0.5) < 3 * np.std(areas) / math.sqrt(30) + 1e-3


def test_null_scores_of_earlier_runs_prove_nothing():
    """More than an epsilon of 0 in one of twenty at most, as 95% confidence says."""
    found = {"gdp": 0, "one_run": 0}
    for seed in range(60):
        shadows, _ = world(6, 300, gain=0.0, seed=seed)
        scores = Scores(by_earlier_runs(shadows).ravel(), shadows.included[3:].ravel())
        halves = scores.halves(seed)
        found["gdp"] += gdp_epsilon(*halves, 1e-5, 0.95) > 0
        found["one_run"] += one_run_epsilon(*halves, 1e-5, 0.95) > 0
    assert max(found.values()) <= stats.binom.ppf(0.999, 60, 0.05)


def row(group: str, accuracy: float, auc: float, method: str = "dpsgd") -> Row:
    found = Exposure(auc, 0.01, 0.0)
    return Row(method, group, accuracy, 3.0, None, (0.0, 0.0), None, found)


@pytest.mark.parametrize(
    ("accuracies", "aucs", "said"),
    [
        ((0.7, 0.88), (0.6, 0.55), "dpsgd: a loses 10.0 points of accuracy and b 2.0; by the black "
         "box a is more exposed (AUC 0.600 and 0.550)."),
        ((0.7, 0.88), (0.55, 0.6), "a is less exposed"),
        ((0.7, 0.88), (0.55, 0.57), "neither is shown to be the more exposed"),
        ((0.78, 0.6), (0.6, 0.5), "dpsgd: b loses 30.0 points of accuracy and a 2.0; by the black "
         "box b is less exposed"),
        ((0.8, 0.91), (0.6, 0.5), "dpsgd: no group loses accuracy; by the black box a"),
    ],
)  # fmt: skip
def test_a_sentence_says_whether_those_who_lose_are_the_more_exposed(accuracies, aucs, said):
    rows = [row("a", 0.8, 0.5, "sgd"), row("b", 0.9, 0.5, "sgd")]
    rows += [row(*values) for values in zip("ab", accuracies, aucs, strict=True)]
    (sentence,) = _findings(rows, "sgd")
    assert said in sentence


def test_the_area_and_its_error_are_those_of_pairs_and_of_repetitions():
    scores, included = np.array([[1.0, 2, 2, 3]]), np.array([[False, True, False, True]])
    assert area(scores, included) == (1 + 1 + 0.5 + 1) / 4
    found = []
    for seed in range(40):
        shadows, _ = world(6, 400, gain=1.0, seed=seed)
        found.append(exposure(shadows.confidences / 3, shadows.included))
    spread = np.std([one.auc for one in found])
    assert 0.6 * spread < np.mean([one.error for one in found]) < 1.6 * spread


FITS = ["method=sgd", "optimizer=adam", "optimizer.lr=1e-3", "batch_size=64", "epochs=60"]
HIDES = ["method=dpsgd", "privacy.noise_multiplier=4", "epochs=3"]


def black_box_of(overrides, tmp_path):
    """The attack on four runs with 300 wrong labels among 1,438."""
    common = ["mislabelled=300", "model.widths=[128]", *overrides]
    runs = [build(compose([*common, f"seed={seed}"])) for seed in range(4)]
    return black_box([fit(run, tmp_path, quiet=True) for run in runs])


@pytest.mark.slow
def test_runs_that_memorise_wrong_labels_are_found_out(tmp_path):
    memorised = black_box_of(FITS, tmp_path)
    halves = memorised.later_runs(None).halves(0)
    assert exposure(*memorised.all_runs(None)).auc > 0.8
    assert gdp_epsilon(*halves, 1e-5, 0.95) > 2
    assert one_run_epsilon(*halves, 1e-5, 0.95) > 1


@pytest.mark.slow
def test_private_runs_that_learn_little_show_nothing(tmp_path):
    private = black_box_of(HIDES, tmp_path)
    found = exposure(*private.all_runs(None))
    assert abs(found.auc - 0.5) < 4 * found.error
    assert gdp_epsilon(*private.later_runs(None).halves(0), 1e-5, 0.95) < 0.5


def test_the_figure_has_both_attacks_by_method_and_group(tmp_path):
    asked = [
        *("dataset=digits", "table.groups=['2','8']", "table.seeds=[0,1,2,3]", "epochs=1"),
        *("table.methods=[sgd,dpsgd]", "mislabelled=200", "table.compute.canaries=200"),
        *("privacy.delta=1e-3", f"results_dir={tmp_path}"),
    ]
    page = reproduce("exposure_adult", asked)
    for row in ("| sgd | all |", "| sgd | 8 |", "| dpsgd | all |", "| dpsgd | 2 |"):
        assert page.count(row) == 1
    assert "- dpsgd: " in page
    assert page.count("| - | - | - |") == 3  # no canaries without noise
    files = {path.suffix for path in tmp_path.glob("tables/exposure_adult*")}
    assert files == {".md", ".csv", ".png", ".jsonl"}
    assert len(list(tmp_path.glob("runs/*.json"))) == 8


@pytest.mark.parametrize(
    ("override", "why"),
    [("table.seeds=[0,1,2]", "four runs"), ("table.compute.canaries=3", "canaries")],
)
def test_attacks_that_cannot_be_made_are_refused_before_any_run(override, why, tmp_path):
    with pytest.raises(UserError, match=why):
        reproduce("exposure_adult", [override, f"results_dir={tmp_path}"])
    assert not list(tmp_path.glob("runs/*"))


TABLES = Path(__file__).parents[2] / "results" / "tables"


def test_the_committed_black_box_is_that_of_the_committed_records():
    """Areas, to their last digit, from the losses in the records."""
    lines = (TABLES / "exposure_adult.records.jsonl").read_text().splitlines()
    records = [parse(line, "exposure_adult.records.jsonl") for line in lines]
    by_method = {name: [] for name in ("sgd", "dpsgd", "dpsgd_global_adapt")}
    for record in records:
        by_method.get(record.config["choices"]["method"], []).append(record)
    with (TABLES / "exposure_adult.csv").open() as file:
        rows = {(row["method"], row["group"]): row for row in csv.DictReader(file)}
    for method, runs in by_method.items():
        attack = black_box(runs)
        for group, name in ((None, "all"), (0, "male"), (1, "female")):
            found = exposure(*attack.all_runs(group))
            printed = rows[method, name]["AUC (black box)"]
            assert printed == f"{found.auc:.3f} ± {found.error:.3f}"


def test_a_computed_table_is_not_verified_as_if_it_were_rendered():
    assert list(unfounded(TABLES / "exposure_adult.records.jsonl")) == []
