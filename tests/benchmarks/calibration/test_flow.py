import pytest
import torch
from dpbench.benchmarks.calibration.flow import Discretisation, follow
from dpbench.benchmarks.calibration.kernel import clip_sum, tangents_of
from dpbench.benchmarks.calibration.laboratory import distance
from dpbench.benchmarks.calibration.properties import TOLERANCE

from dpbench.step.clipping import make_clip

CLIPS = [
    ("none", "flat", 1.0),
    ("batch", "flat", 0.1),
    ("abadi", "flat", 0.1),
    ("abadi", "layerwise", 0.1),
]


def steps(count, lr, noise=0.0, every=None, zero=0.0):
    return Discretisation(count, lr, noise, every, zero)


def draw():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_rate_is_minus_the_quadratic_form_of_the_kernel(perceptron, clip, outputs):
    """Equations 3.1, 4.3 and 4.4."""
    network, batch = perceptron(0, outputs, 6)
    tangents = tangents_of(network, batch)
    made = clip_sum(make_clip(*clip), network.gradients(batch), batch.groups)
    outputs = network.model(batch.inputs).detach().requires_grad_()
    (slopes,) = torch.autograd.grad(network.loss(outputs, batch.targets).mean(), outputs)
    slopes = slopes.flatten()
    expected = -slopes @ tangents.kernel(made.factors) @ slopes
    (rate,) = follow(network, batch, make_clip(*clip), steps(0, 0.1), draw()).rates
    assert rate == pytest.approx(expected.item())


@pytest.mark.parametrize("clip", CLIPS)
def test_the_rate_is_what_the_loss_does_per_time(perceptron, clip):
    network, batch = perceptron(1, 3, 6)
    lr = 1e-5
    flow = follow(network, batch, make_clip(*clip), steps(1, lr), draw())
    before, after = flow.losses
    assert (after - before) / lr == pytest.approx(flow.rates[0], rel=1e-3)


@pytest.mark.parametrize("clip", CLIPS)
def test_the_cosine_has_the_sign_of_the_fall(outvoted, clip):
    network, batch = outvoted
    flow = follow(network, batch, make_clip(*clip), steps(20, 1e-3), draw())
    assert all((c > 0) == (r < 0) for c, r in zip(flow.cosines, flow.rates, strict=True))


def test_without_clipping_the_loss_falls_to_zero_and_the_flow_ends(perceptron):
    net, batch = perceptron(2, 1, 6)
    flow = follow(net, batch, make_clip("none", "flat", 1.0), steps(500, 0.1, 0, 20, 0.01), draw())
    assert flow.losses == sorted(flow.losses, reverse=True)
    assert len(flow.losses) < 501
    assert flow.losses[-1] <= 0.01 * flow.losses[0] < flow.losses[-2]
    assert flow.cosines == pytest.approx([1.0] * len(flow.losses))
    assert flow.kernels == flow.unclipped
    assert len(flow.kernels) == (len(flow.losses) + 19) // 20


def test_a_small_flat_bound_raises_the_loss_where_many_outvote_one(outvoted):
    """Theorem 1, statement 3, of which the paper gives no example: nine against one."""
    network, batch = outvoted
    flow = follow(network, batch, make_clip("abadi", "flat", 1.0), steps(100, 0.01, 0, 50), draw())
    assert flow.losses == sorted(flow.losses)
    assert flow.losses[-1] > flow.losses[0]
    assert max(flow.cosines) < -0.9
    assert not any(kernel.quadratic >= -TOLERANCE for kernel in flow.kernels)
    assert all(kernel.eigenvalue > 0 for kernel in (*flow.kernels, *flow.unclipped))


@pytest.mark.slow
@pytest.mark.parametrize("clip", [("none", "flat", 1.0), ("abadi", "flat", 1.0)])
def test_without_clipping_by_layer_the_same_loss_comes_down_to_zero(stuck, clip):
    network, batch = stuck
    flow = follow(network, batch, make_clip(*clip), steps(1000, 0.1, 0, None, 1e-3), draw())
    assert flow.losses[-1] <= 1e-3 * flow.losses[0]


def test_layerwise_clipping_stands_still_at_a_loss_above_zero(stuck):
    """Theorem 1, statement 4, where the paper gives no example; H is positive definite."""
    net, batch = stuck
    flow = follow(net, batch, make_clip("abadi", "layerwise", 1.0), steps(50, 0.02, 0, 10), draw())
    assert flow.losses == pytest.approx([100.0] * 51)
    assert flow.rates == pytest.approx([0.0] * 51)
    assert min(kernel.eigenvalue for kernel in flow.unclipped) > 0.1
    assert [kernel.eigenvalue for kernel in flow.kernels] == pytest.approx([0.0] * 6, abs=1e-12)


@pytest.mark.slow
def test_noise_has_the_scale_of_the_discrete_step(stuck):
    """Equation 4.1: a step moves the weights by lr / n of the noise."""
    network, batch = stuck
    noise, lr, count = 3.0, 0.1, 300
    clip = make_clip("abadi", "layerwise", 1e-9)  # nothing but noise moves them
    follow(network, batch, clip, steps(count, lr, noise), draw())
    walked = network.parameters.theta.detach().norm().item()
    # Two weights: the length is Rayleigh's, with 99.9% of it between these.
    unit = lr / len(batch) * noise * count**0.5
    assert 0.04 * unit < walked < 3.8 * unit
    again = draw()
    moved = sum(torch.randn(2, dtype=torch.float64, generator=again) for _ in range(count))
    torch.testing.assert_close(
        network.parameters.theta.detach(), -lr / len(batch) * noise * moved, rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_noise_vanishes_with_the_step_size(perceptron):
    """Fact 4.1: over the same time, about as the root of the step."""
    apart = []
    for lr, count in ((0.1, 10), (0.1 / 16, 160)):
        flows = [
            follow(network, batch, make_clip("abadi", "flat", 0.1), steps(count, lr, noise), draw())
            for noise in (0.5, 0.0)
            for network, batch in [perceptron(3, 3, 6)]
        ]
        apart.append(distance(*flows))
    assert apart[1] < apart[0] / 2
