"""Mixup within an example: its own views are mixed, and nothing of any other example.

Bao et al. 2023, "DP-Mix: Mixup-based Data Augmentation for Differentially Private Learning"
(DP-Mix_Self). Mixtures are further views of the example, whose gradients are averaged and clipped
with those of all others, so the accounting is unchanged.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.learning.data.derive.augmentation import ShiftsFlips
from dpbench.system.errors import UserError
from dpbench.system.validate import Positive, Whole

MIN_ALPHA, MAX_ALPHA = 0.01, 1e6
"""Beyond, the draws of Beta(alpha, alpha) underflow, or are all one half."""


@dataclass(frozen=True)
class SelfMixup(ShiftsFlips):
    """Shifted and flipped views of which the last `mixed` are mixtures of two of the others.

    A mixture is l u + (1 - l) v with l from Beta(alpha, alpha) and views u and v that are drawn
    independently and uniformly from the views - mixed plain ones. Both have the example's label,
    and so has the mixture.
    """

    mixed: Whole
    alpha: Positive

    def __post_init__(self) -> None:
        super().__post_init__()
        if not MIN_ALPHA <= self.alpha <= MAX_ALPHA:
            raise UserError(
                f"augmentation.alpha={self.alpha} must be a number from {MIN_ALPHA} to {MAX_ALPHA}."
            )
        if self.mixed >= self.views:
            raise UserError(
                f"augmentation.mixed={self.mixed} must be less than augmentation.views="
                f"{self.views}: mixtures are of the views that are not mixed."
            )

    def apply(self, images: Tensor, draw: torch.Generator) -> Tensor:
        plain = self._moved(images, self.views - self.mixed, draw)
        first, second = (self._chosen(plain, draw) for _ in range(2))
        shares = self._shares((len(images), self.mixed), draw).to(images)[..., None, None, None]
        return torch.cat([plain, shares * first + (1 - shares) * second], 1)

    def _chosen(self, plain: Tensor, draw: torch.Generator) -> Tensor:
        """For each mixture, a view of the same example [B, mixed, C, H, W]."""
        shape = (len(plain), self.mixed)
        views = torch.randint(plain.shape[1], shape, generator=draw, device=draw.device)
        return plain[torch.arange(len(plain), device=draw.device).unsqueeze(1), views]

    def _shares(self, shape: tuple[int, int], draw: torch.Generator) -> Tensor:
        """The shares of the first views [B, mixed], from Beta(alpha, alpha)."""
        shapes = torch.full((*shape, 2), self.alpha, dtype=torch.float64, device=draw.device)
        return torch._sample_dirichlet(shapes, generator=draw)[..., 0]
