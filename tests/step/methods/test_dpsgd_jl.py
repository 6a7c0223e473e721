"""DP-SGD-JL: what the estimated norms are, how often they are too small, and what is said of it."""

import re

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.entries import Unaccountable
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Step
from dpbench.runs.training.accounting import statement
from dpbench.step.gradients import Layer, make_engine
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_jl import EstimatedNorms, ProjectedNorms, dpsgd_jl, slack
from dpbench.system.errors import UserError
from tests.problems import problem

LAYERS = (Layer("a", slice(0, 2)), Layer("b", slice(2, 6)))
RELEASED = ReleasedState(0, 1, None)


def jl(**changes):
    own = {"bound": 0.5, "projections": 100, "failure": 1e-10}
    return dpsgd_jl(**{**own, "clip": "abadi", "style": "flat", "variant": "corrected", **changes})


def vectors(n, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return list(torch.randn(n, 6, dtype=torch.float64, generator=draw))


class Total(nn.Module):
    def forward(self, x):
        return x.sum(1)


def made(seed=1):
    rows = torch.stack(vectors(5, seed))
    return MaterialisedGradients(rows[:, 0], rows, LAYERS)


def test_the_estimate_is_the_root_mean_square_of_inner_products():
    rows, us = made(), vectors(7)
    ours = EstimatedNorms(rows, us, 2.0, LAYERS)
    squares = [[sum(a * b for a, b in zip(g, u, strict=True)) ** 2 for u in us] for g in
               rows.stack().tolist()]  # fmt: skip
    expected = [2 * float(sum(map(float, one)) / 7) ** 0.5 for one in squares]
    assert ours.norms.tolist() == pytest.approx(expected, rel=5e-6)
    assert all(norm >= right for norm, right in zip(ours.norms.tolist(), expected, strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("positions", "r", "scale"), [(64, 100, 1), (512, 100, 1), (1024, 1000, 1), (256, 100, 1e5)]
)
def test_gradients_that_cancel_over_positions_stay_within_the_bound(positions, r, scale, seed):
    draw = torch.Generator().manual_seed(seed)
    half = scale * torch.randn(4, positions // 2, 8, generator=draw)
    order = torch.randperm(positions, generator=draw)
    inputs = torch.cat([half, -half], 1)[:, order]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 3), Total())
    batch = Batch(inputs, torch.tensor([0, 1, 2, 0]), torch.zeros(4, dtype=torch.long))
    engine = make_engine("ghost", model, cross_entropy, batch)
    gradients = engine(batch)
    us = [torch.randn(engine.parameters.theta.shape, generator=draw) for _ in range(r)]
    norms = EstimatedNorms(gradients, us, slack(r, 1e-9), engine.parameters.layers).norms
    for i, norm in enumerate(norms):
        alone = (torch.arange(4) == i) / norm
        assert gradients.weighted_sum(alone).norm() <= 1 + 1e-6


def test_a_layer_is_estimated_as_if_it_were_all_there_is():
    us = vectors(7)
    whole = EstimatedNorms(made(), us, 1.5, LAYERS).layer_norms
    for column, layer in zip(whole.unbind(1), LAYERS, strict=True):
        alone = made().stack()[:, layer.at]
        one = MaterialisedGradients(alone[:, 0], alone, [Layer("it", slice(None))])
        reference = EstimatedNorms(one, [u[layer.at] for u in us], 1.5, ()).norms
        assert torch.allclose(column, reference, rtol=1e-12)


@pytest.mark.parametrize("r", [1, 10, 50])
def test_estimates_have_the_law_that_the_slack_is_made_of(r):
    gradient = made()
    shares = torch.cat(
        [(EstimatedNorms(gradient, vectors(r, s), 1.0, LAYERS).norms / gradient.norms) ** 2
         for s in range(2, 402)]
    )  # fmt: skip
    # Five gradients share their vectors, so that only one of them is a sample.
    assert stats.kstest((r * shares.view(-1, 5)[:, 0]).numpy(), stats.chi2(r).cdf).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("r", "failure"), [(5, 0.1), (20, 0.01), (100, 0.3)])
def test_an_upper_estimate_fails_as_often_as_it_says(r, failure):
    gradient, by = made(), slack(r, failure)
    fails = sum(
        bool(EstimatedNorms(gradient, vectors(r, s), by, LAYERS).norms[0] < gradient.norms[0])
        for s in range(2, 1002)
    )
    assert stats.binomtest(fails, 1000, failure).pvalue > 1e-3


def test_as_published_many_examples_add_more_than_the_bound_and_corrected_none(step_of, batch_of):
    above = {}
    for variant in ("paper", "corrected"):
        method, found = jl(variant=variant, projections=20), 0
        step, batch = step_of(method), batch_of(8)
        batch.inputs.mul_(100)  # so that all are clipped
        for step_number in range(20):
            gradients = method.gradient(
                step.engine, batch, method.clip, RELEASED._replace(steps_done=step_number)
            )
            factors = method.clip.factors(gradients.norms, batch.groups)
            parts = (factors.unsqueeze(1) * gradients.stack()).norm(dim=1)
            found += int((parts > 0.5 * (1 + 1e-9)).sum())
        above[variant] = found / 160
    assert above["corrected"] == 0
    assert 0.3 < above["paper"] < 0.7


@pytest.mark.slow
def test_with_many_projections_it_is_dpsgd(step_of, batch_of):
    ends = []
    for method in (jl(projections=20_000, variant="paper"), dpsgd(0.5, "paper")):
        step = step_of(method, multiplier=0.0)
        step(batch_of(6))
        ends.append(step.engine.parameters.theta.grad)
    assert torch.allclose(*ends, rtol=0.05, atol=0.02 * float(ends[1].abs().max()))


def test_projections_are_those_of_the_run_and_the_step_in_every_part_of_a_batch(step_of, batch_of):
    step, batch, seam = step_of(jl()), batch_of(4), ProjectedNorms(3, 1.0)

    def norms(**changes):
        return seam(step.engine, batch, step.clip, RELEASED._replace(**changes)).norms

    assert torch.equal(norms(), norms())
    assert not torch.equal(norms(), norms(steps_done=1))
    assert not torch.equal(norms(), norms(seed=1))
    parts = [seam(step.engine, part, step.clip, RELEASED).norms for part in batch.split(3)]
    assert torch.allclose(torch.cat(parts), norms(), rtol=1e-9)


@pytest.mark.parametrize(("projections", "rarest"), [(2, 1e-10), (3, 1e-15), (10, 1e-50)])
def test_failures_that_are_rarer_than_coarse_draws_are_refused(projections, rarest):
    """Two float32 draws are both exactly 0 with a probability of some 1e-14."""
    assert jl(projections=projections, failure=rarest).guarantee.level == "proven"
    with pytest.raises(UserError, match="choose more projections, or a larger"):
        jl(projections=projections, failure=rarest / 1e4)


def test_every_clipped_norm_may_fail_and_the_guarantee_states_how_often():
    paper, corrected = jl(variant="paper").guarantee, jl().guarantee
    assert paper.level == "none"
    assert "below the true ones" in paper.why
    assert corrected.level == "proven"
    assert "1e-10" in corrected.why
    assert jl(clip="none").guarantee.level == "none"
    layerwise = jl(style="layerwise", failure=1e-8).bind(problem(layers=tuple("abc")))
    (release,) = layerwise.releases(1.0)
    assert release.mechanism == GaussianMechanism(1.0, failure=3 * 1e-8)
    assert release.claimed == GaussianMechanism(1.0)


RATE, STEPS, DELTA = 0.02, 500, 1e-5


def book(method, multiplier=1.0):
    return Ledger().after(Step(Poisson(RATE), method.releases(multiplier)), STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("spend", [rdp, pld])
def test_failures_in_all_steps_are_deducted_from_delta(spend):
    failure = 1e-8
    ours = spend(book(jl(failure=failure)), DELTA)
    plain = book(dpsgd(0.5, "corrected"))
    assert ours == spend(plain, DELTA - RATE * STEPS * failure) > spend(plain, DELTA)


@pytest.mark.parametrize("failure", [0.5, 1e-5, 2e-7])
def test_a_failure_that_is_not_small_against_delta_is_refused_with_one_that_is(failure):
    with pytest.raises(Unaccountable, match="not small against delta=1e-05") as caught:
        statement(book(jl(failure=failure)), jl(failure=failure), DELTA, 1.0)
    times = float(re.search(r"method.failure (\S+) times smaller", str(caught.value))[1])
    enough = jl(failure=failure / times / 1.01)
    assert statement(book(enough), enough, DELTA, 1.0)["pld"] > 0


def test_as_published_nothing_is_paid_and_nothing_said():
    says = statement(book(jl(variant="paper")), jl(variant="paper"), DELTA, 1.0)
    assert (says["rdp"], says["pld"]) == (None, None)
    assert says["claimed"] == rdp(book(dpsgd(0.5, "corrected")), DELTA)


def mixed_delta(failure, epsilon, removing):
    """The delta of one sampled step of a Gaussian that, whatever it answers, tells with probability
    `failure` whether the example is in the batch: by its definition, on a grid."""
    x = np.linspace(-12, 13, 200_001)
    without, inside = stats.norm.pdf(x), stats.norm.pdf(x - 1)
    told = failure * RATE * np.array([1.0, 0.0])  # the example is in the batch, and is told
    kept = failure * (1 - RATE * np.array([1.0, 0.0]))
    good = (1 - failure) * np.array([(1 - RATE) * without + RATE * inside, without])
    pairs = [(told[0], told[1]), (kept[0], kept[1])]
    one, other = (0, 1) if removing else (1, 0)
    total = np.clip(good[one] - np.exp(epsilon) * good[other], 0, None).sum() * (x[1] - x[0])
    return total + sum(max(pair[one] - np.exp(epsilon) * pair[other], 0) for pair in pairs)


@pytest.mark.parametrize("removing", [True, False])
@pytest.mark.parametrize("failure", [1e-3, 0.3])
def test_a_failing_sensitivity_adds_at_most_its_probability_to_delta(removing, failure):
    for epsilon in (-1.0, -0.02, 0.0, 0.01, 0.5, 2.0):
        moved = mixed_delta(failure, epsilon, removing) - mixed_delta(0.0, epsilon, removing)
        assert moved <= RATE * failure * (1 + 1e-9) + 1e-12


def test_an_example_that_is_not_finite_stays_so():
    rows = made().stack().clone()
    rows[1, 3] = torch.inf
    batch = MaterialisedGradients(rows[:, 0], rows, LAYERS)
    seen = EstimatedNorms(batch, vectors(4), 1.0, LAYERS)
    assert (seen.norms < torch.inf).tolist() == [True, False, True, True, True]
    assert (seen.layer_norms < torch.inf).all(1).tolist() == [True, False, True, True, True]
