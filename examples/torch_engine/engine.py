"""The loop: plan a step, launch it, and note what the step before has made while it runs."""

import time
from collections import deque
from dataclasses import dataclass

import torch
from cgr_runner import CgrRunner
from scheduler import Scheduler
from torch_runner import EagerRunner, GraphRunner

RUNNERS = {"eager": EagerRunner, "graph": GraphRunner, "cgr": CgrRunner}


@dataclass
class Limits:
    num_pages: int
    page_size: int = 16
    max_requests: int = 16
    max_tokens: int = 256
    max_len: int = 1024

    def __post_init__(self):
        if self.max_tokens <= self.max_requests:
            raise ValueError(f"max_tokens is {self.max_tokens}, expected more than {self.max_requests}, max_requests")

    @property
    def max_pages(self):
        """Of one request."""
        return -(-self.max_len // self.page_size)


class Engine:
    def __init__(self, mode, model, limits, device):
        shape = model.shape
        size = (shape.layers, 2, limits.num_pages, limits.page_size, shape.kv_heads, shape.head_dim)
        self.cache = torch.zeros(size, dtype=model.embed.weight.dtype, device=device)
        self.runner = RUNNERS[mode](model, self.cache, limits, device)
        self.scheduler = Scheduler(self.runner, limits)
        self.coming = deque()  # requests by arrival
        self.in_flight = None  # (chunks, ticket) of the last step
        self.clock = 0  # nanoseconds when results last arrived
        self.times = []  # of steps: nanoseconds of the host, nanoseconds in all, its decodes, its chunks

    def add(self, request):
        self.scheduler.add(request)

    def sync(self):
        """Notes what the last step has made."""
        if self.in_flight is not None:
            (chunks, ticket), self.in_flight = self.in_flight, None
            self.runner.wait(ticket)
            self.scheduler.note(chunks, self.runner.tokens(ticket))

    def step(self):
        """One round. All of it but the wait for results is the host's time, from the last wait's end to this one's begin."""
        scheduler, runner = self.scheduler, self.runner
        while self.coming and (self.coming[0].arrival <= scheduler.step or not scheduler.busy):
            scheduler.add(self.coming.popleft())
        chunks = scheduler.plan(self.sync)
        before, self.in_flight = self.in_flight, None
        if chunks is not None:
            self.in_flight = chunks, runner.launch(chunks)
        launched = time.perf_counter_ns()
        if before is not None:
            runner.wait(before[1])
        now = time.perf_counter_ns()
        if chunks is not None:
            self.times.append((launched - self.clock, now - self.clock, len(scheduler.decodes), len(chunks)))
        self.clock = now
        if before is not None:
            scheduler.note(before[0], runner.tokens(before[1]))

    def run(self, requests=()):
        """Until all requests have finished: those that were added, and these, which come when the steps reach their arrival."""
        self.coming.extend(sorted(requests, key=lambda request: request.arrival))
        self.clock = time.perf_counter_ns()
        while self.scheduler.busy or self.coming:
            self.step()
        return self.scheduler.finished
