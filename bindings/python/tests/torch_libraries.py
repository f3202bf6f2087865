"""Stand-ins for FlashInfer and FlashAttention-3 on the host device, for examples/torch_backends: the functions that its backends call,
which attend as the words of a plan say. A key that no tile covers, or two, shows in the result.
"""

import math
import types

import numpy as np
import torch

import cgr
import cgr.torch


def partial_attention(q, k, v, behind, scale, window_left, softcap):
    """(out, lse) of q [rows, dim] over k and v [keys, dim], which are `behind` [rows, keys] tokens before the query."""
    scores = q.float() @ k.float().T * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill((behind < 0) | ((behind > window_left) & (window_left >= 0)), -math.inf)
    lse = scores.logsumexp(1)
    return (scores - lse[:, None]).exp().nan_to_num(0) @ v.float(), lse


def merged(parts):
    """(out, lse) of a row over keys that are in several parts."""
    lses = torch.stack([lse for _, lse in parts])
    lse = lses.logsumexp(0)
    weights = (lses - lse).exp()
    return sum(weight * out for weight, (out, _) in zip(weights, parts)), lse


def now_or_in_the_step(function, *arguments):
    if cgr.torch._current.get(None) is None:
        function(*arguments)
    else:
        cgr.torch.run(function, *arguments)


class Wrapper:
    """What FlashInfer's two wrappers have in common, in CUDA-graph mode."""

    plans = 0  # by themselves

    def __init__(self, floats, layout, use_cuda_graph, backend="auto", **buffers):
        assert layout == "NHD" and use_cuda_graph
        self._float_workspace_buffer, self._int_workspace_buffer = floats, torch.empty(1 << 20, dtype=torch.uint8)
        for name, buffer in buffers.items():
            setattr(self, "_" + name.replace("_buffer", "_buf"), buffer)

    def reset_workspace_buffer(self, floats, ints):
        self._float_workspace_buffer, self._int_workspace_buffer = floats, ints

    def keep(self, plan_input, build, pages, heads, page_size, options):
        Wrapper.plans += 1
        words = cgr.aligned(1 << 20)
        plan = build(plan_input, words)
        self._plan_info = list(plan.info[: plan.num_info])
        self._int_workspace_buffer[: plan.int_bytes] = torch.from_numpy(words[: plan.int_bytes])
        for name, values in zip(("indptr", "indices", "last_page_len"), pages):
            getattr(self, f"_paged_kv_{name}_buf")[: len(values)] = values
        self.heads, self.page_size = heads, page_size
        self.options = options["sm_scale"], options["window_left"], options["logits_soft_cap"]

    def run(self, q, cache, out=None, lse=None, return_lse=False):
        out = torch.zeros_like(q) if out is None else out
        lse = torch.full(q.shape[:2], -math.inf) if lse is None else lse
        now_or_in_the_step(self.attend, q, *cache, out, lse)
        return (out, lse) if return_lse else out

    def words(self, name, count, dtype=torch.int32):
        at = self._plan_info[self.NAMES.index(name)]
        return self._int_workspace_buffer[at : at + count * dtype.itemsize].view(dtype)

    def attend(self, q, k, v, out, lse):
        """Tile by tile, as the plan's words say."""
        tiles = self._plan_info[0]
        valid = self.words("block_valid_mask", tiles, torch.uint8) if self.masked() else [True] * tiles
        chunk = int(self.words("kv_chunk_size_ptr", 1)[0])
        parts = {}
        for tile in range(tiles):
            if valid[tile]:
                request, part = (int(self.words(name, tiles)[tile]) for name in ("request_indices", "kv_tile_indices"))
                starts = self._paged_kv_indptr_buf.tolist()
                places = torch.arange(starts[request], starts[request + 1])
                pages = self._paged_kv_indices_buf[places].long() * (places < starts[-1])  # FlashInfer stops at the end of all
                length = max(len(pages) - 1, 0) * self.page_size + int(self._paged_kv_last_page_len_buf[request]) * (len(pages) > 0)
                keys = range(part * chunk, min((part + 1) * chunk, length))
                for row, head, see in self.rows(tile, request, length):
                    kv_head = head // (self.heads[0] // self.heads[1])
                    own = [t[pages, :, kv_head].flatten(0, 1)[keys.start : keys.stop] for t in (k, v)]
                    behind = see - torch.arange(keys.start, keys.stop)
                    found = partial_attention(q[row, head][None], *own, behind[None], *self.options)
                    parts.setdefault((row, head), []).append([t[0] for t in found])
        for at, found in parts.items():
            out[at], natural = merged(found)
            lse[at] = natural / math.log(2)


class BatchPrefillWithPagedKVCacheWrapper(Wrapper):
    NAMES = ("padded_batch_size", "total_num_rows", "total_num_rows_offset", "cta_tile_q", "request_indices", "qo_tile_indices",
             "kv_tile_indices", "merge_indptr", "o_indptr", "kv_chunk_size_ptr", "v", "s", "block_valid_mask")  # fmt: skip

    def plan(self, starts, indptr, indices, last, q_heads, kv_heads, dim, page_size, *, causal, head_dim_vo=None, uniform_q_len=0, **more):
        assert not uniform_q_len or HostGpu.layout == cgr.FlashinferLayout.V0_7_1, "no such argument yet"
        assert causal and int(starts[-1]) <= getattr(self, "most", int(starts[-1]))
        self.most = getattr(self, "most", int(starts[-1]))
        plan_input = cgr.FlashinferPrefillInput(
            num_requests=len(last), total_num_rows=self.most, qo_indptr=starts.numpy(), kv_indptr=indptr.numpy(), num_q_heads=q_heads,
            num_kv_heads=kv_heads, head_dim_qk=dim, head_dim_vo=head_dim_vo or dim, page_size=page_size, uniform_q_len=uniform_q_len,
            window=more["window_left"] + 1, num_multiprocessors=HostGpu.num_multiprocessors, graph=1, layout=HostGpu.layout,
        )  # fmt: skip
        self._qo_indptr_buf[: len(starts)] = starts
        self.keep(plan_input, cgr.flashinfer_prefill_build, (indptr, indices, last), (q_heads, kv_heads), page_size, more)
        self._qo_indptr_last = int(starts[-1])

    def run(self, q, cache, **more):
        assert q.shape[0] == self._qo_indptr_last
        return super().run(q, cache, **more)

    def masked(self):
        return HostGpu.layout == cgr.FlashinferLayout.V0_7_1 or self._plan_info[-1]

    def rows(self, tile, request, length):
        group = self.heads[0] // self.heads[1]
        first, end = (int(self._qo_indptr_buf[request + i]) for i in (0, 1))
        size, index = self._plan_info[3], int(self.words("qo_tile_indices", tile + 1)[tile])
        for packed in range(index * size, min((index + 1) * size, (end - first) * group)):
            for kv_head in range(self.heads[1]):
                row = packed // group
                yield first + row, kv_head * group + packed % group, length - (end - first) + row


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    NAMES = ("padded_batch_size", "v", "s", "request_indices", "kv_tile_indices", "o_indptr", "block_valid_mask", "kv_chunk_size_ptr")

    def plan(self, indptr, indices, last, q_heads, kv_heads, dim, page_size, **more):
        plan_input = cgr.FlashinferDecodeInput(
            num_requests=len(last), kv_indptr=indptr.numpy(), num_q_heads=q_heads, num_kv_heads=kv_heads, head_dim=dim,
            page_size=page_size, num_multiprocessors=HostGpu.num_multiprocessors, blocks_per_multiprocessor=HostGpu.blocks, graph=1,
        )  # fmt: skip
        self.keep(plan_input, cgr.flashinfer_decode_build, (indptr, indices, last), (q_heads, kv_heads), page_size, more)

    def masked(self):
        return self._plan_info[-1]  # with splits

    def rows(self, tile, request, length):
        return [(request, head, length - 1) for head in range(self.heads[0])]


class HostGpu:
    """What the stand-ins are compiled for."""

    num_multiprocessors, blocks, layout = 2, 3, cgr.FlashinferLayout.V0_7_1


def flashinfer():
    wrappers = (BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper)
    module = types.ModuleType("flashinfer")
    vars(module).update({wrapper.__name__: wrapper for wrapper in wrappers}, __version__="0.7.2.post1")
    return module


CONFIG = {"build_flags": {}}  # of flash_attn_config


class FlashAttention3:
    """torch.ops.flash_attn_3. `wrong` is what it found wrong in a step."""

    def __init__(self):
        self.wrong, self.calls = [], 0

    def fwd(self, *, q, k, v, out, cu_seqlens_q, seqused_k, page_table, scheduler_metadata, **numbers):
        lse = torch.empty(q.shape[1], q.shape[0])
        arrays = (q, k, v, out, lse, cu_seqlens_q, seqused_k, page_table, scheduler_metadata)
        cgr.torch.run(self.attend, *arrays, numbers)
        return out, lse, None, None

    def attend(self, q, k, v, out, lse, starts, lens, table, metadata, numbers):
        self.calls += 1
        self.compare_plan(q, k, starts, lens, table, metadata, numbers)
        lse.fill_(math.nan)
        group = q.shape[1] // k.shape[2]
        options = [numbers[name] for name in ("softmax_scale", "window_size_left", "softcap")]
        for i, length in enumerate(lens.tolist()):
            first, end = starts[i : i + 2].tolist()
            pages = table[i, : -(-length // k.shape[1])].long()
            see = torch.arange(length - (end - first), length)
            for head in range(q.shape[1]):
                own = [t[pages, :, head // group].flatten(0, 1)[:length] for t in (k, v)]
                behind = see[:, None] - torch.arange(length)
                out[first:end, head], lse[head, first:end] = partial_attention(q[first:end, head], *own, behind, *options)

    def compare_plan(self, q, k, starts, lens, table, metadata, numbers):
        plan_input = cgr.Fa3Input(
            num_requests=len(lens), num_tokens=q.shape[0], num_q_heads=q.shape[1], num_kv_heads=k.shape[2], head_dim=q.shape[2],
            dtype=cgr.Dtype.BF16, page_size=k.shape[1], max_query_len=numbers["max_seqlen_q"], max_seq_len=table.shape[1] * k.shape[1],
            causal=numbers["is_causal"], window_left=numbers["window_size_left"] + 1, softcap=int(numbers["softcap"] > 0),
            num_splits=numbers["num_splits"], num_multiprocessors=HostGpu.num_multiprocessors,
            query_start_loc=starts.numpy().copy(), seq_lens=lens.numpy().copy(),
        )  # fmt: skip
        words = cgr.aligned(cgr.fa3_size(plan_input).metadata_bytes)
        cgr.fa3_build(plan_input, words)
        if not np.array_equal(words.view(np.int32)[: len(metadata)], metadata.numpy()):
            self.wrong.append((lens.tolist(), metadata.tolist()))
