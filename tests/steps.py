"""Private steps in tests: their parameters, their methods without noise, and their streams."""

import dataclasses

import torch

from dpbench.step.mechanism.method import Method
from dpbench.step.mechanism.noise import NoNoise
from dpbench.step.mechanism.step import PrivateStep
from dpbench.step.mechanism.streams import Stream, seeded


def theta(step: PrivateStep) -> torch.Tensor:
    return step.engine.parameters.theta.detach().clone()


def noiseless(method: Method) -> Method:
    return dataclasses.replace(method, noise=NoNoise())


def stream(seed: int = 0) -> Stream:
    return seeded("tests", seed, "", torch.device("cpu"))
