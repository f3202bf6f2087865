"""What backends in Python share: the layers that they are for, and tensors over the memory that cgr gives them."""

import math

import torch

import cgr
import cgr.torch

DTYPES = {cgr.Dtype.BF16: torch.bfloat16, cgr.Dtype.FP16: torch.float16, cgr.Dtype.FP32: torch.float32}


class Layers:
    """The layers that name one backend, which are alike: its plan serves all of them. `record` is the runtime's cgr.torch.Record,
    `layers` is what the runtime gets, `number` is the backend's in cgr_layer.backend, and caches[i] is (k, v) of layer i,
    [pages, page_size, num_kv_heads, dim] each.
    """

    def __init__(self, record, group, layers, number, caches, dtypes, devices):
        self.record, self.caches, self.dtypes, self.devices = record, caches, dtypes, devices
        mine = [layer for layer in layers if layer.backend == number]
        if not mine:
            raise ValueError(f"no layer names backend {number}")
        self.info, self.first = record.device.info(), mine[0]
        self.index, self.page_size = self.first.group, group.page_size or 16
        self.device = record.torch_device
        self.dtype = DTYPES.get(self.first.k.dtype)
        self.q_heads, self.kv_heads = self.first.num_q_heads, self.first.num_kv_heads
        self.dim, self.dim_v = self.first.head_dim, self.first.head_dim_v or self.first.head_dim
        self.window, self.softcap = self.first.window_left, self.first.softcap
        self.scale = self.first.scale or 1 / math.sqrt(self.dim)

    def check(self, device, group, layer):
        """cgr_backend.check: every field by which a layer is not like the others, or is not served at all. Here what a layer may
        leave 0 has been filled in."""
        kind = self.first.k.dtype
        wanted = dict(
            group=self.index, num_q_heads=self.q_heads, num_kv_heads=self.kv_heads, head_dim=self.dim, head_dim_v=self.dim_v, q_dtype=kind,
            out_dtype=kind, window_left=self.window, softcap=self.softcap, kv_source=0, window_right=0, chunk=0, flags=0,
            alibi_slopes=None, sinks=None,
        )  # fmt: skip
        wrong = [(name, f"is {getattr(layer, name)}, expected {value}") for name, value in wanted.items() if getattr(layer, name) != value]
        if not math.isclose(layer.scale, self.scale, rel_tol=1e-6):
            wrong.append(("scale", f"is {layer.scale}, expected {self.scale}"))
        if layer.k.dtype not in self.dtypes or layer.v.dtype != layer.k.dtype or layer.k.dtype != self.first.k.dtype:
            wrong.append(("k", f"and v are {layer.k.dtype} and {layer.v.dtype}, expected one of {self.dtypes} for all layers"))
        if device.kind not in self.devices:
            wrong.append(("backend", "has no kernels for this device"))
        return [cgr.Finding(status=cgr.Status.ERROR_UNSUPPORTED, field=name, text=text[:120]) for name, text in wrong]

    def calls(self, attention, num_tokens):
        """q, out and lse (None: not wanted) of a call. out is dense: kernels ask for no strides of it."""
        if attention.flags & cgr.AttentionFlag.NON_CAUSAL:
            raise ValueError("the backend's kernels are planned for causal attention")
        q = self.tokens(attention.q, num_tokens, self.dim)
        out = self.tokens(attention.out, num_tokens, self.dim_v)
        if not out.is_contiguous():
            raise ValueError(f"out has the strides {out.stride()}, expected a dense one")
        lse = None
        if attention.lse.data:
            strides = (attention.lse.stride_token, attention.lse.stride_head)
            lse = self.tensor_at(attention.lse.data, torch.float32, (num_tokens, self.q_heads), strides)
        return q, out, lse

    def tokens(self, view, num_tokens, dim):
        strides = (view.stride_token, view.stride_head, 1)
        return self.tensor_at(view.data, self.dtype, (num_tokens, self.q_heads, dim), strides)

    def tensor_at(self, address, dtype, shape, strides=None):
        return cgr.torch.tensor_at(address, dtype, shape, self.device, strides)

    def ints(self, recorder, buffer, count=None, group=False):
        """A persistent buffer of 32 bits, the first `count` of its rows."""
        view = recorder.buffer(buffer, index=self.index if group else 0)
        rows, columns = view.shape
        shape, strides = ((rows,), (1,)) if columns == 1 else ((rows, columns), (view.stride, 1))
        return self.tensor_at(view.data, torch.int32, shape, strides)[:count]


def live_requests(recorder):
    """Where the number of real requests is."""
    view = recorder.buffer(cgr.Buffer.COUNTS)
    return cgr.Address(int(view.data) + 4 * cgr.Count.REQUESTS)
