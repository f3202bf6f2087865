"""A small engine in Python on the host device: one layer of attention, whose "kernels" are Python functions.

A token's query, keys and values are made from its id and position; the next token follows from its id and the attention.
"""

import math

HEADS, DIM, PAGE, PAGES, VOCABULARY = 2, 8, 16, 24, 61
ROWS, TOKENS, LENGTH = 4, 32, 64

# Arguments of the "kernels": copied by value when they are launched.
ARGUMENTS = """
typedef struct embed_args { const int32_t *ids, *positions; float *q, *k, *v; int32_t num_tokens; } embed_args;
typedef struct sample_args { const int32_t *ids, *indices; const float *out; int32_t *next; int32_t num_requests; } sample_args;
"""


def embed(token, position):
    """q of all heads, k, v, in sixteenths, which float holds exactly."""
    q = [((token * 5 + position * 3 + i * 7) % 23 - 11) / 16 for i in range(HEADS * DIM)]
    k = [((token * 3 + position * 11 + i * 5) % 19 - 9) / 16 for i in range(DIM)]
    v = [((token * 7 + position * 5 + i * 13) % 29 - 14) / 16 for i in range(DIM)]
    return q, k, v


def sample(token, out):
    return (token * 7 + max(range(len(out)), key=out.__getitem__) + 1) % VOCABULARY


def attend(tokens):
    """out for the last of `tokens`, from first principles."""
    rows = [embed(token, position) for position, token in enumerate(tokens)]
    out = []
    for head in range(HEADS):
        q = rows[-1][0][head * DIM : (head + 1) * DIM]
        scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(DIM) for _, k, _ in rows]
        weights = [math.exp(score - max(scores)) for score in scores]
        out += [sum(w * v[d] for w, (_, _, v) in zip(weights, rows)) / sum(weights) for d in range(DIM)]
    return out


class Engine:
    """Opened by `with`."""

    def __init__(self, binding, mode, schedule, pieces=False, on_demand=0):
        self.b, self.ffi, self.lib = binding, binding.ffi, binding.lib
        self.mode, self.schedule, self.pieces, self.on_demand = mode, schedule, pieces, on_demand
        self.recorded, self.logged, self.failures = [], [], []
        self.raises = None  # what `record` raises
        # What C keeps must not be collected here.
        self.record_function = self.callback("cgr_record_function", self.record, error=self.lib.CGR_ERROR_CALLBACK)
        self.call_function = self.callback("cgr_call_function", self.between, error=self.lib.CGR_ERROR_CALLBACK)
        self.embed_function = self.callback("cgr_host_function", self.embed)
        self.sample_function = self.callback("cgr_host_function", self.sample)
        self.log_function = self.callback("cgr_log_function", self.log)

    def callback(self, kind, function, **options):
        """A function for C. Exceptions do not pass through C: one is kept, and `error` is returned in its place."""
        return self.ffi.callback(kind, function, onerror=lambda _, raised, __: self.failures.append(raised), **options)

    def __enter__(self):
        b = self.b
        options = b.new("cgr_device_config", host_schedule=self.schedule, host_seed=7)
        self.device = b.made("cgr_device_open", "cgr_device *", b"host", options)
        self.stream = b.made("cgr_stream_create", "cudaStream_t", self.device)
        self.memory = {}
        for name, floats in {"k": PAGES * PAGE, "v": PAGES * PAGE, "q": TOKENS * HEADS, "out": TOKENS * HEADS}.items():
            self.allocate(name, floats * DIM * 4)
        self.allocate("new_k", TOKENS * DIM * 4)
        self.allocate("new_v", TOKENS * DIM * 4)
        self.create()
        return self

    def allocate(self, name, size):
        self.memory[name] = self.b.made("cgr_memory_alloc", "void *", self.device, size)
        self.b.call("cgr_fill", self.device, self.memory[name], 0, size, self.stream)

    def create(self):
        b, lib, ffi = self.b, self.lib, self.ffi
        group = b.new("cgr_group", page_size=PAGE, num_pages=PAGES)
        layer = b.new("cgr_layer", num_q_heads=HEADS, num_kv_heads=1, head_dim=DIM)
        for name in ("k", "v"):
            view = ffi.addressof(layer, name)
            b.call("cgr_kv_view_make", lib.CGR_LAYOUT_NHD, self.memory[name], lib.CGR_DTYPE_FP32, PAGE, 1, DIM, view)
        buckets = ffi.new("int32_t[]", [1, 2, 4])
        self.config = b.new(
            "cgr_config",
            device_handle=self.device,
            groups=group,
            num_groups=1,
            layers=layer,
            num_layers=1,
            max_requests=ROWS,
            max_tokens=TOKENS,
            max_seq_len=LENGTH,
            graph_mode=self.mode,
            decode_buckets=buckets,
            num_decode_buckets=3,
            on_demand=self.on_demand,
            log=self.log_function,
        )
        self.runtime = b.made("cgr_runtime_create", "cgr_runtime *", self.config)
        self.keep = (group, layer, buckets)

    def capture(self):
        self.b.call("cgr_runtime_capture", self.runtime, self.b.new("cgr_capture", record=self.record_function))

    def __exit__(self, *_):
        self.b.call("cgr_runtime_destroy", self.runtime)
        for memory in self.memory.values():
            self.b.call("cgr_memory_free", self.device, memory)
        self.b.call("cgr_stream_destroy", self.device, self.stream)
        self.b.call("cgr_device_close", self.device)

    # What cgr calls.

    def log(self, _context, level, message):
        self.logged.append((self.b.string(self.lib.cgr_log_level_name(level)), self.b.string(message)))

    def record(self, recorder, _engine):
        if self.raises is not None:
            raise self.raises
        b, lib, memory = self.b, self.lib, self.memory
        info = b.new("cgr_record_info")
        b.call("cgr_record_get_info", recorder, info)
        self.recorded.append((b.string(lib.cgr_graph_kind_name(info.key.kind)), bool(info.capturing)))
        args = self.arguments("embed_args", q=memory["q"], k=memory["new_k"], v=memory["new_v"], num_tokens=info.num_tokens)
        args.ids = self.buffer(recorder, lib.CGR_BUFFER_INPUT_IDS)
        args.positions = self.buffer(recorder, lib.CGR_BUFFER_POSITIONS)
        self.launch(self.embed_function, args, info.stream)
        attention = b.new("cgr_attention")
        for name, source, heads in (("q", "q", HEADS), ("k", "new_k", 1), ("v", "new_v", 1), ("out", "out", HEADS)):
            view = self.ffi.addressof(attention, name)
            b.call("cgr_view_make", memory[source], lib.CGR_DTYPE_FP32, heads, DIM, view)
        b.call("cgr_record_attention", recorder, attention)
        args = self.arguments("sample_args", out=memory["out"], num_requests=info.num_requests)
        args.ids = self.buffer(recorder, lib.CGR_BUFFER_INPUT_IDS)
        args.indices = self.buffer(recorder, lib.CGR_BUFFER_LOGITS_INDICES)
        args.next = self.buffer(recorder, lib.CGR_BUFFER_NEXT_TOKENS)
        if self.pieces:
            b.call("cgr_record_call", recorder, self.call_function, args, self.ffi.sizeof(args[0]))
        else:
            self.launch(self.sample_function, args, info.stream)
        return lib.CGR_OK

    def between(self, recorder, args):
        """The sampler, enqueued between two pieces."""
        info = self.b.new("cgr_record_info")
        self.b.call("cgr_record_get_info", recorder, info)
        self.launch(self.sample_function, self.ffi.cast("sample_args *", args), info.stream)
        return self.lib.CGR_OK

    def embed(self, raw):
        args = self.ffi.cast("embed_args *", raw)
        for t in range(args.num_tokens):
            q, k, v = embed(args.ids[t], args.positions[t])
            args.q[t * HEADS * DIM : (t + 1) * HEADS * DIM] = q
            args.k[t * DIM : (t + 1) * DIM] = k
            args.v[t * DIM : (t + 1) * DIM] = v

    def sample(self, raw):
        args = self.ffi.cast("sample_args *", raw)
        for i in range(args.num_requests):
            t = args.indices[i]
            args.next[i] = sample(args.ids[t], args.out[t * HEADS * DIM : (t + 1) * HEADS * DIM])

    def arguments(self, name, **fields):
        args = self.ffi.new(f"{name} *")
        for field, value in fields.items():
            setattr(args, field, value)
        return args

    def buffer(self, recorder, which):
        view = self.b.new("cgr_buffer_view")
        self.b.call("cgr_record_buffer", recorder, which, 0, view)
        return view.data

    def launch(self, function, args, stream):
        self.b.call("cgr_launch_host", self.device, function, args, self.ffi.sizeof(args[0]), stream)

    # What a scheduler calls.

    def open(self, tag, pages):
        row = self.b.made("cgr_request_open", "int32_t", self.runtime, tag)
        self.b.call("cgr_request_set_pages", self.runtime, row, 0, 0, pages, len(pages))
        return row

    def step(self, rows, lengths, tokens):
        """One step of a whole batch: its kind, and each request's tag, next token and the last token's out."""
        arrays = [self.ffi.new("int32_t[]", numbers) for numbers in (rows, lengths, tokens)]
        batch = self.b.new("cgr_batch", num_requests=len(rows), rows=arrays[0], query_lens=arrays[1], tokens=arrays[2])
        return self.run(batch, lengths)

    def run(self, batch, lengths):
        b, lib = self.b, self.lib
        step, result = b.new("cgr_step"), b.new("cgr_step_result")
        b.call("cgr_step_prepare", self.runtime, batch, step)
        b.call("cgr_step_launch", self.runtime, step, self.stream)
        b.call("cgr_step_wait", self.runtime, step.mark, -1, result)
        ends = [sum(lengths[: i + 1]) - 1 for i in range(len(lengths))]
        out = self.read("out")
        return b.string(lib.cgr_graph_kind_name(step.key.kind)), [
            (result.tags[i], result.tokens[i], out[end * HEADS * DIM : (end + 1) * HEADS * DIM]) for i, end in enumerate(ends)
        ]

    def read(self, name):
        """The floats of a buffer, copied by the device."""
        size = TOKENS * HEADS * DIM
        here = self.b.made("cgr_memory_alloc_pinned", "void *", self.device, size * 4)
        self.b.call("cgr_copy", self.device, here, self.memory[name], size * 4, self.stream)
        self.b.call("cgr_stream_synchronize", self.device, self.stream)
        numbers = self.ffi.unpack(self.ffi.cast("float *", here), size)
        self.b.call("cgr_memory_free_pinned", self.device, here)
        return numbers
