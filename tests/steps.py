"""Private steps in tests: parameters, neighbouring batches, methods without noise, streams."""

import dataclasses

import torch

from dpbench.learning.data.dataset import Batch
from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.noise import NoNoise
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import Stream, seeded


def theta(step: PrivateStep) -> torch.Tensor:
    return step.engine.parameters.theta.detach().clone()


def neighbours(batch: Batch, i: int) -> Batch:
    """The batch without its example i."""
    return batch.each(lambda t: torch.cat([t[:i], t[i + 1 :]]))


def noiseless(method: Method) -> Method:
    return dataclasses.replace(method, noise=NoNoise())


def stream(seed: int = 0) -> Stream:
    return seeded("tests", seed, "", torch.device("cpu"))
