import pytest
import torch
from dpbench.benchmarks.calibration.kernel import clip_sum, tangents_of
from dpbench.benchmarks.calibration.properties import TOLERANCE, properties

from dpbench.step.clipping import Abadi, make_clip

BOTH = pytest.mark.parametrize("outputs", [1, 3])


def jacobian(network, batch):
    """df/dw [n, K, D], one backward pass for each output of each example."""
    weights = list(network.model.parameters())
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad(one, weights, retain_graph=True)])
        for output in network.model(batch.inputs)
        for one in output
    ]
    return torch.stack(rows).view(len(batch), -1, len(rows[0]))


def kernel_by_loops(network, batch, factors):
    """sum_r H_r C_r, entry by entry, for factors [n, L]."""
    J = jacobian(network, batch)
    n, K, _ = J.shape
    M = torch.zeros(n * K, n * K, dtype=torch.float64)
    for a in range(n * K):
        for b in range(n * K):
            for r, layer in enumerate(network.parameters.layers):
                left, right = (J[i // K, i % K, layer.at] for i in (a, b))
                M[a, b] += left @ right * factors[b // K, r]
    return M


@BOTH
@pytest.mark.parametrize(
    ("clip", "style"), [("abadi", "flat"), ("abadi", "layerwise"), ("automatic", "layerwise")]
)
def test_the_kernel_is_that_of_plain_loops(perceptron, outputs, clip, style):
    network, batch = perceptron(0, outputs, 5)
    tangents = tangents_of(network, batch)
    made = clip_sum(make_clip(clip, style, 0.3), network.gradients(batch), batch.groups)
    factors = made.factors.expand(-1, 3)
    assert factors.std() > 0
    expected = kernel_by_loops(network, batch, factors)
    torch.testing.assert_close(tangents.kernel(made.factors), expected)
    torch.testing.assert_close(
        tangents.kernel(), kernel_by_loops(network, batch, torch.ones_like(factors))
    )


@BOTH
def test_the_kernel_without_clipping_is_symmetric_and_positive(perceptron, outputs):
    network, batch = perceptron(2, outputs, 7)
    seen = properties(tangents_of(network, batch).kernel())
    assert seen.asymmetry <= TOLERANCE
    assert seen.eigenvalue > 0
    assert seen.imaginary == 0


@BOTH
@pytest.mark.parametrize("style", ["flat", "layerwise"])
def test_a_large_bound_leaves_the_kernel_as_it_is(perceptron, outputs, style):
    network, batch = perceptron(3, outputs, 6)
    tangents = tangents_of(network, batch)
    made = clip_sum(make_clip("abadi", style, 1e6), network.gradients(batch), batch.groups)
    assert torch.equal(tangents.kernel(made.factors), tangents.kernel())


def test_batch_clipping_scales_the_kernel(perceptron):
    network, batch = perceptron(4, 3, 6)
    tangents = tangents_of(network, batch)
    total = network.gradients(batch).stack().sum(0)
    made = clip_sum(make_clip("batch", "flat", 0.1), network.gradients(batch), batch.groups)
    c = 0.1 / total.norm()
    assert c < 1
    torch.testing.assert_close(tangents.kernel(made.factors), c * tangents.kernel())
    torch.testing.assert_close(made.total, c * total)


def test_layerwise_with_one_layer_is_flat(perceptron):
    network, batch = perceptron(5, 3, 6, widths=())
    tangents = tangents_of(network, batch)
    flat, layerwise = (
        clip_sum(make_clip("abadi", style, 0.2), network.gradients(batch), batch.groups)
        for style in ("flat", "layerwise")
    )
    assert (flat.factors < 1).any()
    torch.testing.assert_close(tangents.kernel(flat.factors), tangents.kernel(layerwise.factors))


def test_the_parameters_stay_where_they_are(perceptron):
    network, batch = perceptron(6, 3, 6)
    before = network.parameters.theta.detach().clone()
    tangents_of(network, batch).kernel(clip_sum(Abadi(0.1), network.gradients(batch), 0).factors)
    assert torch.equal(network.parameters.theta, before)


@pytest.mark.slow
def test_a_search_over_networks_loses_eigenvalues_layerwise_and_never_flat(perceptron):
    """Theorem 1, where it gives no example: H is positive definite, sum_r H_r C_r is not."""
    least = {"flat": [], "layerwise": []}
    for seed in range(60):
        network, batch = perceptron(seed, 1, 12, widths=(2, 2))
        tangents = tangents_of(network, batch)
        if properties(tangents.kernel()).eigenvalue < 1e-8:
            continue
        for style, seen in least.items():
            made = clip_sum(
                make_clip("normalise", style, 1.0), network.gradients(batch), batch.groups
            )
            seen.append(properties(tangents.kernel(made.factors)))
    assert len(least["flat"]) > 20
    assert all(seen.eigenvalue >= -TOLERANCE for seen in least["flat"])
    assert not all(seen.eigenvalue >= -TOLERANCE for seen in least["layerwise"])
