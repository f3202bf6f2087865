"""Steps by cgr: the same model and cache; rows, tables, the standing batch, attention and graphs are cgr's."""

import numpy as np

import cgr
import cgr.torch

LAST = np.array([cgr.TOKEN_LAST], np.int32)  # the token that the row's last step made


class CgrRunner:
    def __init__(self, model, cache, limits, device):
        self.model = model
        self.device = cgr.Device(f"cuda:{device.index}" if device.type == "cuda" else "host")
        self.stream = self.device.stream()
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
        self.standing = cgr.Batch(num_requests=cgr.BATCH_STANDING)
        self.steps = [cgr.Step(), cgr.Step()]  # one is planned while the other runs
        self.answer = cgr.StepResult()

    def forward(self, step):
        tokens = self.model(step.input_ids, step.positions, step.logits_indices, cgr.torch.attention)
        step.next_tokens.copy_(tokens)

    def open(self, tag, pages):
        row = self.runtime.request_open(tag)
        self.runtime.request_set_pages(row, group=0, first=0, pages=pages)
        return row

    def close(self, row):
        self.runtime.request_close(row)

    def set_pages(self, row, first, pages):
        self.runtime.request_set_pages(row, 0, first, pages)

    def join(self, row, _position):
        self.runtime.standing_add(row, 1, tokens=LAST)

    def leave(self, row, _place):
        self.runtime.standing_remove(row)

    def launch(self, chunks):
        step = self.steps[0]
        self.steps.reverse()
        if chunks:
            self.runtime.prepare_wait(self.batch(chunks), self.stream, step=step)
        else:
            self.runtime.prepare(self.standing, step)
        step.launch(self.stream)
        return step

    def batch(self, chunks):
        """The standing batch and chunks, as a batch of its own; the standing one stays as it is."""
        standing = np.array(self.runtime.standing_rows(), np.int32)
        n, partial = len(standing), np.uint32(cgr.RequestFlag.PARTIAL)
        return cgr.Batch(
            rows=np.append(standing, np.array([chunk.row for chunk in chunks], np.int32)),
            query_lens=np.array([1] * n + [len(chunk.tokens) for chunk in chunks], np.int32),
            tokens=np.array(sum((chunk.tokens for chunk in chunks), [cgr.TOKEN_LAST] * n), np.int32),
            flags=np.array([0] * n + [partial * chunk.partial for chunk in chunks], np.uint32),
        )

    def wait(self, step):
        step.wait(-1, self.answer)

    def tokens(self, _step):
        return self.answer.tokens
