"""DP-SGLD: its algorithm written by hand, and as DP-SGD under the paper's mapping."""

import dataclasses
import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dpbench.learning.data.derive.users import Units
from dpbench.runs.training.budget import PlannedSteps, Privacy
from dpbench.runs.training.plan import plan
from dpbench.runs.training.start import private_step
from dpbench.runs.training.trainer import fit
from dpbench.step.mechanism.schedules import Pieces, Schedules
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgld import Langevin, dpsgld
from dpbench.system.errors import UserError
from tests.runs.training import small_runs
from tests.steps import theta

N, B = 50, 8.0
UNITS = Units("example", N, ())
FOLLOWS = Privacy("follows", None, 1e-4, "rdp")
HALVES = Pieces((1.0, 0.25), (0.5,))


def langevin(step_of, method, lr):
    """The private step at the noise that follows."""
    method = dataclasses.replace(method, update=method.update.bind(SimpleNamespace(units=UNITS)))
    step = step_of(method, expected=B, lr=lr)
    step.noise_multiplier = method.noise_rule.multiplier(method.clip, step.optimizer, B, UNITS)
    return step


def run_of(method, privacy=FOLLOWS, lr=0.2, **changes):
    usual = {"privacy": privacy, "optimizer": partial(torch.optim.SGD, lr=lr)}
    return small_runs.run_of(method, **usual | changes)


@pytest.mark.parametrize("clip", ["abadi", "automatic"])
@pytest.mark.parametrize("style", ["flat", "layerwise"])
@pytest.mark.parametrize(("precision", "law"), [(0.0, "lr"), (30.0, "lr"), (30.0, "posterior")])
def test_a_step_is_algorithm_3_written_by_hand(
    step_of, batch_of, released, stream_of, clip, style, precision, law
):
    lr, batch = 0.04, batch_of(9)
    step = langevin(step_of, dpsgld(0.5, precision, law, clip, style), lr)
    start, gradients = theta(step), step.engine(batch)
    total = gradients.weighted_sum(step.clip.factors(step.clip.norms(gradients), batch.groups))
    step(batch)
    slope_of_log_p = -precision * start  # p = N(0, I/precision)
    variance = lr if law == "lr" else 2 * lr / N
    # The step takes what it draws away, and Algorithm 3 adds it: the law is the same.
    # Noise of that variance in the parameters is so much in the sum.
    noisy = torch.from_numpy(released(total.numpy(), math.sqrt(variance) * B / lr, stream_of(1)))
    by_hand = start - lr * (noisy / B - slope_of_log_p / N)
    assert torch.allclose(theta(step), by_hand, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("bound", [1e9, 0.5])
def test_section_4_5_is_dpsgd_and_dpsgld_by_its_map(step_of, batch_of, released, stream_of, bound):
    eta, batches = 0.004, [batch_of(n, seed=n) for n in (6, 0, 9)]
    lr = eta * N / 2
    sigma = 2 * B / (N * bound * math.sqrt(eta))  # sigma R n/(2B) = 1/sqrt(eta)
    ours = langevin(step_of, dpsgld(bound, 0.0, "posterior"), lr)
    private = step_of(dpsgd(bound, "corrected"), multiplier=sigma, expected=B, lr=lr)
    assert ours.noise_multiplier == pytest.approx(sigma, rel=1e-12)
    draw = stream_of(1)
    by_hand = theta(ours)
    for batch in batches:
        if bound == 1e9:  # then nothing is clipped, and it is plain SGLD
            place = step_of(dpsgd(bound, "corrected"))
            place.engine.parameters.theta.data.copy_(by_hand)
            total = place.engine(batch).stack().sum(0)
            scale = 2 * B / (N * math.sqrt(eta))  # which makes it sqrt(eta) in the parameters
            noisy = torch.from_numpy(released(total.numpy(), scale, draw))
            by_hand = by_hand - eta * N / (2 * B) * noisy
        ours(batch)
        private(batch)
    assert torch.allclose(theta(ours), theta(private), rtol=1e-12, atol=1e-14)
    if bound == 1e9:
        assert torch.allclose(theta(ours), by_hand, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("law", ["lr", "posterior"])
def test_the_noise_of_a_step_is_as_large_as_the_law_says(step_of, batch_of, variance_p, law):
    lr = 0.3
    step = langevin(step_of, dpsgld(0.5, 0.0, law), lr)
    variance = lr if law == "lr" else 2 * lr / N
    moves = []
    for _ in range(20):
        before = theta(step)
        step(batch_of(0))
        moves.append(theta(step) - before)
    moved = torch.cat(moves)
    assert variance_p(moved, math.sqrt(variance)) > 1e-3
    assert variance_p(moved, math.sqrt(variance) * 2 / 3) < 1e-6
    assert variance_p(moved, math.sqrt(variance) * 3 / 2) < 1e-6


def test_the_prior_is_weight_decay_of_its_precision_over_n(step_of, batch_of):
    ours = langevin(step_of, dpsgld(0.5, 30.0, "lr"), 0.04)
    decayed = step_of(dpsgd(0.5, "corrected"), multiplier=ours.noise_multiplier, lr=0.04)
    decayed.optimizer.param_groups[0]["weight_decay"] = 30.0 / N
    for seed in range(3):
        ours(batch_of(7, seed=seed))
        decayed(batch_of(7, seed=seed))
    assert torch.allclose(theta(ours), theta(decayed), rtol=1e-11, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1.0, 20.0])
def test_a_run_is_the_run_of_dpsgd_with_the_noise_that_follows(bound):
    ours = run_of(dpsgld(bound, 0.0, "posterior"))
    planned = plan(ours)
    sigma = planned.sampler.expected_batch_size / bound * math.sqrt(2 / (1438 * 0.2))
    assert planned.noise_multiplier == pytest.approx(sigma, rel=1e-12)
    private = run_of(
        dpsgd(bound, "corrected"), Privacy(planned.noise_multiplier, None, 1e-4, "rdp")
    )
    first, second = (fit(run, Path("/nowhere"), quiet=True) for run in (ours, private))
    assert first.metrics == second.metrics
    assert first.privacy == second.privacy


def test_schedules_of_rate_and_bound_reach_noise_and_ledger_alike(variance_p, batch_of):
    schedule = Schedules(bound=Pieces((1.0, 3.0), (0.5,)), lr=HALVES, noise=1.0)
    run = run_of(dpsgld(2.0, 0.0, "posterior"), lr=0.2, schedule=schedule)
    planned = plan(run)
    step = private_step(run, planned, torch.device("cpu"))
    start = planned.noise_multiplier
    nobody = batch_of(0, dtype=torch.float32)
    nobody = dataclasses.replace(nobody, inputs=torch.zeros(0, 64))
    heard, lrs = [], []
    for made in range(planned.steps):
        lr = 0.2 if made < planned.steps / 2 else 0.05
        before = theta(step)
        heard.append(step.noise_multiplier)
        step(nobody)
        assert variance_p(theta(step) - before, math.sqrt(2 * lr / 1438)) > 1e-4
        lrs.append(lr)
    entries = planned.ledger.entries
    assert [times for _, times in entries] == [lrs.count(0.2), lrs.count(0.05)]
    told = [step.releases[0].mechanism.noise_multiplier for step, _ in entries]
    assert told == pytest.approx([start, start * 2 / 3])  # 1/sqrt(1/4), and 1/3 for the bound
    assert heard == pytest.approx([told[0]] * lrs.count(0.2) + [told[1]] * lrs.count(0.05))


@pytest.mark.parametrize(
    "asked", [Privacy(3.0, None, 1e-4, "rdp"), Privacy(None, 8.0, 1e-4, "rdp")]
)
def test_a_budget_that_disagrees_is_refused_with_the_rate_that_meets_it(asked):
    method = dpsgld(1.0, 1.0, "posterior")
    with pytest.raises(UserError, match="set privacy=follows, or make") as refused:
        plan(run_of(method, asked))
    factor = float(str(refused.value).split("optimizer.lr ")[1].split()[0])
    planned = plan(run_of(method, asked, lr=0.2 * factor))
    wanted = asked.multiplier(PlannedSteps(method, planned.sampler.law, planned.steps))
    assert planned.noise_multiplier == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    "optimizer",
    [
        partial(torch.optim.Adam, lr=0.1),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        partial(torch.optim.SGD, lr=0.1, weight_decay=0.1),
        partial(torch.optim.SGD, lr=0.1, maximize=True),
        partial(torch.optim.SGD, lr=0.0),
    ],
)
def test_an_optimiser_that_is_not_plain_sgd_is_refused(optimizer):
    with pytest.raises(UserError, match="use optimizer=sgd with a positive lr"):
        plan(run_of(dpsgld(1.0, 1.0, "lr"), optimizer=optimizer))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedules(1.0, 1.0, HALVES), "set schedule.noise=1"),
        (Schedules(1.0, Pieces((1.0, 0.0), (0.5,)), 1.0), "let schedule.lr stay positive"),
    ],
)
def test_a_schedule_that_the_noise_cannot_follow_is_refused(schedule, said):
    with pytest.raises(UserError, match=said):
        plan(run_of(dpsgld(1.0, 1.0, "lr"), schedule=schedule))


def test_the_multiplier_is_of_the_paper_and_other_laws_are_refused():
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.09)
    ours = Langevin("lr").multiplier(dpsgld(4.0, 0.0, "lr").clip, sgd, 240.0, UNITS)
    assert ours == pytest.approx(240 / (0.3 * 4.0))  # B/(sqrt(lr) R)
    with pytest.raises(UserError, match="noise of dpsgd does not follow from other settings"):
        plan(run_of(dpsgd(1.0, "corrected")))
    with pytest.raises(UserError, match="did you mean posterior"):
        dpsgld(1.0, 1.0, "posterio")
