"""FlashAttention-3 as a backend, with cgr's plan.

`scheduler_metadata`, which FlashAttention's get_scheduler_metadata makes by a call of its own in each step, is written by cgr's
kernel when the step runs: one graph plans each batch that it is replayed for, and FlashAttention launches no kernel that plans.

    backend = FlashAttention3(record, group, layers, 1, caches, max_requests=..., max_seq_len=...)
    runtime = cgr.Runtime(layers=layers, groups=[group], backends=[backend.backend], ...)
"""

import types

import flash_attn_interface  # noqa: F401, its operations are then in torch.ops.flash_attn_3
import torch
from flash_attn_config import CONFIG
from layers import Layers, live_requests

import cgr


class FlashAttention3:
    """`layout` names whose FlashAttention-3 it is. A request has at most `max_splits` splits, and fewer in a step whose partial
    results would take more than `partial_bytes`.
    """

    DTYPES, DEVICES = (cgr.Dtype.BF16, cgr.Dtype.FP16), (cgr.DeviceKind.CUDA,)

    def __init__(self, record, group, layers, number, caches, *, max_requests, max_seq_len, layout=cgr.Fa3Layout.UPSTREAM, max_splits=32,
                 partial_bytes=256 << 20, name="fa3"):  # fmt: skip
        self.layers = Layers(record, group, layers, number, caches, self.DTYPES, self.DEVICES)
        self.layout, self.max_splits, self.partial_bytes = layout, max_splits, partial_bytes
        self.columns = -(-max_seq_len // self.layers.page_size)
        self.backend = cgr.Backend(
            name=name,
            check=self.check,
            support=lambda *_: cgr.GraphSupport.ALWAYS,
            create=lambda key: types.SimpleNamespace(workspace=key.workspace.address, bytes=key.workspace_bytes),
            plan=self.plan,
            record=self.record,
            flags=cgr.BackendFlag.PLANS_FIRST,
            on_demand=cgr.on_demand(cgr.Buffer.BLOCK_TABLE),
            workspace_bytes=cgr.fa3_size(self.input(max_requests, max_requests, 1)).metadata_bytes,
        )

    def check(self, device, group, layer):
        """What the wheel was built without, too: it leaves kernels out, and says so in flash_attn_config."""
        left_out = [("window_left", "LOCAL", self.layers.window), ("softcap", "SOFTCAP", self.layers.softcap)]
        return self.layers.check(device, group, layer) + [
            cgr.Finding(status=cgr.Status.ERROR_UNSUPPORTED, field=field, text=f"has no kernels: FLASHATTENTION_DISABLE_{flag}")
            for field, flag, wanted in left_out
            if wanted and CONFIG["build_flags"].get(f"FLASHATTENTION_DISABLE_{flag}")
        ]

    def input(self, num_requests, num_tokens, max_query_len):
        """Of the key alone: a graph keeps these numbers."""
        k = self.layers
        partial = num_tokens * k.q_heads * (k.dim_v + 1) * 4
        return cgr.Fa3Input(
            layout=self.layout,
            num_requests=num_requests,
            num_tokens=num_tokens,
            num_q_heads=k.q_heads,
            num_kv_heads=k.kv_heads,
            head_dim=k.dim,
            head_dim_v=k.dim_v,
            dtype=k.first.k.dtype,
            page_size=k.page_size,
            max_query_len=max_query_len,
            max_seq_len=self.columns * k.page_size,  # as FlashAttention reckons it from its page table
            causal=1,
            window_left=k.window,
            softcap=int(k.softcap > 0),
            num_splits=max(1, min(self.max_splits, self.partial_bytes // partial)),
            num_multiprocessors=k.info.num_multiprocessors,
        )

    def plan(self, state, recorder, flags, draft):
        k, info = self.layers, recorder.info()
        count = info.num_requests
        state.starts = k.ints(recorder, cgr.Buffer.QUERY_START_LOC, count + 1)
        state.lens = k.ints(recorder, cgr.Buffer.SEQ_LENS, count)
        query_len = info.plan_key.query_len or info.num_tokens
        state.input = self.input(count, info.num_tokens, query_len)
        state.input.query_start_loc = cgr.Address(state.starts.data_ptr())
        state.input.seq_lens = cgr.Address(state.lens.data_ptr())
        state.input.live_requests = live_requests(recorder)
        words = cgr.fa3_size(state.input).used_words
        state.metadata = k.tensor_at(state.workspace, torch.int32, (words,))
        k.record.device.fa3_enqueue(state.input, cgr.Address(state.workspace), info.stream, bytes=state.bytes)

    def record(self, recorder, attention):
        self.layers.record.run(self.attend, recorder, (attention,))

    def attend(self, step, attention):
        """On torch's current stream, which is the step's."""
        state, k, count = step.info.plan_state, self.layers, step.num_tokens
        table = k.ints(step.recorder, cgr.Buffer.BLOCK_TABLE, step.num_requests, group=True)
        if table.shape[1] != self.columns:
            raise ValueError(f"the block table has {table.shape[1]} columns, expected {self.columns}: max_seq_len is the runtime's")
        keys, values = k.caches[attention.layer]
        q, out, lse = k.calls(attention, count)
        out.zero_()  # padded rows, which FlashAttention leaves alone
        found = torch.ops.flash_attn_3.fwd(  # what flash_attn_with_kvcache calls, which has no argument for out
            q=q,
            k=keys,
            v=values,
            out=out,
            cu_seqlens_q=state.starts,
            seqused_k=state.lens,
            max_seqlen_q=state.input.max_query_len,
            page_table=table,
            softmax_scale=k.scale,
            is_causal=True,
            window_size_left=k.window - 1 if k.window else -1,
            softcap=k.softcap,
            scheduler_metadata=state.metadata,
            num_splits=state.input.num_splits,
        )
        if lse is not None:
            padded = torch.arange(count, device=k.device) >= state.starts[-1]
            lse.copy_(found[1].t())
            lse.masked_fill_(padded[:, None], -torch.inf)
