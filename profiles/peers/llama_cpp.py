"""What a prompt and a decode step take in llama.cpp on this GPU, with random bf16 weights of the shapes of Llama 3.

    python3 profiles/peers/llama_cpp.py [--build FOLDER] [--requests 1,8,64] 1b 8b

pp512 is a prompt of 512 tokens for each request, from an empty cache to the logits of the last tokens. tg128 @ 4096 is a step that
gives each request a token: the next 128 steps after 4096 tokens in its cache, measured three times. A step's time is that of llama_decode
and llama_synchronize, without the calls from Python that fill its batch and read its tokens. Times are medians over all steps; tokens/s
follow from them.

In the mode "llama.cpp" the GPU samples: a greedy sampler for each request is part of llama.cpp's graph, the next step gets the tokens
that it chose, and only these are copied to the host. The first ones are compared with the logits. In the mode "llama.cpp, logits" nothing
is sampled, and the logits of all requests are copied to the host, as in llama-batched-bench.

Flash attention is on, all layers are on the GPU, K and V are fp16, a batch has up to 2048 tokens and runs by 512. Each sequence has a KV
buffer of its own, which llama.h advises for sequences without a common prefix; --unified gives them one, to compare. llama.cpp decides
which steps it replays as CUDA graphs. What does not fit is skipped, with a line that says why.

The model is written to --folder, 2.5 GB for 1b and 16 GB for 8b, and removed in the end. FOLDER is what profiles/peers/llama_cpp.sh
builds; without it the package llama-cpp-python has to be installed.
"""

import argparse
import ctypes
import gc
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import random_gguf  # noqa: E402

BATCH, UBATCH, PROMPT, REPETITIONS, WARM_UP, CELLS = 2048, 512, 512, 3, 8, 256
MODES = {True: "llama.cpp", False: "llama.cpp, logits"}  # whether the GPU samples
HEADER = "| model | params | dtype | mode | test | requests | ms per step | p99 | tokens/s |\n|---|---:|---|---|---|---:|---:|---:|---:|"


class Failure(Exception):
    """Of one case: the others go on."""


def whole_numbers(text):
    numbers = [int(word) if word.isascii() and word.isdigit() else 0 for word in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected whole numbers above 0 with commas between them")
    return numbers


def parse_options(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", choices=random_gguf.SHAPES, metavar="SHAPE", help=", ".join(random_gguf.SHAPES))
    parser.add_argument("--build", metavar="FOLDER", help="the bindings that profiles/peers/llama_cpp.sh has built there")
    parser.add_argument("--requests", type=whole_numbers, default=[1, 8, 64], help="how many at a time (default: 1,8,64)")
    parser.add_argument("--depths", type=whole_numbers, default=[128, 4096], help="tokens in each cache (default: 128,4096)")
    parser.add_argument("--steps", type=int, default=128, help="after each depth (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=4, help="of the host, which looks up embeddings (default: %(default)s)")
    parser.add_argument("--unified", action="store_true", help="one KV buffer for all sequences")
    parser.add_argument("--cpu", action="store_true", help="without a GPU, to try the program: such times mean nothing")
    parser.add_argument("--folder", default="/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir(),
                        help="where the model is written (default: %(default)s)")  # fmt: skip
    options = parser.parse_args(arguments)
    for name in ("steps", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"argument --{name}: {getattr(options, name)}, expected 1 or more")
    options.depths.sort()
    return options


def load_bindings(build):
    """The module llama_cpp.llama_cpp. This file has the package's name, so its own folder is not searched."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = ([build] if build else []) + [path for path in sys.path if os.path.abspath(path or ".") != here]
    try:
        import llama_cpp.llama_cpp
    except Exception as why:  # a library that does not load is no ImportError
        sys.exit(f"llama.cpp's bindings do not load ({why}): build them with profiles/peers/llama_cpp.sh and name the folder with "
                 "--build, or install llama-cpp-python")  # fmt: skip
    return llama_cpp.llama_cpp, llama_cpp


class Log:
    """llama.cpp's messages, which it would print."""

    def __init__(self, api):
        self.text, self.errors = "", []
        self.callback = api.llama_log_callback(self.add_message)
        api.llama_log_set(self.callback, ctypes.c_void_p(0))

    def add_message(self, level, text, _):
        message = text.decode(errors="replace")
        self.text += message
        if level == 4:  # GGML_LOG_LEVEL_ERROR
            self.errors.append(message.strip())

    def last_error(self):
        return self.errors[-1] if self.errors else "it gives no reason"


class Model:
    def __init__(self, api, log, name, path, options):
        self.api, self.log, self.name, self.options = api, log, name, options
        self.shape = random_gguf.SHAPES[name]
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0 if options.cpu else self.shape.layers + 1
        self.handle = api.llama_model_load_from_file(path.encode(), params)
        if not self.handle:
            raise Failure(f"llama.cpp cannot load the model: {log.last_error()}")
        on_gpu = re.findall(r"offloaded (\d+)/(\d+) layers to GPU", log.text)
        if not options.cpu and (not on_gpu or on_gpu[-1][0] != on_gpu[-1][1]):
            raise Failure(f"{on_gpu[-1][0] if on_gpu else 0} of {self.shape.layers + 1} layers are on the GPU, expected all")

    def close(self):
        self.api.llama_model_free(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Engine:
    """A context for a number of requests, a batch, and a greedy sampler for each request."""

    def __init__(self, model, requests):
        self.api, self.model, self.requests = model.api, model, requests
        options, api = model.options, model.api
        tokens = max(PROMPT, *(depth + options.steps for depth in options.depths))
        self.cells = -(-tokens // CELLS) * CELLS  # llama.cpp rounds up in the same way
        params = api.llama_context_default_params()
        params.n_ctx, params.n_seq_max, params.n_batch, params.n_ubatch = self.cells * requests, requests, BATCH, UBATCH
        params.n_threads = params.n_threads_batch = options.threads
        params.flash_attn_type, params.kv_unified = 1, options.unified  # LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.type_k = params.type_v = 1  # GGML_TYPE_F16
        params.no_perf = True
        self.context = api.llama_init_from_model(model.handle, params)
        if not self.context:
            raise Failure(f"llama.cpp cannot make a context with {self.kv_bytes() / 1e9:.1f} GB of K and V: {model.log.last_error()}")
        self.memory = api.llama_get_memory(self.context)
        self.batch = api.llama_batch_init(requests, 0, 1)
        self.samplers = []
        self.random = random.Random(1)

    def kv_bytes(self):
        shape = self.model.shape
        return self.cells * self.requests * shape.layers * shape.kv_heads * shape.head_dim * 2 * 2

    def new_sampler(self):
        chain = self.api.llama_sampler_chain_init(self.api.llama_sampler_chain_default_params())
        self.api.llama_sampler_chain_add(chain, self.api.llama_sampler_init_greedy())
        return chain

    def close(self):
        self.set_sampling(False)
        self.api.llama_batch_free(self.batch)
        self.api.llama_free(self.context)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def set_sampling(self, on_gpu):
        """With new samplers, for a context initializes each of them once."""
        before, self.samplers = self.samplers, [self.new_sampler() for _ in range(self.requests)] if on_gpu else []
        for request in range(self.requests):
            sampler = self.samplers[request] if on_gpu else None
            if not self.api.llama_set_sampler(self.context, request, sampler) and on_gpu:
                raise Failure(f"llama.cpp does not sample on this device: {self.model.log.last_error()}")
        for sampler in before:
            self.api.llama_sampler_free(sampler)

    def random_tokens(self, count):
        return [self.random.randrange(self.model.shape.vocab) for _ in range(count)]

    def fill_batch(self, batch, tokens):
        """`tokens`: (token, position, request, whether its logits are wanted)."""
        batch.n_tokens = len(tokens)
        for i, (token, position, request, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = request

    def decode_batches(self, batches):
        """Milliseconds until all of them are done; none waits for the one before."""
        begin = time.perf_counter()
        for batch in batches:
            result = self.api.llama_decode(self.context, batch)
            if result:
                raise Failure(f"llama_decode returned {result}: {self.model.log.last_error()}")
        self.api.llama_synchronize(self.context)
        return 1e3 * (time.perf_counter() - begin)

    def fill_caches(self, begin, end):
        """Milliseconds until all requests have tokens up to `end`. The logits of the last ones are wanted."""
        tokens = [(token, position, request, position == end - 1)
                  for request in range(self.requests)
                  for position, token in enumerate(self.random_tokens(end - begin), begin)]  # fmt: skip
        pieces = [tokens[first : first + BATCH] for first in range(0, len(tokens), BATCH)]
        batches = [self.api.llama_batch_init(len(piece), 0, 1) for piece in pieces]
        for batch, piece in zip(batches, pieces):
            self.fill_batch(batch, piece)
        try:
            return self.decode_batches(batches)
        finally:
            for batch in batches:
                self.api.llama_batch_free(batch)

    def run_step(self, position, tokens):
        self.fill_batch(self.batch, [(token, position, request, True) for request, token in enumerate(tokens)])
        return self.decode_batches([self.batch])

    def forget_from(self, position):
        for request in range(self.requests):
            self.api.llama_memory_seq_rm(self.memory, request, position, -1)

    def sampled_tokens(self):
        return [self.api.llama_get_sampled_token_ith(self.context, i) for i in range(self.requests)]

    def run_steps(self, depth, tokens, count, sampled):
        """Milliseconds of each step. The caches are left as they were."""
        times = []
        for position in range(depth, depth + count):
            times.append(self.run_step(position, tokens))
            tokens = self.sampled_tokens() if sampled else tokens
        self.forget_from(depth)
        return times

    def check_samples(self, depth, tokens):
        """That the GPU samples, and greedily: the logits of what it chooses are the largest, up to what a second run changes."""
        self.set_sampling(True)
        self.run_step(depth, tokens)
        chosen = self.sampled_tokens()
        self.forget_from(depth)
        self.set_sampling(False)
        self.run_step(depth, tokens)
        for request, token in enumerate(chosen):
            logits = self.api.llama_get_logits_ith(self.context, request)[: self.model.shape.vocab]
            largest = max(logits)
            if not 0 <= token < len(logits) or largest - logits[token] > 0.01 * abs(largest):
                raise Failure(f"token {token} is sampled for request {request}, expected {logits.index(largest)} with the largest logit")
        self.forget_from(depth)


def measure_prompts(engine):
    times = []
    for run in range(1 + REPETITIONS * max(1, 16 // engine.requests)):
        engine.api.llama_memory_clear(engine.memory, False)
        ms = engine.fill_caches(0, PROMPT)
        times += [ms] if run else []
    engine.api.llama_memory_clear(engine.memory, False)
    return times


def measure_decodes(engine, depth):
    """(mode, times) of each mode."""
    tokens, steps = engine.random_tokens(engine.requests), engine.model.options.steps
    engine.check_samples(depth, tokens)
    for sampled, mode in MODES.items():
        engine.set_sampling(sampled)
        engine.run_steps(depth, tokens, min(WARM_UP, steps), sampled)
        yield mode, [ms for _ in range(REPETITIONS) for ms in engine.run_steps(depth, tokens, steps, sampled)]
    engine.set_sampling(False)


def row_of(name, mode, test, requests, times, tokens):
    """`tokens`: how many each request gets in one of the times."""
    ms, p99 = statistics.median(times), sorted(times)[math.ceil(0.99 * len(times)) - 1]
    rate = 1e3 * requests * tokens / ms
    parameters = random_gguf.parameters_of(random_gguf.SHAPES[name])
    columns = [f"{name} (random)", f"{parameters / 1e9:.2f} B", "bf16", mode, test, str(requests), f"{ms:.2f}", f"{p99:.2f}",
               f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"]  # fmt: skip
    return f"| {' | '.join(columns)} |"


def rows_of(model, requests):
    options = model.options
    with Engine(model, requests) as engine:
        yield row_of(model.name, MODES[True], f"pp{PROMPT}", requests, measure_prompts(engine), PROMPT)
        filled = 0
        for depth in options.depths:
            engine.fill_caches(filled, depth)
            filled = depth
            for mode, times in measure_decodes(engine, depth):
                yield row_of(model.name, mode, f"tg{options.steps} @ {depth}", requests, times, 1)


def query_gpu(what):
    try:
        return subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"], capture_output=True, text=True,
                              check=True).stdout.split("\n")[0]  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def head_of(api, package, options):
    version = f"{api.llama_version().decode()} {getattr(package, '__commit__', 'of an unknown commit')}"
    kv = "one KV buffer" if options.unified else "a KV buffer for each sequence"
    return (f"# llama.cpp {version} (llama-cpp-python {package.__version__})\n"
            f"# device: {'host' if options.cpu else query_gpu('name')}\n"
            f"# driver: {os.environ.get('CGR_DRIVER') or ('none' if options.cpu else query_gpu('driver_version'))}\n"
            f"# commit: {os.environ.get('CGR_COMMIT') or 'unknown'}\n"
            f"# settings: flash attention, fp16 K and V, {kv}, batches of {BATCH} by {UBATCH}, {options.threads} host threads")  # fmt: skip


def print_rows(model):
    for requests in model.options.requests:
        model.log.errors.clear()
        try:
            for row in rows_of(model, requests):
                print(row, flush=True)
        except Failure as why:
            print(f"# skipped: {model.name}, {requests} requests: {why}", flush=True)


def main():
    options = parse_options()
    for name in options.shapes:
        random_gguf.check_room(options.folder, name)
    api, package = load_bindings(options.build)
    log = Log(api)
    if not options.cpu and not api.llama_supports_gpu_offload():
        sys.exit("this llama.cpp finds no GPU: build it without --cpu, on a machine with one, or try the program with --cpu")
    api.llama_backend_init()
    print(f"{head_of(api, package, options)}\n{HEADER}", flush=True)
    gc.disable()
    for name in options.shapes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = os.path.join(folder, f"{name}.gguf")
            random_gguf.write_model(path, name)
            try:
                with Model(api, log, name, path, options) as model:
                    print_rows(model)
            except Failure as why:
                print(f"# skipped: {name}: {why}", flush=True)


if __name__ == "__main__":
    main()
