"""PyTorch inside `record`: torch's operations and memory in cgr's graphs. Imported only on request, as cgr.torch.

    record = cgr.torch.Record(device, forward)    # forward(step): plain torch, with cgr.torch.Attention for the layers
    record.capture(runtime)                       # warms up, then captures

On a GPU torch enqueues on the recorder's stream, and in captures allocates from a pool of its own. On the host device torch
computes when it is asked to, which is too early: there each operation becomes a host function of the stream. The same `forward`
serves both.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.utils.dlpack import from_dlpack

from . import _cgr, enums
from ._torch_host import Arena, HostOperations, Operation
from .errors import Address

if TYPE_CHECKING:
    from .engine import Device, Runtime

__all__ = ["Attention", "Record", "Step", "attention", "current", "dtype_of", "run", "tensor", "tensor_at"]

_DTYPES = {
    torch.float32: enums.Dtype.FP32,
    torch.float16: enums.Dtype.FP16,
    torch.bfloat16: enums.Dtype.BF16,
    torch.int8: enums.Dtype.I8,
    torch.int32: enums.Dtype.I32,
    torch.int64: enums.Dtype.I64,
    torch.uint8: enums.Dtype.U8,
}
for _name, _dtype in (("float8_e4m3fn", enums.Dtype.FP8_E4M3), ("float8_e5m2", enums.Dtype.FP8_E5M2)):
    if hasattr(torch, _name):
        _DTYPES[getattr(torch, _name)] = _dtype

_TOKENS = {enums.Buffer.INPUT_IDS, enums.Buffer.POSITIONS, enums.Buffer.SLOT_MAPPING}
_REQUESTS = {
    enums.Buffer.SEQ_LENS,
    enums.Buffer.REQUEST_ROWS,
    enums.Buffer.KV_LAST_PAGE_LEN,
    enums.Buffer.LOGITS_INDICES,
    enums.Buffer.NEXT_TOKENS,
    enums.Buffer.BLOCK_TABLE,
    enums.Buffer.CONTEXT_LENS,
    enums.Buffer.PREFILL_KV_LAST_PAGE_LEN,
    enums.Buffer.PREFILL_SEQ_LENS,
    enums.Buffer.PREFILL_BLOCK_TABLE,
    enums.Buffer.NUM_DRAFTS,
    enums.Buffer.NUM_ACCEPTED,
    enums.Buffer.DRAFT_TOKENS,
}
_STARTS = {  # one more than requests
    enums.Buffer.QUERY_START_LOC,
    enums.Buffer.KV_INDPTR,
    enums.Buffer.KV_START_LOC,
    enums.Buffer.CONTEXT_START_LOC,
    enums.Buffer.PREFILL_QUERY_START_LOC,
    enums.Buffer.PREFILL_KV_INDPTR,
    enums.Buffer.PREFILL_KV_START_LOC,
}
_WHOLE = {  # of rows, of pages, or of a step
    enums.Buffer.PAGE_TABLE,
    enums.Buffer.ROW_COMPUTED,
    enums.Buffer.ROW_LAST_TOKENS,
    enums.Buffer.ROW_NUM_ACCEPTED,
    enums.Buffer.ROW_DRAFT_TOKENS,
    enums.Buffer.COUNTS,
    enums.Buffer.PLAN,
    enums.Buffer.KV_INDICES,
    enums.Buffer.DECLARED,
}

_current: contextvars.ContextVar[Step] = contextvars.ContextVar("cgr.torch.current")


def dtype_of(dtype: torch.dtype) -> enums.Dtype:
    """The cgr.Dtype of a torch.dtype."""
    if dtype not in _DTYPES:
        raise TypeError(f"dtype is {dtype}, which cgr does not have; expected one of {', '.join(map(str, _DTYPES))}")
    return _DTYPES[dtype]


def tensor(array: _cgr.Array | _cgr.BufferView) -> torch.Tensor:
    """A torch.Tensor over a cgr.Array or cgr.BufferView, without a copy. It keeps the runtime or memory that it is a part of."""
    return from_dlpack(array.array() if isinstance(array, _cgr.BufferView) else array)


class _Memory:
    """Memory by its address, as numpy and torch take it: as integers of the same size, for they do not know all dtypes."""

    def __init__(self, address: int, dtype: torch.dtype, shape: Sequence[int], strides: Sequence[int] | None) -> None:
        size = dtype.itemsize
        kind = "|u1" if size == 1 else f"<i{size}"
        self.interface: dict[str, Any] = dict(shape=tuple(shape), typestr=kind, data=(int(address), False), version=3)
        self.interface["strides"] = None if strides is None else tuple(size * stride for stride in strides)

    __array_interface__ = __cuda_array_interface__ = property(lambda self: self.interface)


def tensor_at(
    address: int, dtype: torch.dtype, shape: Sequence[int], device: torch.device, strides: Sequence[int] | None = None
) -> torch.Tensor:
    """A tensor over memory that is taken on trust, for a backend in Python: what a view of cgr's points to, say. `device` is a
    torch.device, and the strides count elements. The tensor keeps nothing.
    """
    memory = _Memory(address, dtype, shape, strides)
    if device.type == "cpu":
        return torch.from_numpy(numpy.asarray(memory)).view(dtype)
    return torch.as_tensor(memory, device=device).view(dtype)


def current() -> Step:
    """The Step under way in this thread. RuntimeError outside of a Record's function."""
    step = _current.get(None)
    if step is None:
        raise RuntimeError("no step is being recorded: call this inside the function of a cgr.torch.Record")
    return step


def run(function: Callable[..., object], *arguments: Any) -> None:
    """`function(*arguments)` as one operation of the step under way: on a GPU at once, with torch on the recorder's stream; on
    the host device as one host function, which may look at values. It writes into the tensors that it is given; what it returns
    is dropped.
    """
    step = current()
    if step.record.on_host:
        step.record.device.launch_host(Operation(function, arguments, {}, None), (), step.info.stream)
    else:
        function(*arguments)


class Step:
    """What the function of a Record gets: the recorder, its counts, and cgr's buffers as tensors up to the padded counts."""

    def __init__(self, record: Record, recorder: _cgr.Recorder) -> None:
        self.record, self.recorder = record, recorder
        self.info = recorder.info()
        self.num_tokens, self.num_requests = self.info.num_tokens, self.info.num_requests

    def buffer(self, buffer: enums.Buffer, index: int = 0) -> torch.Tensor:
        """A persistent buffer. One of tokens or requests ends at the padded count; of others, and of declared ones, it is all."""
        whole = tensor(self.recorder.buffer(buffer, index))
        if buffer in _TOKENS:
            return whole[: self.num_tokens]
        if buffer in _REQUESTS:
            return whole[: self.num_requests]
        return whole[: self.num_requests + 1] if buffer in _STARTS else whole

    @property
    def input_ids(self) -> torch.Tensor:
        """int32 [num_tokens]"""
        return self.buffer(enums.Buffer.INPUT_IDS)

    @property
    def positions(self) -> torch.Tensor:
        """int32 [num_tokens]"""
        return self.buffer(enums.Buffer.POSITIONS)

    @property
    def logits_indices(self) -> torch.Tensor:
        """int32 [num_requests]: the token whose hidden state predicts the next one."""
        return self.buffer(enums.Buffer.LOGITS_INDICES)

    @property
    def next_tokens(self) -> torch.Tensor:
        """int32 [num_requests], for the sampler to write."""
        return self.buffer(enums.Buffer.NEXT_TOKENS)

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Recorder.call: `function(step, *arguments)` at this point of the step; a PIECEWISE graph breaks here, and each of its
        replays makes the call. The runtime keeps the arguments, so that tensors among them stay where they are.
        """
        self.recorder.call(_Call(self.record, function), arguments)


class _Call:
    """Equal ones are one, so that a second capture holds the same call."""

    def __init__(self, record: Record, function: Callable[..., object]) -> None:
        self.record, self.function = record, function

    def __call__(self, recorder: _cgr.Recorder, *arguments: Any) -> None:
        self.record.run(self.function, recorder, arguments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Call) and self.record is other.record and self.function == other.function

    def __hash__(self) -> int:
        return hash((id(self.record), self.function))


class Record:
    """A `record` that calls `function(step)`, which uses torch. `device` is the runtime's cgr.Device. The runtime keeps the
    Record, and the Record keeps the function, with its weights, and the memory of all captures. It serves one runtime.
    """

    def __init__(self, device: Device, function: Callable[[Step], object]) -> None:
        if not hasattr(device, "info") or not callable(function):
            raise TypeError(f"Record takes a cgr.Device and a function, got {type(device)} and {type(function)}")
        info = device.info()
        self.device, self.function = device, function
        self.on_host = info.kind == enums.DeviceKind.HOST
        self.torch_device = torch.device("cpu") if self.on_host else torch.device("cuda", info.ordinal)
        self._arena = Arena() if self.on_host else None
        self._pool: Any = None if self.on_host else _make_pool(self.torch_device)
        self._warming = False
        self._runtime: weakref.ref[Runtime] | None = None
        self._layers: Sequence[_cgr.Layer] | None = None

    def __call__(self, recorder: _cgr.Recorder) -> None:
        if self._arena is not None:
            self._arena.rewind()  # steps of one runtime run one after the other, in the same memory
        self.run(self.function, recorder, (), self._arena)

    def capture(self, runtime: Runtime, warmup: bool = True, **fields: Any) -> None:
        """Runtime.capture of this record. On a GPU it first waits for torch's work and runs a warm-up, in which cuBLAS and others
        load what they need: without one a capture may fail.
        """
        before = self._runtime() if self._runtime is not None else None
        if before is not None and before is not runtime and not before.closed:
            raise ValueError("the record is another runtime's, whose steps use its memory; make one for each runtime")
        self._runtime, self._layers = weakref.ref(runtime), None
        gc.collect()
        if not self.on_host:
            torch.cuda.synchronize(self.torch_device)
            if warmup:
                self._warm_up(runtime, fields)
        runtime.capture(self, **fields)

    def _warm_up(self, runtime: Runtime, fields: dict[str, Any]) -> None:
        self._warming = True
        try:
            runtime.warmup(self, **fields)
        finally:
            self._warming = False
        torch.cuda.synchronize(self.torch_device)

    def layer(self, recorder: _cgr.Recorder, index: int) -> _cgr.Layer | None:
        """Of the runtime's configuration: None if there is no such layer, which cgr refuses."""
        if self._layers is None:
            self._layers = recorder.config.layers or []
        return self._layers[index] if 0 <= index < len(self._layers) else None

    def run(
        self, function: Callable[..., object], recorder: _cgr.Recorder, arguments: Sequence[Any], arena: Arena | None = None
    ) -> None:
        """Calls `function(step, *arguments)` so that torch enqueues on the recorder's stream."""
        step = Step(self, recorder)
        with contextlib.ExitStack() as stack:
            if _current.get(None) is None:  # else a call at once, inside the function
                for context in self._contexts(step, arena):
                    stack.enter_context(context)
            stack.callback(_current.reset, _current.set(step))
            function(step, *arguments)

    def _contexts(self, step: Step, arena: Arena | None) -> Iterator[contextlib.AbstractContextManager[Any]]:
        yield _no_collection()
        yield torch.no_grad()
        if self.on_host:
            yield HostOperations(self.device, step.info.stream, arena)
            return
        yield torch.cuda.device(self.torch_device)
        if step.info.capturing or self._warming:  # libraries' workspaces of the capture stream are made in the warm-up
            # Before the stream is current: torch asks for a graph of its own where the current stream captures.
            yield torch.cuda.use_mem_pool(self._pool, self.torch_device)
        stream = torch.cuda.ExternalStream(int(step.info.stream), self.torch_device)  # type: ignore[no-untyped-call]
        yield torch.cuda.stream(stream)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage may free memory or end a stream, which a capture does not allow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _make_pool(device: torch.device) -> Any:
    pool: Any = getattr(torch.cuda, "MemPool", None)
    if not hasattr(pool, "use_count") or not hasattr(torch.cuda, "use_mem_pool"):
        raise RuntimeError(f"torch {torch.__version__} has no torch.cuda.MemPool that counts its users; a later one is needed")
    torch.cuda.init()  # type: ignore[no-untyped-call]
    with torch.cuda.device(device):
        return pool()


# ------------------------------------------------------------------------------------------------------------- attention


class Attention(torch.nn.Module):
    """Layer `layer` of the configuration. forward(q, k, v) is attention(layer, q, k, v)."""

    def __init__(self, layer: int, out_dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.layer, self.out_dtype = layer, out_dtype

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None = None,
        v: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return attention(self.layer, q, k, v, out=out, lse=lse, out_dtype=self.out_dtype)

    def extra_repr(self) -> str:
        return f"layer={self.layer}"


def attention(
    layer: int,
    q: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    flags: int = 0,
) -> torch.Tensor:
    """Recorder.attention of the step under way, in the function of a Record. Returns out.

    q is [num_tokens, num_q_heads, head_dim], k [num_tokens, num_kv_heads, head_dim], v the same with head_dim_v; the last
    dimension is dense, and parts of one tensor are as good as tensors. k and v are None where the layer appends nothing. `out` is
    made if it is None; `lse` is a float32 [num_tokens, num_q_heads] to be written, or None.
    """
    step = current()
    given = {name: t for name, t in (("q", q), ("k", k), ("v", v), ("out", out)) if t is not None}
    shapes = _shapes(step.record.layer(step.recorder, layer))
    for name, t in given.items():
        _check(step, name, t, 3)
        if name in shapes and tuple(t.shape[1:]) != shapes[name]:
            raise ValueError(f"{name} has the shape {list(t.shape)}, expected {[step.num_tokens, *shapes[name]]} in layer {layer}")
    if out is None and q is not None:
        out = q.new_empty((q.shape[0], q.shape[1], (q if v is None else v).shape[2]), dtype=out_dtype or q.dtype)
        given["out"] = out
    fields: dict[str, Any] = {name: _view(step, name, t) for name, t in given.items()}
    if lse is not None:
        fields["lse"] = _lse_view(step, lse)
    step.recorder.attention(_cgr.Attention(layer=layer, flags=flags, **fields))
    return out


def _shapes(layer: _cgr.Layer | None) -> dict[str, tuple[int, int]]:
    """Heads and head dims; those of k and v only where the layer has KV heads of its own."""
    if layer is None:
        return {}
    dim_v = layer.head_dim_v or layer.head_dim
    shapes = {"q": (layer.num_q_heads, layer.head_dim), "out": (layer.num_q_heads, dim_v)}
    if layer.kv_source == 0:
        shapes.update(k=(layer.num_kv_heads, layer.head_dim), v=(layer.num_kv_heads, dim_v))
    return shapes


def _check(step: Step, name: str, t: object, dims: int) -> None:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is of {type(t)}, expected a torch.Tensor")
    if t.dim() != dims or t.shape[0] != step.num_tokens:
        expected = ["num_tokens", "heads", "head_dim"][:dims]
        raise ValueError(f"{name} has the shape {list(t.shape)}, expected [{', '.join(expected)}] with {step.num_tokens} tokens")
    if t.device != step.record.torch_device:
        raise ValueError(f"{name} is on {t.device}, expected {step.record.torch_device}")


def _view(step: Step, name: str, t: torch.Tensor) -> _cgr.View:
    tokens, heads, dim = t.shape
    if dim > 1 and t.stride(2) != 1:
        raise ValueError(f"{name} has the strides {t.stride()}, expected 1 for its last dimension: make it contiguous")
    stride_head = t.stride(1) if heads > 1 else dim  # the stride of a single element says nothing
    stride_token = t.stride(0) if tokens > 1 else heads * stride_head
    return _cgr.View(data=Address(t.data_ptr()), dtype=dtype_of(t.dtype), stride_token=stride_token, stride_head=stride_head)


def _lse_view(step: Step, lse: torch.Tensor) -> _cgr.View:
    _check(step, "lse", lse, 2)
    strides = dict(zip(("stride_token", "stride_head"), lse.stride()))
    return _cgr.View(data=Address(lse.data_ptr()), dtype=dtype_of(lse.dtype), **strides)
