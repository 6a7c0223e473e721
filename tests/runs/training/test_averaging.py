import pytest
import torch
from torch import nn

from dpbench.runs.training.loop import MovingAverage
from dpbench.system.errors import UserError
from tests.runs.training.small_runs import run_of


def walk(steps, size=5):
    """Parameters and where they are after each step, in float64 and told apart by size."""
    draw = torch.Generator().manual_seed(0)
    places = torch.randn(steps + 1, size, dtype=torch.float64, generator=draw).cumsum(0)
    return nn.Parameter(places[0].clone()), places


def averaged(decay, steps):
    theta, places = walk(steps)
    average = MovingAverage(decay, theta)
    for place in places[1:]:
        theta.data.copy_(place)
        average.update()
    return average, places


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.9, 0.9999])
@pytest.mark.parametrize("steps", [0, 1, 2, 40])
def test_the_average_follows_the_published_recursion(decay, steps):
    average, places = averaged(decay, steps)
    expected = places[0].tolist()
    for t in range(steps):
        d = min(decay, (1 + t) / (10 + t))
        now = places[t + 1].tolist()
        expected = [d * old + (1 - d) * new for old, new in zip(expected, now, strict=True)]
    assert average.average.tolist() == pytest.approx(expected, rel=1e-12)


def test_without_decay_it_is_the_last_iterate_to_the_last_bit():
    average, places = averaged(0.0, 7)
    assert torch.equal(average.average, places[-1])


def test_evaluation_uses_the_average_and_restores_the_parameters():
    average, places = averaged(0.9, 7)
    theta = average.theta
    view = theta.data[:2]  # as a module's own parameters are

    def fails():
        with average.applied():
            assert torch.equal(theta.detach(), average.average)
            assert torch.equal(view, average.average[:2])
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert torch.equal(theta.detach(), places[-1])
    assert torch.equal(view, places[-1][:2])
    assert not torch.equal(average.average, places[-1])


@pytest.mark.parametrize("decay", [1.0, -0.1, True, "0.9", float("nan")])
def test_an_invalid_decay_is_refused(decay):
    with pytest.raises(UserError, match="ema_decay must be a number from 0 to below 1, got"):
        run_of(ema_decay=decay)
