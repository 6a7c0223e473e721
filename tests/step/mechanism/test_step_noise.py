"""The noise of a whole private step: its size, its divisor and its streams."""

import dataclasses

import pytest
import torch

from dpbench.learning.data.examples import Batch
from dpbench.runs.diagnostics.excess_risk import noise_risk
from dpbench.step.clipping import CountQuery
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.methods.dpsgd import dpsgd
from dpbench.step.methods.dpsgd_f import Groupwise, dpsgd_f
from dpbench.step.methods.dpsgd_global import dpsgd_global_adapt
from tests.problems import problem
from tests.steps import noiseless, theta

ADAPT = dpsgd_global_adapt(0.5, 3.0, 0.8, 0.1, 2.0, "corrected")


def noise_in(step: PrivateStep, silent: PrivateStep, batch: Batch) -> torch.Tensor:
    """What the noise added to the update's gradient, by the same step without it."""
    step(batch)
    silent(batch)
    return step.engine.parameters.theta.grad - silent.engine.parameters.theta.grad


@pytest.mark.parametrize("examples", [0, 3, 12])
@pytest.mark.parametrize("physical", [None, 1, 4])
def test_the_update_has_one_draw_of_noise_over_the_expected_batch_size(
    step_of, batch_of, variance_p, examples, physical
):
    method = dpsgd(0.5, "corrected")
    settings = {"physical": physical, "multiplier": 1.3, "expected": 8.0, "lr": 0.0}
    step, silent = step_of(method, **settings), step_of(noiseless(method), **settings)
    noise = torch.cat([noise_in(step, silent, batch_of(examples, seed=s)) for s in range(10)])
    scale = 1.3 * 0.5 / 8
    assert variance_p(noise, scale) > 1e-3
    for wrong in (2 / 3, 3 / 2, 0.9, 1.1):
        assert variance_p(noise, scale * wrong) < 1e-6
    assert abs(noise.mean()) < 4 * scale / len(noise) ** 0.5


def test_noise_costs_what_proposition_1_prints_over_the_square_of_the_batch_size(step_of, batch_of):
    """Esipova et al. 2023: the mean of lr^2/2 n^T H n over noise n of Algorithm 1, H diagonal."""
    method = dpsgd(0.5, "corrected")
    settings = {"multiplier": 1.3, "expected": 8.0, "lr": 0.0}
    step, silent = step_of(method, **settings), step_of(noiseless(method), **settings)
    noise = torch.stack([noise_in(step, silent, batch_of(3, seed=s)) for s in range(20)])
    curvature = torch.linspace(0.5, 2.0, noise.shape[1], dtype=noise.dtype)
    cost = 0.3**2 / 2 * (noise.square() @ curvature).mean().item()
    printed = noise_risk(0.3, curvature.sum(), 1.3 * 0.5).item()
    assert cost == pytest.approx(printed / 8**2, rel=0.06)


def test_dpsgd_f_has_noise_for_the_bound_even_of_an_absent_group(step_of, batch_of, variance_p):
    method = dpsgd_f(0.5, 2.0, "corrected")
    step, silent = (step_of(m, expected=1.0, lr=0.0) for m in (method, noiseless(method)))
    for s in (step, silent):
        s.clip = s.clip.bind(problem())
    for seed in range(10):
        batch = batch_of(9, groups=1, seed=seed)  # groups 1 and 2 are absent
        noise = noise_in(step, silent, batch)
        assert variance_p(noise, float(step.clip.bounds.max())) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("relative", [False, True])
def test_counts_have_the_noise_that_their_query_states(step_of, batch_of, variance_p, relative):
    # Batches of one group with short gradients: the exact counts are n, 0, 0, 0, 0, 0.
    seen = []

    class Noted(Groupwise):
        def updated(self, counts, expected_batch_size):
            seen.append(counts)
            return self

    query = CountQuery(3.0, before=True, relative=relative)
    clip = Noted(1e9, query, published=False, groups=3)
    step = step_of(dataclasses.replace(dpsgd(1.0, "corrected"), clip=clip), multiplier=0.5)
    batch = batch_of(4, groups=1)
    for _ in range(300):
        step(batch)
    noise = torch.stack(seen) - torch.tensor([4.0, 0, 0, 0, 0, 0])
    scale = 1.5 if relative else 3.0
    assert step.method.releases(0.5)[1].mechanism.noise_multiplier == scale
    assert variance_p(noise, scale) > 1e-3
    assert variance_p(noise, scale * 2 / 3) < 1e-6
    assert variance_p(noise, scale * 3 / 2) < 1e-6
    assert abs(noise.mean()) < 4 * scale / noise.numel() ** 0.5


def test_each_generator_has_its_own_purpose(step_of, batch_of):
    def made(**seeds) -> tuple[torch.Tensor, float]:
        step = step_of(ADAPT, **seeds)
        step(batch_of(6))
        return theta(step), float(step.clip.strict_bound)

    (first, z), (noisier, same_z), (same, other_z) = (
        made(),
        made(noise_seed=77),
        made(count_seed=77),
    )
    assert z == same_z != other_z
    assert torch.equal(first, same)  # Z moves after the batch, so the first step is the same
    assert not torch.equal(first, noisier)


def test_the_global_generator_is_not_touched(step_of, batch_of):
    step = step_of(ADAPT)
    before = torch.get_rng_state()
    step(batch_of(6))
    assert torch.equal(torch.get_rng_state(), before)
