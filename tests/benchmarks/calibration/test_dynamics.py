"""Theorem 3 of Bu et al. (calibration): optimisers in continuous time, under four clippings."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from dpbench.benchmarks.calibration.dynamics import AdaGrad, Adam, HeavyBall, Nesterov, RmsProp
from dpbench.benchmarks.calibration.flow import Discretisation, follow
from dpbench.benchmarks.calibration.laboratory import FlowRun, FlowSettings
from dpbench.benchmarks.calibration.linear import Examples
from dpbench.benchmarks.calibration.report import SAME, ZERO, claims
from scipy.integrate import solve_ivp

from dpbench.comparison.reproduce.target import target_of
from dpbench.comparison.tables.published import read_published
from dpbench.runs.config.buildable import check_settings
from dpbench.step.clipping import Abadi, Global, Layerwise
from dpbench.system.errors import UserError
from dpbench.system.paths import benchmarks_folder

TARGET = target_of("calibration_theorem3", [])
SETUP = TARGET.computed_by(FlowSettings)
PRINTED = read_published(benchmarks_folder() / TARGET.table.published)
XI, A1, A2, R = 0.05, 0.3, 0.7, 1.5

# The right-hand sides as the paper prints them, for G(w) = K w. States are w, m, v.
K = np.array([[2.0, 0.5], [0.5, 1.0]])
START = np.array([1.0, -2.0])


def momentum(friction):
    return lambda t, w, m, v: (-m, K @ w - friction(t) * m, 0 * v)


def adam(t, w, m, v):
    return -m / np.sqrt(v + XI), K @ w - m / A1, ((K @ w) ** 2 - v) / A2


def adagrad(t, w, m, v):
    return -(K @ w) / np.sqrt(v + XI), 0 * m, (K @ w) ** 2


def rmsprop(t, w, m, v):
    return -(K @ w) / np.sqrt(v + XI), 0 * m, ((K @ w) ** 2 - v) / A2


EQUATIONS = [
    (HeavyBall(R), momentum(lambda t: R)),
    (Nesterov(), momentum(lambda t: 3 / t)),
    (Adam(A1, A2, XI), adam),
    (AdaGrad(XI), adagrad),
    (RmsProp(A2, XI), rmsprop),
]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(("dynamics", "equations"), EQUATIONS)
def test_small_steps_follow_the_equations_that_the_paper_prints(dynamics, equations):
    begin, end, dt = 1e-6, 3.0, 1e-4
    state = np.concatenate([START, np.zeros(4)])
    exact = solve_ivp(
        lambda t, s: np.concatenate(equations(t, *np.split(s, 3))),
        *((begin, end), state),
        rtol=1e-9,
        atol=1e-11,
    ).y[:2, -1]
    weights, matrix = torch.tensor(START), torch.tensor(K)
    velocity = dynamics.start(dt)
    for _ in range(round(end / dt)):
        weights = weights + dt * velocity(matrix @ weights)
    assert np.abs(exact).max() > 0.005, "it is still on its way"
    np.testing.assert_allclose(weights.numpy(), exact, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("dynamics", [AdaGrad(XI), RmsProp(A2, XI), Adam(A1, A2, XI)])
def test_squares_of_a_noisy_gradient_hold_its_variance_at_every_step_size(dynamics):
    """The paper says that noise leaves these flows as they are; their v has G^2 + s^2 instead."""
    time, s = 0.5, 3.0
    draw = torch.Generator().manual_seed(0)
    for dt in (1e-2, 1e-3):
        velocity = dynamics.start(dt)
        for _ in range(round(time / dt)):
            noise = s * torch.randn(20_000, generator=draw, dtype=torch.float64)
            last = velocity(1 + noise)
        squares = (1 + s**2) * (time if isinstance(dynamics, AdaGrad) else 1 - math.exp(-time / A2))
        heading = A1 * (1 - math.exp(-time / A1)) if isinstance(dynamics, Adam) else 1
        assert last.mean().item() == pytest.approx(-heading / math.sqrt(squares + XI), abs=0.05)


def followed(optimizer, clip, steps=1200, **changed):
    """The flow on the two examples by hand; changed: of the steps."""
    how = Discretisation(steps, 0.04, 0.0, 200, 1e-3, SETUP.optimizers[optimizer])
    batch, network = SETUP.by_hand.batch(), SETUP.by_hand.network()
    return follow(network, batch, SETUP.clips[clip], replace(how, **changed), torch.Generator())


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", SETUP.optimizers)
def test_two_examples_by_hand_show_every_clipping_of_the_theorem(optimizer):
    """Statements 1 and 2, of which the paper gives no example; H is positive definite."""
    for clip in ("local flat", "global flat", "global layerwise"):
        flow = followed(optimizer, clip)
        assert flow.losses[-1] <= 1e-3 * flow.losses[0], clip
        assert min(kernel.eigenvalue for kernel in flow.unclipped) > 0.05
    flow = followed(optimizer, "local layerwise", 50)
    assert flow.losses == [16.0] * 51


@pytest.mark.parametrize("clip", ["global flat", "global layerwise"])
def test_global_clipping_has_one_factor_and_drops_nothing(clip):
    """R/Z for all, as the theorem's bound on the norms makes it."""
    network, batch = SETUP.by_hand.network(), SETUP.by_hand.batch()
    lengths = SETUP.clips[clip].norms(network.gradients(batch))
    assert SETUP.clips[clip].factors(lengths, batch.groups).unique().tolist() == [0.5]


class Stopping:
    """A flow that is broken: it rests after some steps, wherever it is."""

    def start(self, dt):
        inner, left = SETUP.optimizers["heavy ball"].start(dt), iter([True] * 50)
        return lambda gradient: inner(gradient) if next(left, False) else 0 * gradient


def judged(label, flow, noise=(0.4, 0.1)):
    found = claims([FlowRun(label, None, flow, noise)], PRINTED, SETUP.zero)
    return {claim.name: claim.verdict for claim in found}


@pytest.mark.slow
def test_a_broken_flow_and_a_broken_clip_fail_the_claims():
    good = followed("heavy ball", "local flat")
    assert judged("heavy ball, local flat", good) == {ZERO: "holds", SAME: "holds"}
    stopped = followed("heavy ball", "local flat", 400, dynamics=Stopping())
    assert judged("heavy ball, local flat", stopped)[ZERO] == "fails"
    by_layer = followed("heavy ball", "local layerwise", 50)
    assert judged("heavy ball, local flat", by_layer)[ZERO] == "fails"
    assert judged("heavy ball, local layerwise", by_layer)[ZERO] == "shown"
    assert judged("heavy ball, local layerwise", good)[ZERO] == "not seen"
    assert judged("adam, local flat", good, (0.4, 0.3))[SAME] == "fails"


def test_clips_optimisers_and_what_is_measured_are_those_of_the_theorem_and_the_table():
    assert {label for label, _ in PRINTED} == set(SETUP.flows)
    assert {name for _, name in PRINTED} == {ZERO, SAME}
    no = {key for key, cell in PRINTED.items() if cell.value == "0"}
    assert no == {(f"{name}, local layerwise", ZERO) for name in SETUP.optimizers}
    assert SETUP.clips["global layerwise"] == Layerwise(Global(500.0, strict_bound=1000.0))
    assert SETUP.clips["local flat"] == Abadi(2.0)
    assert SETUP.optimizers["adam"] == Adam(0.2, 0.2, 0.1)


def test_settings_of_optimisers_and_problems_are_checked():
    with pytest.raises(UserError, match="friction must be a positive number"):
        check_settings(HeavyBall, {"friction": 0}, "")
    with pytest.raises(UserError, match="rows of equal length"):
        Examples([[1.0], [1.0, 2.0]], [1.0, 2.0])
