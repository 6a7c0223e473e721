"""L2 norms that floating-point arithmetic never underestimates.

Clips divide by them: a norm that is too small because of rounding, underflow or cancellation would
let an example move the sum by more than its bound. So every squared norm here is an upper bound, in
float64 [B]: the worst-case error is added (Higham 2002, "Accuracy and Stability of Numerical
Algorithms", chapters 3 and 4: n roundings cost at most n u times the sum of magnitudes, u the unit
roundoff), and a square that underflows counts as the smallest normal number. Long sums are split
into short ones, so that the bound is tight. Norms beyond the range of squares are infinite or NaN,
and such examples are excluded.
"""

from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 64
"""The number of squares that are summed in the precision of the rows."""

NARROW = 256
"""Width up to which rows are summed directly in float64, which is slower for wider ones."""

BLOCK = 384
"""Features per block of a Gram matrix."""


def squared_norms(rows: Tensor) -> Tensor:
    """|x_i|^2 of rows [B, ...], too large by at most a factor of 1 + 1e-5 (plus 1e-35 a number)."""
    flat = rows.flatten(1)
    if flat.shape[1] <= NARROW:
        squared = torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).square_()
        limit = torch.finfo(rows.dtype).max
        if may_exceed(squared, limit):
            squared.masked_fill_(squared > limit, torch.inf)
        return squared
    chunks, rest = divmod(flat.shape[1], CHUNK)
    head = flat[:, : chunks * CHUNK].unflatten(1, (chunks, CHUNK))
    total = torch.linalg.vector_norm(head, dim=2).double().square().sum(1)
    if rest:
        total += torch.linalg.vector_norm(flat[:, -rest:], dim=1).double().square()
    return total * (1 + (CHUNK + 4) * roundoff(rows)) + flat.shape[1] * _tiny(rows)


def may_exceed(x: Tensor, limit: float) -> bool:
    """Whether one of x [B], none of them negative, may be larger than a limit, or NaN.

    Always True on a GPU, where to look would force a synchronisation.
    """
    return x.is_cuda or not x.sum().item() <= limit


class Gram(NamedTuple):
    """The inner products of each example's positions.

    products: <x_t, x_s> [B, T, T]. norms: upper bounds of |x_t| [B, T] in float64. roundings: those
    of a product, at most.
    """

    products: Tensor
    norms: Tensor
    roundings: int


def gram(x: Tensor) -> Gram:
    """The inner products of positions x [B, T, n]."""
    products, roundings = _products(x), _rounding_count(x)
    squared = products.diagonal(dim1=1, dim2=2).double() * (1 + 2 * roundings * roundoff(x))
    return Gram(products, (squared + x.shape[2] * _underflow(x)).sqrt(), roundings)


def squared_norms_of_outer(a: Gram, b: Gram) -> Tensor:
    """|G|^2 for G = sum_t b_t a_t^T; changes a.products.

    |G|^2 = sum_ts <a_t, a_s> <b_t, b_s>, bounded as in `recomputation_bound`.
    """
    positions, like = a.norms.shape[1], b.products
    total = a.products.mul_(b.products).sum((1, 2), dtype=torch.float64)
    total += positions**2 * _tiny(like)
    size = (a.norms * b.norms).sum(1)
    error = (a.roundings + b.roundings + 4) * roundoff(like) * size.square()
    return recomputation_bound(total.clamp(min=0) + error, size, positions, like)


def squared_norms_of_table(indices: Tensor, b: Tensor) -> Tensor:
    """|G|^2 for the table G in which b_t is added to row indices_t; indices [B, T], b [B, T, O].

    |G|^2 = sum_ts <b_t, b_s> over positions of the same row, bounded as in `recomputation_bound`.
    """
    same = indices.unsqueeze(2) == indices.unsqueeze(1)
    products, norms, roundings = gram(b)
    total = (products * same).sum((1, 2), dtype=torch.float64)
    squared_size = torch.einsum("bt,bts,bs->b", norms, same.to(norms), norms)
    error = (roundings + 2) * roundoff(b) * squared_size
    return recomputation_bound(total.clamp(min=0) + error, squared_size.sqrt(), b.shape[1], b)


def recomputation_bound(squared: Tensor, size: Tensor, terms: int, like: Tensor) -> Tensor:
    """Upper bounds for sums that are recomputed elsewhere, with different rounding.

    squared: squared norms of the exact sums. size: the sums of the terms' norms. like: a tensor in
    the precision of the terms.
    """
    return (squared.sqrt() + rounding_of_sum(size, terms, like)).square()


def rounding_of_sum(size: Tensor, terms: int, like: Tensor) -> Tensor:
    """How far a computed sum may be from the exact one, with arguments as in
    `recomputation_bound`."""
    return (terms + 4) * roundoff(like) * size


def size_of_outer(a: Tensor, b: Tensor) -> Tensor:
    """The sum of the norms of b_t a_t^T over positions [B]; a [B, T, I], b [B, T, O]."""
    return (_position_norms(a) * _position_norms(b)).sum(1)


def roundoff(x: Tensor) -> float:
    """The unit roundoff u in the precision of x."""
    return torch.finfo(x.dtype).eps / 2


def _tiny(x: Tensor) -> float:
    """The largest absolute error of an underflow in the precision of x."""
    return torch.finfo(x.dtype).smallest_normal


def _underflow(x: Tensor) -> float:
    """u times this is `_tiny`."""
    return _tiny(x) / roundoff(x)


def _products(x: Tensor) -> Tensor:
    """<x_t, x_s> [B, T, T] of x [B, T, n]."""
    first, *others = x.split(BLOCK, 2)
    products = first @ first.mT
    for block in others:
        products.baddbmm_(block, block.mT)
    return products


def _rounding_count(x: Tensor) -> int:
    """The number of roundings of a product in `_products`."""
    features = x.shape[2]
    return min(features, BLOCK) + features // BLOCK + 2


def _position_norms(x: Tensor) -> Tensor:
    """Upper bounds of |x_t| [B, T] in float64, which include u times any underflow in products."""
    features, u = x.shape[2], roundoff(x)
    squared = torch.linalg.vector_norm(x, dim=2).double().square()
    return (squared * (1 + (features + 4) * u) + features * _underflow(x)).sqrt()
