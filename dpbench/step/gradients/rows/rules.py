"""Which operations keep each row of a batch in its place, and where their results have the rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten


class RowAxis(NamedTuple):
    """Axis `dim` holds the rows: its index i belongs to row (i // inner) modulo their number."""

    dim: int
    inner: int


class Mixed(NamedTuple):
    """The rows are mixed, moved or not all there. by: the operation that did it."""

    by: str


Rows = RowAxis | Mixed | None
"""Where a tensor has the rows of the batch; None if it does not depend on them."""


class Call(NamedTuple):
    """One operation: its function, its arguments, and where a tensor has the rows."""

    func: Any
    args: tuple
    kwargs: dict
    rows_of: Callable[[Tensor], Rows]

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return [x for x in tree_leaves((self.args, self.kwargs)) if isinstance(x, Tensor)]

    def value(self, name: str) -> Any:
        """The argument of that name in the operation's schema, or its default."""
        for i, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                given = self.args[i] if i < len(self.args) else argument.default_value
                return self.kwargs.get(name, given)
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Whether the operation has an argument of that name."""
        return any(argument.name == name for argument in self.func._schema.arguments)

    def with_rows(self) -> list[tuple[Tensor, RowAxis]]:
        """The tensors that have rows; none of them is mixed."""
        pairs = ((x, self.rows_of(x)) for x in self.tensors)
        return [(x, rows) for x, rows in pairs if isinstance(rows, RowAxis)]


Rule = Callable[[Call, Tensor], Rows]
"""Where the (first) result of a call has the rows, given that no argument is mixed."""


def mixing(call: Call, out: Tensor) -> Mixed:
    """An operation without a rule, or one that is given rows where it would mix them."""
    return Mixed(str(call.func.overloadpacket))


def constant(call: Call, out: Tensor) -> None:
    """The result has the shape of the rows, and none of their values."""
    return None


def elementwise(call: Call, out: Tensor) -> Rows:
    """Inputs are broadcast against each other, so that axes are counted from the last."""
    places = {(rows.dim - x.dim(), rows.inner) for x, rows in call.with_rows()}
    reduced = call.has("reduction") and call.value("reduction") != 0
    if len(places) > 1 or reduced:
        return mixing(call, out)
    ((from_last, inner),) = places
    return RowAxis(out.dim() + from_last, inner)


def along_axes(call: Call, out: Tensor) -> Rows:
    """Works along the axes `dim` or `dims`, which must not be that of the rows."""
    given = call.with_rows()
    x, rows = given[0]
    name = "dim" if call.has("dim") else "dims"
    axes = call.value(name) if call.has(name) else None
    axes = [axes] if isinstance(axes, int) else axes
    if not axes or any(other != rows or y.dim() != x.dim() for y, other in given):
        return mixing(call, out)
    axes = {axis % x.dim() for axis in axes}
    if rows.dim in axes:
        return mixing(call, out)
    removed = sum(axis < rows.dim for axis in axes) if out.dim() < x.dim() else 0
    return RowAxis(rows.dim - removed, rows.inner)


def stack(call: Call, out: Tensor) -> Rows:
    """Tensors of one shape along a new axis."""
    ((_, rows), *others) = call.with_rows()
    if any(other != rows for _, other in others):
        return mixing(call, out)
    return RowAxis(rows.dim + (call.value("dim") % out.dim() <= rows.dim), rows.inner)


def first_axis(*names: str) -> Rule:
    """Treats the first axis of the named arguments as a batch, of N where that is stated; no other
    argument has rows. If the result's has another size, it holds the channels of an image. An
    argument with fewer axes, such as a mask, is broadcast, so that its first is no batch."""

    def rule(call: Call, out: Tensor) -> Rows:
        given = call.with_rows()
        allowed = [call.value(name) for name in names if call.has(name)]
        size = call.value("N") if call.has("N") else len(given[0][0])
        as_batch = all(
            any(x is y for y in allowed) and rows.dim == 0 and x.dim() >= out.dim()
            for x, rows in given
        )
        of_one_size = {x.shape[:1] for x, _ in given} == {(size,)} == {out.shape[:1]}
        reduced = call.has("reduction") and call.value("reduction") != 0
        if not (as_batch and of_one_size) or len({rows for _, rows in given}) > 1 or reduced:
            return mixing(call, out)
        return given[0][1]

    return rule


def product(call: Call, out: Tensor) -> Rows:
    """A matrix product, of batches of matrices if they have three axes, plus a term if given."""
    left, right = (call.rows_of(x) for x in call.args[-2:])
    batches = out.dim() - 2
    places = set()
    for rows, summed in ((left, batches + 1), (right, batches)):
        if isinstance(rows, RowAxis):
            if rows.dim == summed:
                return mixing(call, out)
            places.add(rows)
    if len(call.args) == 3 and isinstance(term := call.rows_of(call.args[0]), RowAxis):
        places.add(RowAxis(term.dim + out.dim() - call.args[0].dim(), term.inner))
    return places.pop() if len(places) == 1 else mixing(call, out)


def matrix_times_vector(call: Call, out: Tensor) -> Rows:
    """Rows are those of the matrix."""
    matrix, vector = (call.rows_of(x) for x in call.args[-2:])
    kept = len(call.args) == 2 and vector is None
    if kept and isinstance(matrix, RowAxis) and matrix.dim == 0:
        return matrix
    return mixing(call, out)


def layer_norm(call: Call, out: Tensor) -> Rows:
    """Normalises over the last axes."""
    ((x, rows), *others) = call.with_rows()
    inside = rows.dim >= x.dim() - len(call.value("normalized_shape"))
    return mixing(call, out) if others or inside or x is not call.args[0] else rows


def batch_norm(call: Call, out: Tensor) -> Rows:
    """Normalises over all axes but the second, or, unless in training, by constants. Instance
    normalisation is that of one example with a channel for each row and channel."""
    ((x, rows), *others) = call.with_rows()
    apart = rows.dim == 1 or not call.value("training")
    return rows if apart and not others and x is call.args[0] else mixing(call, out)


def lookup(call: Call, out: Tensor) -> Rows:
    """An embedding: the result has the axes of the indices first."""
    weight, indices = (call.rows_of(x) for x in call.args[:2])
    return indices if weight is None else mixing(call, out)


def padding(call: Call, out: Tensor) -> Rows:
    """Pads the last axes."""
    ((x, rows),) = call.with_rows()
    return rows if rows.dim < x.dim() - len(call.value("pad")) // 2 else mixing(call, out)


def triangle(call: Call, out: Tensor) -> Rows:
    """Zeroes a part of the last two axes."""
    ((x, rows),) = call.with_rows()
    return rows if rows.dim < x.dim() - 2 else mixing(call, out)


def repetition(call: Call, out: Tensor) -> Rows:
    """Tiles, with new axes before the others."""
    ((x, rows),) = call.with_rows()
    return RowAxis(rows.dim + out.dim() - x.dim(), rows.inner)


def indexing(call: Call, out: Tensor) -> Rows:
    """x[..., index, ...] with tensors as indices. Where they index the rows, as in
    x[arange(B), lengths], they must be 0, 1, 2, ... along one of their own axes."""
    x, indices = call.args[:2]
    rows, given = call.rows_of(x), {d: i for d, i in enumerate(indices) if i is not None}
    if any(i.dtype in (torch.bool, torch.uint8) for i in given.values()):
        return mixing(call, out)
    shape = torch.broadcast_shapes(*(i.shape for i in given.values()))
    places = {
        (place.dim - i.dim() + len(shape), place.inner)
        for i in given.values()
        if isinstance(place := call.rows_of(i), RowAxis)
    }
    together = max(given) - min(given) + 1 == len(given)
    start = min(given) if together else 0
    if isinstance(rows, RowAxis) and rows.dim in given:
        axis = None if rows.inner > 1 else _counting_axis(given[rows.dim], x.shape[rows.dim])
        if axis is None or call.rows_of(given[rows.dim]) is not None:
            return mixing(call, out)
        places.add((axis + len(shape), 1))
    elif isinstance(rows, RowAxis):
        before = sum(d < rows.dim for d in given)
        shift = 0 if together and rows.dim < start else len(shape)
        if places:
            return mixing(call, out)
        return RowAxis(rows.dim - before + shift, rows.inner)
    if len(places) != 1:
        return mixing(call, out)
    ((axis, inner),) = places
    return RowAxis(start + axis, inner)


def _counting_axis(index: Tensor, size: int) -> int | None:
    """The axis, counted from the last, along which an index is 0, ..., size - 1 and constant along
    all others."""
    for axis in range(-index.dim(), 0):
        if index.shape[axis] == size:
            count = torch.arange(size, device=index.device).view(-1, *[1] * (-axis - 1))
            if bool((index == count).all()):
                return axis
    return None


ELEMENTWISE = """_prelu_kernel _to_copy bernoulli binary_cross_entropy
    binary_cross_entropy_with_logits copy fill hardswish huber_loss log_sigmoid_forward mse_loss
    native_dropout rrelu_with_noise smooth_l1_loss soft_margin_loss zero"""
"""Elementwise operations that torch does not tag as pointwise."""

ALONG_AXES = """_log_softmax _safe_softmax _softmax all amax amin any argmax argmin cat
    count_nonzero cummax cummin cumprod cumsum flip gather glu index_add index_copy index_fill
    index_select kthvalue linalg_vector_norm logcumsumexp logsumexp max mean median min mode nansum
    norm prod roll scatter scatter_add scatter_reduce sort std std_mean sum topk var var_mean"""

IMAGES = """_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
    avg_pool2d avg_pool3d channel_shuffle max_pool2d_with_indices max_pool3d_with_indices
    native_channel_shuffle pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d
    replication_pad1d replication_pad2d upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_trilinear3d"""

CONSTANT = """empty_like full_like new_empty new_full new_ones new_zeros ones_like rand_like
    randint_like randn_like zeros_like"""

ATTENTION = first_axis("query", "key", "value", "attn_mask", "attn_bias")

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE.split(), elementwise),
    **dict.fromkeys(ALONG_AXES.split(), along_axes),
    **dict.fromkeys(IMAGES.split(), first_axis("self", "input")),
    **dict.fromkeys(CONSTANT.split(), constant),
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), product),
    **dict.fromkeys(("mv", "addmv"), matrix_times_vector),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), batch_norm),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), layer_norm),
    **dict.fromkeys(("convolution", "native_group_norm"), first_axis("input")),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), first_axis("self", "target")),
    **dict.fromkeys(("tril", "triu"), triangle),
    "constant_pad_nd": padding,
    "embedding": lookup,
    "grid_sampler_2d": first_axis("input", "grid"),
    "index": indexing,
    "repeat": repetition,
    "stack": stack,
}


def rule_of(func: Any) -> Rule:
    """The rule of an operation of torch's own, with that of `add` also for `add_`."""
    if func.namespace != "aten":
        return mixing
    name = func.overloadpacket.__name__.removesuffix("_")
    if name.startswith("_scaled_dot_product"):
        return ATTENTION
    if name in RULES:
        return RULES[name]
    return elementwise if _is_pointwise(func, name) else mixing


def _is_pointwise(func: Any, name: str) -> bool:
    out_of_place = getattr(getattr(aten, name, None), func._overloadname, func)
    return torch.Tag.pointwise in (*func.tags, *out_of_place.tags)


def storage_of(x: Tensor) -> int:
    """What tells the storage of a tensor from all others, while it lives."""
    return x.untyped_storage()._cdata
