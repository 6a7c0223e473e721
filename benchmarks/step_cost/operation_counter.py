"""Counts torch's operations as a GPU would execute them: kernels, bytes, waits and memory."""

import gc
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

H200_BYTES = 4.0e12
H200_FLOPS = {"float32": 45e12, "float32 convolution": 20e12, "float64": 50e12}
"""An H200's rates a second, without TF32: NVIDIA's data sheet (H200 SXM) has 4.8e12 bytes, 67e12
operations in float32, and as many in float64 on tensor cores. The shares of them were fitted, with
the following times, to eight steps timed on one."""

KERNEL_SECONDS = 2e-6
"""What the shortest kernel takes there."""

CALL_SECONDS, LAUNCH_SECONDS = 15e-6, 5e-6
"""What the CPU beside it takes for a call into torch, and for each further kernel of the call."""

KERNELS = {
    "_scaled_dot_product_flash_attention_for_cpu_backward": 4,
    "constant_pad_nd": 2,
    "embedding_dense_backward": 6,
    "index_put": 2,
    "max_pool2d_with_indices_backward": 2,
    "native_group_norm": 3,
    "native_group_norm_backward": 5,
    "native_layer_norm_backward": 2,
    "nll_loss_backward": 2,
    "select_backward": 2,
    "slice_backward": 2,
    "sort": 4,
    "unfold_backward": 2,
}
"""Of operations that start more than one on CUDA, by ATen's sources."""

IN_PLACE_VIEWS = {"detach_", "squeeze_", "t_", "transpose_", "unsqueeze_", "_unsafe_view"}
EMPTY = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
UNREAD = {
    *("copy_", "exponential_", "fill_", "normal_", "random_", "uniform_", "zero_"),
    *("full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like"),
}
"""Operations that do not read their first tensor."""

READS: dict[str, Callable[[Tensor], Any]] = {
    "_local_scalar_dense": lambda x: 1.0 if x.is_floating_point() else 1,
    "equal": lambda _: True,
}
"""Operations for whose result Python waits, and the one that is assumed for fake tensors."""

CAST_FIRST = ("linalg_vector_norm", "sum")
"""Reductions before which CUDA copies float32 to float64, if that is the precision of the result
(ATen/native/ReduceOpsUtils.h, make_reduction)."""

TENSORS_OF_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36}
"""How many tensors one kernel of a `_foreach_` operation works on, by the number of lists
(ATen/native/cuda/MultiTensorApply.cuh)."""

SINGLE_KERNEL_GROUPS = 16
"""The groups of a convolution from which on cuDNN starts a kernel for each."""


@dataclass
class Cost:
    """What the calls of one operation cost; those of all operations add up to a step's.

    waits: for the GPU, to read a value. peak: the bytes by which the calls raised the most that
    was alive at once, beyond what was there before the step. device_us: predicted microseconds.
    """

    calls: int = 0
    kernels: int = 0
    bytes: int = 0
    waits: int = 0
    peak: int = 0
    device_us: float = 0.0


def host_us(calls: Any, kernels: Any) -> Any:
    """Predicted microseconds of the CPU for numbers of calls and of the kernels that they start."""
    return 1e6 * (calls * CALL_SECONDS + np.maximum(kernels - calls, 0) * LAUNCH_SECONDS)


class OperationCounter(TorchDispatchMode):
    """The costs of what is computed in its context, by operation; tensors may be fake ones."""

    def __init__(self) -> None:
        super().__init__()
        self.costs: dict[str, Cost] = defaultdict(Cost)
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._bytes = self._peak = 0
        self._copies = _HostCopies(self.costs)

    def __enter__(self) -> "OperationCounter":
        gc.collect()
        gc.disable()  # so that the peak does not depend on when it collects
        self._copies.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._copies.__exit__(*error)
        gc.enable()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        inputs = _tensors((args, kwargs))
        if read := READS.get(name):
            self.costs[name].calls += 1
            self.costs[name].waits += 1
            return read(*args)
        self._drop_freed()
        result = function(*args, **kwargs)
        outputs = _tensors(result)
        if outputs or function._schema.is_mutable:  # else it only asks for a shape or a type
            self.costs[name].calls += 1
            cast = _bytes_of_cast(name, inputs, outputs)
            self.costs[name].peak += self._raised_by(inputs, outputs, cast)
            if not (function.is_view or name in IN_PLACE_VIEWS | EMPTY):
                _add_work(self.costs[name], function, args, kwargs, inputs, outputs, result)
        return result

    def _drop_freed(self) -> None:
        for key in [key for key, (storage, _) in self._alive.items() if storage.expired()]:
            self._bytes -= self._alive.pop(key)[1]

    def _raised_by(self, inputs: list[Tensor], outputs: list[Tensor], cast: int) -> int:
        """By how many bytes new outputs raise the peak; cast: the bytes of a copy between."""
        older = {x.untyped_storage()._cdata for x in inputs}
        for storage in (x.untyped_storage() for x in outputs):
            if storage._cdata not in older and storage._cdata not in self._alive:
                self._alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                self._bytes += storage.nbytes()
        raised = max(0, self._bytes + cast - self._peak)
        self._peak += raised
        return raised


class _HostCopies(TorchFunctionMode):
    """Counts `Tensor.cpu` as a wait: of fake tensors, which are on no GPU, it copies nothing."""

    def __init__(self, costs: dict[str, Cost]):
        super().__init__()
        self._costs = costs

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is Tensor.cpu:
            self._costs["cpu"].calls += 1
            self._costs["cpu"].waits += 1
        return function(*args, **(kwargs or {}))


def _tensors(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def _written(function, args) -> list[Tensor]:
    """The arguments that an operation without a result changes."""
    places = enumerate(function._schema.arguments[: len(args)])
    return _tensors([args[n] for n, a in places if a.alias_info and a.alias_info.is_write])


def _bytes_of_cast(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """The bytes of the copy in float64 that a reduction makes; 0 without one."""
    if name not in CAST_FIRST or outputs[0].dtype is not torch.float64:
        return 0
    return 0 if inputs[0].dtype is torch.float64 else 8 * inputs[0].numel()


def _add_work(cost: Cost, function, args, kwargs, inputs, outputs, result) -> None:
    """Adds the kernels, bytes and time of one call."""
    name = function.overloadpacket.__name__
    written = outputs or _written(function, args)
    moved = sum(map(_bytes, [*inputs[name in UNREAD :], *written]))
    kernels, flops, kind = KERNELS.get(name.rstrip("_"), 1), 0, "float32"
    if cast := _bytes_of_cast(name, inputs, outputs):
        kernels, moved = 2, moved + 2 * cast
    elif name.startswith("_foreach_"):
        lists = len(inputs) // len(written) + (written is outputs)
        kernels = -(-len(written) // TENSORS_OF_LAUNCH[lists])
    elif name in ("convolution", "convolution_backward"):
        kernels, flops = _of_convolution(name, args, outputs)
        kind = "float32 convolution"
    elif name == "im2col":
        kernels = len(inputs[0])  # one for each image
    elif counted := flop_registry.get(function.overloadpacket):
        flops = counted(*args, **kwargs, out_val=result)
    if any(x.dtype == torch.float64 for x in inputs):
        kind = "float64"
    cost.kernels += kernels
    cost.bytes += moved
    seconds = max(moved / H200_BYTES, flops / H200_FLOPS[kind], kernels * KERNEL_SECONDS)
    cost.device_us += 1e6 * seconds


def _bytes(x: Tensor) -> int:
    """The bytes of what a tensor holds; those of an expanded one are read once."""
    held = 1
    for size, stride in zip(x.shape, x.stride(), strict=True):
        held *= size if stride else min(size, 1)
    return held * x.element_size()


def _of_convolution(name: str, args, outputs: list[Tensor]) -> tuple[int, int]:
    """Kernels and floating-point operations; a backward pass has up to two results."""
    backward = name == "convolution_backward"
    weight, groups = (args[2], args[9]) if backward else (args[1], args[8])
    results = max(1, sum(args[-1][:2])) if backward else 1
    shape = (args[0] if backward else outputs[0]).shape
    one_by_one = groups >= SINGLE_KERNEL_GROUPS and groups != len(weight)
    flops = 2 * results * weight.numel() * shape.numel() // shape[1]
    return results * (groups if one_by_one else 1), flops
