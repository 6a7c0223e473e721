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


def class_metrics(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """`balanced_accuracy`, `f1_macro` and `auroc`: means over the classes, whatever their sizes.

    outputs: logits [n, K]; targets: classes [n] int64. The mean of the classes' recalls; of their
    F1 scores; and of the areas under the curves of each class against the rest by its probability,
    which for two classes is the one area. All equal scikit-learn's. NaN where a class has no
    example or an output is not finite.
    """
    count = outputs.shape[1]
    sizes = torch.bincount(targets, minlength=count).double()
    if not outputs.isfinite().all() or not sizes.all():
        return dict.fromkeys(("balanced_accuracy", "f1_macro", "auroc"), torch.nan)
    predictions = outputs.argmax(dim=1)
    hits = torch.bincount(targets[predictions == targets], minlength=count).double()
    predicted = torch.bincount(predictions, minlength=count)
    scores = outputs.double().softmax(dim=1)
    areas = [_area(scores[:, k], targets == k) for k in range(count)]
    return {
        "balanced_accuracy": mean(hits / sizes),
        "f1_macro": mean(2 * hits / (sizes + predicted)),
        "auroc": sum(areas) / count,
    }


def _area(scores: Tensor, positive: Tensor) -> float:
    """The share of pairs in which the positive example has the higher score [n]; ties are halves
    (Mann and Whitney 1947)."""
    _, places, counts = scores.unique(return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2).double()
    ours = int(positive.sum())
    above = ranks[places[positive]].sum().item() - ours * (ours + 1) / 2
    return above / (ours * (len(scores) - ours))


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
