"""Private steps in tests: parameters, neighbouring batches, methods without noise, streams."""

import dataclasses
from collections.abc import Callable

import torch

from dpbench.learning.data.examples import Batch
from dpbench.step.gradients import Gradients
from dpbench.step.gradients.engine import MaterialisedGradients
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.noise import NoNoise
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import Stream, seeded


def theta(step: PrivateStep) -> torch.Tensor:
    return step.engine.parameters.theta.detach().clone()


def neighbours(batch: Batch, i: int) -> Batch:
    """The batch without its example i."""
    return batch.each(lambda t: torch.cat([t[:i], t[i + 1 :]]))


def gradients_of(step: PrivateStep, batch: Batch) -> Gradients:
    return step.gradient(step.engine, batch, step.clip, step.released)


def moves(step: PrivateStep, batch_of: Callable[..., Batch]) -> list[float]:
    """How far 500 examples move the clipped sum: 20 batches without each of their 25 examples.

    Gradients have all lengths. Those of the others are taken to be the same without an example.
    """
    moved = []
    for seed in range(20):
        batch = batch_of(25, seed=seed)
        batch.inputs.mul_(torch.logspace(-3, 3, 25).unsqueeze(1))
        gradients = gradients_of(step, batch)
        whole, rows = step.clipped_sum(gradients, batch).total, gradients.stack()
        for i in range(25):
            others, left = neighbours(batch, i), torch.cat([rows[:i], rows[i + 1 :]])
            layers = step.engine.parameters.layers
            fewer = MaterialisedGradients(others.targets, left, layers)
            moved.append(float((whole - step.clipped_sum(fewer, others).total).norm()))
    return moved


def noiseless(method: Method) -> Method:
    return dataclasses.replace(method, noise=NoNoise())


def stream(seed: int = 0) -> Stream:
    return seeded("tests", seed, "", torch.device("cpu"))
