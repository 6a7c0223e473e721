"""Parts of models that do something else with other numbers of examples, or by how many come
before, each with a module, rows h [B, d] and the inputs."""

import random

import numpy as np
import torch
from torch.nn import functional as F

from tests.step.gradients.forwards import WIDTH


def scaled_above_a_size(module, h, x):
    return module(h) * 9 if len(x) > 21 else module(h)


def scaled_at_some_sizes(module, h, x):
    return module(h * (9 if len(x) % 11 == 0 else 1))


def scaled_by_the_size(module, h, x):
    return module(h) * max(1, len(x) / 17)


def scaled_by_a_whole_number(module, h, x):
    return module(h) * max(1, len(x) // 11)


def scaled_by_its_last_places(module, h, x):
    return module(h) * torch.where(torch.arange(len(x)) < 17, 1, 9)[:, None]


def scaled_by_places_in_a_table(module, h, x):
    return module(h) * torch.cat([torch.ones(17, 1), torch.full((9, 1), 9)])[: len(x)].to(h)


def scaled_by_a_count(module, h, x):
    return module(h) * (torch.ones(len(x)).sum() / 17).clamp(min=1)


def scaled_by_counting(module, h, x):
    return module(h) * (torch.ones(len(x)).cumsum(0) / 17).clamp(min=1)[:, None]


def scaled_by_a_chosen_number(module, h, x):
    return module(h) * torch.linspace(0, 9, 11).round()[len(x) // 2 - 1].clamp(min=1)


def scaled_by_a_new_number(module, h, x):
    return module(h) * torch.tensor(9.0 if len(x) > 21 else 1.0)


def scaled_by_numbers_of_numpy(module, h, x):
    return module(h) * torch.from_numpy(np.full(WIDTH, 9.0 if len(x) > 21 else 1.0)).to(h)


def scaled_by_a_list(module, h, x):
    return module(h) * torch.tensor([[1.0]] * 17 + [[9.0]] * 9)[: len(x)].to(h)


def scaled_by_the_shape(module, h, x):
    return module(h) * torch.full((), max(x.numel() / WIDTH - 17, 1.0)).to(h)


def scaled_by_a_filled_number(module, h, x):
    return module(h) * (torch.full((1,), len(x)) / 17).clamp(min=1)


def scaled_by_filled_rows(module, h, x):
    return module(h) * (torch.full((len(x), 1), len(x)) / 17).clamp(min=1)


def scaled_by_a_counted_number(module, h, x):
    return module(h) * (torch.arange(0, len(x), len(x) // 2)[1:2] / 9).clamp(min=1)


def scaled_by_a_stride(module, h, x):
    table = torch.cat([torch.ones(17), torch.full((30,), 9.0)])
    return module(h) * table.as_strided((1,), (1,), len(x)).to(h)


def scaled_by_a_step(module, h, x):
    table = torch.cat([torch.ones(17), torch.full((30,), 9.0)])
    return module(h) * table.view(1, -1).expand(len(x), -1)[:1, len(x)].to(h)


def scaled_by_the_last_place(module, h, x):
    return module(h) * (torch.arange(len(x))[-1:] / 17).clamp(min=1)


def normalised_in_groups(module, h, x):
    groups = 3 if len(x) > 21 else 2
    return module(F.group_norm(h, groups))


def scaled_once_seen(module, h, x):
    module.seen = getattr(module, "seen", []) or [9.0] * (len(x) > 21)
    return module(h) * sum(module.seen, 1.0)


def scaled_by_a_caught_error(module, h, x):
    try:
        table = torch.ones(21, dtype=h.dtype)
        return module(h) * table.narrow(0, len(x) - 1, 1)
    except RuntimeError:
        return module(h) * (torch.ones(21, dtype=h.dtype) * 9).narrow(0, 0, 1)


def scaled_if_drawn(module, h, x):
    drawn = random.random() < 2
    return module(h) * (9 if drawn and len(x) > 21 else 1)


def scaled_by_a_weight_and_a_size(module, h, x):
    read = bool(module.weight.isfinite().all())
    return module(h) * (9 if read and len(x) > 21 else 1)


def scaled_by_one_of_two(module, h, x):
    usual, large = (torch.full((1,), value, dtype=h.dtype) for value in (1.0, 9.0))
    return module(h) * (large if len(x) > 21 else usual)


def of_one_half(module, h, x):
    first, second = h.chunk(2, 1)
    half = first if len(x) > 21 else second
    return module(torch.cat([half, half], 1))


def steeper_above_a_size(module, h, x):
    return module(h + 9 * (h - h.detach()) if len(x) > 21 else h + 0 * (h - h.detach()))


def flat_above_a_size(module, h, x):
    with torch.set_grad_enabled(len(x) <= 21):
        h = h * 2
    return module(h) + h


class Steeper(torch.autograd.Function):
    """The same values, with another gradient."""

    @staticmethod
    def forward(ctx, h):
        return h

    @staticmethod
    def backward(ctx, gradient):
        return 9 * gradient


def steeper_by_a_node_above_a_size(module, h, x):
    return module(Steeper.apply(h) if len(x) > 21 else h)


def steeper_by_what_is_saved_above_a_size(module, h, x):
    factor = 9 if len(x) > 21 else 1
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: factor * t):
        return module(h.sin())


BY_SIZE = (
    steeper_by_a_node_above_a_size, steeper_by_what_is_saved_above_a_size,
    scaled_above_a_size, scaled_at_some_sizes, scaled_by_the_size, scaled_by_a_whole_number,
    scaled_by_its_last_places, scaled_by_places_in_a_table, scaled_by_a_count, scaled_by_counting,
    scaled_by_a_chosen_number, scaled_by_a_new_number, scaled_by_numbers_of_numpy,
    scaled_by_a_list, scaled_by_the_shape, scaled_by_a_filled_number, scaled_by_filled_rows,
    scaled_by_a_counted_number, scaled_by_a_stride, scaled_by_a_step, scaled_by_the_last_place,
    normalised_in_groups, scaled_once_seen, scaled_by_a_caught_error, steeper_above_a_size,
    flat_above_a_size, scaled_if_drawn, scaled_by_a_weight_and_a_size, scaled_by_one_of_two,
    of_one_half,
)  # fmt: skip
