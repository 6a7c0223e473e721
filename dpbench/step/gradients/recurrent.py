"""Recurrent layers step by step, in operations that torch can vectorise over examples."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode

State = tuple[Tensor, ...]
"""The hidden state [B, H] of a layer, and the cell state of an LSTM."""

Cell = Callable[[nn.RNNBase, Tensor, Tensor, State], State]
"""From a module, what input and hidden state add to the gates [B, gates], and the state before."""


@contextmanager
def unrolled(model: nn.Module) -> Iterator[None]:
    """Within the context, the RNN, GRU and LSTM layers of a model compute step by step."""
    layers: list[Any] = [module for module in model.modules() if type(module) in CELLS]
    try:
        for layer in layers:
            layer.forward = partial(outputs, layer)
        with padded() if layers else nullcontext():
            yield
    finally:
        for layer in layers:
            del layer.forward


def outputs(
    module: nn.RNNBase, x: Tensor | PackedSequence, hx: Any = None
) -> tuple[Tensor | PackedSequence, Tensor | State]:
    """What a recurrent module returns, without its fused kernels; x [T, B, I], [B, T, I] or [T, I],
    or packed within `padded()`.

    Raises NotImplementedError for sequences that were packed in another way.
    """
    if isinstance(x, PackedSequence):
        return _of_packed(module, x, hx)
    alone = x.dim() == 2
    x = x.unsqueeze(1) if alone else x.transpose(0, 1) if module.batch_first else x
    given = _states(hx)
    if alone:
        given = tuple(state.unsqueeze(1) for state in given)
    x, states = _layers(module, x, given)
    if alone:
        x, states = x.squeeze(1), tuple(state.squeeze(1) for state in states)
    elif module.batch_first:
        x = x.transpose(0, 1)
    return x, _hidden(module, states)


def _of_packed(module: Any, x: PackedSequence, hx: Any) -> tuple[PackedSequence, Tensor | State]:
    inputs, lengths, order, back = x
    if inputs.dim() != 3:
        raise NotImplementedError("a recurrent layer is given sequences packed without padding")
    given = () if hx is None else _states(module.permute_hidden(hx, order))
    out, states = _layers(module, inputs, given, lengths)
    hidden = module.permute_hidden(_hidden(module, states), back)
    return PackedSequence(out, lengths, order, back), hidden


def _states(hx: Any) -> State:
    """What a module was given to start from, as a tuple."""
    return () if hx is None else (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _hidden(module: nn.RNNBase, states: State) -> Tensor | State:
    return states if isinstance(module, nn.LSTM) else states[0]


def _layers(
    module: nn.RNNBase, x: Tensor, given: State, lengths: Tensor | None = None
) -> tuple[Tensor, State]:
    """The outputs of all layers for x [T, B, I], and their last states; lengths [B], None for T."""
    finals: list[State] = []
    inside = [None] * len(x) if lengths is None else [*within(x, lengths)]
    directions = ("", "_reverse")[: 1 + module.bidirectional]
    for k in range(module.num_layers):
        ends = []
        for suffix in directions:
            start = tuple(state[len(finals)] for state in given) or _zeros(module, x)
            steps = _run(module, x, f"_l{k}{suffix}", start, inside)
            finals.append(steps[0 if suffix else -1])
            ends.append(torch.stack([hidden for hidden, *_ in steps]))
        x = torch.cat(ends, 2)
        if module.dropout and k + 1 < module.num_layers:
            x = F.dropout(x, module.dropout, module.training)
    return x, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))


def _zeros(module: nn.RNNBase, x: Tensor) -> State:
    hidden = x.new_zeros(x.shape[1], module.proj_size or module.hidden_size)
    if isinstance(module, nn.LSTM):
        return hidden, x.new_zeros(x.shape[1], module.hidden_size)
    return (hidden,)


def _run(
    module: nn.RNNBase, x: Tensor, suffix: str, state: State, inside: Sequence[Tensor | None]
) -> list[State]:
    """The states after each input x [T, B, I] of one layer in one direction, in the order of x.

    inside: by step, which sequences have it [B, 1], the states of others stay; None for all.
    """

    def named(kind: str) -> Tensor | None:
        return getattr(module, kind + suffix, None)

    w_hh = getattr(module, f"weight_hh{suffix}")
    inputs = F.linear(x, getattr(module, f"weight_ih{suffix}"), named("bias_ih"))
    order = slice(None, None, -1 if suffix.endswith("_reverse") else 1)
    states = []
    for own, at in [*zip(inputs, inside, strict=True)][order]:
        past = state
        state = CELLS[type(module)](module, own, F.linear(past[0], w_hh, named("bias_hh")), past)
        if (projection := named("weight_hr")) is not None:
            state = (F.linear(state[0], projection), *state[1:])
        if at is not None:
            pairs = zip(state, past, strict=True)
            state = tuple(torch.where(at, new, old) for new, old in pairs)
        states.append(state)
    return states[order]


def _rnn(module: nn.RNNBase, own: Tensor, past: Tensor, state: State) -> State:
    nonlinearity = torch.tanh if module.mode == "RNN_TANH" else torch.relu
    return (nonlinearity(own + past),)


def _gru(module: nn.RNNBase, own: Tensor, past: Tensor, state: State) -> State:
    (r_own, z_own, n_own), (r_past, z_past, n_past) = own.chunk(3, 1), past.chunk(3, 1)
    new = torch.tanh(n_own + torch.sigmoid(r_own + r_past) * n_past)
    return (new + torch.sigmoid(z_own + z_past) * (state[0] - new),)


def _lstm(module: nn.RNNBase, own: Tensor, past: Tensor, state: State) -> State:
    i, f, g, o = (own + past).chunk(4, 1)
    cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


CELLS: dict[type, Cell] = {nn.RNN: _rnn, nn.GRU: _gru, nn.LSTM: _lstm}


@contextmanager
def padded() -> Iterator[None]:
    """Within the context, sequences are packed and padded again without a change of their size.

    Of a `PackedSequence`, data are then the padded inputs [T, B, ...], of which what is past a
    length is never read, and batch_sizes the lengths [B].
    """
    of_torch: Any = rnn
    inverse = of_torch.invert_permutation
    of_torch.invert_permutation = lambda order: None if order is None else order.argsort()
    try:
        with Replaced():
            yield
    finally:
        of_torch.invert_permutation = inverse


class Replaced(TorchFunctionMode):
    """Computes what INSTEAD has in place of torch's operations."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return INSTEAD.get(func, func)(*args, **(kwargs or {}))


def within(x: Tensor, lengths: Tensor) -> Tensor:
    """Whether each step of x [T, B, ...] is one of its sequence [T, B, 1, ...]; lengths [B]."""
    steps = torch.arange(len(x), device=x.device).unsqueeze(1)
    return (steps < lengths.to(x.device)).view(*x.shape[:2], *[1] * (x.dim() - 2))


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    return _turned(x, batch_first), lengths


def _pad(
    x: Tensor, lengths: Tensor, batch_first: bool, value: float, steps: int
) -> tuple[Tensor, Tensor]:
    """steps: the total length, if one is asked for; else the length of `lengths`."""
    x = x.masked_fill(~within(x, lengths), value)
    if steps > len(lengths):
        x = F.pad(x, [0] * (2 * x.dim() - 1) + [steps - len(x)], value=value)
    return _turned(x, batch_first), lengths


def _turned(x: Tensor, batch_first: bool) -> Tensor:
    return x.transpose(0, 1) if batch_first else x


INSTEAD: dict[Any, Callable[..., tuple[Tensor, Tensor]]] = {
    torch._VF._pack_padded_sequence: _pack,
    torch._VF._pad_packed_sequence: _pad,
}
"""By operations of torch that cannot be vectorised."""
