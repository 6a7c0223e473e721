"""Schedules in runs: what a step does and what the ledger hears change at the same step."""

import math

import dp_accounting
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import Ledger
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build, prepare
from dpbench.runs.execution.run_config import run_config
from dpbench.runs.records.digest import digest
from dpbench.runs.training.trainer import fit
from dpbench.step.clipping import Abadi
from dpbench.step.mechanism.schedules import UNCHANGED, Cosine, Linear, Pieces, Schedules
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import dpsgd_f
from dpbench.step.methods.dpsgd_global import dpsgd_global_adapt
from dpbench.step.methods.dpsgld import Langevin
from dpbench.system.errors import UserError
from tests.problems import problem
from tests.steps import theta

PIECE = "{_target_:dpbench.mechanism.schedules.Pieces,values:[%s],until:[%s]}"
TWO_SIGMAS = ["privacy=noise1", "schedule=custom", "schedule.noise=" + PIECE % ("1,2", "0.5")]


def scheduled(step: PrivateStep, schedule: Schedules, steps: int) -> PrivateStep:
    """The step with a schedule over `steps` steps."""
    return PrivateStep(
        engine=step.engine,
        method=step.method,
        optimizer=step.optimizer,
        noise_multiplier=step.noise_multiplier,
        expected_batch_size=step.expected_batch_size,
        physical=step.physical,
        noise_stream=step.noise_stream,
        count_stream=step.count_stream,
        steps=steps,
        schedule=schedule,
    )


@pytest.mark.parametrize("steps", [20, 100, 1840])
def test_mix_up_switches_at_ninety_five_percent_of_the_steps(step_of, batch_of, steps):
    mixup = build(compose(["schedule=bound_switch", "method.bound=0.1"])).schedule
    step = scheduled(step_of(dpsgd(0.1, "corrected")), mixup, steps)
    bounds = []
    for made in range(steps):
        step.released = step.released._replace(steps_done=made)
        bounds.append(step.clip.sensitivity.bound)
    small = steps * 95 // 100
    assert bounds[:small] == [0.1] * small
    assert bounds[small:] == pytest.approx([20.0] * (steps - small))


def test_a_scheduled_bound_moves_clip_and_noise_together(step_of, batch_of, variance_p):
    schedule = Schedules(Pieces((1, 30), (0.5,)), 1.0, 1.0)
    quiet = scheduled(step_of(dpsgd(0.1, "corrected"), multiplier=0.0), schedule, 2)
    noisy = scheduled(step_of(dpsgd(0.1, "corrected"), multiplier=2.0), schedule, 2)
    for bound in (0.1, 3.0):
        alone = step_of(dpsgd(bound, "corrected"), multiplier=0.0)
        with torch.no_grad():
            alone.engine.parameters.theta.copy_(theta(quiet))
        alone(batch_of(5))
        quiet(batch_of(5))
        assert torch.allclose(theta(quiet), theta(alone), rtol=1e-12)
        noisy(batch_of(0))
        noise = noisy.engine.parameters.theta.grad * noisy.expected_batch_size
        assert variance_p(noise, 2.0 * bound) > 1e-3
        assert variance_p(noise, 2.0 * bound * 2 / 3) < 1e-6


def test_a_scheduled_bound_and_factors_of_one_cost_nothing_but_are_runs_of_their_own():
    said = [prepare(run_config([*more, "epochs=2"]))[1] for more in ([], ["schedule=bound_switch"])]
    assert said[0].ledger == said[1].ledger
    assert said[1].schedule.bound_at(0.95) == 200
    said = [prepare(run_config([*more, "epochs=2"])) for more in ([], ["schedule=custom"])]
    assert said[0][1].ledger == said[1][1].ledger
    assert digest(said[0][0].config) != digest(said[1][0].config)


@pytest.mark.parametrize("end", [1e-14, 1e14])
def test_a_schedule_that_takes_a_bound_beyond_its_limits_is_refused_beforehand(end):
    moved = "schedule.bound=" + PIECE % (f"1,{end}", "0.9")
    with pytest.raises(
        UserError, match=r"clipping bound \(method.bound\) must be a number from 1e-12 to 1e\+12"
    ):
        prepare(run_config(["schedule=custom", moved]))


def test_rate_and_noise_follow_schedules_and_one_that_stays_at_one_is_none(step_of, batch_of):
    ends = []
    for schedule in (UNCHANGED, Schedules(Linear(1, 1), Cosine(1, 1), Pieces((1, 1), (0.5,)))):
        step = scheduled(step_of(dpsgd(0.5, "corrected")), schedule, 4)
        for seed in range(4):
            step(batch_of(6, seed=seed))
        ends.append(theta(step))
    assert torch.equal(*ends)
    schedule = Schedules(1.0, Linear(1, 0), Pieces((1, 3), (0.5,)))
    step = scheduled(step_of(dpsgd(0.5, "corrected"), lr=0.2, multiplier=0.7), schedule, 4)
    for made in range(4):
        assert step.optimizer.param_groups[0]["lr"] == pytest.approx(0.2 * (1 - made / 4))
        assert step.noise_multiplier == pytest.approx(0.7 if made < 2 else 2.1)
        before = theta(step)
        step(batch_of(3))
        moved = -0.2 * (1 - made / 4) * step.engine.parameters.theta.grad
        assert torch.allclose(theta(step) - before, moved, rtol=1e-9, atol=1e-14)


def test_noise_is_as_large_as_scheduled(step_of, batch_of, variance_p):
    schedule = Schedules(1.0, 1.0, Pieces((1, 3), (0.5,)))
    step = scheduled(step_of(dpsgd(0.5, "corrected"), multiplier=0.7), schedule, 2)
    for sigma in (0.7, 2.1):
        step(batch_of(0))
        noise = step.engine.parameters.theta.grad * step.expected_batch_size / 0.5
        assert variance_p(noise, sigma) > 1e-3
        assert variance_p(noise, sigma * 1.5) < 1e-6


@pytest.mark.parametrize(
    "method",
    [dpsgd_f(0.5, 10.0, "corrected"), dpsgd_global_adapt(0.5, 5.0, 1.0, 0.1, 10.0, "corrected")],
    ids=["dpsgd_f", "dpsgd_global_adapt"],
)
def test_a_scheduled_bound_does_not_pile_up_in_an_adaptive_clip(step_of, batch_of, method):
    step = scheduled(step_of(method, lr=0.0), Schedules(2.0, 1.0, 1.0), 5)
    step.clip = method.clip.bind(problem())
    for _ in range(5):
        step(batch_of(6))
        assert step.clip.bound == 1.0
        assert float(step.clip.sensitivity.bound) < 1.0 * (1 + 3) + 1e-9


@pytest.mark.slow
def test_a_ledger_with_two_sigmas_is_their_composition():
    _, planned = prepare(run_config([*TWO_SIGMAS, "epochs=2", "privacy.noise_multiplier=0.8"]))
    (first, times), (second, rest) = planned.ledger.entries
    rate = first.sampling.rate
    assert [r.mechanism.noise_multiplier for s in (first, second) for r in s.releases] == [0.8, 1.6]
    assert times + rest == planned.steps
    assert times == math.ceil(planned.steps / 2)
    for ours, accountant in ((rdp, RdpAccountant), (pld, PLDAccountant)):
        reference = accountant()
        for sigma, count in ((0.8, times), (1.6, rest)):
            event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
            reference.compose(event, count)
        # Its RDP orders are fewer than ours.
        assert ours(planned.ledger, 1e-6) == pytest.approx(reference.get_epsilon(1e-6), rel=0.01)


@pytest.mark.slow
def test_the_ledger_of_a_run_is_the_one_planned(tmp_path):
    run, planned = prepare(
        run_config([*TWO_SIGMAS, "epochs=2", "model=logistic", f"data_dir={tmp_path}"])
    )
    config = run.config
    heard = fit(run, tmp_path, quiet=True).privacy["ledger"]
    assert [e["releases"][0]["mechanism"]["noise_multiplier"] for e in heard] == [1.0, 2.0]
    assert [e["times"] for e in heard] == [times for _, times in planned.ledger.entries]
    assert config["schedule"]["noise"]["values"] == [1, 2]


def test_relative_counts_follow_the_noise(no_statement):
    _, planned = prepare(run_config([*TWO_SIGMAS, "epochs=2", "method=dpsgd_f"]))
    counts = [step.releases[1].mechanism.noise_multiplier for step, _ in planned.ledger.entries]
    assert counts == [10.0, 20.0]


def test_an_epsilon_is_met_by_the_whole_schedule(no_statement):
    run, planned = prepare(run_config([*TWO_SIGMAS[1:], "privacy=eps3", "dataset=dutch"]))
    sigmas = [s.releases[0].mechanism.noise_multiplier for s, _ in planned.ledger.entries]
    assert sigmas == [planned.noise_multiplier, 2 * planned.noise_multiplier]
    spent = min(bound(planned.ledger, run.privacy.delta) for bound in (rdp, pld))
    assert 2.97 <= spent <= 3


def test_falling_noise_falls_in_four_stairs(no_statement):
    _, planned = prepare(run_config(["schedule=noise_falls", "privacy=noise1", "epochs=2"]))
    sigmas = [s.releases[0].mechanism.noise_multiplier for s, _ in planned.ledger.entries]
    assert sigmas == pytest.approx([1.2, 16 / 15, 14 / 15, 0.8])


def test_noise_with_a_value_for_each_step_is_refused_and_the_first_steps_have_their_cost():
    linear = "schedule.noise={_target_:dpbench.mechanism.schedules.Linear,start:1.0,end:2.0}"
    with pytest.raises(UserError, match=r"more than 100 values.*Stairs"):
        prepare(run_config(["schedule=custom", linear, "epochs=20"]))
    _, planned = prepare(run_config([*TWO_SIGMAS, "epochs=2"]))
    half, *_ = planned.ledger.entries
    assert planned.ledger.first(half[1]) == Ledger((half,))
    assert planned.ledger.first(planned.steps) == planned.ledger


@pytest.mark.parametrize("method", ["dpsgd_quantile", "sgd"])
def test_a_bound_that_no_schedule_can_move_is_refused_before_the_training(method, tmp_path):
    asked = [f"method={method}", "schedule=bound_switch", f"data_dir={tmp_path / 'nowhere'}"]
    if method == "sgd":
        assert prepare(run_config(asked))  # nothing is clipped, whatever the bound
        return
    with pytest.raises(UserError, match=r"has no schedule; leave schedule\.bound 1"):
        prepare(run_config(asked))


def test_the_setter_of_the_clip_is_what_the_schedule_moves(step_of):
    step = scheduled(step_of(dpsgd(0.5, "corrected")), Schedules(3.0, 1.0, 1.0), 2)
    step.clip = Abadi(2.0)
    assert step.clip == Abadi(6.0)


REACHES_ZERO = (Cosine(1.0, 0.0), Linear(1.0, 0.0))


@pytest.mark.parametrize("falling", REACHES_ZERO)
def test_what_follows_from_a_rate_that_ends_at_zero_is_not_asked_for(step_of, batch_of, falling):
    """Every schedule is checked at the steps of a run, of which the end is none."""
    steps = 4
    schedule = Langevin("lr").schedule(Schedules(falling, falling, 1.0), steps)
    step = scheduled(step_of(dpsgd(0.5, "corrected")), schedule, steps)
    for _ in range(steps):
        before = step.clip.sensitivity.bound, step.noise_multiplier
        step(batch_of(3))
    assert (step.clip.sensitivity.bound, step.noise_multiplier) == before
    step.load_state_dict(step.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dpsgld", "dpsghmc optimizer=momentum"])
def test_a_rate_that_decays_to_zero_goes_with_noise_that_follows_from_it(method, tmp_path):
    settings = [f"method={method}".split(), ["privacy=follows", "schedule=cosine", "epochs=1"]]
    run = build(compose([*settings[0], *settings[1], "method.bound=0.1", "optimizer.lr=0.01"]))
    record = fit(run, tmp_path)
    assert record.status == "complete"
    assert record.privacy["steps"] == 6
