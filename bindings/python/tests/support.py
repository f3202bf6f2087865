"""A small engine on the host device, as the tests use it."""

import os

import cgr

ROOT = os.environ.get("CGR_ROOT") or os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
PAGE = 16


class Closes:
    """Ends a runtime, then what it uses, and the device last."""

    memory = {}

    def close(self):
        self.runtime.close()
        for memory in self.memory.values():
            memory.close()
        self.stream.close()
        self.device.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Engine(Closes):
    """Its next token is the last one plus 1. With `layer`, one layer of cgr's attention runs over zeros."""

    def __init__(self, requests=8, tokens=64, length=128, rows=0, layer=False, call=False, schedule=0, capture=True, backend=0,
                 **fields):
        self.device = cgr.Device("host", host_schedule=schedule)
        self.stream = self.device.stream()
        self.call, self.raises, self.recorded = call, None, []
        self.layers, self.memory = [], {}
        self.rows, self.mode = rows or requests, fields.get("graph_mode", cgr.GraphMode.FULL_AND_PIECEWISE)
        rows = self.rows
        num_pages = 2 + rows * (length // PAGE)
        if layer:
            self.make_layer(tokens, num_pages, backend)
        self.runtime = cgr.Runtime(
            device=self.device,
            groups=[cgr.Group(num_pages=num_pages)],
            layers=self.layers,
            max_requests=requests,
            max_rows=rows,
            max_tokens=tokens,
            max_seq_len=length,
            **fields,
        )
        self.ids = self.runtime.buffer(cgr.Buffer.INPUT_IDS).array().numpy()
        self.last = self.runtime.buffer(cgr.Buffer.LOGITS_INDICES).array().numpy()
        self.next = self.runtime.buffer(cgr.Buffer.NEXT_TOKENS).array().numpy()
        self.pages = iter(range(2, num_pages))
        if capture:
            self.runtime.capture(self.record)

    def make_layer(self, tokens, num_pages, backend):
        size = tokens * 16 * 4
        self.memory = {name: self.device.alloc(size) for name in "qkvo"}
        self.memory["cache"] = self.device.alloc(num_pages * 2 * PAGE * 16 * 4)
        for memory in self.memory.values():
            self.device.fill(memory, 0, memory.bytes, self.stream)
        self.stream.synchronize()
        k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, self.memory["cache"], cgr.Dtype.FP32, PAGE, 1, 16)
        self.layers = [cgr.Layer(num_q_heads=1, num_kv_heads=1, head_dim=16, k=k, v=v, backend=backend)]

    def record(self, recorder):
        if self.raises is not None:
            raise self.raises
        info = recorder.info()
        self.recorded.append((info.key.kind, bool(info.capturing)))
        if self.layers:
            views = [cgr.view_make(self.memory[name], cgr.Dtype.FP32, 1, 16) for name in "qkvo"]
            recorder.attention(cgr.Attention(q=views[0], k=views[1], v=views[2], out=views[3]))
        if self.call:
            recorder.call(self.enqueue_sampler)
        else:
            self.enqueue_sampler(recorder)

    def enqueue_sampler(self, recorder):
        info = recorder.info()
        self.device.launch_host(self.sample, (info.num_requests,), info.stream)

    def sample(self, count):
        self.next[:count] = self.ids[self.last[:count]] + 1

    def open(self, tag, pages=1):
        row = self.runtime.request_open(tag)
        self.runtime.request_set_pages(row, 0, 0, [next(self.pages) for _ in range(pages)])
        return row

    def step(self, batch):
        step = self.runtime.prepare(batch)
        step.launch(self.stream)
        return step, step.wait()
