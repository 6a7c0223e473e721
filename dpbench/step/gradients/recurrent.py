"""Recurrent layers step by step, in operations that torch can vectorise over examples."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

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
        yield
    finally:
        for layer in layers:
            del layer.forward


def outputs(module: nn.RNNBase, x: Tensor, hx: Any = None) -> tuple[Tensor, Tensor | State]:
    """What a recurrent module returns, without its fused kernels; x [T, B, I], [B, T, I] or [T, I].

    Raises NotImplementedError for packed sequences.
    """
    if not isinstance(x, Tensor):
        raise NotImplementedError("a recurrent layer is given packed sequences")
    alone, lstm = x.dim() == 2, isinstance(module, nn.LSTM)
    x = x.unsqueeze(1) if alone else x.transpose(0, 1) if module.batch_first else x
    given = () if hx is None else tuple(hx) if lstm else (hx,)
    if alone:
        given = tuple(state.unsqueeze(1) for state in given)
    finals: list[State] = []
    directions = ("", "_reverse")[: 1 + module.bidirectional]
    for k in range(module.num_layers):
        ends = []
        for suffix in directions:
            start = tuple(state[len(finals)] for state in given) or _zeros(module, x)
            steps = _run(module, x, f"_l{k}{suffix}", start)
            finals.append(steps[0 if suffix else -1])
            ends.append(torch.stack([hidden for hidden, *_ in steps]))
        x = torch.cat(ends, 2)
        if module.dropout and k + 1 < module.num_layers:
            x = F.dropout(x, module.dropout, module.training)
    states = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
    if alone:
        x, states = x.squeeze(1), tuple(state.squeeze(1) for state in states)
    elif module.batch_first:
        x = x.transpose(0, 1)
    return x, states if lstm else states[0]


def _zeros(module: nn.RNNBase, x: Tensor) -> State:
    hidden = x.new_zeros(x.shape[1], module.proj_size or module.hidden_size)
    if isinstance(module, nn.LSTM):
        return hidden, x.new_zeros(x.shape[1], module.hidden_size)
    return (hidden,)


def _run(module: nn.RNNBase, x: Tensor, suffix: str, state: State) -> list[State]:
    """The states after each input x [T, B, I] of one layer in one direction, in the order of x."""

    def named(kind: str) -> Tensor | None:
        return getattr(module, kind + suffix, None)

    w_hh = getattr(module, f"weight_hh{suffix}")
    inputs = F.linear(x, getattr(module, f"weight_ih{suffix}"), named("bias_ih"))
    backwards = suffix.endswith("_reverse")
    states = []
    for own in inputs.flip(0) if backwards else inputs:
        state = CELLS[type(module)](module, own, F.linear(state[0], w_hh, named("bias_hh")), state)
        if (projection := named("weight_hr")) is not None:
            state = (F.linear(state[0], projection), *state[1:])
        states.append(state)
    return states[::-1] if backwards else states


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
