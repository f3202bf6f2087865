import sys

import numpy as np
import torch
from torch.nn.functional import rms_norm, silu

import cgr
import cgr.torch

VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, DIM = 64, 64, 2, 4, 2, 16
PAGE, PAGES, REQUESTS, TOKENS, LENGTH = 16, 64, 8, 64, 128


def rotate(x, positions):  # [tokens, heads, DIM]
    angle = positions[:, None, None] * 10000 ** (torch.arange(0, DIM, 2, device=x.device) / -DIM)
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1).to(x.dtype)


class Layer(torch.nn.Module):
    def __init__(self, index):
        super().__init__()
        self.qkv = torch.nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * DIM, bias=False)
        self.out = torch.nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.up, self.gate, self.down = (torch.nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(3))
        self.attention = cgr.torch.Attention(index)  # appends k and v to the cache, and attends

    def forward(self, x, positions):
        q, k, v = self.qkv(rms_norm(x, (HIDDEN,))).view(-1, HEADS + 2 * KV_HEADS, DIM).split((HEADS, KV_HEADS, KV_HEADS), 1)
        x = x + self.out(self.attention(rotate(q, positions), rotate(k, positions), v).flatten(1))
        y = rms_norm(x, (HIDDEN,))
        return x + self.down(silu(self.gate(y)) * self.up(y))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer(i) for i in range(LAYERS))
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, step):  # tensors of cgr's buffers, up to the padded counts
        x = self.embed(step.input_ids)
        for layer in self.layers:
            x = layer(x, step.positions)
        logits = self.head(rms_norm(x.index_select(0, step.logits_indices), (HIDDEN,)))
        step.next_tokens.copy_(logits.argmax(-1))


class Engine:
    def __init__(self, device):
        self.device = cgr.Device(device)
        self.stream = self.device.stream()
        self.model = Model()
        record = cgr.torch.Record(self.device, self.model)
        dtype = torch.float32 if record.on_host else torch.bfloat16
        self.model.to(record.torch_device, dtype)
        self.cache = torch.zeros(LAYERS, PAGES, 2, PAGE, KV_HEADS, DIM, dtype=dtype, device=record.torch_device)
        layers = []
        for pages in self.cache:
            k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, pages, cgr.torch.dtype_of(dtype), PAGE, KV_HEADS, DIM)
            layers.append(cgr.Layer(num_q_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=DIM, k=k, v=v))
        limits = dict(max_requests=REQUESTS, max_tokens=TOKENS, max_seq_len=LENGTH)
        self.runtime = cgr.Runtime(device=self.device, groups=[cgr.Group(num_pages=PAGES)], layers=layers, **limits)
        self.free = list(range(2, PAGES))  # pages 0 and 1 are cgr's
        record.capture(self.runtime)

    def generate(self, prompts, count):
        rows = np.array([self.runtime.request_open(i) for i in range(len(prompts))], np.int32)
        pages = [[self.free.pop() for _ in range(-(-(len(p) + count) // PAGE))] for p in prompts]
        for row, own in zip(rows, pages):
            self.runtime.request_set_pages(row, group=0, first=0, pages=own)
        batch = cgr.Batch(rows=rows, query_lens=[len(p) for p in prompts], tokens=sum(prompts, []))
        tokens, before = [], None
        for _ in range(count):
            step = self.runtime.prepare(batch)
            step.launch(self.stream)
            batch.query_lens = batch.tokens = None  # from now on one token each, which is on the device
            if before is not None:
                tokens.append(before.wait().tokens.tolist())  # while this step runs
            before = step
        tokens.append(before.wait().tokens.tolist())
        for row, own in zip(rows, pages):
            self.runtime.request_close(row)
            self.free += own
        return [list(t) for t in zip(*tokens)]


if __name__ == "__main__":
    torch.manual_seed(7)
    for answer in Engine(sys.argv[1]).generate([[1, 2, 3], [4, 5], [6] * 20], count=12):
        print(*answer)
