"""An engine in numpy for the host device: requests come and go, prompts come in chunks, pages are taken as tokens need them, and
when there are none the youngest request is preempted. docs/python.md shows parts of it; test_numpy_engine.py runs it.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

import cgr

VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, DIM = 50, 32, 2, 4, 2, 16
PAGE, REQUESTS, TOKENS, LENGTH = 16, 4, 24, 128


class Model:
    """Its `record` enqueues host functions and cgr's attention for the padded counts; they run later, and again in replays."""

    def __init__(self, device, num_pages, seed=3):
        rng, heads = np.random.default_rng(seed), HEADS + 2 * KV_HEADS
        self.device, self.buffers = device, None
        self.embed, self.head = (rng.normal(size=s).astype("f4") for s in ((VOCABULARY, HIDDEN), (HIDDEN, VOCABULARY)))
        self.w_qkv = rng.normal(0, 0.3, (LAYERS, HIDDEN, heads * DIM)).astype("f4")
        self.w_out = rng.normal(0, 0.3, (LAYERS, HEADS * DIM, HIDDEN)).astype("f4")
        self.x = np.zeros((TOKENS, HIDDEN), "f4")
        self.qkv = np.zeros((TOKENS, heads, DIM), "f4")
        self.out = np.zeros((TOKENS, HEADS, DIM), "f4")
        self.cache = np.zeros((LAYERS, num_pages, 2, PAGE, KV_HEADS, DIM), "f4")  # page 0 is read, never written: zeros
        self.layers = []
        for pages in self.cache:
            k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, pages, cgr.Dtype.FP32, PAGE, KV_HEADS, DIM)
            self.layers.append(cgr.Layer(num_q_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, k=k, v=v))

    # begin: views
    def attention(self, layer):
        """q, k and v are parts of one array, whose strides the views have, in elements."""
        strides = dict(dtype=cgr.Dtype.FP32, stride_token=(HEADS + 2 * KV_HEADS) * DIM, stride_head=DIM)
        parts = np.split(self.qkv, (HEADS, HEADS + KV_HEADS), axis=1)
        q, k, v = (cgr.View(data=part, **strides) for part in parts)
        return cgr.Attention(layer=layer, q=q, k=k, v=v, out=cgr.view_make(self.out, cgr.Dtype.FP32, HEADS, DIM))

    def record(self, recorder):
        info = recorder.info()  # num_tokens and num_requests are padded
        for layer in range(LAYERS):
            self.device.launch_host(self.before_attention, (layer, info.num_tokens), info.stream)
            recorder.attention(self.attention(layer))
            self.device.launch_host(self.after_attention, (layer, info.num_tokens), info.stream)
        self.device.launch_host(self.sample, (info.num_requests,), info.stream)

    # end

    def before_attention(self, layer, n):
        if layer == 0:
            self.x[:n] = self.embed[self.buffers["ids"][:n]]
        self.qkv[:n] = (self.x[:n] @ self.w_qkv[layer]).reshape(n, -1, DIM)

    def after_attention(self, layer, n):
        self.x[:n] = np.tanh(self.x[:n] + self.out[:n].reshape(n, -1) @ self.w_out[layer])

    def sample(self, n):
        self.buffers["next"][:n] = (self.x[self.buffers["last"][:n]] @ self.head).argmax(-1)


@dataclass
class Request:
    name: int
    tokens: list  # those that the host knows
    end: int  # how many there will be
    row: int = -1
    computed: int = 0  # in the cache after all launched steps
    now: int = 0  # new ones of this step
    pages: list = field(default_factory=list)


class Engine:
    def __init__(self, num_pages, **fields):
        self.device = cgr.Device("host", layer=True)  # the validation layer, for development
        self.stream = self.device.stream()
        self.model = Model(self.device, num_pages)
        self.runtime = cgr.Runtime(
            device=self.device, groups=[cgr.Group(num_pages=num_pages)], layers=self.model.layers, max_requests=REQUESTS,
            max_tokens=TOKENS, max_seq_len=LENGTH, **fields,
        )  # fmt: skip
        names = dict(ids=cgr.Buffer.INPUT_IDS, last=cgr.Buffer.LOGITS_INDICES, next=cgr.Buffer.NEXT_TOKENS)
        self.model.buffers = {name: self.runtime.buffer(buffer).array().numpy() for name, buffer in names.items()}
        self.runtime.warmup(self.model.record)
        self.runtime.capture(self.model.record)
        self.waiting, self.running, self.done = deque(), [], {}
        self.free, self.given_back = list(range(2, num_pages)), []  # pages 0 and 1 are cgr's
        self.steps = self.replays = self.preempted = 0

    def close(self):
        self.runtime.close()
        self.stream.close()
        self.device.close()

    # begin: pages
    def take_page(self):
        """None: there is none. One that was given back is free when the last step that used its row has completed."""
        completed = self.runtime.completed()
        self.free += [page for seq, page in self.given_back if seq <= completed]
        self.given_back = [(seq, page) for seq, page in self.given_back if seq > completed]
        return self.free.pop() if self.free else None

    def give_pages_back(self, request):
        self.runtime.request_set_length(request.row, 0)  # when it comes back, all its tokens are its prompt
        self.runtime.request_drop_pages(request.row, group=0, first=0, count=len(request.pages))
        last = self.runtime.request_info(request.row).last.seq
        self.given_back += [(last, page) for page in request.pages]
        request.pages, request.computed, request.now = [], 0, 0

    def make_room(self, request):
        """Pages for its new tokens. If there are none the youngest leaves, which may be the request itself."""
        while request in self.running and len(request.pages) * PAGE < request.computed + request.now:
            page = self.take_page()
            if page is None:
                youngest = self.running.pop()
                self.give_pages_back(youngest)
                self.waiting.appendleft(youngest)
                self.preempted += 1
            else:
                self.runtime.request_set_pages(request.row, group=0, first=len(request.pages), pages=[page])
                request.pages.append(page)

    # end

    # begin: step
    def step(self):
        while self.waiting and len(self.running) < REQUESTS:
            request = self.waiting.popleft()
            if request.row < 0:
                request.row = self.runtime.request_open(tag=request.name)
            self.running.append(request)
        budget = TOKENS - len(self.running)  # each has one token, prompts share the rest
        for request in list(self.running):
            request.now = min(len(request.tokens) - request.computed, 1 + budget)
            budget -= request.now - 1
            self.make_room(request)
        batch = cgr.Batch(
            rows=[r.row for r in self.running],
            query_lens=[r.now for r in self.running],
            tokens=[t for r in self.running for t in r.tokens[r.computed : r.computed + r.now]],
            flags=[cgr.RequestFlag.PARTIAL if r.computed + r.now < len(r.tokens) else 0 for r in self.running],
        )
        step = self.runtime.prepare(batch)
        step.launch(self.stream)
        result = step.wait()
        for i, request in enumerate(list(self.running)):
            request.computed += request.now
            if result.num_tokens[i] > 0:  # not a partial chunk
                request.tokens.append(result.tokens[i])
            if len(request.tokens) == request.end:
                self.finish(request)
        self.steps, self.replays = self.steps + 1, self.replays + (step.key.kind != cgr.GraphKind.NONE)

    # end

    def finish(self, request):
        self.running.remove(request)
        self.done[request.name] = request.tokens
        self.give_pages_back(request)
        self.runtime.request_close(request.row)

    def generate(self, prompts, counts):
        self.waiting += [Request(i, list(p), len(p) + n) for i, (p, n) in enumerate(zip(prompts, counts))]
        while self.waiting or self.running:
            self.step()
        return [self.done[i] for i in range(len(prompts))]


if __name__ == "__main__":
    engine = Engine(num_pages=10)
    for tokens in engine.generate([[1, 2, 3], [4] * 30, [5, 6], [7] * 50, [8], [9] * 20], [30, 20, 40, 10, 35, 25]):
        print(*tokens)
    print(f"{engine.steps} steps, {engine.replays} replays, {engine.preempted} preempted")
