"""Steps of random batches, replayed from graphs that plan on the device, against the same library with its own plan for each batch.

    python compare.py flashinfer|flashinfer-decode|fa3 [--device cuda:0] [--steps 60] [--seed 1] [--window 300] [--softcap 20] [--mode PIECEWISE]

"equal" counts steps in which all bits of out and lse are those of the library's own plan. Where the library cannot be given the
graph's padded batch it plans for the real requests alone, splits otherwise, and rounds otherwise: these steps are counted apart.
"""

import argparse
import random
import statistics
import time

import torch

import cgr
import cgr.torch

LAYERS, Q_HEADS, KV_HEADS, DIM, PAGE, PAGES = 2, 32, 8, 128, 16, 4096
REQUESTS, TOKENS, LENGTH = 16, 512, 4096


class Engine:
    """Attention alone: the q, k and v of token i of a step are the same in each. What a step computes is in `out` and `lse`."""

    def __init__(self, device, make, window=0, softcap=0.0, dtype=torch.bfloat16, **fields):
        self.window, self.softcap = window, softcap
        self.device = cgr.Device(device)
        self.stream = self.device.stream()
        self.record = cgr.torch.Record(self.device, self.forward)
        on = dict(device=self.record.torch_device)
        self.cache = torch.randn(LAYERS, 2, PAGES, PAGE, KV_HEADS, DIM, **on).to(dtype)
        self.q = torch.randn(LAYERS, TOKENS, Q_HEADS, DIM, **on).to(dtype)
        self.kv = torch.randn(2, LAYERS, TOKENS, KV_HEADS, DIM, **on).to(dtype)
        self.out, self.lse = torch.empty_like(self.q), torch.empty(LAYERS, TOKENS, Q_HEADS, **on)
        layers = []
        for part in self.cache:
            k, v = (cgr.kv_view_make(cgr.KvLayout.NHD, half, cgr.torch.dtype_of(dtype), PAGE, KV_HEADS, DIM) for half in part)
            heads = dict(num_q_heads=Q_HEADS, num_kv_heads=KV_HEADS, head_dim=DIM)
            layers.append(cgr.Layer(k=k, v=v, backend=1, window_left=window, softcap=softcap, **heads))
        group = cgr.Group(num_pages=PAGES, page_size=PAGE)
        self.backend = make(self.record, group, layers, 1, [tuple(part) for part in self.cache])
        limits = dict(max_requests=REQUESTS, max_tokens=TOKENS, max_seq_len=LENGTH, decode_buckets=[4, REQUESTS])
        limits["mixed_buckets"] = [cgr.Bucket(num_tokens=tokens, num_requests=REQUESTS) for tokens in (64, TOKENS)]
        self.runtime = cgr.Runtime(
            device=self.device, groups=[group], layers=layers, backends=[self.backend.backend], **(limits | fields)
        )  # fmt: skip
        self.record.capture(self.runtime)
        free = random.sample(range(2, PAGES), PAGES - 2)
        self.rows = [self.runtime.request_open(i) for i in range(REQUESTS)]
        self.pages = {row: [free.pop() for _ in range(PAGES // REQUESTS - 1)] for row in self.rows}
        for row, pages in self.pages.items():
            self.runtime.request_set_pages(row, group=0, first=0, pages=pages)
        self.lens = dict.fromkeys(self.rows, 0)

    def forward(self, step):
        n = step.num_tokens
        for i in range(LAYERS):
            k, v = self.kv[:, i, :n]
            self.out[i, :n].copy_(cgr.torch.attention(i, self.q[i, :n], k, v, lse=self.lse[i, :n]))
        step.next_tokens.zero_()

    def step(self, rows, query_lens):
        begin = time.perf_counter()
        step = self.runtime.prepare(cgr.Batch(rows=rows, query_lens=query_lens, tokens=[1] * sum(query_lens)))
        step.launch(self.stream)
        launched = time.perf_counter()
        step.wait()
        self.stream.synchronize()
        for row, count in zip(rows, query_lens):
            self.lens[row] += count
        return step.key, 1e6 * (launched - begin)

    def random_batch(self, rng):
        """Chunks of prompts until requests are long, then decodes and both together; now and then a request begins anew."""
        for row in self.rows:
            if self.lens[row] > LENGTH - TOKENS - 2 * PAGE or rng.random() < 0.01:
                self.runtime.request_set_length(row, 0)
                self.lens[row] = 0
        rows = rng.sample(self.rows, rng.choice((1, 3, 4, 7, REQUESTS, REQUESTS)))
        if rng.random() < 0.4:
            return rows, [1] * len(rows)
        most = TOKENS // len(rows) if rng.random() < 0.8 else 3
        return rows, [rng.choice((1, rng.randint(1, most))) for _ in rows]


class Pages:
    """A batch as these libraries take it, on the host, for `count` requests of which the last ones may be padding."""

    def __init__(self, engine, rows, query_lens, count):
        lens = [engine.lens[row] for row in rows]
        counts = [-(-length // PAGE) for length in lens]
        padding = [0] * (count - len(rows))
        self.starts = self.sums(query_lens + padding)
        self.indptr = self.sums(counts + padding)
        self.indices = torch.tensor(sum((engine.pages[row][:n] for row, n in zip(rows, counts)), []), dtype=torch.int32)
        self.last = torch.tensor([(length - 1) % PAGE + 1 for length in lens] + padding, dtype=torch.int32)
        self.lens = torch.tensor(lens + padding, dtype=torch.int32)
        self.table = torch.zeros(count, LENGTH // PAGE, dtype=torch.int32)
        for i, (row, n) in enumerate(zip(rows, counts)):
            self.table[i, :n] = torch.tensor(engine.pages[row][:n], dtype=torch.int32)

    @staticmethod
    def sums(counts):
        return torch.nn.functional.pad(torch.tensor(counts).cumsum(0), (1, 0)).to(torch.int32)


# --------------------------------------------------------------------------------------------------------- their own plans


class OwnFlashInfer:
    """Wrappers like the backend's, which plan for themselves."""

    def __init__(self, engine):
        self.engine, self.backend, self.wrappers = engine, engine.backend, {}
        self.floats = torch.empty(512 << 20, dtype=torch.uint8, device=engine.record.torch_device)

    def wrapper(self, decode, count, tokens, uniform):
        key = (decode, count, tokens, uniform)
        if key not in self.wrappers:
            make = self.backend.decode_wrapper if decode else self.backend.prefill_wrapper
            more = () if decode else (tokens, uniform)
            self.wrappers[key] = make(self.floats, count, *more)[0]
        return self.wrappers[key]

    def attend(self, key, rows, query_lens):
        """[(out, lse)] of the layers, and whether the plan is for the same key."""
        full, tokens = len(rows) == key.num_requests, sum(query_lens)
        uniform = self.backend.uniform(key)
        decode = self.backend.decodes(key)
        same = full or not (uniform or decode)
        pages = Pages(self.engine, rows, query_lens, key.num_requests if same else len(rows))
        wrapper = self.wrapper(decode, len(pages.lens), key.num_tokens if same else tokens, uniform)
        arrays = (pages.indptr, pages.indices, pages.last) if decode else (pages.starts, pages.indptr, pages.indices, pages.last)
        self.widen(wrapper)
        more = {} if decode else dict(causal=True) | (dict(uniform_q_len=1) if uniform else {})
        begin = time.perf_counter()
        wrapper.plan(*arrays, Q_HEADS, KV_HEADS, DIM, PAGE, **more, **self.backend.types())
        self.us = 1e6 * (time.perf_counter() - begin)
        e = self.engine
        found = [wrapper.run(e.q[i, :tokens], tuple(e.cache[i]), return_lse=True) for i in range(LAYERS)]
        return [(out, lse * 0.6931471805599453) for out, lse in found], same

    def widen(self, wrapper):
        """It was made for a page of each request."""
        if len(wrapper._paged_kv_indices_buf) < PAGES:
            wrapper._paged_kv_indices_buf = torch.zeros(PAGES, dtype=torch.int32, device=self.floats.device)


class OwnFlashAttention3:
    def __init__(self, engine):
        self.engine, self.backend = engine, engine.backend
        self.window = (engine.window - 1, 0) if engine.window else (-1, -1)

    def attend(self, key, rows, query_lens):
        from flash_attn_interface import flash_attn_with_kvcache, get_scheduler_metadata

        e, count, tokens = self.engine, key.num_requests, sum(query_lens)
        device = e.record.torch_device
        pages = Pages(e, rows, query_lens, count)
        starts, lens, table = (t.to(device) for t in (pages.starts, pages.lens, pages.table))
        query_len = key.query_len or key.num_tokens
        splits = self.backend.input(count, key.num_tokens, query_len).num_splits
        begin = time.perf_counter()
        metadata = get_scheduler_metadata(
            count, query_len, LENGTH, Q_HEADS, KV_HEADS, DIM, lens, e.q.dtype, cu_seqlens_q=starts, page_size=PAGE, causal=True,
            num_splits=splits, window_size=self.window, has_softcap=e.softcap > 0,
        )  # fmt: skip
        self.us = 1e6 * (time.perf_counter() - begin)
        found = []
        for i in range(LAYERS):
            q = torch.zeros(key.num_tokens, Q_HEADS, DIM, dtype=e.q.dtype, device=device)
            q[:tokens] = e.q[i, :tokens]
            out, lse, *_ = flash_attn_with_kvcache(
                q, *e.cache[i], cache_seqlens=lens, page_table=table, cu_seqlens_q=starts, max_seqlen_q=query_len, causal=True,
                scheduler_metadata=metadata, num_splits=splits, return_softmax_lse=True, window_size=self.window, softcap=e.softcap,
            )  # fmt: skip
            found.append((out[:tokens], lse.t()[:tokens]))
        return found, True


# ------------------------------------------------------------------------------------------------------------ the comparison


def reference(engine, layer, rows, query_lens, request):
    """out of one request in fp32."""
    first, count, length = sum(query_lens[:request]), query_lens[request], engine.lens[rows[request]]
    pages = torch.tensor(engine.pages[rows[request]], device=engine.q.device)
    k, v = (engine.cache[layer, side, pages].flatten(0, 1)[:length].float().repeat_interleave(Q_HEADS // KV_HEADS, 1) for side in (0, 1))
    scores = torch.einsum("qhd,thd->hqt", engine.q[layer, first : first + count].float(), k) / DIM**0.5
    if engine.softcap:
        scores = engine.softcap * torch.tanh(scores / engine.softcap)
    behind = torch.arange(length - count, length, device=k.device)[:, None] - torch.arange(length, device=k.device)
    hidden = (behind < 0) | (behind >= (engine.window or length))
    return torch.einsum("hqt,thd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


class Counts:
    """Of the steps of one kind."""

    def __init__(self):
        self.steps = self.equal = 0
        self.out = self.lse = 0.0
        self.mine, self.theirs = [], []  # the host's time

    def add(self, pairs, mine, theirs):
        self.steps += 1
        self.mine.append(mine), self.theirs.append(theirs)
        self.equal += all(torch.equal(mine, theirs) for mine, theirs in pairs)
        for i, (mine, theirs) in enumerate(pairs):
            name = "lse" if i % 2 else "out"
            worst = (mine.float() - theirs.float()).abs().max().nan_to_num(torch.inf).item()
            setattr(self, name, max(getattr(self, name), worst))

    def __str__(self):
        times = (
            f"{statistics.median(self.mine):.1f} us to prepare and launch, {statistics.median(self.theirs):.1f} us for its own plan alone"
        )
        return f"{self.steps} steps, {self.equal} equal, max |difference| of out {self.out:.3g}, of lse {self.lse:.3g}; {times}"


def run(engine, own, steps, seed):
    rng, counts, away = random.Random(seed), {}, 0.0
    for _ in range(steps):
        rows, query_lens = engine.random_batch(rng)
        engine.out.fill_(torch.nan), engine.lse.fill_(torch.nan)
        wait(engine)
        key, us = engine.step(rows, query_lens)
        found, same = own.attend(key, rows, query_lens)
        n, padded = sum(query_lens), key.num_tokens
        pairs = [pair for i in range(LAYERS) for pair in ((engine.out[i, :n], found[i][0]), (engine.lse[i, :n], found[i][1]))]
        name = f"{cgr.graph_kind_name(key.kind)}, query_len {key.query_len}" + ("" if same else ", padded")
        counts.setdefault(name, Counts()).add(pairs, us, own.us)
        if not (engine.out[:, n:padded] == 0).all() or not (engine.lse[:, n:padded] == -torch.inf).all():
            raise SystemExit(f"padded rows of {name} are not empty")
        first, request = sum(query_lens[: len(rows) - 1]), len(rows) - 1
        wanted = reference(engine, LAYERS - 1, rows, query_lens, request)
        got = engine.out[LAYERS - 1, first:n].float()
        away = max(away, ((got - wanted).norm() / wanted.norm()).item())
    if getattr(engine.backend, "status", torch.zeros(1)).item() != cgr.Status.OK:
        raise SystemExit("the planner refused lengths")
    return counts, away


def wait(engine):
    if not engine.record.on_host:
        torch.cuda.synchronize()


def make_flashinfer(cuda_cores):
    from flashinfer_backend import FlashInfer

    return lambda *args: FlashInfer(*args, max_tokens=TOKENS, max_requests=REQUESTS, cuda_cores=cuda_cores)


def make_fa3():
    from fa3_backend import FlashAttention3

    return lambda *args: FlashAttention3(*args, max_requests=REQUESTS, max_seq_len=LENGTH)


KINDS = {
    "flashinfer": (lambda: make_flashinfer(False), OwnFlashInfer),
    "flashinfer-decode": (lambda: make_flashinfer(True), OwnFlashInfer),
    "fa3": (make_fa3, OwnFlashAttention3),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--window", type=int, default=0, help="keys that a query sees (default: all)")
    parser.add_argument("--softcap", type=float, default=0.0)
    parser.add_argument("--mode", choices=[mode.name for mode in cgr.GraphMode], default="DEFAULT")
    options = parser.parse_args()
    random.seed(options.seed), torch.manual_seed(options.seed)
    make, own = KINDS[options.kind]
    engine = Engine(options.device, make(), options.window, options.softcap, graph_mode=cgr.GraphMode[options.mode])
    counts, away = run(engine, own(engine), options.steps, options.seed)
    for name, found in sorted(counts.items()):
        print(f"{options.kind}: {name}: {found}")
    print(f"{options.kind}: from fp32 by {100 * away:.3f}% at most")
    engine.runtime.close()


if __name__ == "__main__":
    main()
