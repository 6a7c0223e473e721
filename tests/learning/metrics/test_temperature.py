import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.learning.metrics.builtin.calibration import ece
from dpbench.learning.metrics.calibration import effect_of_scaling, fitted_temperature


def made(n, too_large=1.0, seed=0):
    """Logits that are `too_large` times those that the classes were drawn from."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    targets = torch.multinomial(logits.softmax(dim=1), 1, generator=generator).squeeze(1)
    return too_large * logits, targets


@settings(deadline=None, max_examples=30)
@given(n=st.integers(30, 300), seed=st.integers(0, 1000))
def test_at_the_temperature_the_mean_logit_of_the_truth_is_the_expected_one(n, seed):
    """The slope of the mean loss in 1/T is 0 there."""
    logits, targets = made(n, seed=seed)
    temperature = fitted_temperature(logits, targets)
    expected = ((logits / temperature).softmax(dim=1) * logits).sum(dim=1).mean()
    true = logits.gather(1, targets.unsqueeze(1)).mean()
    assert expected.item() == pytest.approx(true.item(), abs=1e-4)


@pytest.mark.parametrize("too_large", [0.2, 1.0, 7.0])
def test_logits_of_the_wrong_size_are_found_out(too_large):
    assert fitted_temperature(*made(20_000, too_large)) == pytest.approx(too_large, rel=0.05)


def test_torch_finds_the_same_temperature():
    logits, targets = made(200, 3.0)
    log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_temperature], max_iter=100, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(logits / log_temperature.exp(), targets)
        value.backward()
        return value

    optimizer.step(loss)
    assert fitted_temperature(logits, targets) == pytest.approx(
        log_temperature.exp().item(), rel=1e-4
    )


def test_the_temperature_is_fitted_on_even_and_measured_on_odd_positions():
    logits, targets = made(101, 3.0)
    said = effect_of_scaling(logits, targets)
    assert (said.fitted, said.measured) == (51, 50)
    assert said.temperature == fitted_temperature(logits[::2], targets[::2])
    odd, theirs = logits[1::2], targets[1::2]
    assert said.ece_before == ece(odd, theirs)
    assert said.ece == ece(odd / said.temperature, theirs)
    loss = torch.nn.functional.cross_entropy(odd / said.temperature, theirs)
    assert said.nll == pytest.approx(loss.item())


def test_overconfidence_goes_away_but_not_from_too_few_examples():
    said = effect_of_scaling(*made(20_000, 3.0))
    assert said.ece < 0.03 < 0.1 < said.ece_before
    assert said.nll < said.nll_before
    one = (torch.randn(1, 2), torch.tensor([0]))
    assert math.isnan(effect_of_scaling(*one).ece)
    assert math.isnan(fitted_temperature(torch.empty(0, 2), torch.empty(0, dtype=torch.int64)))
    assert math.isnan(fitted_temperature(torch.tensor([[math.nan, 0.0]]), torch.tensor([0])))
