"""What a step costs over the same calls in C, and that nothing of it stays."""

import gc
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
import unittest
import weakref

import numpy as np
from programs import compile_program
from support import ROOT

import cgr

REQUESTS, EDITS, PAGES = 64, 4, 64
STEPS = int(os.environ.get("CGR_STEPS", "20000"))
LIMIT_NS = 1500


class Loop:
    """The loop of cost.c."""

    def __init__(self):
        self.device = cgr.Device("host", host_schedule=cgr.HostSchedule.LATEST)  # the wait executes the step
        self.stream = self.device.stream()
        self.runtime = cgr.Runtime(
            device=self.device,
            groups=[cgr.Group(num_pages=2 + REQUESTS * PAGES)],
            max_requests=REQUESTS,
            max_tokens=REQUESTS,
            max_seq_len=PAGES * 16,
        )
        self.runtime.capture(lambda recorder: None)
        self.rows = np.empty(REQUESTS, np.int32)
        for i in range(REQUESTS):
            self.rows[i] = self.runtime.request_open(i)
            self.runtime.request_set_pages(self.rows[i], 0, 0, np.arange(2 + i * PAGES, 2 + (i + 1) * PAGES, dtype=np.int32))
        self.tokens = np.arange(REQUESTS, dtype=np.int32)
        self.edits, self.pages = np.empty(EDITS, np.int32), np.empty(EDITS, np.int32)
        self.firsts = np.full(EDITS, PAGES - 1, np.int32)
        self.batch = cgr.Batch(rows=self.rows, tokens=self.tokens)
        self.step, self.result, self.count = cgr.Step(), cgr.StepResult(), 0

    def edit(self):
        first = self.count * EDITS % REQUESTS
        self.edits[:] = self.rows[first : first + EDITS]
        np.multiply(self.edits, PAGES, out=self.pages)
        self.pages += 2 + PAGES - 1

    def run(self):
        """Nanoseconds of a step's calls; its arrays have been filled before, as those of C."""
        runtime, batch, step, clock = self.runtime, self.batch, self.step, time.perf_counter_ns
        self.edit()
        before = clock()
        runtime.requests_set_pages(0, self.edits, self.firsts, self.pages)
        runtime.prepare(batch, step)
        step.launch(self.stream)
        spent = clock() - before
        step.wait(-1, self.result)
        self.count += 1
        if self.count % 512 == 0:
            for row in self.rows:
                runtime.request_set_length(row, 0)
        return spent

    def run_new(self):
        """The same with a batch, a step and a result that are made anew."""
        self.edit()
        before = time.perf_counter_ns()
        self.runtime.requests_set_pages(0, self.edits, self.firsts, self.pages)
        step = self.runtime.prepare(cgr.Batch(rows=self.rows, tokens=self.tokens))
        step.launch(self.stream)
        spent = time.perf_counter_ns() - before
        step.wait()
        self.count += 1
        if self.count % 512 == 0:
            for row in self.rows:
                self.runtime.request_set_length(row, 0)
        return spent


def median(run, steps):
    gc.collect()
    return sorted(run() for _ in range(steps))[steps // 2]


class Cost(unittest.TestCase):
    def test_a_step_costs_little_more_than_in_c(self):
        with tempfile.TemporaryDirectory() as folder:
            program = compile_program(folder, "cost")
            loop, differences = Loop(), []
            for _ in range(5):
                in_c = float(subprocess.run([program, "2000"], check=True, capture_output=True, text=True).stdout)
                kept, anew = median(loop.run, 2000), median(loop.run_new, 2000)
                differences.append((kept - in_c, anew - in_c, in_c))
            kept, anew, in_c = min(differences)
            print(f"\na step of {REQUESTS} requests, {EDITS} page edits: C {in_c:.0f} ns; from Python {kept:.0f} ns more,", end=" ")
            print(f"with a new batch and step {anew:.0f} ns more")
            self.assertLess(kept, LIMIT_NS)


class Program(unittest.TestCase):
    """profiles/python_cost.py, which measures the same at leisure."""

    def test_it_prints_tables_that_the_report_reads(self):
        program = os.path.join(ROOT, "profiles/python_cost.py")
        if not os.path.exists(program):
            self.skipTest("no profiles/python_cost.py")
        if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")):
            self.skipTest("no C compiler: neither $CC nor gcc")
        command = [sys.executable, "-B", program, "host", "3", "200", "3000"]
        run = subprocess.run(command, env={**os.environ, "CGR_COMMIT": "abc"}, capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        sys.path.insert(0, os.path.join(ROOT, "profiles/report"))
        import parse

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "python_cost.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write(run.stdout)
            result = parse.parse_file(path)
        version = tuple(map(int, cgr.__version__.split(".")[:2]))
        self.assertEqual((result.card, result.commit, result.version), ("host alone", "abc", version))
        found = {(r.case.get("batch", r.case.get("steps")), r.metric): r for r in result.records}
        for batch in ("unchanged", "1/16 append a page", "1/16 append a page, new objects"):
            python, c = (found[batch, side].value for side in ("from Python", "in C"))
            self.assertGreater(python, c, batch)
            self.assertGreater(c, 0, batch)
        self.assertLess(found["2000", "bytes kept by Python"].value, 2000)
        self.assertLess(found["3000", "resident bytes more"].value, 1 << 19)

    def test_more_steps_than_a_request_has_room_for_are_refused(self):
        program = os.path.join(ROOT, "profiles/python_cost.py")
        if not os.path.exists(program):
            self.skipTest("no profiles/python_cost.py")
        run = subprocess.run([sys.executable, "-B", program, "host", "1", "1024"], capture_output=True, text=True, check=False)
        self.assertEqual((run.returncode, run.stderr), (1, "1024 steps in a block, expected 1 .. 1023\n"))


class Memory(unittest.TestCase):
    def test_nothing_survives_a_step(self):
        loop = Loop()
        for run in (loop.run, loop.run_new):
            for _ in range(200):
                run()
            tracemalloc.start()
            for _ in range(100):
                run()
            before = tracemalloc.take_snapshot()
            for _ in range(500):
                run()
            after = tracemalloc.take_snapshot()
            tracemalloc.stop()
            mine = [d for d in after.compare_to(before, "filename") if "tracemalloc" not in d.traceback[0].filename]
            self.assertLess(sum(d.size_diff for d in mine), 2000, mine[:5])

    def test_many_steps_are_flat_in_memory(self):
        loop = Loop()
        for _ in range(2000):
            loop.run_new()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(STEPS):
            loop.run_new()
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 512, "KiB")

    def test_runtimes_are_collected(self):
        def once():
            loop = Loop()
            loop.runtime.capture(lambda recorder, cycle=loop: None)  # the runtime keeps a function that keeps the runtime
            loop.run()

        def closed():
            loop = Loop()
            loop.ids = loop.runtime.buffer(cgr.Buffer.INPUT_IDS).array().numpy()  # a view of the runtime, which keeps it
            loop.runtime.capture(lambda recorder, cycle=loop: None)
            loop.run()
            loop.runtime.close()
            handles.append(weakref.ref(loop))

        handles = []
        once(), closed()
        gc.collect()
        self.assertIsNone(handles[0]())
        before = len(gc.get_objects())
        for _ in range(5):
            once()
        gc.collect()
        self.assertLess(len(gc.get_objects()) - before, 20)


if __name__ == "__main__":
    unittest.main()
