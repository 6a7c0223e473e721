"""The white box: canaries inserted into real runs."""

import math

import pytest
import torch
from dpbench.benchmarks.exposure.gradient_canaries import (
    DiracGradients,
    JoinedGradients,
    MixedBatch,
    draw_canaries,
    quiet_coordinates,
    with_canaries,
)
from dpbench.benchmarks.exposure.white_box import Transcript, likelihood, play_white_box
from scipy import stats

from dpbench.audit.inference import gdp_epsilon, one_run_epsilon
from dpbench.learning.data.examples import Split
from dpbench.privacy.accountants import pld
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build, run_of
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.training.plan import plan
from dpbench.runs.training.start import private_step
from dpbench.step.mechanism.noise import Gaussian
from dpbench.system.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore:privacy.delta")

CPU = torch.device("cpu")


def dirac_gradients(coordinates=(5, 0, 9), length=3.0, size=12):
    from dpbench.step.gradients import Layer

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


@pytest.mark.slow
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
    squares = step.engine(train.at(torch.arange(len(train)))).stack().square().sum(0)
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
def test_a_canary_moves_the_sum_by_the_sensitivity_at_most_and_mostly_by_all(
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
    run = run_of(run_config([*overrides, "model=logistic", "epochs=1", "seed=2"]))
    monkeypatch.setattr(
        "dpbench.benchmarks.exposure.white_box.likelihood", lambda known: kept(known)
    )
    transcripts = []

    def kept(known: Transcript):
        transcripts.append(known)
        return likelihood(known)

    play_white_box(run, None, 40)
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
    run = run_of(run_config(["method=dpsgd", "privacy.accountant=rdp", *SHORT]))
    return run, play_white_box(run, None, 2000)


@pytest.mark.slow
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


@pytest.mark.slow
def test_canaries_without_noise_are_found_at_once(monkeypatch):
    """A mutant that adds almost no noise is refuted by inserted canaries as well."""
    add = Gaussian.add

    def mutant(self, total, sensitivity, multiplier, stream):
        return add(self, total, sensitivity, 0.3 * multiplier, stream)

    monkeypatch.setattr(Gaussian, "add", mutant)
    played = play_white_box(run_of(run_config(["method=dpsgd", *SHORT])), None, 1000)
    assert gdp_epsilon(*played.scores.halves(0), 1e-3, 0.95) > pld(played.ledger, 1e-3)


@pytest.mark.parametrize(
    ("overrides", "canaries", "why"),
    [
        (["method=sgd"], 100, "adds no noise"),
        (["method=dp_losgd"], 100, "single examples"),
        (["method=raco"], 100, "without predictions"),
        (["sampler=shuffled"], 100, "sampler=poisson"),
        (["temperature=private"], 100, "what else is released"),
        (["conformal=private"], 100, "what else is released"),
        (["normalization=private"], 100, "what else is released"),
        (["model=logistic"], 1000, "the model has 650"),
    ],
)
def test_runs_without_a_place_for_canaries_are_refused(overrides, canaries, why):
    run = run_of(run_config(overrides))
    with pytest.raises(UserError, match=why):
        play_white_box(run, None, canaries)
