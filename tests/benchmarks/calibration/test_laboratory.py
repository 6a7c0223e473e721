from pathlib import Path

import pytest
import torch
from dpbench.benchmarks.calibration.flow import Flow
from dpbench.benchmarks.calibration.laboratory import FlowSettings, distance, examine

from dpbench.runs.config.buildable import check_settings
from dpbench.runs.config.compose import compose
from dpbench.runs.execution.prepare import build
from dpbench.step.clipping import Abadi, Unclipped
from dpbench.system.errors import UserError

NOWHERE = Path("/nowhere")
PLAIN = {
    "examples": 6, "lr": 0.1, "steps": 4, "every": 2, "zero": 1e-3, "noise": 1.0, "noise_steps": 2,
    "clips": {"none": Unclipped(1.0), "small": Abadi(0.1)},
}  # fmt: skip


def setup(**changed) -> FlowSettings:
    check_settings(FlowSettings, PLAIN | changed, "table.compute.")
    return FlowSettings(**PLAIN | changed)


@pytest.fixture(scope="module")
def run():
    """Digits and a perceptron of 4 hidden units, as configured."""
    return build(compose(["model.widths=[4]"]))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1"),
        ({"lr": -1.0}, "table.compute.lr"),
    ],
)
def test_invalid_settings_are_refused(changed, says):
    with pytest.raises(UserError, match=says):
        setup(**changed)


@pytest.mark.slow
def test_a_clip_is_examined_from_the_same_weights_each_time(run):
    first, again, other = (examine(run, setup(), x, NOWHERE, 0) for x in ("small", "small", "none"))
    assert first == again
    assert first.flow.losses[0] == other.flow.losses[0]
    assert first.flow.losses[-1] > other.flow.losses[-1]
    assert (len(first.flow.losses), len(first.flow.kernels)) == (5, 3)
    assert first.flow.clipped[0] == 1
    assert examine(run, setup(), "none", NOWHERE, 1).flow.losses[0] != other.flow.losses[0]


@pytest.mark.slow
def test_noise_is_looked_at_over_the_same_time_at_a_finer_step(run):
    noise = examine(run, setup(noise=10.0, noise_steps=5), "none", NOWHERE, 0).noise
    assert 0 < noise[1] < noise[0]


def test_the_distance_of_curves_is_in_units_of_the_first_loss():
    assert distance(Flow([4.0, 3.0, 1.0]), Flow([4.0, 1.0, 0.5])) == 0.5
    with pytest.raises(ValueError, match="longer"):
        distance(Flow([4.0]), Flow([4.0, 1.0]))


def test_unsupported_problems_are_refused_and_nothing_global_is_drawn_from(run):
    with pytest.raises(UserError, match=r"examples=5000 is more than the 1438"):
        examine(run, setup(examples=5000), "none", NOWHERE, 0)
    large = build(compose(["model.widths=[2000]"]))
    with pytest.raises(UserError, match="the Jacobian would have"):
        examine(large, setup(examples=1000), "none", NOWHERE, 0)
    before = torch.random.get_rng_state()
    examine(run, setup(), "none", NOWHERE, 0)
    assert torch.equal(torch.random.get_rng_state(), before)
