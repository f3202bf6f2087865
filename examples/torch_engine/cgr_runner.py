"""Steps by cgr: the same model and cache; rows, metadata, attention and graphs are cgr's."""

import numpy as np
import torch

import cgr
import cgr.torch


class CgrRunner:
    def __init__(self, model, cache, limits, device):
        self.model = model
        on_gpu = device.type == "cuda"
        self.device = cgr.Device(f"cuda:{device.index}" if on_gpu else "host")
        self.stream = torch.cuda.current_stream(device) if on_gpu else self.device.stream()  # not torch's default one
        self.record = cgr.torch.Record(self.device, self.forward)
        s, dtype = model.shape, cgr.torch.dtype_of(cache.dtype)
        layers = []
        for part in cache:
            k, v = (cgr.kv_view_make(cgr.KvLayout.NHD, half, dtype, limits.page_size, s.kv_heads, s.head_dim) for half in part)
            layers.append(cgr.Layer(num_q_heads=s.heads, num_kv_heads=s.kv_heads, head_dim=s.head_dim, k=k, v=v))
        self.runtime = cgr.Runtime(
            device=self.device,
            groups=[cgr.Group(num_pages=limits.num_pages, page_size=limits.page_size)],
            layers=layers,
            max_requests=limits.max_requests,
            max_tokens=limits.max_tokens,
            max_seq_len=limits.max_len,
        )
        self.record.capture(self.runtime)

    def forward(self, step):
        tokens = self.model(step.input_ids, step.positions, step.logits_indices, cgr.torch.attention)
        step.next_tokens.copy_(tokens)

    def open(self, tag):
        return self.runtime.request_open(tag)

    def close(self, row):
        self.runtime.request_close(row)

    def set_pages(self, row, first, pages):
        self.runtime.request_set_pages(row, group=0, first=first, pages=pages)

    def launch(self, plan):
        batch = cgr.Batch(rows=plan.rows)
        if not plan.decodes:
            batch.query_lens, batch.tokens = plan.query_lens, plan.tokens
            batch.flags = np.where(plan.partial, np.uint32(cgr.RequestFlag.PARTIAL), np.uint32(0))
        step = self.runtime.prepare_wait(batch, self.stream)
        step.launch(self.stream)
        return step

    def result(self, step):
        return np.asarray(step.wait().tokens)
