"""Accuracy and loss, over all examples and per group."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional


def correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether each example is classified correctly, as float64 [n] of 0, 1 or NaN.

    outputs: logits [n, K]; targets: classes [n] int64. NaN where an output is not finite, since
    argmax would return an arbitrary class.
    """
    hits = (outputs.argmax(dim=1) == targets).double()
    return hits.masked_fill(~outputs.isfinite().all(dim=1), torch.nan)


def negative_log_likelihood(outputs: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(outputs)[target] of each example in nats, as float64 [n].

    outputs: logits [n, K]; targets: classes [n] int64. NaN where the outputs are not all finite.
    """
    losses = functional.cross_entropy(outputs.double(), targets, reduction="none")
    return losses.masked_fill(~outputs.isfinite().all(dim=1), torch.nan)


def mean(values: Tensor) -> float:
    """The mean of values [n]; NaN if there are none or one is NaN."""
    return values.double().mean().item()


def mean_per_group(values: Tensor, groups: Tensor, names: Sequence[str]) -> dict[str, float]:
    """The mean of values [n] over the examples of each group; an empty group has NaN.

    groups: number of each example's group [n] int64; names: the groups' names by number.
    """
    return {name: mean(values[groups == number]) for number, name in enumerate(names)}


def check_shapes(
    outputs: Tensor,
    columns: Sequence[Tensor],
    groups: Tensor,
    names: Sequence[str],
    width: int | None = None,
) -> None:
    """ValueError unless outputs are [n, K], columns and groups [n], and all groups have names.

    width: the required K; None for any.
    """
    n = len(outputs)
    shapes = [tuple(t.shape) for t in (*columns, groups)]
    if outputs.dim() != 2 or width not in (None, outputs.shape[1]) or set(shapes) != {(n,)}:
        expected = f"[n, {width or 'K'}], [n]"
        raise ValueError(f"outputs are {tuple(outputs.shape)}, the rest {shapes}, not {expected}.")
    if n and not 0 <= int(groups.min()) <= int(groups.max()) < len(names):
        raise ValueError(f"a group number is outside the {len(names)} named groups.")


def spread(values: Iterable[float]) -> float:
    """The largest minus the smallest; NaN if one of them is NaN."""
    tensor = torch.tensor(list(values), dtype=torch.float64)
    return (tensor.max() - tensor.min()).item()
