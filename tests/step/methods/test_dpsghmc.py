"""DP-SGHMC: Equation 15 of Chen et al. 2014 by hand, as DP heavy ball, and as a sampler."""

import dataclasses
import math
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import linalg

from dpbench.learning.data.derive.users import Units
from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import GaussianMechanism, Ledger, Poisson, Release, Step
from dpbench.runs.training.budget import PlannedSteps, Privacy
from dpbench.runs.training.plan import plan
from dpbench.runs.training.start import private_step
from dpbench.runs.training.trainer import fit
from dpbench.step.clipping import Abadi
from dpbench.step.mechanism.noise import Gaussian
from dpbench.step.mechanism.schedules import Pieces, Schedules
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsghmc import Hamiltonian, dpsghmc
from dpbench.step.methods.dpsgld import Langevin, dpsgld
from dpbench.system.errors import UserError
from tests.runs.training import small_runs
from tests.steps import theta

N, B = 50, 8.0
UNITS = Units("example", N, ())
FOLLOWS = Privacy("follows", None, 1e-4, "rdp")
HALVES = Pieces((1.0, 0.25), (0.5,))


def heavy_ball(parameters=None, lr=0.04, momentum=0.8, **changes):
    parameters = parameters or [torch.nn.Parameter(torch.zeros(1))]
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, **changes)


def hamiltonian(step_of, method, lr=0.04, momentum=0.8):
    """The private step with heavy ball, at the noise that follows."""
    method = dataclasses.replace(method, update=method.update.bind(SimpleNamespace(units=UNITS)))
    step = step_of(method, expected=B, lr=lr)
    step.optimizer = heavy_ball([step.engine.parameters.theta], lr, momentum)
    step.noise_multiplier = method.noise_rule.multiplier(method.clip, step.optimizer, B, UNITS)
    return step


def run_of(method, privacy=FOLLOWS, lr=0.05, momentum=0.9, **changes):
    usual = {"privacy": privacy, "optimizer": partial(torch.optim.SGD, lr=lr, momentum=momentum)}
    return small_runs.run_of(method, **usual | changes)


@pytest.mark.parametrize(
    ("clip", "style"), [("abadi", "flat"), ("automatic", "layerwise"), ("none", "flat")]
)
@pytest.mark.parametrize(("precision", "momentum"), [(0.0, 0.8), (30.0, 0.8), (30.0, 0.3)])
def test_steps_are_equation_15_written_by_hand(
    step_of, batch_of, released, stream_of, clip, style, precision, momentum
):
    lr = 0.04
    step = hamiltonian(step_of, dpsghmc(0.5, precision, clip, style), lr, momentum)
    place = step_of(dpsgd(0.5, "corrected"))
    eta, alpha, draw = lr / N, 1 - momentum, stream_of(1)
    at, v = theta(step), torch.zeros(579, dtype=torch.float64)
    for seed, n in enumerate((9, 0, 5, 7)):
        batch = batch_of(n, seed=seed)
        place.engine.parameters.theta.data.copy_(at)
        gradients = place.engine(batch)
        total = gradients.weighted_sum(step.clip.factors(step.clip.norms(gradients), batch.groups))
        # Noise of N(0, 2 alpha eta) in v is so much in the sum, and its sign does not matter.
        deviation = math.sqrt(2 * alpha * eta) / (eta * N / B)
        noisy = torch.from_numpy(released(total.numpy(), deviation, draw))
        v = (1 - alpha) * v - eta * (N / B * noisy + precision * at)
        at = at + v
        step(batch)
    assert torch.allclose(theta(step), at, rtol=1e-9, atol=1e-12)


def test_the_noise_of_a_step_is_as_large_as_friction_asks(step_of, batch_of, variance_p):
    """In the velocity, after what is left of the one before was taken away."""
    step = hamiltonian(step_of, dpsghmc(0.5, 0.0), lr=0.3, momentum=0.6)
    places = [theta(step)]
    for _ in range(20):
        step(batch_of(0))
        places.append(theta(step))
    v = torch.stack(places).diff(dim=0)
    drawn = torch.cat([v[0], (v[1:] - 0.6 * v[:-1]).flatten()])
    deviation = math.sqrt(2 * 0.4 * 0.3 / N)
    assert variance_p(drawn, deviation) > 1e-3
    assert variance_p(drawn, deviation * 2 / 3) < 1e-6
    assert variance_p(drawn, deviation * 3 / 2) < 1e-6


def stationary(kappa: float, momentum: float, variance: float) -> float:
    """The variance that theta comes to under v <- momentum v - kappa theta + N(0, variance),
    theta <- theta + v, from Lyapunov's equation."""
    moves = np.array([[1 - kappa, momentum], [-kappa, momentum]])
    drawn = variance * np.ones((2, 2))
    return linalg.solve_discrete_lyapunov(moves, drawn)[0, 0]


@pytest.mark.parametrize("momentum", [0.3, 0.8, 0.95])
def test_the_law_it_comes_to_is_that_of_the_posterior_as_steps_get_small(momentum):
    precision = 3.0
    errors = []
    for kappa in (0.1, 0.01, 0.001):  # lr precision/n
        lr = kappa * N / precision
        optimizer = heavy_ball(lr=lr, momentum=momentum)
        sigma = Hamiltonian().multiplier(Abadi(0.5), optimizer, B, UNITS)
        found = stationary(kappa, momentum, (lr * sigma * 0.5 / B) ** 2) * precision
        assert found == pytest.approx(1 / (1 - kappa / (2 * (1 + momentum))), rel=1e-6)
        errors.append(found - 1)
    assert errors[2] < 4e-4


@pytest.mark.slow
def test_without_examples_it_samples_the_prior(step_of, batch_of, variance_p):
    precision, momentum = 3.0, 0.8
    lr = 0.05 * N / precision
    step = hamiltonian(step_of, dpsghmc(0.5, precision), lr, momentum)
    ends = []
    for made in range(1000):
        step(batch_of(0))
        if made >= 300 and made % 100 == 0:  # by when all that was before is forgotten
            ends.append(theta(step))
    deviation = math.sqrt(stationary(0.05, momentum, 2 * (1 - momentum) * lr / N))
    assert deviation == pytest.approx(precision**-0.5, rel=0.01)
    assert variance_p(torch.cat(ends), deviation) > 1e-3
    assert variance_p(torch.cat(ends), deviation * 1.1) < 1e-6
    assert variance_p(torch.cat(ends), deviation / 1.1) < 1e-6


@pytest.mark.parametrize("bound", [1e9, 0.5])
def test_the_step_is_heavy_ball_with_the_implied_noise(step_of, batch_of, bound):
    """Section 4.5 of Bu et al., to the bit; with the large R nothing is clipped."""
    ours = hamiltonian(step_of, dpsghmc(bound, 0.0))
    sigma = B * math.sqrt(2 * 0.2 / (N * 0.04)) / bound
    assert ours.noise_multiplier == pytest.approx(sigma, rel=1e-12)
    private = step_of(dpsgd(bound, "corrected"), multiplier=ours.noise_multiplier, lr=0.04)
    private.optimizer = heavy_ball([private.engine.parameters.theta])
    for seed, n in enumerate((6, 0, 9)):
        for step in (ours, private):
            step(batch_of(n, seed=seed))
    assert torch.equal(theta(ours), theta(private))


@pytest.mark.parametrize("momentum", [0.1, 0.9, 0.999])
def test_at_the_length_of_steps_of_dpsgld_it_has_its_noise_multiplier(momentum):
    """lr/(1 - momentum) is how far heavy ball moves in the long run."""
    clip = Abadi(0.7)
    plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.09)
    slow = heavy_ball(lr=0.09 * (1 - momentum), momentum=momentum)
    wanted = Langevin("posterior").multiplier(clip, plain, B, UNITS)
    assert Hamiltonian().multiplier(clip, slow, B, UNITS) == pytest.approx(wanted, rel=1e-9)


def test_the_prior_and_the_first_step_are_those_of_dpsgld(step_of, batch_of):
    """But for the noise, which friction makes smaller."""
    ours = hamiltonian(step_of, dpsghmc(0.5, 30.0))
    other = dpsgld(0.5, 30.0, "posterior")
    other = step_of(
        dataclasses.replace(other, update=other.update.bind(SimpleNamespace(units=UNITS))),
        expected=B,
        lr=0.04,
    )
    other.noise_multiplier = ours.noise_multiplier
    for step in (ours, other):
        step(batch_of(9))
    assert torch.equal(theta(ours), theta(other))


def test_the_noisy_sums_can_be_had_back_from_the_parameters(step_of, batch_of):
    """So the account of the sums is that of the parameters, and no looser."""
    method, heard = dpsghmc(0.5, 30.0), []
    step = hamiltonian(step_of, method)
    add = step.method.noise.add

    class Noted(Gaussian):
        def add(self, *arguments):
            heard.append(add(*arguments).clone())
            return heard[-1].clone()

    step.method = dataclasses.replace(step.method, noise=Noted())
    places = [theta(step)]
    for seed in range(4):
        step(batch_of(7, seed=seed))
        places.append(theta(step))
    v = [torch.zeros_like(places[0]), *torch.stack(places).diff(dim=0)]
    for t, noisy in enumerate(heard):
        back = B * ((0.8 * v[t] - v[t + 1]) / 0.04 - 30.0 / N * places[t])
        assert torch.allclose(back, noisy, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [1.0, 20.0])
def test_a_run_has_the_ledger_of_dpsgd_with_as_much_noise_and_is_that_run(bound):
    ours = run_of(dpsghmc(bound, 0.0))
    planned = plan(ours)
    expected = planned.sampler.expected_batch_size
    sigma = expected / bound * math.sqrt(2 * 0.1 / (1438 * 0.05))
    assert planned.noise_multiplier == pytest.approx(sigma, rel=1e-9)
    private = run_of(
        dpsgd(bound, "corrected"), Privacy(planned.noise_multiplier, None, 1e-4, "rdp")
    )
    first, second = (fit(run, Path("/nowhere"), quiet=True) for run in (ours, private))
    assert first.metrics == second.metrics
    for name in ("rdp", "pld", "gdp", "ledger", "guarantee", "steps", "sample_rate"):
        assert first.privacy[name] == second.privacy[name], name
    release = Release("gradient sum", GaussianMechanism(planned.noise_multiplier))
    by_hand = Ledger().after(Step(Poisson(expected / 1438), (release,)), planned.steps)
    assert first.privacy["rdp"] == rdp(by_hand, 1e-4)
    assert first.privacy["pld"] == pld(by_hand, 1e-4)


def test_schedules_of_rate_and_bound_reach_noise_and_ledger_alike(batch_of):
    schedule = Schedules(bound=Pieces((1.0, 3.0), (0.5,)), lr=HALVES, noise=1.0)
    run = run_of(dpsghmc(2.0, 0.0), schedule=schedule)
    planned = plan(run)
    step = private_step(run, planned, torch.device("cpu"))
    nobody = dataclasses.replace(
        batch_of(0, dtype=torch.float32), inputs=torch.zeros(0, 64, dtype=torch.float32)
    )
    heard = []
    for _ in range(planned.steps):
        heard.append(step.noise_multiplier)
        step(nobody)
    told = [
        entry.releases[0].mechanism.noise_multiplier
        for entry, times in planned.ledger.entries
        for _ in range(times)
    ]
    assert told == pytest.approx(heard)
    assert told[-1] == pytest.approx(told[0] * 2 / 3)  # 1/sqrt(1/4), and 1/3 for the bound


def test_without_clipping_there_is_no_account():
    assert dpsghmc(1.0, 0.0, clip="none").guarantee.level == "none"


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked", [Privacy(3.0, None, 1e-4, "rdp"), Privacy(None, 8.0, 1e-4, "rdp")]
)
def test_a_budget_that_disagrees_is_refused_with_the_rate_that_meets_it(asked):
    method = dpsghmc(1.0, 1.0)
    with pytest.raises(UserError, match="set privacy=follows, or make") as refused:
        plan(run_of(method, asked))
    factor = float(str(refused.value).split("optimizer.lr ")[1].split()[0])
    planned = plan(run_of(method, asked, lr=0.05 * factor))
    wanted = asked.multiplier(PlannedSteps(method, planned.sampler.law, planned.steps))
    assert planned.noise_multiplier == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(
    "optimizer",
    [
        partial(torch.optim.Adam, lr=0.1),
        partial(torch.optim.SGD, lr=0.1),
        partial(torch.optim.SGD, lr=0.1, momentum=1.0),
        partial(torch.optim.SGD, lr=0.1, momentum=math.nan),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.1),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
        partial(torch.optim.SGD, lr=0.1, momentum=0.9, maximize=True),
        partial(torch.optim.SGD, lr=0.0, momentum=0.9),
    ],
)
def test_an_optimiser_that_is_not_heavy_ball_is_refused(optimizer):
    with pytest.raises(UserError, match="use optimizer=momentum with a positive lr"):
        plan(run_of(dpsghmc(1.0, 1.0), optimizer=optimizer))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Schedules(1.0, 1.0, HALVES), "the noise of dpsghmc follows from lr and bound"),
        (Schedules(1.0, Pieces((1.0, 0.0), (0.5,)), 1.0), "dpsghmc adds no noise where lr is 0"),
    ],
)
def test_a_schedule_that_the_noise_cannot_follow_is_refused(schedule, said):
    with pytest.raises(UserError, match=said):
        plan(run_of(dpsghmc(1.0, 1.0), schedule=schedule))
