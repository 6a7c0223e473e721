import pytest
import torch

from dpbench.runs.diagnostics.curvature import MeanLoss, largest_eigenvalue, trace

GROUPS = [0, 1, 0, 0, 3, 1, 0, 1, 1, 0, 0]  # nobody in 2, one in 3


@pytest.fixture
def engine(small):
    return small.engine(small.network())


@pytest.fixture
def split(small):
    return small.split(GROUPS)


def mean_loss(engine, split, group, chunk=4):
    return MeanLoss(engine, split, (split.groups == group).nonzero()[:, 0], chunk)


@pytest.mark.parametrize("group", [0, 1, 3])
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_gradient_and_products_are_of_the_explicit_hessian(small, engine, split, group, chunk):
    loss = mean_loss(engine, split, group, chunk)
    gradient, hessian = small.expand(engine, split, group)
    everything = torch.eye(len(engine.parameters), dtype=torch.float64)
    torch.testing.assert_close(loss.gradient(), gradient)
    torch.testing.assert_close(loss.products(everything), hessian)


@pytest.mark.parametrize("group", [0, 1, 3])
def test_trace_and_eigenvalue_are_those_of_the_explicit_hessian(small, engine, split, group):
    loss = mean_loss(engine, split, group)
    _, hessian = small.expand(engine, split, group)
    size, count = len(hessian), 400
    off_diagonal = hessian - hessian.diag().diag()
    deviation = (2 / count * off_diagonal.square().sum()).sqrt()
    estimate = trace(loss.products, size, count, torch.Generator().manual_seed(0))
    assert abs(estimate - hessian.trace()) < 4 * deviation
    start = torch.ones(size, dtype=torch.float64)
    largest = torch.linalg.eigvalsh(hessian)[-1].item()
    assert largest_eigenvalue(loss.products, start) == pytest.approx(largest, rel=1e-3)


def test_parameters_are_read_when_asked_and_without_examples_all_is_nan(small, engine, split):
    loss = mean_loss(engine, split, 0)
    theta = engine.parameters.theta
    with torch.no_grad():
        theta.mul_(2)
    before = theta.detach().clone()
    torch.testing.assert_close(loss.gradient(), small.expand(engine, split, 0)[0])
    loss.products(torch.ones_like(theta).detach().unsqueeze(0))
    assert theta.equal(before)
    assert theta.grad is None
    assert all(p.grad is None for p in engine.model.parameters())
    loss = mean_loss(engine, split, 2)
    assert len(loss) == 0
    assert loss.gradient().isnan().all()
    assert loss.products(torch.ones(2, len(engine.parameters))).isnan().all()
