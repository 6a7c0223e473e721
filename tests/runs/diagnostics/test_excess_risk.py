import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.runs.diagnostics import excess_risk as risk

seeds = given(seed=st.integers(0, 10**6))
close = torch.testing.assert_close


@pytest.mark.slow
@settings(deadline=None)
@seeds
def test_each_term_is_the_difference_of_two_losses(quadratic, seed):
    q = quadratic(seed, convex=False)
    x = q.expansion
    shrunk, lengthened = x.ratio * q.plain, q.clipped / x.ratio
    close(risk.magnitude_risk(x), q.losses(shrunk) - q.losses(q.plain))
    close(risk.direction_risk(x), q.losses(q.clipped) - q.losses(shrunk))
    close(risk.direction_risk_starred(x), q.losses(lengthened) - q.losses(q.plain))
    close(risk.magnitude_risk_starred(x), q.losses(q.clipped) - q.losses(lengthened))
    close(risk.clipping_risk(x), q.losses(q.clipped) - q.losses(q.plain))


@settings(deadline=None)
@seeds
def test_both_decompositions_sum_to_the_same(quadratic, seed):
    x = quadratic(seed, convex=False).expansion
    whole = risk.clipping_risk(x)
    close(risk.magnitude_risk(x) + risk.direction_risk(x), whole)
    close(risk.magnitude_risk_starred(x) + risk.direction_risk_starred(x), whole)


@settings(deadline=None)
@seeds
def test_no_magnitude_risk_at_equal_length_and_no_direction_risk_when_aligned(quadratic, seed):
    q = quadratic(seed, convex=False)
    same = q.clipped * torch.linalg.vector_norm(q.plain) / torch.linalg.vector_norm(q.clipped)
    x = q._replace(clipped=same).expansion
    zero = torch.zeros(2, dtype=torch.float64)
    close(risk.magnitude_risk(x), zero, atol=1e-9, rtol=0)
    close(risk.magnitude_risk_starred(x), zero, atol=1e-9, rtol=0)
    x = q._replace(clipped=0.3 * q.plain).expansion
    close(risk.direction_risk(x), zero, atol=1e-9, rtol=0)
    close(risk.direction_risk_starred(x), zero, atol=1e-9, rtol=0)
    close(x.cos_plain, x.cos_clipped)


@pytest.mark.slow
@settings(deadline=None)
@seeds
def test_nothing_clipped_is_no_risk_and_all_clipped_away_is_no_step(quadratic, seed):
    q = quadratic(seed, convex=False)
    x = q._replace(clipped=q.plain).expansion
    assert not risk.clipping_risk(x).any()
    x = q._replace(clipped=torch.zeros_like(q.plain)).expansion
    close(risk.clipping_risk(x), -q.losses(q.plain))
    assert not risk.direction_risk(x).any()
    assert risk.direction_risk_starred(x).isnan().all()


def test_noise_risk_is_the_mean_over_gaussian_steps():
    hessian = torch.tensor([[2.0, 1.0], [1.0, -0.5]])
    noise = 0.7 * torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    cost = 0.1**2 / 2 * torch.einsum("si,ij,sj->s", noise, hessian, noise)
    predicted = risk.noise_risk(0.1, hessian.trace().view(1), 0.7).item()
    deviation = (cost.std() / 200_000**0.5).item()
    assert cost.mean().item() == pytest.approx(predicted, abs=4 * deviation)
    assert 4 * deviation < predicted / 3
