"""What FlashInfer's decode attention takes for one layer on this GPU, next to the floor that the KV bytes set.

    python3 profiles/peers/flashinfer_attention.py [--read-tbps 4.56] [--cases 'bs8']

Cases and timing are those of "alone" in profiles/attention_cost.c: one layer's attention many times in CUDA graphs, 20 ms of
them in each of 20 samples, the median. Each call reads the same KV, of which less than about 50 MB stays in L2. Pages are NHD.

TC, graph: BatchDecodeWithPagedKVCacheWrapper on tensor cores, planned as for a graph that later steps replay with other lengths.
TC, once: the same, planned for these lengths alone. HOL: BatchAttention, the persistent kernel. Planning is not in the time.

The floor is the bytes of K and V over --read-tbps, the bandwidth of a plain streaming read on the same GPU, which attention_cost
prints. The error is the largest of the columns whose results are right: of a head of the first or the last request, the length of the
difference to the reference in fp32 over that of the head. A wrong result is told next to its time, which then says nothing; HOL's is
to be expected at bs256 len32k, where K and V have more elements than its 32-bit offsets reach. Needs FlashInfer 0.7 or later.
"""

import argparse
import collections
import math
import statistics
import subprocess


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read-tbps", type=float, default=4.56, help="what a plain streaming read reaches (default: %(default)s)")
    parser.add_argument("--cases", default="", metavar="PART", help="only cases with this in their names")
    return parser.parse_args()


OPTIONS = parse_options()  # now, for --help needs neither of these

import flashinfer  # noqa: E402
import torch  # noqa: E402

Q_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE = 32, 8, 128, 16
DTYPE, DEVICE = torch.bfloat16, "cuda"
TYPES, TOKEN_BYTES = {"q_data_type": DTYPE, "kv_data_type": DTYPE}, 2 * KV_HEADS * HEAD_DIM * DTYPE.itemsize
GRAPH_US, SAMPLES, MOST_ERROR = 20000.0, 20, 0.02

# `lengths`: KV tokens of each request, the new ones among them; `queries`: new tokens of each request, causal.
Case = collections.namedtuple("Case", "name lengths queries", defaults=[1])


def skewed_lengths():
    """Quantiles of a log-normal distribution with median 1200 and sigma 1.1, shuffled: those of attention_cost."""
    normal = statistics.NormalDist()
    lengths = (1200.0 * math.exp(1.1 * normal.inv_cdf((i * 37 % 128 + 0.5) / 128.0)) for i in range(128))
    return [int(min(max(length, 16.0), 32000.0)) for length in lengths]


def all_cases():
    yield from (Case(f"decode bs{n} len{k}k", [k * 1024] * n) for n in (1, 8, 64, 256) for k in (1, 8, 32))
    yield Case("decode bs128 skewed (log-normal)", skewed_lengths())
    yield Case("spec decode, 4 queries each, bs64 len4k", [4096] * 64, queries=4)


class Batch:
    """A case's tensors: random queries, random KV, and a page table in shuffled order."""

    def __init__(self, case):
        self.case = case
        pages = torch.tensor([-(-length // PAGE_SIZE) for length in case.lengths], dtype=torch.int32)
        self.indptr_host = torch.nn.functional.pad(pages.cumsum(0, dtype=torch.int32), (1, 0))
        self.indptr, num_pages = self.indptr_host.to(DEVICE), int(self.indptr_host[-1])
        self.indices = torch.randperm(num_pages, device=DEVICE).to(torch.int32)
        self.lengths = torch.tensor(case.lengths, dtype=torch.int32, device=DEVICE)
        self.last_page_len = (self.lengths - 1) % PAGE_SIZE + 1
        tokens = len(case.lengths) * case.queries
        self.query_start = torch.arange(0, tokens + 1, case.queries, dtype=torch.int32, device=DEVICE)
        self.cache = torch.empty(num_pages, 2, PAGE_SIZE, KV_HEADS, HEAD_DIM, dtype=DTYPE, device=DEVICE).uniform_(-1, 1)
        self.q = torch.randn(tokens, Q_HEADS, HEAD_DIM, device=DEVICE).to(DTYPE)
        self.out = torch.empty_like(self.q)
        self.lse = torch.empty(tokens, Q_HEADS, dtype=torch.float32, device=DEVICE)

    def reference(self, request):
        pages = self.indices[self.indptr_host[request] : self.indptr_host[request + 1]]
        length, queries = self.case.lengths[request], self.case.queries
        k, v = (self.cache[pages, side].flatten(0, 1)[:length].float() for side in (0, 1))
        q = self.q.view(-1, queries, KV_HEADS, Q_HEADS // KV_HEADS, HEAD_DIM)[request].float()
        scores = torch.einsum("qhgd,thd->hgqt", q, k) / math.sqrt(HEAD_DIM)
        hidden = torch.ones(queries, length, dtype=torch.bool, device=DEVICE).triu(length - queries + 1)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        return torch.einsum("hgqt,thd->qhgd", weights, v).reshape(queries, Q_HEADS, HEAD_DIM)

    def error(self):
        requests = [0, len(self.case.lengths) - 1]
        want = torch.stack([self.reference(request) for request in requests])
        got = self.out.view(-1, self.case.queries, Q_HEADS, HEAD_DIM)[requests].float()
        return ((got - want).norm(dim=-1) / want.norm(dim=-1)).nan_to_num(math.inf).max().item()


def tensor_cores(batch, for_graphs):
    pages = {"indptr": batch.indptr, "indices": batch.indices, "last_page_len": batch.last_page_len}
    options = {f"paged_kv_{name}_buffer": values.clone() for name, values in pages.items()} if for_graphs else {}
    workspace = torch.empty(512 << 20, dtype=torch.uint8, device=DEVICE)
    options.update(use_cuda_graph=for_graphs, use_tensor_cores=True)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", **options)
    wrapper.plan(*pages.values(), Q_HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE, **TYPES, q_len_per_req=batch.case.queries)
    return lambda: wrapper.run(batch.q, batch.cache, out=batch.out)


def holistic(batch):
    wrapper = flashinfer.BatchAttention("NHD", DEVICE)
    pages, sizes = (batch.indptr, batch.indices, batch.lengths), (Q_HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM, PAGE_SIZE)
    wrapper.plan(batch.query_start, *pages, *sizes, causal=batch.case.queries > 1, **TYPES)
    return lambda: wrapper.run(batch.q, batch.cache, out=batch.out, lse=batch.lse)


PEERS = {"TC, graph": lambda b: tensor_cores(b, True), "TC, once": lambda b: tensor_cores(b, False), "HOL": holistic}


def replay_us(graph, times):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def measure_us(batch, run, floor_us):
    """Of one call. The output that is left in the batch is the graph's."""
    calls = min(max(int(GRAPH_US / floor_us), 4), 100)
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    batch.out.fill_(math.nan)
    replay_us(graph, 1)
    replays = min(max(int(GRAPH_US / replay_us(graph, 1)), 1), 40)
    replay_us(graph, replays)
    return statistics.median_high(replay_us(graph, replays) / replays / calls for _ in range(SAMPLES))


def measure_peer(batch, plan, floor_us):
    try:
        us, error = measure_us(batch, plan(batch), floor_us), batch.error()
    except Exception as failure:  # the others go on, unless the GPU is lost to all of them
        return f"failed: {(str(failure) or type(failure).__name__).splitlines()[0]}", None
    return (f"{us:.1f}", error) if error <= MOST_ERROR else (f"wrong by {100 * error:.1f}% ({us:.1f})", None)


def print_case(case, tbps):
    floor_us, batch = sum(case.lengths) * TOKEN_BYTES / tbps * 1e-6, Batch(case)
    times, errors = zip(*(measure_peer(batch, plan, floor_us) for plan in PEERS.values()))
    right = [error for error in errors if error is not None]
    columns = [case.name, f"{floor_us:.1f}", *times, f"{100 * max(right):.3f}%" if right else "-"]
    print(f"| {' | '.join(columns)} |", flush=True)


def main():
    driver = subprocess.getoutput("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split("\n")[0]
    print(f"# program: profiles/peers/flashinfer_attention.py\n# device: {torch.cuda.get_device_name()}\n# driver: {driver}\n"
          f"# library: flashinfer {flashinfer.__version__}, torch {torch.__version__}\n"
          f"# streaming read: {OPTIONS.read_tbps:.2f} TB/s, as given\n")
    print(f"| case | floor us | {' us | '.join(PEERS)} us | error |\n|---|---:|{'---:|' * len(PEERS)}---:|")
    for case in all_cases():
        if OPTIONS.cases in case.name:
            print_case(case, OPTIONS.read_tbps)


if __name__ == "__main__":
    main()
