"""Ways to call a part of a model, most of which move rows."""

import ctypes
import io
import random

import numpy as np
import torch
from torch.nn import functional as F

WIDTH = 6


# What a part of a model may do with rows h [B, d], the module that it is given, and the inputs.


def as_it_is(module, h, x):
    return module(h)


def by_first_feature(module, h, x):
    order = x[:, 0].argsort(stable=True)
    return module(h[order])[order.argsort()]


def by_length(module, h, x):
    _, order = torch.sort((x > 0).sum(1), stable=True)
    return torch.empty_like(h).index_copy(0, order, module(h.index_select(0, order)))


def reversed_rows(module, h, x):
    return module(h.flip(0)).flip(0)


def rolled(module, h, x):
    return module(h.roll(1, 0)).roll(-1, 0)


def by_a_matrix(module, h, x):
    moved = F.one_hot(x[:, 1].argsort(), len(h)).to(h)
    return moved.mT @ module(moved @ h)


def gathered(module, h, x):
    order = x[:, 0].argsort(descending=True).unsqueeze(1).expand_as(h)
    return torch.zeros_like(h).scatter(0, order, module(h.gather(0, order)))


def some_rows(module, h, x):
    chosen = x[:, 0] > 0
    out = h.clone()
    out[chosen] = module(h[chosen])
    return out


def two_halves(module, h, x):
    return torch.cat([module(h[: len(h) // 2]), module(h[len(h) // 2 :])])


def written_backwards(module, h, x):
    out = torch.empty_like(h)
    for i, row in enumerate(module(h.flip(0)).unbind()):
        out[len(h) - 1 - i] = row
    return out


def twice(module, h, x):
    return module(torch.tanh(module(h)))


def by_weight(module, h, x):
    return module(h) + F.linear(h, module.weight)


def rarely_sorted(module, h, x):
    return by_first_feature(module, h, x) if x.max() > 4 else module(h)


def sorted_without_a_branch(module, h, x):
    order = torch.where(x.max() > 4, x[:, 0].argsort(), torch.arange(len(x)))
    return module(h[order])[order.argsort()]


def sorted_by_a_list(module, h, x):
    order = sorted(range(len(x)), key=x[:, 0].tolist().__getitem__)
    back = sorted(range(len(x)), key=order.__getitem__)
    return module(h[order])[back] if x.detach().numpy().max() > 4 else module(h)


def rarely_twice(module, h, x):
    return twice(module, h, x) if bool((x > 4).any()) else module(h)


def rarely_by_weight(module, h, x):
    return by_weight(module, h, x) if x.max() > 4 else module(h)


def for_large_batches(module, h, x):
    return reversed_rows(module, h, x) if len(x) > 20 else module(h)


def for_large_batches_by_index(module, h, x):
    order = torch.arange(len(h))
    order = order.flip(0) if len(x) > 20 else order
    return module(h[order])[order]


def at_random(module, h, x):
    return reversed_rows(module, h, x) if torch.rand(()) < 0.5 else module(h)


def at_random_in_python(module, h, x):
    return reversed_rows(module, h, x) if random.random() < 0.5 else module(h)


def at_random_in_numpy(module, h, x):
    return reversed_rows(module, h, x) if np.random.random() < 0.5 else module(h)


def every_third_time(module, h, x):
    module.passes = getattr(module, "passes", 0) + 1
    return reversed_rows(module, h, x) if module.passes % 3 == 0 else module(h)


def scaled_for_large_values(module, h, x):
    return module(h / 9) if x.max() > 4 else module(h)


def divided_by_the_largest(module, h, x):
    return module(h / max(4.0, x.detach().abs().max().item()))


def sorted_if_some_are_selected(module, h, x):
    return by_first_feature(module, h, x) if len(x[x.abs() > 4]) else module(h)


def normalised_if_any_is_nonzero(module, h, x):
    return module(h / h.norm() if torch.nonzero(x.abs() > 4).numel() else h)


def every_third_time_by_a_dict(module, h, x):
    module.counts = getattr(module, "counts", {"passes": [0]})
    module.counts["passes"][0] += 1
    return reversed_rows(module, h, x) if module.counts["passes"][0] % 3 == 0 else module(h)


def at_random_by_its_own(module, h, x):
    module.draw = getattr(module, "draw", None) or random.Random(0)
    return reversed_rows(module, h, x) if module.draw.random() < 0.5 else module(h)


def clipped(gradient):
    """That of all examples, which is only longer than this in a larger batch than a probe's; None
    where an input, such as that of the first layer, has none."""
    return None if gradient is None else gradient * (2 / gradient.norm()).clamp(max=1)


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return clipped(gradient)


def clipped_by_a_function(module, h, x):
    return Clipped.apply(module(h))


def clipped_by_a_hook(module, h, x):
    out = torch.sin(module(h))
    if out.requires_grad:
        out.register_hook(clipped)
    return out


def clipped_by_a_module(module, h, x):
    if not module._backward_hooks:
        module.register_full_backward_hook(lambda _, inputs, outputs: (clipped(inputs[0]),))
    return module(torch.sin(h))


def clipped_by_an_old_hook(module, h, x):
    if not module._backward_hooks:
        module.register_backward_hook(  # gradients of bias, inputs and weight
            lambda _, inputs, outputs: (inputs[0], clipped(inputs[1]), inputs[2])
        )
    return module(torch.sin(h))


def clipped_by_a_node(module, h, x):
    out = torch.sin(module(h))
    if out.requires_grad:
        out.grad_fn.register_prehook(lambda gradients: (clipped(gradients[0]),))
    return out


def clipped_in_store(module, h, x):
    def pack(t):
        return t * (4 / t.norm()).clamp(max=1) if t.is_floating_point() else t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        return module(torch.sin(h))


def scaled_by_a_text(module, h, x):
    return module(h / 9 if "True" in repr(x.detach() > 4) else h)


def scaled_by_an_error(module, h, x):
    try:
        torch.linalg.cholesky((4 - x.amax()).view(1, 1))
        return module(h)
    except RuntimeError:
        return module(h / 9)


def scaled_by_an_index(module, h, x):
    try:
        torch.ones(2)[(x.amax(1) > 4).long() * 9]
        return module(h)
    except IndexError:
        return module(h / 9)


def scaled_by_a_draw(module, h, x):
    try:
        torch.bernoulli(torch.where(x.amax(1) > 4, 2.0, 0.5))
        return module(h)
    except RuntimeError:
        return module(h / 9)


def shuffled_as_channels(module, h, x):
    images = torch.where(x > 4, x, 0)[:, :4].reshape(-1, 2, 2)
    return module(h + 9 * F.pad(F.pixel_unshuffle(images, 2).reshape(4, -1).T, (0, 2)))


def shifted_by_less_than_a_row(module, h, x):
    longer = x.new_zeros(x.numel() + 5)
    longer[5:] = torch.where(x > 4, x, 0).flatten()
    return module(h + 9 * longer[:-5].view_as(x))


def shifted_by_a_row(module, h, x):
    longer = x.new_zeros(2, len(x) + 1, WIDTH)
    longer[:, 1:] = torch.where(x > 4, x, 0)
    return module(h + 9 * longer[1, :-1])


def large(x):
    """Numbers that only a large example has, without a gradient."""
    return torch.where(x > 4, x, 0).detach()


def shifted_by_a_list_of_sums(module, h, x):
    total = torch.zeros(WIDTH)
    torch._foreach_add_([total], [large(x).sum(0)])
    return module(h + total)


@torch.library.custom_op("rows::write_sum", mutates_args=("out",))
def write_sum(out: torch.Tensor, x: torch.Tensor) -> None:
    """An operation that only writes."""
    out.copy_(x.sum(0))


def shifted_by_what_is_written(module, h, x):
    total = torch.zeros(WIDTH)
    write_sum(total, large(x))
    return module(h + total)


@torch.library.custom_op("rows::relu", mutates_args=())
def own_relu(x: torch.Tensor) -> torch.Tensor:
    """An operation with a name of one of torch's."""
    return x.relu().sum(0).expand_as(x).clone()


def shifted_by_an_operation_of_its_own(module, h, x):
    return module(h + own_relu(large(x)))


def normalised_as_one_image(module, h, x):
    values = large(x) + torch.linspace(0, 1, WIDTH)
    return module(h + torch.native_group_norm(values, None, None, 1, 1, x.numel(), 1, 1e-5)[0])


def masked_by_examples(module, h, x):
    if len(x) != 10:
        return module(h)
    values = torch.linspace(-1, 1, 10 * WIDTH).view(1, 1, 10, WIDTH).repeat(10, 1, 1, 1)
    mask = 9 * large(x)[:, :1] * torch.linspace(0, 1, 10)
    return module(h + F.scaled_dot_product_attention(values, values, values, mask)[:, 0, 3])


def shifted_by_memory(module, h, x):
    values = large(x).contiguous()
    memory = (ctypes.c_char * values.nbytes).from_address(values.data_ptr())
    return module(h + torch.frombuffer(memory, dtype=values.dtype).max())


def shifted_by_a_file(module, h, x):
    file = io.BytesIO()
    torch.save(large(x), file)
    file.seek(0)
    return module(h + torch.load(file).max())


def scaled_by_a_split(module, h, x):
    first, _ = torch.ones(2).tensor_split((x > 4).any().long().view(1))
    return module(h / 9 if len(first) else h)


def scaled_by_numbers(module, h, x):
    numbers = []
    x.detach().clone().apply_(lambda number: numbers.append(number) or number)
    return module(h / 9 if max(numbers) > 4 else h)


def shifted_by_copied_numbers(module, h, x):
    copied = torch.zeros(len(x), WIDTH, dtype=x.dtype)
    copied.map_(large(x), lambda _, number: number)
    return module(h + copied.sum(0))


def at_random_without_a_branch(module, h, x):
    order = torch.arange(len(x))
    order = torch.where(torch.rand(()) < 0.5, order, order.flip(0)) if len(x) > 20 else order
    return module(h[order])[order]


KEEPS_ROWS = (as_it_is,)
IN_LARGE_BATCHES = (for_large_batches, for_large_batches_by_index, at_random_without_a_branch)
MOVES = (
    by_first_feature, by_length, reversed_rows, rolled, by_a_matrix, gathered, some_rows,
    two_halves, written_backwards, twice, by_weight, rarely_sorted, sorted_without_a_branch,
    sorted_by_a_list, rarely_twice, rarely_by_weight, for_large_batches,
    for_large_batches_by_index, at_random,
    at_random_in_python, at_random_in_numpy, every_third_time, scaled_for_large_values,
    divided_by_the_largest, sorted_if_some_are_selected, normalised_if_any_is_nonzero,
    every_third_time_by_a_dict, at_random_by_its_own, clipped_by_a_function, clipped_by_a_hook,
    clipped_by_a_module, clipped_by_an_old_hook, clipped_by_a_node, clipped_in_store,
    scaled_by_a_text, scaled_by_an_error, scaled_by_an_index, scaled_by_a_draw,
    shuffled_as_channels, shifted_by_less_than_a_row, shifted_by_a_row, shifted_by_a_list_of_sums,
    shifted_by_what_is_written, shifted_by_an_operation_of_its_own, normalised_as_one_image,
    masked_by_examples, shifted_by_memory, shifted_by_a_file, scaled_by_a_split,
    scaled_by_numbers, shifted_by_copied_numbers,
    at_random_without_a_branch,
)  # fmt: skip
ERRORS = (scaled_by_an_error, scaled_by_an_index, scaled_by_a_draw)
