"""Steps by torch: eagerly, or decodes as torch.cuda.graph with static buffers and one packed pinned copy."""

import numpy as np
import paged
import torch

RING = 2  # steps whose arrays the device may still read
LAST = -1  # the token that the row's last step made, which is on the device
ROW, POSITION, PAGES = 0, 1, 2  # columns of what a step knows of a request


class EagerRunner:
    def __init__(self, model, cache, limits, device):
        self.model, self.cache, self.limits, self.device = model, cache, limits, device
        self.on_gpu = device.type == "cuda"
        padding = [limits.max_requests, 0] + [1] * limits.max_pages  # writes to page 1
        self.rows = np.array([padding] * limits.max_requests, np.int32)  # requests, by row
        self.standing = self.rows.copy()  # those that decode, by place, for the next step
        self.places = {}  # by row
        self.n = 0
        self.free = list(range(limits.max_requests))
        self.last = torch.zeros(limits.max_requests + 1, dtype=torch.int64, device=device)  # by row, then padding's
        words = self.rows.size + 3 * limits.max_tokens + limits.max_requests
        self.words = torch.zeros(words, dtype=torch.int32, device=device)
        self.packed = [torch.zeros(words, dtype=torch.int32, pin_memory=self.on_gpu) for _ in range(RING)]
        self.results = [torch.zeros(limits.max_requests, dtype=torch.int32, pin_memory=self.on_gpu) for _ in range(RING)]
        if self.on_gpu:
            self.stream, self.events = torch.cuda.current_stream(device), [torch.cuda.Event() for _ in range(RING)]
        self.turn = 0

    def open(self, _tag, pages):
        row = self.free.pop()
        self.rows[row, ROW] = row
        self.rows[row, PAGES : PAGES + len(pages)] = pages
        return row

    def close(self, row):
        self.free.append(row)

    def set_pages(self, row, first, pages):
        self.standing[self.places[row], PAGES + first : PAGES + first + len(pages)] = pages

    def join(self, row, position):
        self.places[row] = self.n
        self.standing[self.n] = self.rows[row]
        self.standing[self.n, POSITION] = position
        self.n += 1

    def leave(self, row, place):
        self.n -= 1
        self.standing[place] = self.standing[self.n]
        self.places[int(self.standing[place, ROW])] = place
        del self.places[row]
        self.standing[self.n, :PAGES], self.standing[self.n, PAGES:] = (self.limits.max_requests, 0), 1

    def launch(self, chunks):
        self.turn = (self.turn + 1) % RING
        ticket = self.mix(chunks) if chunks else self.decode(self.n, PAGES + self.width())
        if self.on_gpu:
            self.events[self.turn].record(self.stream)
        self.standing[: self.n, POSITION] += 1
        return ticket

    def width(self):
        """Pages of the longest request that decodes."""
        return 1 + int(self.standing[: self.n, POSITION].max(initial=0)) // self.limits.page_size

    def decode(self, n, width):
        """A step of decodes: one copy to the device, the model, one copy back."""
        self.pack(n, width)
        requests = self.words[: n * width].copy_(self.packed[self.turn][: n * width], non_blocking=True)
        self.results[self.turn][:n].copy_(self.forward(requests.view(n, width)), non_blocking=True)
        return self.turn, n

    def pack(self, n, width):
        self.packed[self.turn].numpy()[: n * width].reshape(n, width)[:] = self.standing[:n, :width]

    def mix(self, chunks):
        """A step of decodes, then chunks."""
        n, counts = self.n, [1] * self.n + [len(chunk.tokens) for chunk in chunks]
        requests = np.concatenate((self.standing[:n], self.rows[[chunk.row for chunk in chunks]]))
        requests[n:, POSITION] = [chunk.start for chunk in chunks]
        request, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
        positions = (requests[:, POSITION] - ends + counts)[request] + np.arange(len(request))
        requests = requests[:, : PAGES + 1 + positions.max() // self.limits.page_size]
        given = sum((chunk.tokens for chunk in chunks), [LAST] * n)
        words = np.concatenate((requests.ravel(), request, positions, given, ends - 1))
        self.packed[self.turn].numpy()[: len(words)] = words
        words = self.words[: len(words)].copy_(self.packed[self.turn][: len(words)], non_blocking=True)
        requests, tokens, last = words.split((requests.size, 3 * len(request), len(counts)))
        lengths = [(chunk.start, chunk.start + len(chunk.tokens)) for chunk in chunks]
        tokens = self.forward(requests.view(len(counts), -1), tokens.view(3, -1), last, lengths)
        self.results[self.turn][: len(counts)].copy_(tokens, non_blocking=True)
        return self.turn, len(counts)

    def result(self, ticket):
        turn, n = ticket
        if self.on_gpu:
            self.events[turn].synchronize()
        return memoryview(self.results[turn].numpy())[:n]

    @torch.no_grad()
    def forward(self, requests, tokens=None, last=None, lengths=()):
        """Enqueues the model over packed words on the device, of decodes alone without `tokens`. Returns the next tokens."""
        rows, table, size = requests[:, ROW], requests[:, PAGES:], self.limits.page_size
        if tokens is None:
            ids, positions = self.last.index_select(0, rows), requests[:, POSITION]
            pages, last = table.gather(1, (positions // size).long()[:, None])[:, 0], torch.arange(len(rows), device=self.device)
        else:
            request, positions, given = tokens
            ids = torch.where(given == LAST, self.last.index_select(0, rows.index_select(0, request)), given)
            pages = table[request, positions // size]
        slots, seq_lens = (pages * size + positions % size).long(), requests[:, POSITION] + 1
        if lengths:
            attend = paged.mixed(self.cache, slots, seq_lens, table, lengths)
        else:
            attend = paged.decode(self.cache, slots, seq_lens, table)
        tokens = self.model(ids, positions, last, attend)
        self.last.index_copy_(0, rows.long(), tokens)
        return tokens.int()


class GraphRunner(EagerRunner):
    """Decodes replay a graph for their number of requests and pages, both rounded up. Other steps are eager."""

    def __init__(self, model, cache, limits, device):
        super().__init__(model, cache, limits, device)
        self.make_pool()
        self.sizes = round_up((1, 2, 4, *range(8, limits.max_requests, 8)), limits.max_requests)
        self.widths = round_up((8 << i for i in range(20)), limits.max_pages)
        self.graphs = {}
        for size in sorted(set(self.sizes), reverse=True):
            for width in sorted(set(self.widths), reverse=True):
                self.graphs[size, PAGES + width] = self.capture(size, PAGES + width)

    def make_pool(self):
        if not self.on_gpu:
            raise SystemExit("--mode graph needs a GPU: torch.cuda.graph")
        self.pool = torch.cuda.graph_pool_handle()

    def capture(self, size, width):
        """What replays it, its input and output, and the pinned memory of each turn."""
        super().decode(size, width)  # padding alone
        words = size * width
        replay, tokens = self.record(self.words[:words].view(size, width))
        return replay, self.words[:words], tokens, [(p[:words], r[:size]) for p, r in zip(self.packed, self.results)]

    def record(self, requests):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            tokens = self.forward(requests)
        return graph.replay, tokens

    def width(self):
        return self.widths[super().width()]

    def decode(self, n, width):
        size = self.sizes[n]
        replay, words, tokens, memory = self.graphs[size, width]
        packed, result = memory[self.turn]
        self.pack(size, width)
        words.copy_(packed, non_blocking=True)
        replay()
        result.copy_(tokens, non_blocking=True)
        return self.turn, n


def round_up(steps, most):
    """A list: of each number up to `most`, the next of the steps or `most`."""
    steps = sorted({min(step, most) for step in (*steps, most)})
    return [next(step for step in steps if step >= n) for n in range(most + 1)]
