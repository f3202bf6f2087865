"""Steps by torch: eagerly with one packed pinned copy, or decodes as torch.cuda.graph, which reads what numpy has packed."""

import types

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
        self.columns = [self.standing[:n, POSITION] for n in range(limits.max_requests + 1)]  # the positions of n requests
        self.places = {}  # by row
        self.n = self.longest = 0  # requests; the last of their positions
        self.free = list(range(limits.max_requests))
        self.last = torch.zeros(limits.max_requests + 1, dtype=torch.int64, device=device)  # by row, then padding's
        words = self.rows.size + 3 * limits.max_tokens + limits.max_requests
        self.words = torch.zeros(words, dtype=torch.int32, device=device)
        self.packed = [torch.zeros(words, dtype=torch.int32, pin_memory=self.on_gpu) for _ in range(RING)]
        self.results = [torch.zeros(limits.max_requests, dtype=torch.int32, pin_memory=self.on_gpu) for _ in range(RING)]
        self.stream = torch.cuda.current_stream(device) if self.on_gpu else None
        self.events = [torch.cuda.Event() if self.on_gpu else Computed() for _ in range(RING)]
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
        self.longest = max(self.columns[self.n].tolist())

    def leave(self, row, place):
        self.n -= 1
        self.standing[place] = self.standing[self.n]
        self.places[int(self.standing[place, ROW])] = place
        del self.places[row]
        self.standing[self.n, :PAGES], self.standing[self.n, PAGES:] = (self.limits.max_requests, 0), 1
        self.longest = max(self.columns[self.n].tolist(), default=0)

    def launch(self, chunks):
        self.turn = (self.turn + 1) % RING
        tokens = self.mix(chunks) if chunks else self.decode()
        event, positions = self.events[self.turn], self.columns[self.n]
        event.record(self.stream)
        np.add(positions, 1, positions)
        self.longest += 1
        return event, tokens

    def decode(self):
        """A step of decodes: one copy to the device, the model, one copy back. Returns where its tokens will be."""
        n, width = self.n, PAGES + 1 + self.longest // self.limits.page_size
        packed, results = self.packed[self.turn][: n * width], self.results[self.turn][:n]
        packed.numpy().reshape(n, width)[:] = self.standing[:n, :width]
        requests = self.words[: n * width].copy_(packed, non_blocking=True)
        results.copy_(self.forward(requests.view(n, width)), non_blocking=True)
        return memoryview(results.numpy())

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
        results = self.results[self.turn][: len(counts)].copy_(tokens, non_blocking=True)
        return memoryview(results.numpy())

    def wait(self, ticket):
        ticket[0].synchronize()

    def tokens(self, ticket):
        return ticket[1]

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
    """Decodes replay a graph for their number of requests and pages, both rounded up. Other steps are eager.

    A graph's kernels read and write the pinned memory themselves, so that the host calls nothing of torch but the replay. A graph
    knows from `parity` which half is its step's, and changes it for the next.
    """

    def __init__(self, model, cache, limits, device):
        super().__init__(model, cache, limits, device)
        self.make_pool()
        self.parity = torch.zeros(1, dtype=torch.int64, device=device)
        self.half = 0  # of the next step
        self.given = torch.zeros(2, self.rows.size, dtype=torch.int32, pin_memory=self.on_gpu)
        self.made = torch.zeros(2, limits.max_requests, dtype=torch.int32, pin_memory=self.on_gpu)
        self.answers = [memoryview(half) for half in self.made.numpy()]
        self.sizes = round_up((1, 2, 4, *range(8, limits.max_requests, 8)), limits.max_requests)
        self.widths = round_up((8 << i for i in range(20)), limits.max_pages)
        self.graphs = {}
        for size in sorted(set(self.sizes), reverse=True):
            for width in sorted(set(self.widths), reverse=True):
                self.graphs[size, width] = self.capture(size, PAGES + width)

    def make_pool(self):
        if not self.on_gpu:
            raise SystemExit("--mode graph needs a GPU: torch.cuda.graph")
        self.pool = torch.cuda.graph_pool_handle()

    def capture(self, size, width):
        """What replays it, the part of the standing batch that it reads, and where that goes in both halves."""
        given, made = (reached(memory, self.device) for memory in (self.given, self.made))

        def step():
            requests = given[:, : size * width].index_select(0, self.parity).view(size, width)
            made[:, :size].index_copy_(0, self.parity, self.forward(requests)[None])
            self.parity.bitwise_xor_(1)

        halves = [half[: size * width].reshape(size, width) for half in self.given.numpy()]
        for half in halves:  # padding alone
            half[:] = self.standing[:size, :width]
        step()
        step()
        return self.record(step), self.standing[:size, :width], halves

    def record(self, step):
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            step()
        return graph.replay

    def decode(self):
        replay, standing, halves = self.graphs[self.sizes[self.n], self.widths[self.longest // self.limits.page_size + 1]]
        half, self.half = self.half, 1 - self.half
        np.copyto(halves[half], standing)
        replay()
        return self.answers[half][: self.n]


class Computed:
    """The event of a device whose steps have been computed when they have been launched."""

    def record(self, stream):
        pass

    def synchronize(self):
        pass


def reached(pinned, device):
    """The same memory as a tensor of the device, whose kernels reach it over the bus."""
    if device.type == "cpu":
        return pinned
    memory = dict(shape=tuple(pinned.shape), typestr=pinned.numpy().dtype.str, data=(pinned.data_ptr(), False), version=3)
    return torch.as_tensor(types.SimpleNamespace(__cuda_array_interface__=memory), device=device)


def round_up(steps, most):
    """A list: of each number up to `most`, the next of the steps or `most`."""
    steps = sorted({min(step, most) for step in (*steps, most)})
    return [next(step for step in steps if step >= n) for n in range(most + 1)]
