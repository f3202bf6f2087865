"""cgr.torch, on a GPU where torch and the library have one, else on the host device. Most are skipped without torch."""

import contextlib
import gc
import math
import os
import types
import unittest
import weakref
from unittest import mock

import numpy as np
from support import ROOT

import cgr

try:
    import torch
except ImportError:
    torch = None
else:
    import torch_minimal

    import cgr.torch


def device_name():
    if torch is not None and torch.cuda.is_available():
        try:
            with cgr.Device("cuda:0"):
                return "cuda:0"
        except cgr.CgrError:
            pass  # the library has no CUDA
    return "host"


DEVICE = device_name()
ON_HOST = DEVICE == "host"


def setUpModule():
    if torch is not None:
        print(f"cgr.torch with torch {torch.__version__} on {DEVICE}", flush=True)


class Guide(unittest.TestCase):
    def test_it_has_the_engine(self):
        with open(os.path.join(ROOT, "docs/torch.md"), encoding="utf-8") as file:
            page = file.read().split("```python\n")[1].split("```")[0]
        with open(os.path.join(ROOT, "bindings/python/tests/torch_minimal.py"), encoding="utf-8") as file:
            mine = file.read()
        self.assertEqual(mine, page)
        self.assertLess(mine.count("\n"), 100)


class Cycle:
    """Garbage that only a collection finds."""

    def __del__(self):
        self.ended.append(1)


class Tensor:
    """One of a GPU, as torch shows it, over memory of the host."""

    itemsize, nbytes, is_cuda = 1, 512, True

    def __init__(self, array, raises):
        self.array, self.raises = array, raises

    @property
    def __cuda_array_interface__(self):
        raise self.raises

    def data_ptr(self):
        return self.array.ctypes.data

    def is_contiguous(self):
        return True


class Tensors(unittest.TestCase):
    def test_without_an_interface_they_have_an_address(self):
        array = np.zeros(512, np.uint8)
        for raises in (KeyError("float8_e4m3fn"), RuntimeError("requires grad"), AttributeError("none")):
            tensor = Tensor(array, raises)
            k = cgr.kv_view_make(cgr.KvLayout.NHD, tensor, cgr.Dtype.FP8_E4M3, 16, 1, 16)
            self.assertIs(k.base, tensor)
        self.assertRaises(OSError, cgr.kv_view_make, cgr.KvLayout.NHD, Tensor(array, OSError()), cgr.Dtype.FP8_E4M3, 16, 1, 16)


@unittest.skipIf(torch is None, "no torch")
class Minimal(unittest.TestCase):
    PROMPTS = [[1, 2, 3], [4, 5], [6] * 20, list(range(30))]

    def setUp(self):
        torch.manual_seed(7)
        self.engine = torch_minimal.Engine(DEVICE)
        self.addCleanup(self.engine.runtime.close)

    def reference(self, tokens):
        """The logits after each token, in plain torch of fp32 on the host."""
        model = torch_minimal.Model()
        model.load_state_dict({name: weight.float().cpu() for name, weight in self.engine.model.state_dict().items()})
        for layer in model.layers:
            layer.attention = Causal()
        caught = []
        model.head.register_forward_hook(lambda _module, _inputs, logits: caught.append(logits))
        step = types.SimpleNamespace(
            input_ids=torch.tensor(tokens),
            positions=torch.arange(len(tokens)),
            logits_indices=torch.arange(len(tokens)),
            next_tokens=torch.empty(len(tokens), dtype=torch.int32),
        )
        with torch.no_grad():
            model(step)
        return caught[0]

    def test_tokens_are_those_of_plain_torch(self):
        replayed = self.engine.generate(self.PROMPTS, 16)
        self.engine.runtime.enable_graphs(0)
        eager = self.engine.generate(self.PROMPTS, 16)
        for prompt, answer in zip(self.PROMPTS * 2, replayed + eager):
            logits = self.reference(prompt + answer)[len(prompt) - 1 : -1]
            taken = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
            behind = (logits.max(1).values - taken).max().item()
            self.assertLessEqual(behind, 1e-4 if ON_HOST else 0.05, "the token is not among the best")
        self.assertGreater(len({token for answer in replayed for token in answer}), 8, "the answers differ too little")
        if ON_HOST:  # of a GPU's GEMMs, an eager step has another size, and may have other bits
            self.assertEqual(replayed, eager)

    def test_a_captured_step_is_replayed(self):
        recorded = []
        self.engine.model.register_forward_hook(lambda *_: recorded.append(1))
        self.engine.generate(self.PROMPTS, 4)
        self.assertEqual(recorded, [])


if torch is not None:

    class Causal(torch.nn.Module):
        """What cgr.torch.Attention is for the only request of a step, all of whose tokens are new."""

        def forward(self, q, k, v):
            repeat = q.shape[1] // k.shape[1]
            q, k, v = (t.transpose(0, 1) for t in (q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)))
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)


class Small:
    """A runtime without layers, or with one of cgr's attention, whose record is `function(step)`."""

    def __init__(self, function, layer=False, capture=True, schedule=cgr.HostSchedule.LATEST, **fields):
        self.device = cgr.Device(DEVICE, host_schedule=schedule) if ON_HOST else cgr.Device(DEVICE)
        self.stream = self.device.stream()
        self.record = cgr.torch.Record(self.device, function)
        self.place = self.record.torch_device
        layers = []
        if layer:
            self.dtype = torch.float32 if ON_HOST else torch.float16
            self.cache = torch.zeros(8, 2, 16, 1, 16, dtype=self.dtype, device=self.place)
            k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, self.cache, cgr.torch.dtype_of(self.dtype), 16, 1, 16)
            layers = [cgr.Layer(num_q_heads=2, num_kv_heads=1, head_dim=16, k=k, v=v)]
        limits = dict(max_requests=4, max_tokens=8, max_seq_len=64)
        self.runtime = cgr.Runtime(device=self.device, groups=[cgr.Group(num_pages=8)], layers=layers, **limits, **fields)
        self.rows = []
        if capture:
            self.record.capture(self.runtime)

    def step(self, tokens):
        if not self.rows:
            self.rows = [self.runtime.request_open(1)]
            self.runtime.request_set_pages(self.rows[0], group=0, first=0, pages=[2, 3, 4])
        step = self.runtime.prepare(cgr.Batch(rows=self.rows, query_lens=[len(tokens)], tokens=tokens))
        step.launch(self.stream)
        result = step.wait()
        self.stream.synchronize()
        return step, result

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.runtime.close()
        self.stream.close()
        self.device.close()


def out_argument(x):
    y = torch.ones_like(x)
    torch.add(x, 2, out=y)
    return y


def in_place(x):
    y = x.clone()
    y[1:] += 3
    y[:2].mul_(x[0])
    y.unsqueeze_(1)
    y.index_put_((torch.arange(2, device=x.device),), x[:2, None])
    return y


def accumulated(x):
    total = torch.zeros(4, device=x.device)
    for i in range(4):
        total += x[i : i + 4]
    return total


OPERATIONS = {
    "arithmetic": lambda x: (x * 2 + 1).sin() / 3 - x,
    "views": lambda x: x.view(2, 4).t().flip(0)[1:].reshape(-1).expand(2, -1).contiguous()[:, ::2],
    "reductions": lambda x: torch.stack((x.mean(), x.max(), x.cumsum(0)[-1], x.var(), x.norm())),
    "several results": lambda x: torch.cat((x.topk(3).values, x.sort(descending=True).values, torch.aminmax(x).max[None])),
    "lists": lambda x: torch.cat([part * i for i, part in enumerate(x.split(3))] + list(x.chunk(2))),
    "half": lambda x: (x.bfloat16() @ x.bfloat16()[:, None].expand(8, 3)).float(),
    "linear": lambda x: torch.nn.functional.linear(x[None], x.new_ones(3, 8), torch.arange(3.0, device=x.device)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*[x.view(1, 1, 4, 2)] * 3, is_causal=True),
    "masks": lambda x: torch.where(x > 3, x, -x).masked_fill(x == 5, 9),
    "indices": lambda x: x[torch.arange(6, 0, -2, device=x.device)],
    "out": out_argument,
    "in place": in_place,
    "accumulated": accumulated,
}


@unittest.skipIf(torch is None, "no torch")
class Operations(unittest.TestCase):
    """LATEST runs what was enqueued only when the step is waited for: what is computed while it is recorded is wrong."""

    MODES = (cgr.GraphMode.FULL, cgr.GraphMode.PIECEWISE, cgr.GraphMode.NONE)

    def test_steps_compute_them(self):
        for name, function in OPERATIONS.items():
            for mode in self.MODES:
                with self.subTest(name, mode=mode):
                    self.check(function, mode)

    def check(self, function, mode):
        place = torch.device("cpu" if ON_HOST else DEVICE)
        x = torch.zeros(8, device=place)
        out = torch.zeros_like(function(x))

        def record(step):
            out.copy_(function(x))
            step.next_tokens.copy_(step.input_ids.index_select(0, step.logits_indices) + 1)

        with Small(record, graph_mode=mode) as small:
            for i in range(3):
                x.copy_(torch.arange(8.0) + i)
                expected = function(x)
                out.zero_()
                if not ON_HOST:
                    torch.cuda.synchronize()
                self.assertEqual(small.step([5 + i])[1].tokens.tolist(), [6 + i])
                torch.testing.assert_close(out, expected)

    def test_every_schedule_computes_them_in_order(self):
        for schedule in cgr.HostSchedule:
            x = torch.zeros(8, device="cpu" if ON_HOST else DEVICE)

            def record(step):
                x.add_(1)
                x.mul_(2)

            with Small(record, schedule=schedule) as small:
                if not ON_HOST:
                    x.zero_()
                    torch.cuda.synchronize()
                for _ in range(3):
                    small.step([5])
                self.assertEqual(x[0].item(), 14)

    def test_a_function_is_one_operation(self):
        def sum_above(out, x, least):
            if ON_HOST:  # a capture on a GPU looks at no values
                out.numpy()[:] = sum(value for value in x.tolist() if value > least)
            else:
                out.copy_(torch.where(x > least, x, 0).sum())

        for schedule in cgr.HostSchedule:
            x, out = (torch.zeros(n, device="cpu" if ON_HOST else DEVICE) for n in (8, 1))

            def record(step):
                x.add_(1)
                cgr.torch.run(sum_above, out, x, 3)
                out.mul_(10)

            with self.subTest(schedule), Small(record, schedule=schedule) as small:
                x.copy_(torch.arange(8.0))
                if not ON_HOST:
                    torch.cuda.synchronize()
                for expected in (300, 390):  # ten times 4 + .. + 8, then 4 + .. + 9
                    small.step([5])
                    self.assertEqual(out.item(), expected)

    @unittest.skipUnless(ON_HOST, "of host functions")
    def test_operations_on_the_same_memory_are_told_apart(self):
        for one, other in ((0.0, -0.0), (1, 1.0), (2, 3)):
            factors, x = [one], torch.full((1,), 5.0)
            out = torch.zeros(1)
            with Small(lambda step: out.copy_(1 / (x * factors[0])), capture=False) as small:
                small.record.capture(small.runtime)
                small.runtime.release_graphs(0)
                factors[0] = other
                small.record.capture(small.runtime)
                small.step([5])
                self.assertEqual(out.item(), 1 / np.float32(5.0 * other) if other else -math.inf)

    def test_what_needs_values_is_refused(self):
        x = torch.arange(8.0, device="cpu" if ON_HOST else DEVICE)
        for function in (lambda step: x.max().item(), lambda step: (x > 3).nonzero()):
            with Small(function, capture=False) as small:
                with self.assertRaises(RuntimeError) as refused:
                    small.record.capture(small.runtime, warmup=False)
                if ON_HOST:
                    self.assertIn("needs values, which only the step has", str(refused.exception))

    def test_what_a_graph_reads_is_kept(self):
        def record(step, offset=[5]):
            made = torch.full((1,), offset[0], device=small.place)
            step.next_tokens.copy_(step.input_ids.index_select(0, step.logits_indices) + made)

        with Small(record, capture=False) as small:
            small.record.capture(small.runtime)
            gc.collect()
            others = [torch.full((1 << 12,), 77, device=small.place, dtype=torch.int32) for _ in range(64)]
            self.assertEqual(small.step([5])[1].tokens.tolist(), [10])
            self.assertEqual(len(others), 64)


@unittest.skipIf(torch is None, "no torch")
class Steps(unittest.TestCase):
    def test_tensors_end_at_the_padded_counts(self):
        shapes = []

        def record(step):
            names = ("INPUT_IDS", "QUERY_START_LOC", "SEQ_LENS", "PAGE_TABLE")
            shapes.append((step.num_tokens, step.num_requests, [tuple(step.buffer(cgr.Buffer[n]).shape) for n in names]))
            step.next_tokens.zero_()

        with Small(record):
            pass
        self.assertGreater(len(shapes), 3)
        for tokens, requests, found in shapes:
            self.assertEqual(found, [(tokens,), (requests + 1,), (requests,), (5, 4)])

    def test_every_buffer_has_a_size(self):
        kinds = (cgr.torch._TOKENS, cgr.torch._REQUESTS, cgr.torch._STARTS, cgr.torch._WHOLE)
        self.assertEqual(sorted(buffer for kind in kinds for buffer in kind), sorted(cgr.Buffer))

    def test_tensors_are_the_buffers_memory(self):
        with Small(lambda step: None) as small:
            view = small.runtime.buffer(cgr.Buffer.NEXT_TOKENS)
            found = cgr.torch.tensor(view)
            self.assertEqual((found.data_ptr(), found.dtype, found.device), (int(view.data), torch.int32, small.place))

    def test_calls_between_pieces(self):
        for mode in Operations.MODES:
            calls, total = [], torch.zeros(8, dtype=torch.int32, device="cpu" if ON_HOST else DEVICE)

            def between(step, ids):
                calls.append(step.info.capturing)
                total[: step.num_tokens] += ids * 10

            def record(step):
                ids = step.input_ids * 3
                step.call(between, ids)
                step.next_tokens.copy_((total[: step.num_tokens] + ids).index_select(0, step.logits_indices))

            with self.subTest(mode=mode), Small(record, graph_mode=mode) as small:
                small.step([4])
                del calls[:]
                total.zero_()
                if not ON_HOST:
                    torch.cuda.synchronize()
                self.assertEqual(small.step([4])[1].tokens.tolist(), [132])
                self.assertEqual(small.step([4])[1].tokens.tolist(), [252])
                self.assertEqual(calls, [] if mode == cgr.GraphMode.FULL else [0, 0])

    def test_the_self_test_finds_nothing(self):
        def record(step):
            q, k, v = (step.positions[:, None, None].to(small.dtype).repeat(1, heads, 16) for heads in (2, 1, 1))
            out = cgr.torch.attention(0, q, k, v).index_select(0, step.logits_indices)
            step.next_tokens.copy_(step.input_ids.index_select(0, step.logits_indices) + out[:, 0, 0].round())

        with Small(record, layer=True, capture=False) as small:
            small.record.capture(small.runtime)
            small.runtime.self_test(cgr.SelfTest(num_pages=5, pages=[2, 3, 4, 5, 6], max_token=100))
            if ON_HOST:
                self.assertGreater(small.runtime.audit().num_graphs, 0)
            else:  # the memory of torch's pool
                with self.assertRaises(cgr.CgrError) as refused:  # holes in torch's structs may come first
                    small.runtime.audit()
                findings = refused.exception.findings
                self.assertTrue([f for f in findings if "is in no region" in f.text], findings)

    def test_outside_of_a_record_there_is_none(self):
        q = torch.zeros(1, 2, 16)
        self.assertRaisesRegex(RuntimeError, "no step is being recorded", cgr.torch.Attention(0), q, q, q)

    def test_garbage_waits(self):
        ended = []

        def record(step):
            for _ in range(2000):
                cycle = Cycle()
                cycle.own, cycle.ended = cycle, ended
            ended_inside.append(len(ended))

        ended_inside = []
        with Small(record):
            self.assertTrue(gc.isenabled())
        gc.collect()
        self.assertEqual(set(ended_inside[:1]), {0})
        self.assertGreaterEqual(len(ended), 2000)

    def test_a_record_serves_one_runtime(self):
        limits = dict(max_requests=4, max_tokens=8, max_seq_len=64)
        with Small(lambda step: step.next_tokens.zero_()) as small:
            with cgr.Runtime(device=small.device, groups=[cgr.Group(num_pages=8)], **limits) as other:
                self.assertRaisesRegex(ValueError, "another runtime's", small.record.capture, other)
                small.record.capture(small.runtime)
                small.runtime.close()
                small.record.capture(other)

    def test_a_record_takes_a_device_and_a_function(self):
        with cgr.Device("host") as device:
            for arguments in (("host", print), (print, device), (device, None)):
                self.assertRaisesRegex(TypeError, "Record takes a cgr.Device and a function", cgr.torch.Record, *arguments)

    def test_an_exception_is_that_of_the_capture(self):
        def record(step):
            raise KeyError("weights")

        with Small(record, capture=False) as small:
            self.assertRaisesRegex(KeyError, "weights", small.record.capture, small.runtime)
            self.assertRaises(RuntimeError, cgr.torch.current)


@unittest.skipIf(torch is None, "no torch")
class OnAGpu(unittest.TestCase):
    """What torch is told, and in which order, where torch.cuda only listens."""

    def setUp(self):
        self.heard = []

        def context(name):
            @contextlib.contextmanager
            def listen(*arguments):
                self.heard.append(" ".join([name, *(str(a) for a in arguments)]))
                yield
                self.heard.append("end of " + name)

            return listen

        pool = type("Pool", (), {"use_count": None, "__str__": lambda _: "P"})
        listening = dict(init=mock.DEFAULT, synchronize=mock.DEFAULT, MemPool=pool, use_mem_pool=context("pool"))
        listening |= dict(stream=context("stream"), device=context("device"), ExternalStream=lambda address, _: hex(address))
        patched = mock.patch.multiple(torch.cuda, **listening)
        patched.start()
        self.addCleanup(patched.stop)
        device = types.SimpleNamespace(info=lambda: types.SimpleNamespace(kind=cgr.DeviceKind.CUDA, ordinal=0))
        self.record = cgr.torch.Record(device, lambda step: self.heard.append("function"))
        del self.heard[:]

    def recorder(self, capturing):
        info = types.SimpleNamespace(num_tokens=1, num_requests=1, capturing=capturing, stream=cgr.Address(0x1234))
        return types.SimpleNamespace(info=lambda: info, call=lambda call, arguments: call(self.recorder(capturing), *arguments))

    def within(self, *names):
        begins = ["device cuda:0", "pool P cuda:0", "stream 0x1234"]
        begins = [begin for begin in begins if begin.split()[0] in names]
        return begins + ["function"] + ["end of " + begin.split()[0] for begin in reversed(begins)]

    def test_a_capture_allocates_from_the_pool_which_comes_before_the_stream(self):
        self.record(self.recorder(capturing=1))
        self.assertEqual(self.heard, self.within("device", "pool", "stream"))

    def test_an_eager_step_allocates_as_usual(self):
        self.record(self.recorder(capturing=0))
        self.assertEqual(self.heard, self.within("device", "stream"))

    def test_a_warm_up_comes_first_and_uses_the_pool(self):
        runtime = mock.Mock()
        runtime.warmup.side_effect = runtime.capture.side_effect = lambda record, **_: record(self.recorder(capturing=0))
        self.record.capture(runtime, max_ms=5.0)
        self.assertEqual(self.heard, self.within("device", "pool", "stream") + self.within("device", "stream"))
        expected = [mock.call.warmup(self.record, max_ms=5.0), mock.call.capture(self.record, max_ms=5.0)]
        self.assertEqual(runtime.mock_calls, expected)

    def test_a_call_at_once_is_inside_already(self):
        self.record.function = lambda step: step.call(lambda inner, x: self.heard.append(f"call {x}"), 7)
        self.record(self.recorder(capturing=1))
        expected = self.within("device", "pool", "stream")
        expected[3] = "call 7"
        self.assertEqual(self.heard, expected)

    def test_an_old_torch_is_refused(self):
        with mock.patch.object(torch.cuda, "MemPool", object):
            self.assertRaisesRegex(RuntimeError, "has no torch.cuda.MemPool", cgr.torch.Record, self.record.device, print)


@unittest.skipIf(torch is None, "no torch")
class Attention(unittest.TestCase):
    def capture(self, function):
        """function(q, k, v) calls the attention of zeros of the right shapes."""

        def record(step):
            function(*(torch.zeros(step.num_tokens, heads, 16, dtype=small.dtype, device=small.place) for heads in (2, 1, 1)))

        with Small(record, layer=True, capture=False) as small:
            small.record.capture(small.runtime)

    def test_refuses_other_tensors(self):
        other, elsewhere = torch.float64, torch.zeros(1, 1, 1, device="meta")
        for function, error, text in (
            (lambda q, k, v: (q[:, 0], k, v), ValueError, r"the shape \[\d+, 16\], expected \[num_tokens, heads, head_dim\]"),
            (lambda q, k, v: (torch.cat((q, q)), k, v), ValueError, "q has the shape"),
            (lambda q, k, v: (q, k, torch.cat((v, v), -1)[:, :, ::2]), ValueError, "v has the strides"),
            (lambda q, k, v: (q, k.to(other), v), TypeError, "dtype is torch.float64"),
            (lambda q, k, v: (q, elsewhere.expand(k.shape), v), ValueError, "k is on meta, expected"),
            (lambda q, k, v: (q, k.int(), v), cgr.CgrError, "k.dtype is"),
            (lambda q, k, v: (q[:, :1], k, v), ValueError, r"q has the shape \[\d+, 1, 16\], expected \[\d+, 2, 16\] in layer 0"),
            (lambda q, k, v: (q, torch.cat((k, k), 1), v), ValueError, r"k has the shape \[\d+, 2, 16\]"),
            (lambda q, k, v: (q, k, torch.cat((v, v), 2)), ValueError, r"v has the shape \[\d+, 1, 32\]"),
            (lambda q, k, v: ([q], k, v), TypeError, "q is of <class 'list'>, expected a torch.Tensor"),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                self.capture(lambda q, k, v: cgr.torch.Attention(0)(*function(q, k, v)))

    def test_writes_out_and_lse(self):
        def record(step):
            q, k, v = (torch.ones(step.num_tokens, heads, 16, dtype=small.dtype, device=small.place) for heads in (2, 1, 1))
            v = v * step.positions[:, None, None]
            out, lse = torch.empty_like(q), torch.empty(step.num_tokens, 2, device=small.place)
            assert cgr.torch.attention(0, q, k, v, out=out, lse=lse) is out
            results.copy_(torch.cat((out[:, :, 0].float(), lse), 1)[0])

        results = torch.zeros(4, device="cpu" if ON_HOST else DEVICE)
        with Small(record, layer=True, capture=False, graph_mode=cgr.GraphMode.FULL) as small:
            small.record.capture(small.runtime)
            for i in range(5):
                small.step([1])
            expected = [2.0] * 2 + [16 / 4 + math.log(5)] * 2  # the mean of 0 .. 4; five keys whose scores are 16 / sqrt(16)
            torch.testing.assert_close(results.cpu(), torch.tensor(expected), rtol=1e-3, atol=1e-3)


@unittest.skipIf(torch is None, "no torch")
class Memory(unittest.TestCase):
    def test_a_closed_runtime_lets_go_of_weights(self):
        weights = torch.ones(8, dtype=torch.int32, device="cpu" if ON_HOST else DEVICE)
        gone = weakref.ref(weights)

        def record(step, weights=weights):
            step.next_tokens.copy_(step.input_ids.index_select(0, step.logits_indices) + weights[0])

        with Small(record) as small:
            self.assertEqual(small.step([5])[1].tokens.tolist(), [6])
        del weights, record, small
        gc.collect()
        self.assertIsNone(gone())

    @unittest.skipUnless(ON_HOST, "the arena is the host's")
    def test_captures_share_an_arena(self):
        def record(step):
            x = torch.zeros(step.num_tokens, 1 << 19)
            for _ in range(3):
                x = x + 1
            step.next_tokens.zero_()

        with Small(record) as small:
            blocks = [block.data_ptr() for block in small.record._arena._blocks]
            self.assertEqual(len(blocks), 4, "as many as the largest capture needs")
            small.runtime.release_graphs(0)
            small.record.capture(small.runtime)
            self.assertEqual([block.data_ptr() for block in small.record._arena._blocks], blocks)

    @unittest.skipIf(ON_HOST, "of the caching allocator")
    def test_captures_share_a_pool(self):
        def record(step):
            x = torch.zeros(1 << 20, device=small.place)
            for _ in range(3):
                x = x + 1
            step.next_tokens.zero_()

        with Small(record, capture=False) as small:
            small.record.capture(small.runtime)
            taken = torch.cuda.memory_stats(small.place)["reserved_bytes.all.current"]
            small.runtime.release_graphs(0)
            small.record.capture(small.runtime)
            self.assertEqual(torch.cuda.memory_stats(small.place)["reserved_bytes.all.current"], taken)


if __name__ == "__main__":
    unittest.main()
