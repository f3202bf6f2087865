"""What a first engine gets wrong about arguments: each is refused by the name of the field, or does what was meant."""

import unittest

import numpy as np
from support import PAGE, Engine

import cgr


def view(array):
    return cgr.View(
        data=array, dtype=cgr.Dtype.FP32, stride_token=array.strides[0] // 4, stride_head=array.strides[1] // 4
    )


class Layered:
    """One layer of two query heads and one KV head over numpy's memory."""

    def __init__(self, pages=8, **fields):
        self.device = cgr.Device("host")
        self.cache = np.zeros((pages, 2, PAGE, 1, 16), np.float32)
        k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, self.cache, cgr.Dtype.FP32, PAGE, 1, 16)
        layer = cgr.Layer(num_q_heads=2, num_kv_heads=1, head_dim=16, k=k, v=v)
        limits = dict(max_requests=4, max_tokens=16, max_seq_len=64)
        self.runtime = cgr.Runtime(
            device=self.device, groups=[cgr.Group(num_pages=fields.pop("num_pages", pages))], layers=[layer], **limits
        )

    def close(self):
        self.runtime.close()
        self.device.close()

    def capture(self, qkv, out, **fields):
        """Of calls with the parts of one array [tokens, 4, 16], which have strides."""
        views = {"q": view(qkv), "k": view(qkv[:, 2:]), "v": view(qkv[:, 3:]), "out": view(out)}
        views.update(fields)
        self.runtime.capture(lambda recorder: recorder.attention(cgr.Attention(layer=0, **views)))


def layered(test, **fields):
    """One that is closed after the test: garbage must not end devices inside of another one's `record`."""
    engine = Layered(**fields)
    test.addCleanup(engine.close)
    return engine


class Lengths(unittest.TestCase):
    def test_a_list_has_as_many_elements_as_are_read(self):
        with Engine() as engine:
            row = engine.open(1)
            # A prompt whose query_lens were forgotten would otherwise run as its first token.
            with self.assertRaisesRegex(ValueError, "tokens has 3 elements, expected 1 in a list, one for each new token"):
                engine.runtime.prepare(cgr.Batch(rows=[row], tokens=[1, 2, 3]))
            for field in ("query_lens", "flags"):
                with self.assertRaisesRegex(ValueError, f"{field} has 2 elements, expected 1 in a list"):
                    engine.runtime.prepare(cgr.Batch(rows=[row], tokens=[1], **{field: [1, 1]}))
            with self.assertRaisesRegex(ValueError, "tokens has 2 elements, expected 1 in a list"):
                engine.runtime.standing_add(row, 1, [1, 2])
            # The length that is wrong is cgr's to name.
            with self.assertRaisesRegex(cgr.CgrError, r"query_lens\[0\] is -1"):
                engine.runtime.prepare(cgr.Batch(rows=[row], query_lens=[-1], tokens=[1]))

    def test_an_array_may_be_longer_than_what_is_read(self):
        with Engine() as engine:
            rows, tokens = np.array([engine.open(1), 99], np.int32), np.arange(8, dtype=np.int32)
            _, result = engine.step(cgr.Batch(rows=rows, num_requests=1, tokens=tokens))
            self.assertEqual(result.tokens.tolist(), [1])

    def test_a_decode_of_the_standing_batch_needs_no_tokens(self):
        with Engine() as engine:
            row, batch = engine.open(1), cgr.Batch(num_requests=cgr.BATCH_STANDING)
            engine.runtime.standing_add(row, 2, [5, 6])
            self.assertEqual(engine.step(batch)[1].tokens.tolist(), [7])
            engine.runtime.standing_update(row, 1)
            self.assertEqual([engine.step(batch)[1].tokens[0] for _ in range(2)], [8, 9])
            with self.assertRaisesRegex(cgr.CgrError, "tokens is NULL, expected 2 tokens"):
                engine.runtime.standing_update(row, 2)

    def test_where_is_the_last_argument(self):
        with Engine() as engine:
            row = engine.open(1)
            engine.runtime.standing_add(row, 1, [3], 0, cgr.Where())
            engine.runtime.standing_remove(row, cgr.Where())
            with self.assertRaisesRegex(cgr.CgrError, "index of declared is 1"):
                engine.runtime.buffer(cgr.Buffer.DECLARED, 1)


class Types(unittest.TestCase):
    def test_a_value_of_another_type_is_refused_by_name(self):
        cases = (
            (cgr.Config, "graph_mode", "full", "graph_mode is of <class 'str'>, expected an integer"),
            (cgr.Config, "max_requests", 2.0, "max_requests is of <class 'float'>, expected an integer"),
            (cgr.Config, "on_demand", None, "on_demand is of <class 'NoneType'>, expected an integer"),
            (cgr.Config, "max_padding", "2", "max_padding is of <class 'str'>, expected a number"),
            (cgr.Config, "device", 3, "device is of <class 'int'>, expected a str"),
            (cgr.Config, "groups", cgr.Group(), "groups is of <class 'cgr.Group'>, expected a sequence of cgr.Group"),
            (cgr.Config, "max_other_lens", 3, "max_other_lens is of <class 'int'>, expected a sequence of integers"),
            (cgr.Batch, "rows", [0, 0.5], r"rows\[1\] is of <class 'float'>, expected an integer"),
            (cgr.Finding, "text", 3, "text is of <class 'int'>, expected a str"),
        )
        for struct, field, value, expected in cases:
            with self.subTest(field=field):
                self.assertRaisesRegex(TypeError, expected, struct, **{field: value})
        with cgr.Device("host") as device, self.assertRaisesRegex(TypeError, "expected a str: an open device is device_handle"):
            cgr.Config(device=device)
        self.assertRaisesRegex(ValueError, "rows has strides", cgr.Batch, rows=np.arange(6, dtype=np.int32)[::2])
        self.assertRaisesRegex(TypeError, "percent is of <class 'str'>", cgr.histogram_percentile, cgr.Histogram(), "50")
        self.assertRaisesRegex(TypeError, "bytes is of <class 'str'>", cgr.Device("host").alloc, "4")


class Views(unittest.TestCase):
    def test_parts_of_one_array_are_views_of_their_own(self):
        engine, qkv, out = layered(self), np.zeros((16, 4, 16), np.float32), np.ones((16, 2, 16), np.float32)
        qkv[:, 3] = np.arange(16)
        engine.capture(qkv, out)
        row, stream = engine.runtime.request_open(1), engine.device.stream()
        engine.runtime.request_set_pages(row, 0, 0, [2])
        step = engine.runtime.prepare(cgr.Batch(rows=[row], query_lens=[3], tokens=[1, 2, 3]))
        step.launch(stream)
        step.wait()
        np.testing.assert_array_equal(engine.cache[2, 1, :3, 0], qkv[:3, 3])
        np.testing.assert_allclose(out[2], np.tile(qkv[:3, 3].mean(0), (2, 1)), rtol=1e-6)

    def test_arrays_are_as_large_as_what_a_call_reads_and_writes(self):
        engine, qkv, out = layered(self), np.zeros((16, 4, 16), np.float32), np.zeros((16, 2, 16), np.float32)
        short = np.zeros((16, 4, 16), np.float32)[:15]
        with self.assertRaisesRegex(ValueError, "attention.out has 1920 bytes, expected at least 2048: 16 tokens, padding"):
            engine.capture(qkv, out[:15])
        for name, part in (("q", short), ("k", short[:, 2:]), ("v", short[:, 3:])):
            with self.assertRaisesRegex(ValueError, f"attention.{name} has .* bytes, expected at least"):
                engine.capture(qkv, out, **{name: view(part)})
        with self.assertRaisesRegex(ValueError, "data has a negative stride"):
            view(qkv[::-1])
        engine.capture(qkv, out)

    def test_elements_are_as_large_as_those_of_the_dtype(self):
        engine, qkv, out = layered(self), np.zeros((16, 4, 16), np.float32), np.zeros((16, 2, 16), np.float32)
        with self.assertRaisesRegex(TypeError, "attention.q has elements of 8 bytes, expected 4, those of fp32"):
            engine.capture(qkv, out, q=view(qkv.astype(np.float64)))
        with self.assertRaisesRegex(TypeError, "base has elements of 2 bytes, expected 4, those of fp32"):
            cgr.kv_view_make(cgr.KvLayout.NHD, engine.cache.astype(np.float16), cgr.Dtype.FP32, PAGE, 1, 16)
        with self.assertRaisesRegex(TypeError, "data has elements of 8 bytes, expected 2, those of bf16"):
            cgr.view_make(np.zeros((16, 2, 16)), cgr.Dtype.BF16, 2, 16)
        for bits in (np.uint16, np.int16, np.float16, np.uint8):  # numpy has no bf16; bytes may be anything
            cgr.view_make(np.zeros((16, 2, 32), bits), cgr.Dtype.BF16, 2, 16)

    def test_caches_hold_the_pages_of_their_group(self):
        layered(self, pages=8)
        with self.assertRaisesRegex(ValueError, r"layers\[0\].k has 16384 bytes, expected at least 17408: 9 pages of 16 tokens"):
            layered(self, pages=8, num_pages=9)


class Shown(unittest.TestCase):
    def test_a_runtime_and_a_recorder_tell_the_configuration(self):
        engine, seen = layered(self), []
        self.assertEqual((engine.runtime.config.max_tokens, engine.runtime.config.layers[0].head_dim), (16, 16))
        engine.runtime.config.max_tokens = 99
        self.assertEqual(engine.runtime.config.max_tokens, 16, "it is a copy")
        with self.assertRaisesRegex(cgr.CgrError, "left out"):
            engine.runtime.capture(lambda recorder: seen.append((recorder, recorder.config.max_seq_len)))
        self.assertEqual(seen[0][1], 64)
        with self.assertRaisesRegex(ValueError, "during its call alone"):
            _ = seen[0][0].config
        engine.runtime.close()
        with self.assertRaisesRegex(ValueError, "the runtime is closed"):
            _ = engine.runtime.config

    def test_devices_and_runtimes_are_shown_as_what_they_are(self):
        engine = layered(self)
        self.assertEqual(repr(engine.device), "<cgr.Device 'host'>")
        self.assertEqual(repr(engine.runtime), "<cgr.Runtime of 4 requests, 16 tokens, 1 layers>")
        engine.runtime.close()
        engine.device.close()
        self.assertEqual((repr(engine.runtime), repr(engine.device)), ("<cgr.Runtime, closed>", "<cgr.Device, closed>"))

    def test_a_refusal_shows_every_finding(self):
        groups = [cgr.Group(num_pages=8)]
        with self.assertRaises(cgr.CgrError) as raised:
            cgr.Runtime(device="host", groups=groups, max_requests=4, max_tokens=2, max_seq_len=64, ring_depth=1)
        notes = raised.exception.__notes__
        self.assertEqual([finding.field for finding in raised.exception.findings], ["max_tokens", "ring_depth"])
        self.assertRegex("\n".join(notes), r"max_tokens: .*\n  ring_depth: .*expected 2 .. 64")
        with self.assertRaises(cgr.CgrError) as raised:
            cgr.Runtime(device="host", groups=groups, max_requests=4, max_tokens=4, max_seq_len=64, ring_depth=1)
        self.assertFalse(hasattr(raised.exception, "__notes__"), "the message has the one that there is")


if __name__ == "__main__":
    unittest.main()
