"""Convolutions, plain and with a kernel that is computed from the weight."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv1d_weight, conv2d_weight

from dpbench.gradients.engine import without
from dpbench.gradients.layers.layer import Seen, gram_squared_norms


class Convolution:
    """The gradient of a kernel: a [B K, C, *image], zero-padded by `padding`, b [B K, O, *image'].

    A convolution over one image with the batch as its groups has the per-example gradients as its
    weight gradient, so they cost what the batch gradient costs; K views are K such images. With few
    positions and large kernels the norm comes from Gram matrices over the positions instead, and
    nothing is kept. One or two dimensions.
    """

    def __init__(
        self,
        module: nn.Conv1d | nn.Conv2d,
        a: Tensor,
        b: Tensor,
        views: int,
        padding: tuple[int, ...],
    ):
        self.module, self.a, self.b, self.views, self.padding = module, a, b, views, padding
        self._kernel_gradient = conv1d_weight if a.dim() == 3 else conv2d_weight
        self._forward = F.conv1d if a.dim() == 3 else F.conv2d
        self._weight: Tensor | None = None

    @property
    def _examples(self) -> int:
        return len(self.b) // self.views

    @property
    def _biased(self) -> bool:
        return self.module.bias is not None

    def squared_norms(self) -> Tensor:
        return self._weight_squared_norms() + self.bias_squared_norms()

    def bias_squared_norms(self) -> Tensor | float:
        """[B], or 0 without a bias."""
        return self._bias_rows().square().sum(1) if self._biased else 0.0

    def _weight_squared_norms(self) -> Tensor:
        o, i = self.module.weight.flatten(1).shape
        t = self.b[0, 0].numel() * self.views
        # The factor 2: a Gram matrix is slower per operation, and the sum still has to be made.
        known = self._weight is not None
        if not known and self.module.groups == 1 and 2 * t * (i + o) < i * o:
            return gram_squared_norms(self._patches(), self._positions(self.b.flatten(2)))
        return self.weight_rows().square().sum(1)

    def _patches(self) -> Tensor:
        """What each output position saw [B, T, I]."""
        m = self.module
        image, spare = (self.a, 0) if self.a.dim() == 4 else (self.a.unsqueeze(2), 1)
        kernel, dilation, stride = (
            (1,) * spare + tuple(x) for x in (m.kernel_size, m.dilation, m.stride)
        )
        padding = (0,) * spare + tuple(self.padding)
        return self._positions(F.unfold(image, kernel, dilation, padding, stride))

    def _positions(self, channels: Tensor) -> Tensor:
        """[B, K T, c] from [B K, c, T]."""
        return channels.mT.reshape(self._examples, -1, channels.shape[1])

    def weight_rows(self) -> Tensor:
        """The kernel's gradient of each example [B, O I]."""
        if self._weight is None:
            m, examples = self.module, self._examples
            shape = (examples * len(m.weight), *m.weight.shape[1:])
            a, b = self._as_groups(self.a), self._as_groups(self.b)
            rows = self._kernel_gradient(
                a, shape, b, m.stride, self.padding, m.dilation, examples * m.groups
            )
            self._weight = rows.reshape(examples, -1)
        return self._weight

    def _as_groups(self, x: Tensor) -> Tensor:
        """[K, B C, *image] from [B K, C, *image]."""
        views = x.unflatten(0, (self._examples, self.views)).transpose(0, 1)
        return views.reshape(self.views, -1, *x.shape[2:])

    def _bias_rows(self) -> Tensor:
        return self.b.unflatten(0, (-1, self.views)).flatten(3).sum((1, 3))

    def weighted_sum(self, factors: Tensor) -> Tensor:
        if self._weight is not None:
            weight = factors @ self._weight
        else:
            m = self.module
            each = factors.repeat_interleave(self.views).view(-1, *[1] * (self.b.dim() - 1))
            shape = tuple(m.weight.shape)
            weight = self._kernel_gradient(
                self.a, shape, self.b * each, m.stride, self.padding, m.dilation, m.groups
            ).flatten()
        return torch.cat([weight, factors @ self._bias_rows()]) if self._biased else weight

    def dot(self, vector: Tensor) -> Tensor:
        m = self.module
        kernel = vector[: m.weight.numel()].view_as(m.weight)
        through = self._forward(self.a, kernel, None, m.stride, self.padding, m.dilation, m.groups)
        total = (through * self.b).reshape(self._examples, -1).sum(1)
        return total + self._bias_rows() @ vector[m.weight.numel() :] if self._biased else total

    def stack(self) -> Tensor:
        weight = self.weight_rows()
        return torch.cat([weight, self._bias_rows()], 1) if self._biased else weight

    def cleaned(self, factors: Tensor) -> "Convolution":
        each = factors.repeat_interleave(self.views)
        a, b = without(self.a, each), without(self.b, each)
        return Convolution(self.module, a, b, self.views, self.padding)


def convolution(seen: Seen) -> Convolution:
    """A convolution of any stride, padding, dilation and groups."""
    module = seen.module
    if module.padding_mode == "zeros" and not isinstance(module.padding, str):
        return Convolution(module, seen.a, seen.b, seen.views, module.padding)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    # torch keeps the padding of each side, last dimension first, as F.pad takes it.
    a = F.pad(seen.a, module._reversed_padding_repeated_twice, mode=mode)
    return Convolution(module, a, seen.b, seen.views, (0,) * (a.dim() - 2))
