"""torch on the host device, for cgr.torch: host functions of the stream compute what `record` asks torch to compute.

Only shapes are known while `record` runs, and addresses: results get memory at once, and are written by each step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from .engine import Device

_ALIGNMENT = 64
_BLOCK = 1 << 24


class Arena:
    """Memory for results, given out in the same order from the start in each record, so that all captures share it."""

    def __init__(self) -> None:
        self._blocks: list[torch.Tensor] = []
        self._block = self._offset = 0

    def rewind(self) -> None:
        self._block, self._offset = 0, 0

    def take(self, bytes: int) -> torch.Tensor:
        """A uint8 tensor of so many bytes."""
        while self._block < len(self._blocks):
            block = self._blocks[self._block]
            if self._offset + bytes <= block.numel():
                first = self._offset
                self._offset += -(-bytes // _ALIGNMENT) * _ALIGNMENT
                return block[first : first + bytes]
            self._block, self._offset = self._block + 1, 0
        self._blocks.append(torch.zeros(max(bytes, _BLOCK), dtype=torch.uint8))
        return self.take(bytes)


class HostOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, torch's operations on tensors become host functions of a stream. Views are made at once. Without an
    arena each result has memory of its own.
    """

    def __init__(self, device: Device, stream: Any, arena: Arena | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device, self._stream, self._arena = device, stream, arena

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(_running, "active", False):  # a host function that runs within the call that enqueued it
            return func(*args, **kwargs)
        with self:
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        if torch.Tag.inplace_view in func.tags or _is_view(func):
            return func(*args, **kwargs)
        written = [_argument(func, i, args, kwargs) for i, a in enumerate(func._schema.arguments) if _writes(a)]
        if written:
            return self._enqueue_write(func, args, kwargs, written)
        results = self._make_results(func, args, kwargs)
        if func not in _EMPTY:
            self._enqueue(Operation(func, args, kwargs, results))
        return results

    def _enqueue(self, operation: Operation) -> None:
        self._device.launch_host(operation, (), self._stream)

    def _enqueue_write(self, func: Any, args: Any, kwargs: dict[str, Any], written: list[Any]) -> Any:
        if any(r.alias_info is None for r in func._schema.returns):
            raise NotImplementedError(f"{func} writes an argument and makes results, which the host device cannot record")
        self._enqueue(Operation(func, args, kwargs, None))
        count = len(func._schema.returns)
        return None if count == 0 else written[0] if count == 1 else tuple(written)

    def _make_results(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if _device_of(leaf).type != "cpu":
                raise ValueError(f"{func} is asked for {_device_of(leaf)}, expected cpu: the step runs on the host device")
        try:
            shapes = func(*pytree.tree_map(_without_data, args), **pytree.tree_map(_without_data, kwargs))
        except Exception as error:
            raise RuntimeError(f"{func} needs values, which only the step has: {error}") from error
        return pytree.tree_map_only(torch.Tensor, self._empty, shapes)

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        last = sum((size - 1) * stride for size, stride in zip(like.shape, like.stride()))
        elements = last + 1 if like.numel() > 0 else 0
        if self._arena is None:
            return torch.empty(elements, dtype=like.dtype).as_strided(like.shape, like.stride())
        return self._arena.take(elements * like.element_size()).view(like.dtype).as_strided(like.shape, like.stride())


_CPU = torch.device("cpu")
_running = threading.local()
_EMPTY = {torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default, torch.ops.aten.empty_strided.default}
_EMPTY |= {torch.ops.aten.new_empty.default, torch.ops.aten.new_empty_strided.default}


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_view(func: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


def _argument(func: Any, index: int, args: Any, kwargs: dict[str, Any]) -> Any:
    return args[index] if index < len(args) else kwargs[func._schema.arguments[index].name]


def _device_of(leaf: object) -> torch.device:
    return leaf if isinstance(leaf, torch.device) else leaf.device if isinstance(leaf, torch.Tensor) else _CPU


def _without_data(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
    return torch.device("meta") if isinstance(leaf, torch.device) else leaf


class Operation:
    """A call on tensors, which it keeps, as a host function. Equal ones are one, so that a second capture holds the same."""

    def __init__(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], results: Any) -> None:
        # Tensors of its own: an operation such as unsqueeze_ changes the shape of the one that it is given.
        leaves, spec = pytree.tree_flatten((args, kwargs, results))
        leaves = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._func = func
        self._args, self._kwargs, self._results = pytree.tree_unflatten(leaves, spec)
        self._key = (func, str(spec), tuple(_identity(leaf) for leaf in leaves))

    def __call__(self) -> None:
        _running.active = True
        try:
            with torch.no_grad():
                results = self._func(*self._args, **self._kwargs)
                if self._results is not None:
                    for to, value in zip(pytree.tree_leaves(self._results), pytree.tree_leaves(results)):
                        if isinstance(to, torch.Tensor):
                            to.copy_(value)
        finally:
            _running.active = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _identity(leaf: Any) -> tuple[Any, ...]:
    if isinstance(leaf, torch.Tensor):
        return (leaf.data_ptr(), leaf.dtype, tuple(leaf.shape), leaf.stride())
    return (type(leaf), repr(leaf) if isinstance(leaf, float) else leaf)  # 0.0 and -0.0 are equal
