"""A training in NumPy, as of a function of JAX: arrays in, arrays out."""

import math

import numpy as np


def factory(task):
    inputs, targets = np.asarray(task.inputs, float), np.asarray(task.targets, float)
    weights = np.zeros(task.features)
    sampling, noise = np.random.default_rng(task.seed).spawn(2)
    scale = task.noise_multiplier * task.bound
    grid = 2.0 ** (math.floor(math.log2(scale)) - 18)
    yield weights
    for _ in range(task.steps):
        chosen = sampling.random(len(inputs)) < task.sample_rate
        residuals = inputs[chosen] @ weights - targets[chosen]
        gradients = 2 * residuals[:, None] * inputs[chosen]
        norms = np.linalg.norm(gradients, axis=1)
        total = np.minimum(1, task.bound / (norms + 1e-9)) @ gradients
        released = np.round((total + scale * noise.normal(size=task.features)) / grid) * grid
        weights = weights - task.learning_rate * released / task.batch_size
        yield weights
