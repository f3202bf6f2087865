"""Continuous batching: which requests run in a step, with which tokens, in which pages. Knows no model and no device.

Requests that decode keep a place in a batch that stands from step to step. Each runs one token in every step, so its position,
the step in which it needs a page and the one in which it ends follow from the step's number. A request is looked at only in the
steps for which it has asked to be woken, and a step in which none wakes costs the same for any number of requests.
"""

from array import array
from collections import deque
from dataclasses import dataclass

import numpy as np

AHEAD = 8  # pages that a request gets at once while there are many
NO_PAGES = array("i")


class Request:
    def __init__(self, tag, prompt, count, arrival=0):
        self.tag, self.tokens, self.arrival = tag, list(prompt), arrival  # the prompt, then what has been collected
        self.prompt_len, self.end = len(prompt), len(prompt) + count
        self.row, self.pages = None, NO_PAGES
        self.computed = 0  # of its tokens, while they are computed in chunks
        self.offset = 0  # while it decodes: its position is that of the step's number plus this
        self.place, self.spans = None, []  # in the standing batch: (first step, place), one after the other
        self.wake = None  # the step in which it is looked at

    @property
    def output(self):
        return self.tokens[self.prompt_len :]


@dataclass
class Chunk:
    """Known tokens of a request, from position `start`. Partial: more follow, and what the step makes is dropped."""

    request: Request
    row: int
    tokens: list
    start: int
    partial: bool


class Scheduler:
    """`runner` keeps rows, page tables and the standing batch: open(tag, pages) returns a row; set_pages(row, first, pages);
    join(row, position), which takes the next place; leave(row, place), which the last one then takes; close(row)."""

    def __init__(self, runner, limits):
        self.runner, self.limits = runner, limits
        self.waiting, self.running, self.filling, self.finished = deque(), [], [], []
        self.decodes, self.leaving = [], []  # by place; those that have launched their last step
        self.free = array(
            "i", range(limits.num_pages - 1, 1, -1)
        )  # pages 0 and 1 are kept, to be read or written in place of none
        self.many = 2 * AHEAD * limits.max_requests  # more free pages than this are many
        self.step = self.noted = 0  # the next to plan; the next to note
        self.wakes = {}  # requests, by step
        self.made = np.zeros((limits.max_len + 8, limits.max_requests), np.int32)  # tokens of the last steps, by place
        self.ring = memoryview(self.made.ravel())  # the same, sooner written
        self.preempted = 0

    def add(self, request):
        most = min(self.limits.max_len, (self.limits.num_pages - 2) * self.limits.page_size)
        if not 0 < request.prompt_len < request.end <= most:
            raise ValueError(f"request {request.tag} has {request.end} tokens, expected 2 .. {most}")
        self.waiting.append(request)

    @property
    def busy(self):
        return bool(self.waiting or self.running or self.leaving)

    def plan(self, sync):
        """Edits the standing batch for the next step. Returns the step's chunks, which follow it; None if there is nothing to run
        before results are read. `sync()` reads them: a page is given away only when no step uses it."""
        step, preempted, awake = self.step, self.preempted, self.wakes.pop(self.step, ())
        if len(awake) > len(self.free):
            self.make_room(awake, sync)
        for request in awake:
            if request.wake == step:
                self.look(request)
        chunks = ()
        if self.filling or (self.waiting and len(self.running) < self.limits.max_requests):
            chunks = self.fill(may_admit=self.preempted == preempted)
        if not chunks and not self.decodes:
            return None
        self.step = step + 1
        return chunks

    def look(self, request):
        """At a request that wakes: it joins the others that decode, gets pages or leaves."""
        position, last, pages = self.step + request.offset, request.end - 1, request.pages
        if position == last:  # whose token is on its way, or has been noted
            self.leave(request)
            return self.leaving.append(request) if self.noted < self.step else self.collect(request)
        if request.place is None:
            self.move(request, len(self.decodes))
            self.runner.join(request.row, position)
        if position == len(pages) * self.limits.page_size:
            new = self.take_pages(min(AHEAD, self.count_pages(last) - len(pages)) if len(self.free) > self.many else 1)
            self.runner.set_pages(request.row, len(pages), new)
            pages += new
        self.sleep(request, min(last, len(pages) * self.limits.page_size) - request.offset)

    def sleep(self, request, wake):
        request.wake = wake
        self.wakes.setdefault(wake, []).append(request)

    def make_room(self, awake, sync):
        """Takes pages from the requests that came last, if results that are read do not give enough."""

        def needs_page(request):
            position, size = self.step + request.offset, self.limits.page_size
            return request.wake == self.step and position == len(request.pages) * size and position < request.end - 1

        sync()
        while sum(map(needs_page, awake)) > len(self.free):
            self.preempt(self.running[-1])

    def count_pages(self, tokens):
        return -(-tokens // self.limits.page_size)

    def take_pages(self, count):
        pages = self.free[-count:]
        del self.free[-count:]
        return pages

    def fill(self, may_admit):
        budget, chunks = self.limits.max_tokens - len(self.decodes), []
        for request in list(self.filling):
            budget -= self.chunk(request, budget, chunks)
        while may_admit and budget > 0 and self.waiting and len(self.running) < self.limits.max_requests:
            request = self.waiting[0]
            if self.count_pages(len(request.tokens)) > len(self.free):
                break
            self.waiting.popleft()
            request.pages = self.take_pages(self.count_pages(len(request.tokens)))
            request.row = self.runner.open(request.tag, request.pages)
            self.running.append(request)
            self.filling.append(request)
            budget -= self.chunk(request, budget, chunks)
        return chunks

    def chunk(self, request, budget, chunks):
        start, end = request.computed, min(len(request.tokens), request.computed + budget)
        if end > start:
            partial = end < len(request.tokens)
            chunks.append(Chunk(request, request.row, request.tokens[start:end], start, partial))
            request.computed = end
            if not partial:  # from the next step on it decodes
                self.filling.remove(request)
                request.offset = end - self.step - 1
                self.sleep(request, self.step + 1)
        return end - start

    def move(self, request, place):
        self.decodes[place : place + 1] = [request]
        request.place = place
        request.spans.append((self.step, place))

    def leave(self, request):
        """Its pages stay taken until the last step that was launched has completed."""
        if request.place is not None:
            last = self.decodes.pop()
            if last is not request:
                self.move(last, request.place)
            self.runner.leave(request.row, request.place)
        request.spans.append((self.step, None))
        request.place = request.wake = None
        self.runner.close(request.row)
        self.running.remove(request)

    def collect(self, request):
        """What it has made, once that has been noted, and its pages."""
        for (first, place), (end, _) in zip(request.spans, request.spans[1:]):
            request.tokens += self.made[np.arange(first, end) % len(self.made), place].tolist()
        self.free += request.pages
        request.row, request.pages, request.spans = None, NO_PAGES, []
        if len(request.tokens) == request.end:
            self.finished.append(request)

    def preempt(self, request):  # when all steps have been noted
        if request in self.filling:
            self.filling.remove(request)
        self.leave(request)
        self.collect(request)
        if len(request.tokens) < request.end:
            self.preempted, request.computed = self.preempted + 1, 0
            self.waiting.appendleft(request)

    def note(self, chunks, tokens):
        """What the next step that was not noted has made: an int32 for each place, then one for each chunk."""
        first = self.noted % len(self.made) * self.limits.max_requests
        self.ring[first : first + len(tokens)] = tokens
        self.noted += 1
        for chunk, token in zip(chunks, tokens[-len(chunks) :] if chunks else ()):
            if not chunk.partial:
                chunk.request.tokens.append(token)
        while self.leaving:
            self.collect(self.leaving.pop())
