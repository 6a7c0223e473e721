"""L2 norms that floating-point arithmetic never underestimates.

Every squared norm is an upper bound, in float64 [B]: the worst-case rounding error is added, n u
times the sum of magnitudes for n roundings (Higham 2002, chapters 3 and 4), and a square that
underflows counts as the smallest normal number (docs/privacy/arithmetic.md).

The norms of a model's layers are terms: what reads whole gradients is computed when a term is made,
and the arithmetic on few numbers that is left for all terms of a kind at once, since a GPU takes
longer to start such an operation than to finish it.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor

from dpbench.system.grouping import grouped

CHUNK = 64
"""The number of squares that are summed in the precision of the rows."""

NARROW, GPU_NARROW = 256, 2048
"""Widths up to which rows are summed directly in float64: on a processor that is slower for wider
ones, and on a GPU it takes fewer operations."""


class Term:
    """A squared norm [B] in float64, or what one is computed from.

    parts: the terms that it is computed from, of lower rank. value: set by `evaluated`.
    """

    rank = 0
    parts: "tuple[Term, ...]" = ()
    value: Tensor

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        """Sets the values of terms of this kind, given those of their parts."""


class Known(Term):
    """A value that is known when the term is made."""

    def __init__(self, value: Tensor):
        self.value = value


def evaluated(terms: Iterable[Term]) -> list[Tensor]:
    """The values of terms."""
    terms = [*terms]
    new = [term for term in _with_parts(terms) if not hasattr(term, "value")]
    kinds = grouped((type(term), term) for term in new)
    for kind in sorted(kinds, key=lambda kind: kind.rank):
        kind.together(kinds[kind])
    return [term.value for term in terms]


def _with_parts(terms: Sequence[Term]) -> list[Term]:
    found = [*terms]
    for term in found:  # which grows by the parts
        found += term.parts
    return found


def squared_norms(rows: Tensor) -> Tensor:
    """|x_i|^2 of rows [B, ...], too large by at most a factor of 1 + 1e-5 (plus 1e-35 a number)."""
    return evaluated([of_rows(rows)])[0]


def of_rows(rows: Tensor) -> Term:
    """`squared_norms`, as a term."""
    flat = rows if rows.dim() == 2 else rows.flatten(1)
    narrow = flat.shape[1] <= (GPU_NARROW if flat.is_cuda else NARROW)
    return Narrow(flat) if narrow else Wide(flat)


class Narrow(Term):
    """Of rows [B, n] up to NARROW."""

    def __init__(self, rows: Tensor):
        self._rows = rows

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        if not terms[0]._rows.is_cuda:  # a processor takes longer to put them together
            for term in terms:
                norms = torch.linalg.vector_norm(term._rows, dim=1, dtype=torch.float64)
                term.value = _within_range(norms.square_(), term._rows.dtype)
            return
        for dtype, ours in grouped((term._rows.dtype, term) for term in terms).items():
            by_width = grouped((term._rows.shape[1], term) for term in ours).values()
            norms = [x for equal in by_width for x in _norms([term._rows for term in equal])]
            values = _within_range(torch.stack(norms).square_(), dtype).unbind()
            set_values([term for equal in by_width for term in equal], values)


def _norms(rows: list[Tensor]) -> Sequence[Tensor]:
    """The norms [B] in float64 of each of some tensors [B, d]."""
    if len(rows) > 1:
        return torch.linalg.vector_norm(torch.stack(rows), dim=2, dtype=torch.float64).unbind()
    return [torch.linalg.vector_norm(rows[0], dim=1, dtype=torch.float64)]


def _within_range(squared: Tensor, dtype: torch.dtype) -> Tensor:
    """Squares, infinite where the precision of what was squared has no such number."""
    limit = torch.finfo(dtype).max
    if may_exceed(squared, limit):
        squared.masked_fill_(squared > limit, torch.inf)
    return squared


class Wide(Term):
    """Of rows [B, n] beyond NARROW, in chunks and what is left of them."""

    def __init__(self, rows: Tensor):
        chunks, rest = divmod(rows.shape[1], CHUNK)
        head = rows[:, : chunks * CHUNK] if rest else rows
        self._chunks = torch.linalg.vector_norm(head.unflatten(1, (chunks, CHUNK)), dim=2)
        self._rest = torch.linalg.vector_norm(rows[:, -rest:], dim=1) if rest else None
        self._factor = 1 + (CHUNK + 4) * roundoff(rows)
        self._underflow = rows.shape[1] * tiny(rows)

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        chunks = [term._chunks for term in terms]
        squares = (torch.cat(chunks, 1) if len(chunks) > 1 else chunks[0]).double().square_()
        totals = [part.sum(1) for part in squares.split([x.shape[1] for x in chunks], 1)]
        left = [(x, term._rest) for x, term in zip(totals, terms, strict=True)]
        if rests := [rest for _, rest in left if rest is not None]:
            squares = torch.stack(rests).double().square()
            torch._foreach_add_([x for x, rest in left if rest is not None], squares.unbind())
        torch._foreach_mul_(totals, [term._factor for term in terms])
        torch._foreach_add_(totals, [term._underflow for term in terms])
        set_values(terms, totals)


class Dyads(Term):
    """(|a|^2 + c) |b|^2, of outer products b a^T of rows and, where c is 1, of b beside them."""

    rank = 1

    def __init__(self, a: Tensor, b: Tensor, bias: bool):
        self.parts, self._bias = (of_rows(a), of_rows(b)), bias

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        a, b = values_of_parts(terms)
        if biased := [x for x, term in zip(a, terms, strict=True) if term._bias]:
            torch._foreach_add_(biased, 1)
        torch._foreach_mul_(a, b)
        set_values(terms, a)


class Sum(Term):
    """Of two terms."""

    rank = 3

    def __init__(self, first: Term, second: Term):
        self.parts = first, second

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        set_values(terms, torch._foreach_add(*values_of_parts(terms)))


class Recomputed(Term):
    """A squared norm of sums that are recomputed elsewhere (`recomputation_bounds`), of |a| |b|
    scale at most without cancellation.

    squared: the squared norm of the computed sums. a, b: squared norms.
    """

    rank = 2

    def __init__(self, squared: Term, a: Term, b: Term, scale: float, rounding: float):
        self.parts, self._scale, self._rounding = (squared, a, b), scale, rounding

    @classmethod
    def together(cls, terms: Sequence[Self]) -> None:
        squared, a, b = values_of_parts(terms)
        sizes = [*torch._foreach_mul(a, b)]
        torch._foreach_sqrt_(sizes)
        torch._foreach_mul_(sizes, [term._scale for term in terms])
        set_values(terms, recomputation_bounds(squared, sizes, [term._rounding for term in terms]))


def recomputation_bounds(
    squared: list[Tensor], sizes: list[Tensor], roundings: list[float]
) -> list[Tensor]:
    """Upper bounds for sums that are recomputed elsewhere, with different rounding.

    squared: squared norms of the exact sums [B]. sizes: the sums of the terms' norms [B].
    roundings: the relative errors, see `rounding_of_sum`.
    """
    norms = torch._foreach_sqrt(squared)
    torch._foreach_add_(norms, torch._foreach_mul(sizes, roundings))
    return [*torch._foreach_mul(norms, norms)]


def rounding_of_sum(terms: int, like: Tensor) -> float:
    """How far a computed sum may be from the exact one, relative to the sum of its terms' norms;
    like: a tensor in the precision of the terms."""
    return (terms + 4) * roundoff(like)


def may_exceed(x: Tensor, limit: float) -> bool:
    """Whether one of x, none negative, may be above a limit, or NaN; True of `unread` tensors."""
    return unread(x) or not x.sum().item() <= limit


def unread(x: Tensor) -> bool:
    """Whether values are not looked at to save work: on a GPU that would force a synchronisation,
    and tensors of a pass that is captured have none."""
    return x.is_cuda or type(x) is not Tensor


def selected(x: Tensor, chosen: Tensor) -> Tensor:
    """x, and 0 where a boolean tensor says False, whatever x is there."""
    # The gradient of a ReLU: one kernel, while `where` takes another one to make the 0.
    return torch.ops.aten.threshold_backward(x, chosen, 0)


def roundoff(x: Tensor) -> float:
    """The unit roundoff u in the precision of x."""
    return torch.finfo(x.dtype).eps / 2


def tiny(x: Tensor) -> float:
    """The largest absolute error of an underflow in the precision of x."""
    return torch.finfo(x.dtype).smallest_normal


def values_of_parts(terms: Sequence[Term]) -> list[list[Tensor]]:
    """The values of the terms' first parts, of their second parts, ..."""
    return [
        [part.value for part in parts]
        for parts in zip(*(term.parts for term in terms), strict=True)
    ]


def set_values(terms: Sequence[Term], values: Sequence[Tensor]) -> None:
    for term, value in zip(terms, values, strict=True):
        term.value = value
