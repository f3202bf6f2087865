"""FlashInfer's BatchDecodeWithPagedKVCacheWrapper and BatchPrefillWithPagedKVCacheWrapper as a backend, with cgr's plan.

Each key has a wrapper in its CUDA-graph mode. Its own `plan` is called once, with made-up lengths, when the key's state is made: it
compiles and loads the kernels, and says what a graph keeps (plan_info), which is compared with cgr's numbers. From then on the words
of the plan are written by cgr's kernel when the step runs, so that one graph plans each batch that it is replayed for, and the host
does nothing.

    backend = FlashInfer(record, group, layers, 1, caches, max_tokens=..., max_requests=...)
    runtime = cgr.Runtime(layers=layers, groups=[group], backends=[backend.backend], ...)
"""

import functools
import types

import flashinfer
import torch
from layers import Layers, live_requests

import cgr
import cgr.torch

LN_2 = 0.6931471805599453
STATUS_BYTES = 256  # of the workspace: its first word is the planner's status


def layout_of(version):
    """The cgr.FlashinferLayout of a release, by which its prefill plan is known."""
    number = tuple(int(part) for part in version.split(".post")[0].split("+")[0].split(".")[:3])
    if (0, 6, 18) <= number < (0, 7, 1):
        return cgr.FlashinferLayout.V0_6_18
    if (0, 7, 1) <= number <= (0, 7, 2):
        return cgr.FlashinferLayout.V0_7_1
    raise RuntimeError(f"FlashInfer {version} is not known to have one of cgr's plans: 0.6.18 to 0.7.2 do")


def rounded(count, unit=256):
    return (count + unit - 1) // unit * unit


class FlashInfer:
    """With `cuda_cores`, uniform batches of one token for each request go to FlashInfer's decode kernel, and all other steps
    to its prefill kernel, eagerly or between pieces. Without it the prefill kernel, which uses tensor cores, serves all batches,
    and all of them may be in FULL graphs. `status` is a tensor with the cgr_status of the last plan.
    """

    DTYPES, DEVICES = (cgr.Dtype.BF16, cgr.Dtype.FP16), (cgr.DeviceKind.CUDA,)

    def __init__(self, record, group, layers, number, caches, *, max_tokens, max_requests, cuda_cores=False, name="flashinfer"):
        self.layers = Layers(record, group, layers, number, caches, self.DTYPES, self.DEVICES)
        self.cuda_cores, self.layout = cuda_cores, layout_of(flashinfer.__version__)
        support = cgr.GraphSupport.UNIFORM_SINGLE_TOKEN_DECODE if cuda_cores else cgr.GraphSupport.ALWAYS
        self.backend = cgr.Backend(
            name=name,
            check=self.layers.check,
            support=lambda *_: support,
            create=self.create,
            plan=self.plan,
            record=self.record,
            flags=cgr.BackendFlag.PLANS_FIRST,
            on_demand=cgr.on_demand(cgr.Buffer.KV_INDICES),
            workspace_bytes=self.workspace_bytes(max_tokens, max_requests),
        )

    # ---------------------------------------------------------------------------------------------------------- the plan

    def prefill_input(self, num_requests, num_tokens, uniform):
        k = self.layers
        return cgr.FlashinferPrefillInput(
            num_requests=num_requests,
            total_num_rows=num_tokens,
            num_q_heads=k.q_heads,
            num_kv_heads=k.kv_heads,
            head_dim_qk=k.dim,
            head_dim_vo=k.dim_v,
            page_size=k.page_size,
            window=k.window,
            uniform_q_len=uniform,
            num_multiprocessors=k.info.num_multiprocessors,
            compute_capability=k.info.compute_capability,
            shared_memory=k.info.shared_memory,
            graph=1,
            layout=self.layout,
        )

    def decode_input(self, num_requests, blocks):
        k = self.layers
        return cgr.FlashinferDecodeInput(
            num_requests=num_requests,
            num_q_heads=k.q_heads,
            num_kv_heads=k.kv_heads,
            head_dim=k.dim,
            page_size=k.page_size,
            num_multiprocessors=k.info.num_multiprocessors,
            blocks_per_multiprocessor=blocks,
            graph=1,
        )

    def decodes(self, key):
        """Whether FlashInfer's decode kernel, which takes row i of q for request i, serves the key."""
        return self.cuda_cores and key.kind == cgr.GraphKind.FULL and key.query_len == 1

    def uniform(self, key):
        """FlashInfer's uniform_q_len for a key of the prefill kernel: 0 also where the wrapper has no such argument yet."""
        return int(self.layout == cgr.FlashinferLayout.V0_7_1 and key.query_len == 1 and key.num_tokens == key.num_requests)

    def workspace_bytes(self, max_tokens, max_requests):
        plans = [cgr.flashinfer_prefill_size(self.prefill_input(max_requests, max(max_tokens, max_requests), 0))]
        if self.cuda_cores:
            plans.append(cgr.flashinfer_decode_size(self.decode_input(max_requests, 64)))
        return STATUS_BYTES + max(rounded(plan.int_bytes) + rounded(plan.float_bytes) for plan in plans)

    def create(self, key):
        """A wrapper for the key. Its buffers are replaced by cgr's when there is a recorder, which tells where they are."""
        decode = self.decodes(key)
        rows = max(key.num_tokens, key.num_requests)
        uniform = self.uniform(key)
        workspace = self.layers.tensor_at(key.workspace.address, torch.uint8, (key.workspace_bytes,))
        make = self.decode_wrapper if decode else functools.partial(self.prefill_wrapper, rows=rows, uniform=uniform)
        wrapper, numbers = make(workspace[STATUS_BYTES:], key.num_requests)
        if decode:
            plan_input, plan = self.same_decode(key.num_requests, numbers)
        else:
            plan_input = self.prefill_input(key.num_requests, rows, uniform)
            plan = cgr.flashinfer_prefill_size(plan_input)
            self.compare(numbers, plan)
        ints = rounded(plan.int_bytes)
        if STATUS_BYTES + ints + plan.float_bytes > key.workspace_bytes:
            raise MemoryError(f"the plan takes {STATUS_BYTES + ints + plan.float_bytes} bytes, the workspace has {key.workspace_bytes}")
        words = workspace[STATUS_BYTES : STATUS_BYTES + ints]
        wrapper.reset_workspace_buffer(workspace[STATUS_BYTES + ints :], words)
        if not self.layers.record.on_host:
            torch.cuda.current_stream(self.layers.device).synchronize()  # the made-up plan is on its way to memory that is free now
        self.status = workspace[:4].view(torch.int32)  # of all keys
        plan_input.status = cgr.Address(key.workspace.address)
        requests = torch.arange(key.num_requests, dtype=torch.int32, device=self.layers.device)
        return types.SimpleNamespace(
            wrapper=wrapper, decode=decode, input=plan_input, words=words, bytes=plan.int_bytes, requests=requests
        )  # fmt: skip

    def buffers(self, count):
        """Made-up pages: one of each request."""
        starts = torch.arange(count + 1, dtype=torch.int32)
        return starts, torch.zeros(count, dtype=torch.int32), torch.ones(count, dtype=torch.int32)

    def types(self):
        k = self.layers
        options = dict(q_data_type=k.dtype, kv_data_type=k.dtype, sm_scale=k.scale, window_left=k.window - 1 if k.window else -1)
        return options | dict(logits_soft_cap=k.softcap or None)

    def decode_wrapper(self, floats, count):
        k, pages = self.layers, self.buffers(count)
        names = ("paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")
        own = {name: values.to(k.device) for name, values in zip(names, pages)}
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(floats, "NHD", use_cuda_graph=True, **own)
        wrapper.plan(*pages, k.q_heads, k.kv_heads, k.dim, k.page_size, **self.types())
        return wrapper, [int(number) for number in wrapper._plan_info]

    def prefill_wrapper(self, floats, count, rows, uniform):
        k, pages = self.layers, self.buffers(count)
        starts = pages[0] + (rows - count) * (pages[0] > 0)  # the first request has what is left
        starts = starts.to(torch.int32)
        names = ("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf")
        own = {name: values.to(k.device) for name, values in zip(names, (starts, *pages))}
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(floats, "NHD", use_cuda_graph=True, backend="fa2", **own)
        more = dict(head_dim_vo=k.dim_v, causal=True) | (dict(uniform_q_len=1) if uniform else {})
        wrapper.plan(starts, *pages, k.q_heads, k.kv_heads, k.dim, k.page_size, **more, **self.types())
        return wrapper, [int(number) for number in wrapper._plan_info]

    def same_decode(self, count, numbers):
        """The decode plan depends on how many blocks of the compiled kernel an SM holds, which FlashInfer does not tell: it is
        the number with which both plans have the same sizes."""
        for blocks in range(1, 65):
            plan_input = self.decode_input(count, blocks)
            plan = cgr.flashinfer_decode_size(plan_input)
            if list(plan.info[: plan.num_info]) == numbers:
                return plan_input, plan
        return self.compare(numbers, plan)

    def compare(self, numbers, plan):
        """FlashInfer's and cgr's plan of the same key have the same plan_info, or the kernels would read other words."""
        mine = list(plan.info[: plan.num_info])
        if mine != numbers:
            raise RuntimeError(f"FlashInfer {flashinfer.__version__} plans {numbers}, and cgr {mine}: name the layout of its release")

    def plan(self, state, recorder, flags, draft):
        k, wrapper, info = self.layers, state.wrapper, recorder.info()
        count = info.num_requests  # of the key, or of an eager step: what follows in the buffers is of older steps
        wrapper._paged_kv_indptr_buf = k.ints(recorder, cgr.Buffer.KV_INDPTR, count + 1, group=True)
        wrapper._paged_kv_last_page_len_buf = k.ints(recorder, cgr.Buffer.KV_LAST_PAGE_LEN, count, group=True)
        state.input.kv_indptr = cgr.Address(wrapper._paged_kv_indptr_buf.data_ptr())
        state.input.live_requests = live_requests(recorder)
        enqueue = k.record.device.flashinfer_decode_enqueue
        if not state.decode:
            wrapper._qo_indptr_buf = k.ints(recorder, cgr.Buffer.QUERY_START_LOC, count + 1)
            state.input.qo_indptr = cgr.Address(wrapper._qo_indptr_buf.data_ptr())
            enqueue = k.record.device.flashinfer_prefill_enqueue
        enqueue(state.input, cgr.Address(state.words.data_ptr()), info.stream, int_bytes=state.bytes)

    # ------------------------------------------------------------------------------------------------------ the attention

    def record(self, recorder, attention):
        self.layers.record.run(self.attend, recorder, (attention,))

    def attend(self, step, attention):
        """On torch's current stream, which is the step's. Padded rows have to be empty: the prefill kernel leaves them alone, and the
        decode kernel attends to no keys for them, of which it does not make 0."""
        state, k, count = step.info.plan_state, self.layers, step.num_tokens
        state.wrapper._paged_kv_indices_buf = k.ints(step.recorder, cgr.Buffer.KV_INDICES, group=True)
        state.wrapper._qo_indptr_last = count  # FlashInfer compares q with it: an eager step has fewer tokens
        q, out, lse = k.calls(attention, count)
        options = dict(out=out.zero_())
        if lse is not None:
            base_2 = torch.full((count, k.q_heads), -torch.inf, device=k.device)
            options |= dict(lse=base_2, return_lse=True)
        state.wrapper.run(q, k.caches[attention.layer], **options)
        if lse is not None:
            torch.mul(base_2, LN_2, out=lse)
        if state.decode:
            padded = (state.requests >= k.ints(step.recorder, cgr.Buffer.COUNTS)[cgr.Count.REQUESTS])[:, None]
            out.masked_fill_(padded[:, None], 0)
            if lse is not None:
                lse.masked_fill_(padded, -torch.inf)
