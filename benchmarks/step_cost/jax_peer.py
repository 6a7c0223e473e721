"""jax_privacy, on our models that can be translated to JAX layer by layer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.learning.data.examples import Batch

from .cases import CannotBeTimed, Case
from .stepper import BOUND, LR, NOISE_MULTIPLIER

Layer = Callable[[Any, Any], Any]
"""Maps a layer's parameters, a list of arrays, and its inputs [B, ...] to its outputs."""


class JaxPrivacyStepper:
    """jax_privacy's clipped gradient and Gaussian noise, and an update, compiled as one step."""

    def __init__(self, model: nn.Module, batch: Batch):
        import jax
        import jax.numpy as jnp
        from jax_privacy import clipping, noise_addition

        if type(model) is not nn.Sequential:
            raise CannotBeTimed("only plain sequences of layers are translated to JAX")
        layers = [_layer(module) for module in model]
        self._weights = [
            [jnp.array(p.detach().numpy()) for p in module.parameters(recurse=False)]
            for module in model
        ]
        self._batch = tuple(jnp.array(t.numpy()) for t in (batch.inputs, batch.targets))
        self._key = jax.random.key(0)
        self.configure(LR, NOISE_MULTIPLIER)

        def loss(weights, inputs, targets):
            for layer, layer_weights in zip(layers, weights, strict=True):
                inputs = layer(layer_weights, inputs)
            return -jax.nn.log_softmax(inputs)[jnp.arange(len(targets)), targets].mean()

        clipped = clipping.clipped_grad(loss, l2_clip_norm=BOUND, batch_argnums=(1, 2))

        @jax.jit
        def step(weights, inputs, targets, key, lr, noise_multiplier):
            key, noise_key = jax.random.split(key)
            total = clipped(weights, inputs, targets)
            stddev = noise_multiplier * clipped.sensitivity()
            privatizer = noise_addition.gaussian_privatizer(stddev=stddev, prng_key=noise_key)
            noisy, _ = privatizer.update(total, privatizer.init(total))
            return jax.tree.map(lambda w, g: w - lr * g / len(targets), weights, noisy), key

        self._step = step

    def __call__(self) -> None:
        self._weights, self._key = self._step(
            self._weights, *self._batch, self._key, self._lr, self._noise_multiplier
        )

    def configure(self, lr: float, noise_multiplier: float) -> None:
        self._lr, self._noise_multiplier = float(lr), float(noise_multiplier)

    def weights(self) -> Tensor:
        flat = [np.asarray(w).ravel() for layer in self._weights for w in layer]
        return torch.from_numpy(np.concatenate(flat))

    def wait(self) -> None:
        import jax

        jax.block_until_ready(self._weights)


def jax_privacy(case: Case, device: torch.device) -> JaxPrivacyStepper:
    """jax_privacy on a case; ImportError if it is not installed, CannotBeTimed for a model that
    cannot be translated."""
    model = case.build(device)
    if device.type != "cpu":
        raise CannotBeTimed("timed on CPUs only")
    if case.epoch:
        raise CannotBeTimed("its compiled step is for batches of one size")
    return JaxPrivacyStepper(model, case.batch(device))


def _layer(module: nn.Module) -> Layer:
    """The same layer in JAX."""
    import jax

    activations = {nn.Tanh: jax.numpy.tanh, nn.ReLU: jax.nn.relu, nn.Sigmoid: jax.nn.sigmoid}
    if type(module) in activations:
        return lambda _, x: activations[type(module)](x)
    match module:
        case nn.Flatten():
            return lambda _, x: x.reshape(len(x), -1)
        case nn.Linear():
            return lambda weights, x: x @ weights[0].T + weights[1]
        case nn.Conv2d(groups=1, dilation=(1, 1)) if type(module) is nn.Conv2d:
            return _convolution(module)
        case nn.MaxPool2d(kernel_size=int(size), stride=int(stride), padding=0):
            return _pool(size, stride)
    raise CannotBeTimed(f"{type(module).__name__} is not translated to JAX")


def _convolution(module: nn.Conv2d) -> Layer:
    from jax import lax

    if isinstance(module.padding, str):
        raise CannotBeTimed("convolutions with named padding are not translated to JAX")
    stride, padding = module.stride, [(side, side) for side in module.padding]

    def convolve(weights, x):
        return lax.conv(x, weights[0], stride, padding) + weights[1][:, None, None]

    return convolve


def _pool(size: int, stride: int) -> Layer:
    from jax import lax

    window, strides = (1, 1, size, size), (1, 1, stride, stride)
    return lambda _, x: lax.reduce_window(x, -float("inf"), lax.max, window, strides, "VALID")
