"""Norms of sums over positions, by the inner products of the positions of each example."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from dpbench.step.gradients.norms import (
    Term,
    evaluated,
    recomputation_bounds,
    rounding_of_sum,
    roundoff,
    set_values,
    tiny,
    values_of_parts,
)
from dpbench.step.gradients.products import FLOAT32_PRODUCTS, Products

BLOCK = 384
"""Features per block of a Gram matrix."""

NEGLIGIBLE = 2.0**24
"""A squared norm so many times an error needs no room for it: its root would change by less than
half a rounding of float32, of which `rounding_of_sum` counts some more than there are."""


class Gram(NamedTuple):
    """The inner products of each example's positions.

    products: <x_t, x_s> [B, T, T]. norms: upper bounds of |x_t| [B, T] in float64, as a term.
    roundings: those of a product, at most.
    """

    products: Tensor
    norms: Term
    roundings: int


def gram(x: Tensor, by: Products = FLOAT32_PRODUCTS) -> Gram:
    """The inner products of positions x [B, T, n], which are operands of these products."""
    return of_products(*inner_products(x, by))


def inner_products(
    x: Tensor, by: Products, columns: Tensor | None = None
) -> tuple[Tensor, int, float]:
    """<x_t, x_s> [B, T, T] of x [B, T, n], the roundings of one, and n underflows, over u.

    columns: x.mT, where it is known.
    """
    with by.taken(x):
        products = _products(x, x.mT if columns is None else columns)
    return products, by.roundings * _rounding_count(x), x.shape[2] * _underflow(x)


def of_products(products: Tensor, roundings: int, underflow: float) -> Gram:
    """That of inner products as in `inner_products`."""
    factor = 1 + 2 * roundings * roundoff(products)
    return Gram(products, PositionNorms(products, factor, underflow), roundings)


class PositionNorms(Term):
    """|x_t| [B, T], by the diagonal of inner products [B, T, T]."""

    def __init__(self, products: Tensor, factor: float, underflow: float):
        # A copy, as products may change.
        self._squared = products.diagonal(dim1=1, dim2=2).to(torch.float64, copy=True)
        self._factor, self._underflow = factor, underflow

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        squared = [term._squared for term in terms]
        torch._foreach_mul_(squared, [term._factor for term in terms])
        torch._foreach_add_(squared, [term._underflow for term in terms])
        torch._foreach_sqrt_(squared)
        set_values(terms, squared)


class OuterNorms(Term):
    """|G|^2 for G = sum_t b_t a_t^T; changes a.products.

    |G|^2 = sum_ts <a_t, a_s> <b_t, b_s>, bounded as in `recomputation_bounds`. summed: the products
    by which the sum is recomputed.
    """

    rank = 2

    def __init__(self, a: Gram, b: Gram, summed: Products = FLOAT32_PRODUCTS):
        like, positions = b.products, b.products.shape[1]
        self.parts = a.norms, b.norms
        self._total = a.products.mul_(like).sum((1, 2), dtype=torch.float64)
        self._underflow = positions**2 * tiny(like)
        self._error = (a.roundings + b.roundings + 4) * roundoff(like)
        self._rounding = summed.rounding_of_sum(positions, like)

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        sizes = [size.sum(1) for size in torch._foreach_mul(*values_of_parts(terms))]
        totals = [term._total for term in terms]
        if totals[0].is_cuda:  # in fewer operations
            torch._foreach_clamp_min_(totals, [term._underflow * NEGLIGIBLE for term in terms])
            torch._foreach_addcmul_(totals, sizes, sizes, [term._error for term in terms])
        else:
            torch._foreach_add_(totals, [term._underflow for term in terms])
            torch._foreach_clamp_min_(totals, 0)
            errors = torch._foreach_mul(sizes, sizes)
            torch._foreach_mul_(errors, [term._error for term in terms])
            torch._foreach_add_(totals, errors)
        set_values(terms, recomputation_bounds(totals, sizes, [term._rounding for term in terms]))


def squared_norms_of_table(indices: Tensor, b: Tensor) -> Tensor:
    """|G|^2 for the table G in which b_t is added to row indices_t; indices [B, T], b [B, T, O].

    |G|^2 = sum_ts <b_t, b_s> over positions of the same row, bounded as in `recomputation_bounds`.
    """
    same = indices.unsqueeze(2) == indices.unsqueeze(1)
    products, of_positions, roundings = gram(b)
    (norms,) = evaluated([of_positions])
    total = (products * same).sum((1, 2), dtype=torch.float64)
    squared_size = torch.einsum("bt,bts,bs->b", norms, same.to(norms), norms)
    error = (roundings + 2) * roundoff(b) * squared_size
    squared, size = total.clamp(min=0) + error, squared_size.sqrt()
    return recomputation_bounds([squared], [size], [rounding_of_sum(b.shape[1], b)])[0]


def size_of_outer(a: Tensor, b: Tensor) -> Tensor:
    """The sum of the norms of b_t a_t^T over positions [B]; a [B, T, I], b [B, T, O]."""
    return (_position_norms(a) * _position_norms(b)).sum(1)


def _underflow(x: Tensor) -> float:
    """u times this is `tiny`."""
    return tiny(x) / roundoff(x)


def _products(x: Tensor, columns: Tensor) -> Tensor:
    """<x_t, x_s> [B, T, T] of x [B, T, n] and x.mT."""
    if x.shape[2] <= BLOCK:
        return torch.bmm(x, columns)
    first, *others = zip(x.split(BLOCK, 2), columns.split(BLOCK, 1), strict=True)
    products = torch.bmm(*first)
    for block in others:
        products.baddbmm_(*block)
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
