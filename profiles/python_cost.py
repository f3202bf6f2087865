"""What a step costs the host from Python, next to the same calls in C, in turn in one process; and that nothing of it stays.

    python3 profiles/python_cost.py [cuda:0|host] [blocks] [steps in a block] [steps for the memory]

64 requests decode; prepare and launch are timed. In rows `1/16 append a page` 4 of them get another page before each step, and that
call is timed, too. In `new objects` the batch, the step and the result are made anew for each step; else they are kept. It needs the
package `cgr` (docs/python.md), numpy and a C compiler.
"""

import contextlib
import ctypes
import datetime
import gc
import glob
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc

import cgr
import numpy as np

ROOT = pathlib.Path(os.environ.get("CGR_ROOT") or pathlib.Path(__file__).absolute().parents[1])
REQUESTS, EDITS, PAGE, PAGES, FIRST_PAGE = 64, 4, 16, 64, 2


class Python:
    """The loop of python/steps.c."""

    def __init__(self, device):
        config = {"host_schedule": cgr.HostSchedule.LATEST} if device == "host" else {}  # the wait executes the step
        self.device = cgr.Device(device, **config)
        self.stream = self.device.stream()
        self.runtime = cgr.Runtime(
            device=self.device,
            groups=[cgr.Group(num_pages=FIRST_PAGE + REQUESTS * (PAGES + 1))],
            max_requests=REQUESTS,
            max_tokens=REQUESTS,
            max_seq_len=PAGES * PAGE,
        )
        self.runtime.capture(lambda recorder: None)
        self.rows, self.tokens = np.empty(REQUESTS, np.int32), np.arange(REQUESTS, dtype=np.int32)
        for i in range(REQUESTS):
            first = FIRST_PAGE + i * (PAGES + 1)
            self.rows[i] = self.runtime.request_open(i)
            self.runtime.request_set_pages(self.rows[i], 0, 0, np.arange(first, first + PAGES, dtype=np.int32))
        self.last = FIRST_PAGE + np.arange(REQUESTS, dtype=np.int32) * (PAGES + 1) + PAGES - 1
        self.edits, self.pages = np.empty(EDITS, np.int32), np.empty(EDITS, np.int32)
        self.firsts = np.full(EDITS, PAGES - 1, np.int32)
        self.batch = cgr.Batch(rows=self.rows)
        self.step, self.result, self.count = cgr.Step(), cgr.StepResult(), 0

    def choose_pages(self):
        first, round = self.count * EDITS % REQUESTS, self.count // (REQUESTS // EDITS)
        self.edits[:] = self.rows[first : first + EDITS]
        np.add(self.last[first : first + EDITS], (round + 1) % 2, out=self.pages)
        self.count += 1

    def start_again(self):
        for row in self.rows:
            self.runtime.request_set_length(row, 0)
        self.batch.tokens = self.tokens
        self.runtime.prepare(self.batch, self.step)
        self.step.launch(self.stream)
        self.step.wait(-1, self.result)
        self.batch.tokens = None

    def unchanged(self):
        clock, runtime, batch, step, stream = time.perf_counter_ns, self.runtime, self.batch, self.step, self.stream
        before = clock()
        runtime.prepare(batch, step)
        step.launch(stream)
        spent = clock() - before
        step.wait(-1, self.result)
        return spent

    def edited(self):
        clock, runtime, batch, step, stream = time.perf_counter_ns, self.runtime, self.batch, self.step, self.stream
        self.choose_pages()
        before = clock()
        runtime.requests_set_pages(0, self.edits, self.firsts, self.pages)
        runtime.prepare(batch, step)
        step.launch(stream)
        spent = clock() - before
        step.wait(-1, self.result)
        return spent

    def new_objects(self):
        clock, runtime, stream = time.perf_counter_ns, self.runtime, self.stream
        self.choose_pages()
        before = clock()
        runtime.requests_set_pages(0, self.edits, self.firsts, self.pages)
        step = runtime.prepare(cgr.Batch(rows=self.rows))
        step.launch(stream)
        spent = clock() - before
        step.wait()
        return spent

    def run(self, step, count):
        self.start_again()
        return [step() for _ in range(count)]

    def close(self):
        self.runtime.close(), self.stream.close(), self.device.close()


class InC:
    def __init__(self, device):
        compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
        if not compiler:
            sys.exit("no C compiler: neither $CC nor gcc")
        library = glob.glob(os.path.join(os.path.dirname(cgr.__file__), "libcgr.so*"))[0]
        with tempfile.TemporaryDirectory() as folder:
            built = os.path.join(folder, "steps.so")
            source, include = ROOT / "profiles/python/steps.c", ROOT / "include"
            flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
            subprocess.run([compiler, *flags, "-I", include, source, library, "-o", built], check=True)
            self.code = ctypes.CDLL(built)  # its library is the one that the package has loaded
        self.code.steps_open.restype = ctypes.c_void_p
        self.steps = ctypes.c_void_p(self.code.steps_open(device.encode()))
        if not self.steps:
            sys.exit(f"in C: {cgr.last_message()}")

    def run(self, edits, count):
        times = (ctypes.c_double * count)()
        if not self.code.steps_run(self.steps, int(edits), count, times):
            sys.exit(f"in C: {cgr.last_message()}")
        return list(times)

    def close(self):
        self.code.steps_close(self.steps)


CASES = [
    ("unchanged", "unchanged", False),
    ("1/16 append a page", "edited", True),
    ("1/16 append a page, new objects", "new_objects", True),
]


def percentile(times, at):
    return sorted(times)[min(int(len(times) * at), len(times) - 1)]


def middle(blocks):
    """Of medians and p99s of blocks in nanoseconds the medians, in microseconds."""
    return "{:.2f} ({:.2f})".format(*(statistics.median(of) / 1000 for of in zip(*blocks)))


def print_head(device, blocks, steps):
    info = device.info()
    on_host = info.kind == cgr.DeviceKind.HOST
    name = "host alone (no GPU)" if on_host else f"{info.name} ({info.num_multiprocessors} multiprocessors)"
    print(f"# program: profiles/python_cost.py\n# device: {name}")
    if not on_host:
        major, minor = divmod(info.driver_version, 1000)
        print(f"# driver: {os.environ.get('CGR_DRIVER', 'unknown')} (CUDA {major}.{minor // 10})")
    git = ["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"]
    commit = os.environ.get("CGR_COMMIT") or subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    print(f"# library: {cgr.build_info()}; Python {platform.python_version()}, numpy {np.__version__}")
    print(f"# date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}\n# commit: {commit or 'unknown'}")
    print(f"# blocks: {blocks} of {steps} steps on each side, in turn\n")


def print_times(python, c, blocks, steps):
    print("| requests | batch | from Python | in C | more |\n|---:|---|---:|---:|---:|")
    for name, step, edits in CASES:
        sides = ([], [])
        gc.collect()
        for _ in range(blocks):
            for side, times in zip(sides, (python.run(getattr(python, step), steps), c.run(edits, steps))):
                side.append((statistics.median(times), percentile(times, 0.99)))
        more = [(a[0] - b[0], a[1] - b[1]) for a, b in zip(*sides)]
        print(f"| {REQUESTS} | {name} | {middle(sides[0])} | {middle(sides[1])} | {middle(more)} |", flush=True)


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def kept_by_python(run, steps):
    """Bytes that were allocated in so many steps and have not been freed, of which tracemalloc's own are none."""
    run(100)
    tracemalloc.start()
    run(100)
    before = tracemalloc.take_snapshot()
    run(steps)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    differences = after.compare_to(before, "filename")
    return sum(d.size_diff for d in differences if d.traceback[0].filename != tracemalloc.__file__)


def print_memory(python, steps, traced=2000):
    def run(count):
        for done in range(0, count, 1000):
            python.start_again()
            for _ in range(min(1000, count - done)):
                python.new_objects()

    kept = kept_by_python(run, traced)
    run(max(steps // 10, 1000))
    gc.collect()
    before = resident_bytes()
    run(steps)
    gc.collect()
    print("\n| steps | bytes kept by Python | resident bytes more |\n|---:|---:|---:|")
    print(f"| {traced} | {kept} | |\n| {steps} | | {resident_bytes() - before} |")


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    blocks, steps, memory = (int(a) for a in (sys.argv[2:] + ["50", "1000", "100000"][len(sys.argv[2:]) :]))
    if not 0 < steps < PAGES * PAGE:
        sys.exit(f"{steps} steps in a block, expected 1 .. {PAGES * PAGE - 1}")
    with contextlib.closing(Python(device)) as python, contextlib.closing(InC(device)) as c:
        print_head(python.device, blocks, steps)
        print_times(python, c, blocks, steps)
        print_memory(python, memory)


if __name__ == "__main__":
    main()
