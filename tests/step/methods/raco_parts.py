"""RaCO on small data, as its tests take it."""

import dataclasses

import pytest
import torch

from dpbench.learning.data.examples import Batch
from dpbench.runs.config.buildable import check_settings
from dpbench.step.mechanism.gradient import ReleasedState
from dpbench.step.mechanism.method import Method
from dpbench.step.methods.raco import raco
from tests.problems import Made, problem

CLASSES, GROUPS, EXPECTED = 3, 3, 8.0
CONSTRAINTS = ("demographic_parity", "equalized_odds")
constraints = pytest.mark.parametrize("constraint", CONSTRAINTS)


def made(**changes) -> Method:
    settings = {
        **{"bound": 0.5, "constraint": "demographic_parity", "slack": 0.05, "rates": "soft"},
        **{"dual_learning_rate": 0.5, "dual_bound": 2.0, "temperature": 0.5},
        **{"histogram_noise_ratio": 5.0, **changes},
    }
    check_settings(raco, settings, "method.")
    return raco(**settings).bind(problem(Made()))


def after(method: Method, *answers: list) -> Method:
    """The method after these answers to its query."""
    gradient, theta = method.gradient, torch.zeros(0)
    for answer in answers:
        gradient = gradient.advance(theta, torch.tensor(answer, dtype=torch.float64) / EXPECTED)
    return dataclasses.replace(method, gradient=gradient)


def unequal(method: Method) -> Method:
    """After two histograms in which the first group is preferred."""
    size = method.gradient.duals.cells * CLASSES
    answer = [1.0 + (i % 5) + 9 * (i == 1) for i in range(size)]
    return after(method, answer, answer[::-1])


def seam(method: Method, step, batch: Batch):
    return method.gradient(step.engine, batch, method.clip, ReleasedState(1, 2, None))


def answer_of(method: Method, step, batch: Batch) -> torch.Tensor:
    """The exact histogram of a batch [M, K]."""
    return step.clipped_sum(seam(method, step, batch), batch).exact_counts.view(-1, CLASSES)
