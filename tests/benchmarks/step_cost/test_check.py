"""The check that a contender does the step it is timed for."""

from dataclasses import replace

import pytest
import torch
from dpbench.benchmarks.step_cost.cases import Case
from dpbench.benchmarks.step_cost.check import observe, verdict
from dpbench.benchmarks.step_cost.contenders import STEP
from dpbench.benchmarks.step_cost.ours import ours, reference

from dpbench.step.clipping import Unclipped
from dpbench.step.gradients import ENGINES

CPU = torch.device("cpu")
CASE = Case("tiny", "mlp", (5,), 3, 8, {"widths": [16]})


@pytest.fixture(scope="module")
def expected():
    return observe(reference(CASE, CPU, "dpsgd"), CASE.batch_size).update


def judged(stepper, expected, noisy=True):
    return verdict(observe(stepper, CASE.batch_size), expected, noisy).message


@pytest.mark.parametrize("engine", ENGINES)
def test_our_engines_pass(engine, expected):
    assert judged(STEP[f"ours_{engine}"].make(CASE, CPU), expected) == "ok"


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew", "ghost"])
@pytest.mark.filterwarnings("ignore")
def test_opacus_passes(mode, expected):
    assert judged(STEP[f"opacus_{mode}"].make(CASE, CPU), expected) == "ok"


def test_the_plain_step_is_held_to_the_unclipped_gradient():
    stepper = STEP["plain"].make(CASE, CPU)
    unclipped = observe(reference(CASE, CPU, "sgd"), CASE.batch_size).update
    assert judged(stepper, unclipped, noisy=False) == "ok"


def test_a_step_without_noise_clips_as_the_others_and_is_not_taken_for_one_with(expected):
    contender = STEP["ours_ghost_without_noise"]
    assert not contender.noisy
    assert judged(contender.make(CASE, CPU), expected, noisy=False) == "ok"
    assert "noise is 0" in judged(contender.make(CASE, CPU), expected, noisy=True)


def test_contenders_that_forget_to_clip_or_whose_sum_is_not_finite_are_named(expected):
    wrong = ours(CASE, CPU, "vmap")
    wrong.step.method = replace(wrong.step.method, clip=Unclipped())
    wrong.step.clip = Unclipped(1.0)
    assert "WRONG: the sum is off" in judged(wrong, expected)
    wrong = ours(CASE, CPU, "vmap")
    wrong.step.engine.parameters.theta.data[0] = torch.nan
    assert "WRONG" in judged(wrong, expected)


@pytest.mark.parametrize("factor", [0.0, 2 / 3, 1.5])
def test_a_contender_with_noise_of_another_size_is_named(factor, expected):
    wrong = ours(CASE, CPU, "vmap")
    configure = wrong.configure
    wrong.configure = lambda lr, multiplier: configure(lr, factor * multiplier)
    assert "WRONG: the noise is" in judged(wrong, expected)


@pytest.mark.parametrize("name", ["ours_ghost", "ours_vmap", "opacus_hooks", "opacus_ghost"])
@pytest.mark.filterwarnings("ignore")
def test_contenders_take_the_same_batches_of_other_sizes_and_divide_by_the_expected_one(name):
    case = replace(CASE, batch_size=64, epoch=5)
    expected, moved = (_moved(make(case, CPU)) for make in (_reference, STEP[name].make))
    assert (moved - expected).norm() < 1e-3 * expected.norm()


def _reference(case, device):
    return reference(case, device, "dpsgd")


def _moved(stepper):
    """The change of the weights in the second to the fifth step."""
    stepper.configure(lr=0.1, noise_multiplier=0.0)
    stepper()
    before = stepper.weights()
    for _ in range(4):
        stepper()
    return stepper.weights() - before
