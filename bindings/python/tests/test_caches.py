"""Caches of 8 bits: their pages as 16-bit values, and the magnitudes that factors are made of, against numpy."""

import os
import unittest

import numpy as np
from support import Engine

import cgr

SEED = int(os.environ.get("CGR_SEED", "11"))
HEADS, DIM, PAGE, PAGES, CAPACITY, STRIDE = 2, 16, 4, 9, 8, 3


class Pool:
    """K and V of i8 with factors for each head and each token, and a batch whose first request is a decode."""

    def __init__(self):
        rng = np.random.default_rng(SEED)
        shape = (PAGES, PAGE, HEADS, DIM)
        self.k, self.v = (rng.integers(-128, 128, shape, np.int8) for _ in range(2))
        self.k_scale = rng.random(HEADS, np.float32)
        self.v_scale = rng.random((PAGES, HEADS, PAGE), np.float32)
        self.indptr = np.array([0, 1, 3, 3, 6], np.int32)
        self.indices = np.array([5, 8, 2, 7, 3, 8], np.int32)
        self.first = np.array([1], np.int32)
        self.out_k, self.out_v = (np.full((CAPACITY, *shape[1:]), 9, np.float16) for _ in range(2))
        self.table, self.overflow = np.full((4, STRIDE), -1, np.int32), np.full(1, -1, np.int32)

    def gather(self, place):
        """With each array where `place` puts it."""
        strides = dict(stride_page=PAGE * HEADS * DIM, stride_token=HEADS * DIM, stride_head=DIM)
        views = {}
        for name in ("k", "v"):
            views[name] = cgr.KvView(base=place(getattr(self, name)), dtype=cgr.Dtype.I8, **strides)
            views["out_" + name] = cgr.KvView(base=place(getattr(self, "out_" + name)), dtype=cgr.Dtype.FP16, **strides)
        views["k"].scale, views["k"].scale_stride_head = place(self.k_scale), 1
        views["v"].scale, views["v"].scale_stride_page = place(self.v_scale), HEADS * PAGE
        views["v"].scale_stride_head, views["v"].scale_stride_token = PAGE, 1
        return cgr.Gather(
            num_requests=4, num_kv_heads=HEADS, head_dim=DIM, page_size=PAGE, num_pages=PAGES, capacity=CAPACITY,
            table_stride=STRIDE, kv_indptr=place(self.indptr), kv_indices=place(self.indices), first_request=place(self.first),
            block_table=place(self.table), overflow=place(self.overflow), **views,
        )  # fmt: skip

    def check(self, test, out_k, out_v, table, overflow):
        gathered = self.indices[1:]
        k = self.k[gathered] * self.k_scale[:, None]
        v = self.v[gathered] * self.v_scale[gathered].transpose(0, 2, 1)[..., None]
        for got, wanted in ((out_k, k), (out_v, v)):
            np.testing.assert_array_equal(got[0], 0)
            np.testing.assert_array_equal(got[1:6], wanted.astype(np.float32).astype(np.float16))
            np.testing.assert_array_equal(got[6:], 9)
        np.testing.assert_array_equal(table, [[1, 2, 0], [0, 0, 0], [3, 4, 5], [0, 0, 0]])
        test.assertEqual(overflow.tolist(), [0])


class Gather(unittest.TestCase):
    def test_on_the_host(self):
        pool = Pool()
        cgr.gather_build(pool.gather(lambda array: array))
        pool.check(self, pool.out_k, pool.out_v, pool.table, pool.overflow)

    def test_on_a_stream_of_the_host_device(self):
        pool, memory = Pool(), {}
        with cgr.Device("host") as device, device.stream() as stream:

            def place(array):
                memory[id(array)] = there = device.alloc(array.nbytes)
                device.copy(there, array, array.nbytes, stream)
                return there

            device.gather_enqueue(pool.gather(place), stream)
            stream.synchronize()
            got = [
                memory[id(array)].array(dtype, array.size).numpy().reshape(array.shape)
                for array, dtype in (
                    (pool.out_k, cgr.Dtype.FP16), (pool.out_v, cgr.Dtype.FP16), (pool.table, cgr.Dtype.I32), (pool.overflow, cgr.Dtype.I32)
                )
            ]  # fmt: skip
            pool.check(self, *got)

    def test_arrays_that_are_too_short_are_refused(self):
        for name, shorter, message in (
            ("k", np.s_[:-1], "k has 1024 elements, expected at least 1152"),
            ("out_v", np.s_[:-1], "out_v has 896 elements, expected at least 1024"),
            ("indices", np.s_[:-1], "kv_indices has 5 elements, expected at least 6"),
            ("indptr", np.s_[:-1], "kv_indptr has 4 elements, expected at least 5"),
            ("table", np.s_[:-1], "block_table has 9 elements, expected at least 12"),
            ("overflow", np.s_[:0], "overflow has 0 elements, expected at least 1"),
        ):
            pool = Pool()
            setattr(pool, name, getattr(pool, name)[shorter])
            self.assertRaisesRegex(ValueError, message, cgr.gather_build, pool.gather(lambda array: array))
        pool = Pool()
        pool.indices[2] = PAGES
        with self.assertRaises(cgr.CgrError) as refused:
            cgr.gather_build(pool.gather(lambda array: array))
        self.assertIn("kv_indices", refused.exception.message)


class Measure(unittest.TestCase):
    def test_magnitudes_of_every_step_in_graphs_and_eager(self):
        for mode in (cgr.GraphMode.FULL, cgr.GraphMode.NONE):
            with Engine(capture=False, graph_mode=mode) as engine:
                self.check(engine)

    def check(self, engine):
        rng = np.random.default_rng(SEED)
        tokens = len(engine.ids)
        values = engine.device.alloc(tokens * HEADS * DIM * 4)
        maxima = engine.device.alloc(HEADS * DIM * 4)
        short = engine.device.alloc(HEADS * DIM * 4 - 4)
        x, most = (m.array(cgr.Dtype.FP32).numpy() for m in (values, maxima))
        x, most[:] = x.reshape(tokens, HEADS, DIM), 0
        view = cgr.view_make(values, cgr.Dtype.FP32, HEADS, DIM)
        measure = cgr.Measure(num_heads=HEADS, head_dim=DIM, view=view, maxima=maxima)

        def record(recorder):
            engine.record(recorder)
            refused = cgr.Measure(num_heads=HEADS, head_dim=DIM, view=view, maxima=short)
            self.assertRaisesRegex(ValueError, "maxima has 31 elements, expected at least 32", recorder.measure, refused)
            recorder.measure(measure)

        engine.runtime.capture(record)
        rows, wanted = [engine.open(1), engine.open(2)], np.zeros((HEADS, DIM), np.float32)
        for batch in (cgr.Batch(rows=rows, query_lens=[3, 1], tokens=[1, 2, 3, 4]), cgr.Batch(rows=rows)):
            x[:] = rng.standard_normal(x.shape, np.float32)
            _, result = engine.step(batch)
            real = 4 if batch.tokens is not None else 2
            wanted = np.maximum(wanted, abs(x[:real]).max(axis=0))
            np.testing.assert_array_equal(most.reshape(HEADS, DIM), wanted)
        self.assertEqual(result.tokens.tolist(), [5, 6])


if __name__ == "__main__":
    unittest.main()
