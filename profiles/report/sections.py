"""What profiles/RESULTS.md has a table of: for each the program, what a number means, and what it should be at most."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Section:
    title: str
    program: str
    arguments: str  # after the device
    text: str  # what is measured, and what the target means
    metrics: tuple  # of the program, a column each
    labels: tuple = ()  # of the case; the columns before them
    where: Callable = lambda case: True
    target: tuple = ("", None)  # of which metric; a function of (card, case), None: what the program prints
    unit: str = "Microseconds. "

    @property
    def command(self):
        program = {"llama": "examples/llama/llama --device", "llama_bench_guesses": "examples/llama/llama --device", "python_cost": "python3 profiles/python_cost.py",
                   "torch_engine": "python3 examples/torch_engine/main.py --device"}.get(
            self.program, f"profiles/{self.program}"
        )
        return f"{program} cuda:0 {self.arguments}".strip()


def batch(*names, tight=True):
    """The rows of step_cost of such batches, given whole or standing."""
    names += tuple(f"standing, {name}" for name in names)
    return lambda c: c.get("batch") in names and (c.get("loop") == "tight") == tight and "table" not in c


def has(label, *starts):
    return lambda c: label in c and "table" not in c and c[label].startswith(starts or "")


def churn(_, case):
    if case["batch"].startswith("standing"):
        return "2.5"
    return {"8": "2.5", "64": "2.5", "256": "2.5", "1024": "3.5"}.get(case["requests"], "")


def planner(_, case):
    decodes = case["batch"].endswith(("decode", "decodes")) and int(case["batch"].split()[0]) <= 1024
    return "2.5" if decodes else "6" if case["batch"] == "1 prefill of 8192 tokens" else ""


# Milliseconds for each step: 1.09 times the bytes of the weights that a step reads, over the card's streaming read (4.56 TB/s on an
# H200, 3.09 on an H100), at one request, 1.14 times at eight; of the 1B model by name.
BENCH = {("1b", "1", "H200"): "0.70", ("1b", "1", "H100"): "0.95", ("8b", "1", "H200"): "3.59", ("8b", "1", "H100"): "5.30",
         ("8b", "8", "H200"): "3.75", ("8b", "8", "H100"): "5.54"}  # fmt: skip


def bench(card, model, test, requests):
    return BENCH.get((model.split()[0], requests, "H200" if "H200" in card else "H100"), "") if test == "tg128 @ 128" else ""


STEP, BATCH, TIGHT = ("prepare + launch", "bare launch", "ratio"), ("requests", "batch"), "300 40 tight"
SIDES = ("floor", "alone", "cold", "with append", "in steps")

SECTIONS = [
    Section("Host time of an unchanged decode step", "step_cost", TIGHT,
            "Prepare and launch together, of a graph of 65 kernels, next to the bare launch of the same graph. Target: of the ratio, and "
            "of the ratio of the p99s: what cgr may cost beyond the launch, which no engine avoids.",
            STEP, BATCH, batch("unchanged"), ("ratio", lambda *_: "1.10 (1.25)")),
    Section("The same in loops", "step_cost", "300 40 loops,touched",
            "Steps of 0.3, 1 and 5 ms on the GPU with the host one step ahead, and with 64 MB of host memory touched between steps. "
            "Target: of the ratio; caches are colder in a loop, so more is allowed.",
            STEP, ("requests", "loop"), batch("unchanged", tight=False), ("ratio", lambda *_: "1.25")),
    Section("A page more for 1/16 of the requests", "step_cost", TIGHT,
            "In every step 1/16 of the requests append a page to their tables. Target: of the ratio; each change has to be sent.",
            STEP, BATCH, batch("1/16 append a page"), ("ratio", lambda _, c: "1.40" if c["requests"] == "1024" else "1.25")),
    Section("One request leaves and another comes", "step_cost", TIGHT,
            "In every step: close, open, and the 40 pages of the new request. Target: of the ratio, for a batch that stands and is edited, "
            "and for one that is given whole.",
            STEP, BATCH, batch("one leaves, one comes"), ("ratio", churn)),
    Section("A list of requests that moves up", "step_cost", TIGHT,
            "One request leaves and another comes at the end, so that those between move up. Target: of the ratio, as above.",
            STEP, BATCH, batch("one leaves, others move up, one comes"), ("ratio", churn)),
    Section("Requests with three guesses", "step_cost", "300 40 guesses",
            "Each request has four tokens, three of them guesses that its last step left on the device, where some are accepted: when a step "
            "is launched, the host knows no result of the one before. Target: of the ratio, of the standing batch; given whole, such a batch "
            "travels whole.",
            STEP, BATCH, batch("3 guesses"), ("ratio", lambda _, c: "1.20" if c["batch"].startswith("standing") else "")),
    Section("The longest steps", "tail_cost", "1000 5 tight,0.3ms,1ms,5ms,touched,busy 8 10",
            "Percentiles of prepare and launch in loops like an engine's, over those of the bare launch of the same graph; with 64 MB of host "
            "memory touched between steps, and next to a second thread of the engine. The file names the causes of steps over 10 us. Target: "
            "1.25 for 99%, 1.5 for 99.9%, in the tight loop.",
            ("median ratio", "99% ratio", "99.9% ratio"), ("loop", "memory", "second thread"),
            lambda c: "side" not in c, ("99.9% ratio", lambda _, c: "1.25; 1.5" if c["loop"] == "tight" else "")),
    Section("Host time of a mixed step", "mixed_cost", "300 50",
            "16 decodes and a chunk of 512 tokens, 32 layers of ten kernels, next to the same launches without cgr. Target: 1.1 times "
            "those launches and 0.5 us.",
            ("prepare", "prepare + launch", "the same launches alone"), ("step",), has("step"), ("prepare + launch", None)),
    Section("The planner", "planner_cost", "",
            "GPU time of the planner by itself for four kinds of layers, less that of an empty graph node. In a step it runs alongside the "
            "first kernels. Target: what those kernels hide.",
            ("planner",), ("batch",), has("batch"), ("planner", planner)),
    Section("Steps back to back", "back_to_back", "",
            "GPU time of steps that were prepared ahead, next to the same graph with empty kernels in place of cgr's (skeleton), and with "
            "kernels that do the least that such a protocol needs (least). Target: of what cgr adds to the skeleton.",
            ("cgr", "skeleton", "cgr - skeleton", "least - skeleton"), BATCH, has("steps", "ahead"),
            ("cgr - skeleton", lambda _, c: "5" if c["requests"] == "1024" else "3")),
    Section("What each of cgr's kernels adds", "back_to_back", "", "Of those steps, with one of cgr's kernels in the skeleton. No target.",
            ("prologue", "planner", "fetch", "epilogue", "sum"), ("requests",), lambda c: "steps" not in c),
    Section("Attention of decodes", "attention_cost", "",
            "One layer of 32 query heads, 8 KV heads, head dim 128, bf16, pages of 16 in shuffled order: the kernel by itself over the "
            "same cache (alone), over a cache that is not in L2 (cold), with an append before it, and in steps of the runtime, each layer "
            "with its share of cgr's kernels. The floor is what a streaming read in the same run takes for the KV bytes. Target: of alone, "
            "met within 1%: 1.02 floors and 6 us, or the time of the fastest other kernel that this project measured, if that is less; for "
            "log-normal lengths 1.05 floors.",
            SIDES, ("case",), has("case", "decode", "spec"), ("alone", None)),
    Section("Attention of mixed batches", "attention_cost", "mixed",
            "As above; the floor is bytes, or operations at 650 TFLOP/s, whichever takes longer. Target: of alone over the floor.",
            (*SIDES, "alone over the floor"), ("case",), has("case", "mixed"), ("alone over the floor", lambda *_: "1.15")),
    Section("Decodes with a chunk of a prompt", "mixed_attention", "grid",
            "One layer as above, alone: decodes at a length with one chunk at a position. Serial is the plan in which all parts begin with "
            "the decodes; now is the planner's choice; parts is how many of 33 it gives to the decodes. Target: never slower than serial.",
            ("parts", "floor", "serial", "now", "now over the floor", "over serial"), ("decodes", "context", "chunk", "at"),
            lambda c: "chunk" in c, ("over serial", lambda *_: "1.00")),
    Section("Attention of a prefill", "attention_cost", "prefill", "As above. Target: of alone; FlashAttention-3 took 234 us.",
            (*SIDES, "alone over the floor"), ("case",), has("case", "prefill"), ("alone", lambda *_: "228")),
    Section("Attention over caches of 8 bits", "attention_cost", "",
            "One layer as above: over codes of fp8 without factors, of i8 with those of K's tokens and V's channels, and what the same takes "
            "over bf16. Target: at 64 requests of 8k 0.56 of bf16's time in the same run with e4m3, 0.62 with i8; with prefills 1.15, which "
            "those over i8 miss.",
            SIDES, ("case",), lambda c: c.get("table") == "other shapes" and c["case"].startswith("cache of")),
    Section("Biases, norms and rope with the append", "transform_cost", "",
            "GPU time of the kernel that transforms q, k and v and appends, less that of an empty graph node, next to a kernel that transforms "
            "in place and the append after it. Layers as above; the floor is their bytes at the rate of a streaming read. No target.",
            ("append", "one kernel", "two kernels", "saved", "floor"), ("transform", "tokens")),
    Section("Attention of other layers", "attention_cost", "",
            "What a case does not name is as above: hd is the head dim, GQA the query heads to a KV head. No target.",
            SIDES, ("case",), lambda c: c.get("table") == "other shapes" and not c["case"].startswith("cache of")),
    Section("Capture", "mixed_cost", "300 50",
            "All default sizes of a model of 32 layers, without the engine's warm-up; bytes are device memory for each graph. Target: 300 "
            "ms and 1,080,000 bytes each for the 51 FULL decode graphs, where a bare line of as many kernels takes 920,000.",
            ("keys", "nodes each", "ms in all", "device bytes each"), ("mode, keys",), has("mode, keys"),
            ("ms in all", lambda _, c: "300; 1080000" if c["mode, keys"] == "full, decode" else ""), ""),
    Section("A self-test", "self_test_cost", "", "`cgr_runtime_self_test` of the 115 default graphs of that model. No target.",
            ("graphs", "steps", "ms", "findings"), ("seed",), unit=""),
    Section("Waiting for a step", "wait_cost", "",
            "Processor time of the thread that waits, in percent of the step, and how long after the step's end it is back. No target.",
            ("processor, %", "back after", "prepare, us", "launch, us"), ("mode", "step, ms")),
    Section("Host time of the example's decode steps", "llama", "--mode MODE",
            "The small Llama of the repository, as one graph, in pieces, and eagerly. No target.",
            ("prepare", "launch", "host time"), ("mode", "step", "graph"), lambda c: c.get("step", "mixed") not in ("prefill", "mixed")),
    Section("The example's decodes with guesses", "llama_bench_guesses", "--random-weights 8b --bench --draft coin:0.7",
            "A step of the example, plain, and with K guesses of each request that a coin accepts: they cost nothing, a draft model's do. No target.",
            ("ms per step", "tokens/s"), ("model", "test", "requests"), unit=""),
    Section("A step of decodes from PyTorch", "torch_engine", "--mode MODE --idle",
            "The engine of examples/torch_engine: 64 decodes of a model of Llama's 1B shape. Host time is all the Python of a step but the wait. "
            "Tokens per second and the GPU's idle time are of such steps; torch's modes gather pages for scaled_dot_product_attention. "
            "Target: of host time, 8 with cgr, 60 with `torch.cuda.graph`.",
            ("host time", "step", "tokens/s", "GPU idle"), ("mode",), lambda c: True,
            ("host time", lambda _, c: {"cgr": "8", "graph": "60"}.get(c["mode"], "")), "Microseconds, percent. "),
    Section("Planning for FlashAttention-3", "fa3_cost", "", "A graph node by itself, less an empty one. Target: little next to a layer.",
            ("upstream", "vllm"), ("decodes",), has("decodes"), ("upstream", None)),
    Section("Planning for FlashInfer", "flashinfer_cost", "", "As above.", ("planner",), ("plan",), has("plan"), ("planner", None)),
    Section("Planning for FlashMLA, and block tables", "flashmla_cost", "", "As above.",
            ("FlashMLA, 132 parts", "FlashMLA, 66 parts", "block table, 128 pages"), ("requests", "lengths"),
            has("lengths", "1 .. 8192"), ("FlashMLA, 132 parts", None)),
    Section("Pages for many rows", "page_cost", "300 20", "Host time of giving one page each to as many rows, by one call and by a call for each row. No target.",
            ("one call", "a call for each", "ratio"), ("pages", "caches")),
    Section("Host time of a step from Python", "python_cost", "",
            "Prepare and launch of 64 decodes from Python, next to the same calls in C; with edits also the call that gives 4 requests a page. "
            "In rows `new objects` the batch, the step and the result are made anew for each step. Target: of what Python adds.",
            ("from Python", "in C", "more"), ("requests", "batch"), has("batch"),
            ("more", lambda _, c: "1.00" if c["batch"] == "unchanged" else "2.50")),
    Section("Memory of steps from Python", "python_cost", "",
            "What is left of so many steps with new objects: in Python's own memory (tracemalloc), and in that of the process. Target: none.",
            ("bytes kept by Python", "resident bytes more"), ("steps",), has("steps"), unit="Bytes. "),
    Section("Width of graphs", "fork_cost", "300 20", "Host time of launching a graph of 320 kernels. No target.",
            ("width", "launch", "against the line"), ("forks", "side streams")),
    Section("What a replay consists of", "label_coverage", "", "GPU time by phase, as CUPTI records it and labels name it. No target.",
            ("us", "share"), ("step", "phase"), has("phase")),
    Section("What looking costs: the recorder", "tracing_cost", "", "Nanoseconds of each step. Target: what is always on should not show.",
            ("median",), ("ns a step",), has("ns a step", "recorder", "the same", "one reading"), ("median", None), ""),
    Section("What looking costs: timestamps in graphs", "timing_cost", "", "A step with none, of its phases, of all layers. No target.",
            ("nodes", "step on the device", "us for each stamp", "prepare + launch"), ("timing",), has("timing")),
]  # fmt: skip
