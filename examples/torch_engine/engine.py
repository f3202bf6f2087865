"""The loop: plan a step, launch it, and read the step before while it runs."""

import time
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
        self.in_flight = None  # (plan, ticket) of the last step
        self.launch_seconds = []  # of steps of decodes
        self.steps = 0

    def add(self, request):
        self.scheduler.add(request)

    def sync(self):
        """Takes the results of the last step."""
        if self.in_flight is not None:
            (plan, ticket), self.in_flight = self.in_flight, None
            self.scheduler.take(plan, self.runner.result(ticket))

    def run(self):
        """Until all requests have finished."""
        while self.scheduler.busy:
            plan = self.scheduler.plan(self.sync)
            before, self.in_flight = self.in_flight, None
            if plan is not None:
                started = time.perf_counter()
                self.in_flight = plan, self.runner.launch(plan)
                if plan.decodes:
                    self.launch_seconds.append(time.perf_counter() - started)
                self.steps += 1
            if before is not None:
                self.scheduler.take(before[0], self.runner.result(before[1]))
        return self.scheduler.finished
