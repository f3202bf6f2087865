"""Continuous batching: which requests run in a step, with how many tokens, in which pages. Knows no model and no device."""

from collections import deque
from dataclasses import dataclass

import numpy as np

LAST = -1  # the token that the request's last step made, which is on the device


class Request:
    def __init__(self, tag, prompt, count):
        self.tag, self.tokens, self.count = tag, list(prompt), count  # the prompt, then what has been read
        self.prompt_len, self.end = len(prompt), len(prompt) + count
        self.length = len(prompt)  # with tokens that were made but not read
        self.computed = 0  # tokens whose keys are in the cache, or will be
        self.row, self.pages = None, []

    @property
    def output(self):
        return self.tokens[self.prompt_len :]


@dataclass
class Plan:
    """One step. Arrays are in the order of the requests, tokens one request after the other."""

    requests: list
    rows: np.ndarray  # int32
    query_lens: np.ndarray  # int32: new tokens
    computed: np.ndarray  # int32: tokens before
    tokens: np.ndarray  # int32, or LAST
    partial: np.ndarray  # bool: more of the prompt follows, the token that is made is dropped

    @property
    def decodes(self):
        return len(self.tokens) == len(self.rows) and (self.tokens == LAST).all()


def make_plan(chosen):
    """Of pairs of a request and its number of new tokens."""
    requests, tokens = [request for request, _ in chosen], []
    for request, count in chosen:
        known = request.tokens[request.computed : request.computed + count]
        tokens += known + [LAST] * (count - len(known))
    return Plan(
        requests,
        np.array([request.row for request in requests], np.int32),
        np.array([count for _, count in chosen], np.int32),
        np.array([request.computed for request in requests], np.int32),
        np.array(tokens, np.int32),
        np.array([request.computed + count < request.length for request, count in chosen], bool),
    )


class Scheduler:
    """`runner` keeps rows and page tables: open(tag), close(row), set_pages(row, first, pages)."""

    def __init__(self, runner, limits):
        self.runner, self.limits = runner, limits
        self.waiting, self.running, self.finished = deque(), [], []
        self.free = list(range(limits.num_pages - 1, 1, -1))  # pages 0 and 1 are kept: one is read, one written in place of none
        self.preempted = 0

    def add(self, request):
        most = (self.limits.num_pages - 2) * self.limits.page_size
        if not 0 < request.prompt_len < request.end <= min(self.limits.max_len, most):
            raise ValueError(f"request {request.tag} has {request.end} tokens, expected 2 .. {min(self.limits.max_len, most)}")
        self.waiting.append(request)

    @property
    def busy(self):
        return bool(self.waiting or self.running)

    def plan(self, sync):
        """The next step, or None if nothing can run before results are read. `sync()` waits for the last step and takes its
        results: a page is given away only when no step uses it, and what is computed again must be known.
        """
        budget, chosen, preempted = self.limits.max_tokens, [], self.preempted
        for request in list(self.running):
            count = min(request.length - request.computed, budget)
            if count > 0 and request in self.running and self.make_room(request, count, sync):
                chosen.append((request, count))
                budget -= count
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_requests and self.preempted == preempted:
            request = self.waiting[0]
            count = min(request.length, budget)
            if self.missing(request, count) > len(self.free):
                break
            self.waiting.popleft()
            request.row = self.runner.open(request.tag)
            self.running.append(request)
            self.give_pages(request, count)
            chosen.append((request, count))
            budget -= count
        if not chosen:
            return None
        plan = make_plan(chosen)
        for request, count in chosen:
            request.computed += count
            if request.computed == request.length < request.end - 1:
                request.length += 1  # a token more, unless the last one is on its way
        return plan

    def missing(self, request, count):
        return -(-(request.computed + count) // self.limits.page_size) - len(request.pages)

    def give_pages(self, request, count):
        missing = self.missing(request, count)
        if missing > 0:
            pages = [self.free.pop() for _ in range(missing)]
            self.runner.set_pages(request.row, len(request.pages), pages)
            request.pages += pages

    def make_room(self, request, count, sync):
        """Pages for so many tokens, if need be those of the request that came last. False if that is this one."""
        if self.missing(request, count) > len(self.free):
            sync()
        while request in self.running and self.missing(request, count) > len(self.free):
            last = self.running[-1]
            self.release(last)
            self.preempted += 1
            last.computed = 0
            self.waiting.appendleft(last)
        if request not in self.running:
            return False
        self.give_pages(request, count)
        return True

    def release(self, request):
        self.running.remove(request)
        self.runner.close(request.row)
        self.free += request.pages
        request.row, request.pages = None, []

    def take(self, plan, tokens):
        """The tokens that a step has made, which has completed."""
        for request, partial, token in zip(plan.requests, plan.partial, tokens):
            if not partial:
                request.tokens.append(int(token))
                if len(request.tokens) == request.end:
                    self.release(request)
                    self.finished.append(request)
