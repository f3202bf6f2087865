"""Steps by torch: eagerly, or decodes as torch.cuda.graph with static buffers and one packed pinned copy."""

import numpy as np
import paged
import torch
from scheduler import LAST, make_plan

RING = 2  # steps whose arrays the device may still read


class EagerRunner:
    def __init__(self, model, cache, limits, device):
        self.model, self.cache, self.limits, self.device = model, cache, limits, device
        self.on_gpu = device.type == "cuda"
        self.table = np.zeros((limits.max_requests + 1, limits.max_pages), np.int32)  # the last row is that of padding
        self.last = torch.zeros(limits.max_requests + 1, dtype=torch.int64, device=device)  # tokens, by row
        self.free = list(range(limits.max_requests))
        words = 4 * limits.max_tokens + limits.max_requests * (3 + limits.max_pages)
        self.packed = [torch.zeros(words, dtype=torch.int32, pin_memory=self.on_gpu) for _ in range(RING)]
        self.results = [torch.zeros(limits.max_requests, dtype=torch.int64, pin_memory=self.on_gpu) for _ in range(RING)]
        self.step = 0

    def open(self, _tag):
        return self.free.pop()

    def close(self, row):
        self.table[row] = 0
        self.free.append(row)

    def set_pages(self, row, first, pages):
        self.table[row, first : first + len(pages)] = pages

    def pack(self, plan, num_tokens, num_requests, width):
        """Writes what the device needs into one pinned buffer, padded to these counts. Returns the buffer's part."""
        self.step += 1
        packed = self.packed[self.step % RING]
        end = 4 * num_tokens + num_requests * (3 + width)
        words = packed.numpy()[:end]
        tokens = words[: 4 * num_tokens].reshape(4, num_tokens)
        requests = words[4 * num_tokens : 4 * num_tokens + 3 * num_requests].reshape(3, num_requests)
        table = words[4 * num_tokens + 3 * num_requests :].reshape(num_requests, width)
        n, t, size = len(plan.rows), len(plan.tokens), self.limits.page_size
        starts = np.cumsum(plan.query_lens) - plan.query_lens
        request = np.repeat(np.arange(n), plan.query_lens)
        rows, positions = plan.rows[request], np.arange(t) + (plan.computed - starts)[request]
        tokens[:, t:] = np.array([[0], [0], [size], [self.limits.max_requests]])  # padding: slot 0 of page 1
        tokens[0, :t], tokens[1, :t], tokens[3, :t] = plan.tokens, positions, rows
        tokens[2, :t] = self.table[rows, positions // size] * size + positions % size
        requests[:, n:] = np.array([[self.limits.max_requests], [1], [0]])
        requests[0, :n] = plan.rows
        requests[1, :n], requests[2, :n] = plan.computed + plan.query_lens, starts + plan.query_lens - 1
        table[:n], table[n:] = self.table[plan.rows, :width], 0
        return packed[:end]

    @torch.no_grad()
    def forward(self, words, num_tokens, num_requests, width, plan=None):
        """Enqueues the model over packed words on the device. Returns the next tokens; without a plan, of decodes."""
        given, positions, slots, token_rows = words[: 4 * num_tokens].view(4, num_tokens)
        rows, seq_lens, last = words[4 * num_tokens : 4 * num_tokens + 3 * num_requests].view(3, num_requests)
        table = words[4 * num_tokens + 3 * num_requests :].view(num_requests, width)
        ids = torch.where(given == LAST, self.last.index_select(0, token_rows), given)
        if plan is None:
            attend = paged.decode(self.cache, slots.long(), seq_lens, table)
        else:
            lengths = plan.computed + plan.query_lens
            attend = paged.mixed(self.cache, slots.long(), plan.query_lens.tolist(), lengths.tolist(), table)
        tokens = self.model(ids, positions, last, attend)
        self.last.index_copy_(0, rows.long(), tokens)
        return tokens

    def launch(self, plan):
        counts = len(plan.tokens), len(plan.rows), self.width(plan)
        words = self.pack(plan, *counts).to(self.device, non_blocking=True)
        return self.bring_back(plan, self.forward(words, *counts, None if plan.decodes else plan))

    def width(self, plan):
        return -(-int((plan.computed + plan.query_lens).max()) // self.limits.page_size)

    def bring_back(self, plan, tokens):
        result = self.results[self.step % RING][: len(plan.rows)]
        result.copy_(tokens[: len(plan.rows)], non_blocking=True)
        done = torch.cuda.Event() if self.on_gpu else None
        if done is not None:
            done.record()
        return result, done

    def result(self, ticket):
        result, done = ticket
        if done is not None:
            done.synchronize()
        return result.numpy()


class GraphRunner(EagerRunner):
    """Decodes replay a graph for their number of requests and pages, both rounded up. Other steps are eager."""

    def __init__(self, model, cache, limits, device):
        super().__init__(model, cache, limits, device)
        self.graphs, self.pool = {}, self.make_pool()
        self.words = torch.zeros_like(self.packed[0], device=device)
        self.sizes = sorted({min(n, limits.max_requests) for n in (1, 2, 4, *range(8, limits.max_requests + 8, 8))})
        self.widths = sorted({min(8 << i, limits.max_pages) for i in range(limits.max_pages.bit_length())})
        for size in reversed(self.sizes):
            for width in reversed(self.widths):
                self.graphs[size, width] = self.capture(size, width)

    def make_pool(self):
        if not self.on_gpu:
            raise SystemExit("--mode graph needs a GPU: torch.cuda.graph")
        return torch.cuda.graph_pool_handle()

    def send(self, plan, size, width):
        packed = self.pack(plan, size, size, width)
        return self.words[: len(packed)].copy_(packed, non_blocking=True)

    def capture(self, size, width):
        words = self.send(make_plan([]), size, width)  # padding alone
        self.forward(words, size, size, width)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            tokens = self.forward(words, size, size, width)
        return graph, tokens

    def launch(self, plan):
        if not plan.decodes:
            return super().launch(plan)
        size = next(n for n in self.sizes if n >= len(plan.rows))
        width = next(n for n in self.widths if n >= self.width(plan))
        self.send(plan, size, width)
        graph, tokens = self.graphs[size, width]
        graph.replay()
        return self.bring_back(plan, tokens)
