"""DP-MF with noise correlated over the whole run, generated with a few buffers."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from dpbench.clipping import Bounds, make_clip
from dpbench.mechanism.buffered_toeplitz import buffered_square_root, optimal
from dpbench.mechanism.method import Method
from dpbench.mechanism.noise import CorrelatedGaussian, draws
from dpbench.mechanism.streams import Stream
from dpbench.privacy.guarantee import Guarantee
from dpbench.privacy.ledger import Mechanism, ToeplitzGaussian
from dpbench.system.validate import integer

MAX_BUFFERS = 8

GUARANTEE = Guarantee(
    "proven",
    "The noisy sums of all steps are one Gaussian mechanism, whose sensitivity counts every turn "
    "of an example; nothing is amplified by sampling.",
)


def dp_mf_blt(bound: Bounds, buffers: int, clip: str, style: str) -> Method:
    """DP-SGD with noise C^-1 z by a buffered linear Toeplitz matrix C (Dvijotham et al. 2024).

    An example is in the batch of one step of a cycle, which is an epoch, and of the same step in
    all cycles (McMahan et al. 2024). bound, clip and style as for `dpsgd`.

    Privacy: x_t + (C^-1 z)_t for all t determine, and are determined by, C x + z. Given all earlier
    releases, taking an example away shifts row t of C x by sum_s C_ts g_s, where g_s is its clipped
    gradient of its turn s <= t. Whatever the releases, the squares of these shifts sum to at most
    sum_ss' <C_s, C_s'> |g_s| |g_s'| <= R^2 |sum_s C_s|^2 over its turns s, since C has no negative
    entries. So C x + z is a Gaussian mechanism of that sensitivity, also for gradients that depend
    on earlier releases (Denisov et al. 2022, Theorem 2.1). A bound that changes with t scales x_t
    and z_t alike.
    """
    integer("method.buffers", buffers, most=MAX_BUFFERS)
    decays, weights = buffered_square_root(buffers, steps=1000)
    noise = BufferedGaussian(decays=decays, weights=weights)
    return Method("dp_mf_blt", make_clip(clip, style, bound), GUARANTEE, noise=noise)


@dataclass(frozen=True)
class BufferedGaussian(CorrelatedGaussian):
    """w_t times multiplier * sensitivity, where C w = z is N(0, I), and C is buffered Toeplitz.

    decays, weights: of C, see `dpbench.privacy.toeplitz`; `for_run` finds those of least error.
    correlated: w of this step, and the buffers sum_i decays_j^i w_(t-i) [1 + d, D] float64.
    """

    decays: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    bands = None

    def for_run(self, steps: int, cycle: int) -> Self:
        decays, weights = optimal(len(self.decays), steps, cycle)
        return replace(self, decays=decays, weights=weights)

    def advance(self, total: Tensor, stream: Stream) -> Self:
        """Algorithm 3 of McMahan et al. 2024."""
        z = draws(stream, len(total), torch.special.ndtri)
        buffers = z.new_zeros(len(self.decays), len(z))
        if self.correlated is not None:
            buffers = self.correlated[1:]
        w = z - z.new_tensor(self.weights) @ buffers
        buffers = z.new_tensor(self.decays).unsqueeze(1) * buffers + w
        return replace(self, correlated=torch.cat([w.unsqueeze(0), buffers]))

    def mechanism(self, multiplier: float) -> Mechanism:
        return ToeplitzGaussian(multiplier, self.decays, self.weights)
