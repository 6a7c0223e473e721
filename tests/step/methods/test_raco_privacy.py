"""RaCO: what an example can do to either release, and what both cost."""

import math
from functools import cache

import dp_accounting
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.audit.audit import GAMES
from dpbench.audit.inference import refutes, strongest_attack
from dpbench.audit.request import prepare_audit
from dpbench.learning.data.examples import Batch
from dpbench.learning.models.architecture import cross_entropy
from dpbench.privacy.accountants import pld, rdp
from dpbench.privacy.ledger import Ledger, Poisson, Step
from dpbench.step.gradients import make_engine
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.mechanism.method import Method
from dpbench.step.methods.dpsgd import dpsgd
from tests.step.methods.raco_parts import CLASSES, GROUPS, after, answer_of, constraints, made

# What an example can do.


@cache
def identity_engine():
    """Of a model whose outputs are its inputs, at the start."""
    with torch.random.fork_rng():
        model = torch.nn.Linear(CLASSES, CLASSES, bias=False).double()
    torch.nn.init.eye_(model.weight)
    probe = Batch(torch.rand(2, CLASSES).double(), torch.arange(2), torch.arange(2))
    return make_engine("vmap", model, cross_entropy, probe)


examples = st.tuples(
    st.lists(st.floats(-1e4, 1e4), min_size=CLASSES, max_size=CLASSES),
    st.integers(0, CLASSES - 1),
    st.integers(0, GROUPS - 1),
)
answers = st.lists(st.lists(st.floats(-50, 500), min_size=27, max_size=27), max_size=2)


@constraints
@pytest.mark.parametrize("rates", ["soft", "hard"])
@given(
    st.lists(examples, min_size=1, max_size=5),
    st.sampled_from([0.01, 0.5, 100.0]),
    answers,
    st.data(),
)
@settings(derandomize=True, deadline=None, max_examples=30)
def test_an_example_moves_each_release_by_at_most_its_sensitivity(
    constraint, rates, several, temperature, answers, data
):
    method = made(constraint=constraint, rates=rates, temperature=temperature)
    size = method.gradient.duals.cells * CLASSES
    method, engine = after(method, *[answer[:size] for answer in answers]), identity_engine()
    i = data.draw(st.integers(0, len(several) - 1))
    sums, histograms, rows = [], [], []
    for chosen in (several, several[:i] + several[i + 1 :]):
        inputs = torch.tensor([one[0] for one in chosen], dtype=torch.float64).view(-1, CLASSES)
        targets, groups = (torch.tensor([one[k] for one in chosen]).long() for k in (1, 2))
        batch = Batch(inputs, targets, groups)
        gradients = method.gradient(engine, batch, method.clip, ReleasedState(1, 2, None))
        sums.append(gradients.weighted_sum(method.clip.factors(gradients.norms, groups)))
        histograms.append(gradients.counts)
        rows.append(gradients.stack())
    assert (sums[0] - sums[1]).norm() <= method.clip.sensitivity.bound * (1 + 1e-9)
    assert (histograms[0] - histograms[1]).norm() <= 1 + 1e-12
    # The other examples' gradients do not change at all, given what was released.
    assert torch.allclose(torch.cat([rows[0][:i], rows[0][i + 1 :]]), rows[1], rtol=1e-12)


def test_the_histogram_reaches_its_sensitivity_and_counts_finite_outputs(step_of, batch_of):
    method = made(rates="hard")
    assert answer_of(method, step_of(method), batch_of(1)).norm() == 1
    for rates in ("hard", "soft"):
        method, batch = made(rates=rates), batch_of(3)
        batch.inputs[1] = math.nan
        assert answer_of(method, step_of(method), batch).sum() == pytest.approx(2)


def ledger(method: Method, rate: float, sigma: float, steps: int) -> Ledger:
    return Ledger().after(Step(Poisson(rate), method.releases(sigma)), steps)


@pytest.mark.slow
def test_both_releases_are_accounted_for_as_one_of_the_same_sample():
    rate, sigma, steps, delta = 0.02, 1.3, 300, 1e-5
    ours = ledger(made(histogram_noise_ratio=2.0), rate, sigma, steps)
    both = [dp_accounting.GaussianDpEvent(multiplier) for multiplier in (sigma, 2 * sigma)]
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.ComposedDpEvent(both))
    theirs = RdpAccountant().compose(event, steps).get_epsilon(delta)
    assert rdp(ours, delta) == pytest.approx(theirs, rel=5e-3)
    # Both noisy answers are equivalent to their best linear combination.
    best = dp_accounting.GaussianDpEvent(sigma / (1 + 1 / 4) ** 0.5)
    event = dp_accounting.PoissonSampledDpEvent(rate, best)
    theirs = PLDAccountant().compose(event, steps).get_epsilon(delta)
    assert pld(ours, delta) == pytest.approx(theirs, rel=5e-3)
    alone = ledger(dpsgd(0.5, "corrected"), rate, sigma, steps)
    assert pld(ours, delta) > 1.05 * pld(alone, delta)


def test_the_split_is_as_if_the_gradients_had_less_noise():
    ours = ledger(made(histogram_noise_ratio=5.0), 0.02, 1.3 * (1 + 1 / 25) ** 0.5, 300)
    alone = ledger(dpsgd(0.5, "corrected"), 0.02, 1.3, 300)
    assert pld(ours, 1e-5) == pytest.approx(pld(alone, 1e-5), rel=1e-9)


def refuted(monkeypatch, releases) -> bool:
    """Whether single steps show more than a ledger with those of the method's releases."""
    monkeypatch.setattr(Method, "releases", releases)
    settings = ["method=raco", "privacy.noise_multiplier=2", "method.histogram_noise_ratio=0.4"]
    run = prepare_audit([*settings, "privacy.delta=1e-3"], 1500, "step")[0]
    played = GAMES["step"](run, 1500, True)
    return refutes(strongest_attack(played.attacks, 1), played.ledger, run.privacy.delta, 1)


@pytest.mark.long
def test_an_attack_on_steps_sees_the_histogram(monkeypatch):
    """Its account holds, and one without the histogram is refuted."""
    everything = Method.releases
    assert not refuted(monkeypatch, everything)
    assert refuted(monkeypatch, lambda method, sigma: everything(method, sigma)[:1])
