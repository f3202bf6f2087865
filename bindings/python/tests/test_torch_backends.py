"""examples/torch_backends: FlashInfer's and FlashAttention-3's kernels as backends with cgr's plan, which one graph makes anew for each
batch. On the host device stand-ins attend as the plan's words say; on a GPU the libraries themselves, where they are installed.
"""

import importlib.util
import os
import random
import sys
import unittest
from unittest import mock

from support import ROOT

import cgr

EXAMPLE = os.path.join(ROOT, "examples/torch_backends")
sys.path.insert(0, EXAMPLE)
THERE = os.path.exists(os.path.join(EXAMPLE, "compare.py"))
TORCH = THERE and importlib.util.find_spec("torch") is not None
SEED = int(os.environ.get("CGR_SEED", "11"))

if TORCH:
    import compare
    import torch
    import torch_libraries
    from test_torch import ON_HOST

SMALL = dict(Q_HEADS=4, KV_HEADS=2, DIM=32, PAGES=136, REQUESTS=8, TOKENS=96, LENGTH=256)


def installed(name):
    return importlib.util.find_spec(name) is not None


@unittest.skipUnless(TORCH, "no torch")
class TensorsAtAnAddress(unittest.TestCase):
    def test_they_are_the_memory(self):
        device = torch.device("cpu" if ON_HOST else "cuda")
        for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.float8_e4m3fn):
            memory = torch.arange(120, dtype=torch.uint8, device=device).repeat(dtype.itemsize).view(dtype)
            whole = cgr.torch.tensor_at(memory.data_ptr(), dtype, (120,), device)
            part = cgr.torch.tensor_at(memory[5:].data_ptr(), dtype, (3, 2, 4), device, strides=(20, 8, 1))
            self.assertEqual((whole.dtype, part.dtype, part.device.type), (dtype, dtype, device.type))
            bits = memory.view(torch.uint8)
            self.assertTrue(torch.equal(whole.view(torch.uint8), bits))
            wanted = memory.as_strided((3, 2, 4), (20, 8, 1), 5)
            self.assertTrue(torch.equal(part.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)))
            part.copy_(torch.ones((3, 2, 4), device=device).to(dtype))
            self.assertTrue((memory.as_strided((3, 2, 4), (20, 8, 1), 5).float() == 1).all())
            self.assertEqual(part.data_ptr(), memory.data_ptr() + 5 * dtype.itemsize)


@unittest.skipUnless(TORCH and ON_HOST, "no torch, or a GPU")
class StandIns(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}", flush=True)
        random.seed(SEED), torch.manual_seed(SEED)
        self.attention3 = torch_libraries.FlashAttention3()
        self.flashinfer = torch_libraries.flashinfer()
        for name, module in (
            ("flashinfer", self.flashinfer),
            ("flash_attn_interface", torch_libraries),
            ("flash_attn_config", torch_libraries),
        ):
            sys.modules[name] = module
            self.addCleanup(sys.modules.pop, name)
        with cgr.Device("host") as device:
            count = device.info().num_multiprocessors
        for patch in (
            mock.patch.object(torch.ops, "flash_attn_3", self.attention3, create=True),
            mock.patch.multiple(compare, **SMALL),
            mock.patch.object(torch_libraries.HostGpu, "num_multiprocessors", count),
        ):
            patch.start()
            self.addCleanup(patch.stop)
        self.errors = []
        hook = mock.patch.object(sys, "unraisablehook", self.errors.append)
        hook.start()
        self.addCleanup(hook.stop)

    def tearDown(self):
        self.assertEqual([str(error.exc_value) for error in self.errors], [])
        for name in ("flashinfer_backend", "fa3_backend"):
            sys.modules.pop(name, None)  # it holds a stand-in

    def make(self, kind):
        """What makes the kind's backend, on the host."""
        make = compare.KINDS[kind][0]()

        def on_host(*arguments):
            import fa3_backend
            import flashinfer_backend

            for backend in (fa3_backend.FlashAttention3, flashinfer_backend.FlashInfer):
                backend.DEVICES = (cgr.DeviceKind.HOST,)
            return make(*arguments)

        return on_host

    def engine(self, kind, **fields):
        engine = compare.Engine("host", self.make(kind), **fields)
        self.addCleanup(engine.runtime.close)
        return engine

    def steps(self, engine, count, check):
        rng = random.Random(SEED)
        return self.batches(engine, (engine.random_batch(rng) for _ in range(count)), check)

    def batches(self, engine, batches, check=lambda *_: None):
        kinds = set()
        for rows, query_lens in batches:
            engine.out.fill_(torch.nan), engine.lse.fill_(torch.nan)
            key, _ = engine.step(rows, query_lens)
            kinds.add((key.kind, key.query_len))
            n, padded = sum(query_lens), key.num_tokens
            self.assertTrue((engine.out[:, n:padded] == 0).all() and (engine.lse[:, n:padded] == -torch.inf).all(), "padded rows")
            for layer in range(compare.LAYERS):
                for request in range(len(rows)):
                    first = sum(query_lens[:request])
                    wanted = compare.reference(engine, layer, rows, query_lens, request)
                    got = engine.out[layer, first : first + query_lens[request]].float()
                    self.assertLess(((got - wanted).norm() / wanted.norm()).item(), 0.02, (layer, request, rows, query_lens))
            check(key, rows, query_lens)
        return kinds

    def test_flashinfer_on_tensor_cores_serves_all_batches(self):
        engine = self.engine("flashinfer")
        planned = torch_libraries.Wrapper.plans
        kinds = self.steps(engine, 12, lambda *_: None)
        self.assertEqual(kinds, {(cgr.GraphKind.FULL, 0), (cgr.GraphKind.FULL, 1)})
        self.assertEqual(torch_libraries.Wrapper.plans, planned, "a step planned by itself")

    def test_equal_to_its_own_plan(self):
        for kind in ("flashinfer", "flashinfer-decode"):
            with self.subTest(kind):
                engine = self.engine(kind)
                own = compare.OwnFlashInfer(engine)
                counts, away = compare.run(engine, own, 10, SEED)
                for name, found in counts.items():
                    self.assertEqual(found.equal, found.steps, name)
                self.assertLess(away, 0.02)

    def test_an_older_release(self):
        self.flashinfer.__version__ = "0.6.18"
        with mock.patch.object(torch_libraries.HostGpu, "layout", cgr.FlashinferLayout.V0_6_18):
            for kind in ("flashinfer", "flashinfer-decode"):
                engine = self.engine(kind)
                self.steps(engine, 5, lambda *_: None)
                counts, _ = compare.run(engine, compare.OwnFlashInfer(engine), 4, SEED)
                self.assertTrue(all(found.equal == found.steps for found in counts.values()))

    def test_decodes_on_cuda_cores_and_others_between_pieces(self):
        engine = self.engine("flashinfer-decode")
        kinds = self.steps(engine, 12, lambda *_: None)
        self.assertEqual(kinds, {(cgr.GraphKind.FULL, 1), (cgr.GraphKind.PIECEWISE, 0)})

    def test_eager_steps(self):
        engine = self.engine("flashinfer-decode", graph_mode=cgr.GraphMode.FULL_DECODE_ONLY)
        kinds = self.steps(engine, 8, lambda *_: None)
        self.assertEqual(kinds, {(cgr.GraphKind.FULL, 1), (cgr.GraphKind.NONE, 0)})

    def test_windows_and_caps(self):
        for kind in compare.KINDS:
            for window, softcap in ((37, 0.0), (0, 1.5), (20, 1.0)):
                with self.subTest(kind, window=window, softcap=softcap):
                    self.steps(self.engine(kind, window=window, softcap=softcap), 5, lambda *_: self.assertEqual(self.attention3.wrong, []))

    def test_what_an_older_step_left_in_the_buffers_is_not_read(self):
        """Of more requests, with fewer pages in all than one has now."""
        for kind in compare.KINDS:
            with self.subTest(kind):
                engine = self.engine(kind, graph_mode=cgr.GraphMode.NONE)
                one = ([engine.rows[0]], [compare.TOKENS])
                self.batches(engine, [(engine.rows, [1] * compare.REQUESTS), one, one])

    def test_fa3_gets_the_plan_of_each_batch(self):
        for mode in (cgr.GraphMode.DEFAULT, cgr.GraphMode.PIECEWISE, cgr.GraphMode.NONE):
            with self.subTest(mode):
                engine = self.engine("fa3", graph_mode=mode)
                before = self.attention3.calls
                self.steps(engine, 8, lambda *_: self.assertEqual(self.attention3.wrong, []))
                self.assertEqual(self.attention3.calls - before, 8 * compare.LAYERS)

    def test_another_release_is_refused(self):
        self.flashinfer.__version__ = "0.6.13"
        with self.assertRaisesRegex(RuntimeError, "FlashInfer 0.6.13 is not known"):
            self.engine("flashinfer")

    def test_another_plan_is_refused(self):
        """The release says what it is, but plans as another."""
        for kind in ("flashinfer", "flashinfer-decode"):
            with self.subTest(kind), mock.patch.object(torch_libraries.HostGpu, "num_multiprocessors", 77):
                with self.assertRaisesRegex(RuntimeError, "name the layout of its release"):
                    self.engine(kind)

    def test_what_they_cannot_run_is_named(self):
        for kind in ("flashinfer", "fa3"):
            for field, value in (("window_left", 8), ("softcap", 3.0), ("scale", 0.5), ("num_q_heads", 2)):
                engine = self.engine(kind)
                layer = engine.backend.layers.first.copy()
                layer.head_dim_v, layer.scale = layer.head_dim, layer.head_dim**-0.5
                layer.q_dtype = layer.out_dtype = layer.k.dtype
                setattr(layer, field, value)
                findings = engine.backend.layers.check(engine.device.info(), cgr.Group(num_pages=4), layer)
                self.assertEqual([finding.field for finding in findings], [field])

    def test_what_a_wheel_was_built_without_is_named(self):
        for fields, name in ((dict(softcap=2.0), "softcap"), (dict(window=9), "window_left")):
            flag = f"FLASHATTENTION_DISABLE_{'LOCAL' if name == 'window_left' else 'SOFTCAP'}"
            with mock.patch.dict(torch_libraries.CONFIG["build_flags"], {flag: True}):
                self.engine("fa3")
                with self.assertRaisesRegex(cgr.CgrError, f"{name} has no kernels: {flag}"):
                    self.engine("fa3", **fields)

    def test_a_device_without_kernels_is_named(self):
        with self.assertRaisesRegex(cgr.CgrError, "has no kernels for this device"):
            compare.Engine("host", compare.KINDS["fa3"][0]())


@unittest.skipUnless(TORCH and not ON_HOST, "no GPU")
class OnAGpu(unittest.TestCase):
    def compare(self, kind):
        random.seed(SEED), torch.manual_seed(SEED)
        engine = compare.Engine("cuda:0", compare.KINDS[kind][0]())
        self.addCleanup(engine.runtime.close)
        counts, away = compare.run(engine, compare.KINDS[kind][1](engine), 40, SEED)
        self.assertLess(away, 0.02)
        for name, found in counts.items():
            with self.subTest(name):
                self.assertLess(found.out, 0.02)
                if not name.endswith("padded"):
                    self.assertEqual(found.equal, found.steps)

    @unittest.skipUnless(installed("flashinfer"), "no flashinfer")
    def test_flashinfer(self):
        self.compare("flashinfer")

    @unittest.skipUnless(installed("flashinfer"), "no flashinfer")
    def test_flashinfer_decode(self):
        self.compare("flashinfer-decode")

    @unittest.skipUnless(installed("flash_attn_interface"), "no flash_attn_interface")
    def test_fa3(self):
        self.compare("fa3")


if __name__ == "__main__":
    unittest.main()
