"""cgr_attention.transform from Python: q, k and v are biased, normed and turned as numpy does it, eagerly and in graphs; what it
points to is kept as long as graphs read it, and no longer; a backend of Python's that appends is told."""

import gc
import os
import unittest
import weakref

import numpy as np
from support import PAGE, Closes

import cgr

SEED = int(os.environ.get("CGR_SEED", "11"))
HEADS, DIM, ROTARY, TOKENS, LENGTH = 2, 32, 16, 8, 64
EPSILON = 1e-3
ARRAYS = {"q_bias": (HEADS, DIM), "k_bias": (1, DIM), "v_bias": (1, DIM), "q_norm": (DIM,), "k_norm": (DIM,), "cos_sin": (LENGTH, ROTARY)}


def floats(values):
    """At an aligned address of its own."""
    out = cgr.aligned(values.size * 4).view(np.float32).reshape(values.shape)
    out[:] = values
    return out


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def rope(x, angles):
    """Of NeoX: x [tokens, heads, DIM], angles [tokens, ROTARY]."""
    half = ROTARY // 2
    cos, sin = angles[:, None, :half], angles[:, None, half:]
    first, second = x[..., :half], x[..., half:ROTARY]
    return np.concatenate((first * cos - second * sin, second * cos + first * sin, x[..., ROTARY:]), -1)


def attend(q, k, v):
    """Causal, of the last tokens of one sequence: q [tokens, HEADS, DIM], k and v [all tokens, 1, DIM]."""
    scores = np.einsum("thd,sd->hts", q, k[:, 0]) / np.sqrt(DIM)
    ahead = np.arange(len(k))[None, :] > np.arange(len(k) - len(q), len(k))[:, None]
    scores = np.where(ahead, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hts,sd->thd", weights / weights.sum(-1, keepdims=True), v[:, 0])


class Model(Closes):
    """One layer of one sequence; `arrays` are made anew in each `record`, of which nothing is left here but weak references."""

    def __init__(self, mode, backend=None, arrays=ARRAYS):
        self.rng = np.random.default_rng(SEED)
        self.values = {name: self.rng.standard_normal(shape) for name, shape in ARRAYS.items() if name in arrays}
        self.made = []
        self.device = cgr.Device("host")
        self.stream = self.device.stream()
        self.q, self.k, self.v, self.out = (floats(np.zeros((TOKENS, n, DIM))) for n in (HEADS, 1, 1, HEADS))
        cache = floats(np.zeros((8, 2, PAGE, 1, DIM)))
        k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, cache, cgr.Dtype.FP32, PAGE, 1, DIM)
        self.runtime = cgr.Runtime(
            device=self.device, groups=[cgr.Group(num_pages=8)], max_requests=1, max_tokens=TOKENS, max_seq_len=LENGTH, graph_mode=mode,
            layers=[cgr.Layer(num_q_heads=HEADS, num_kv_heads=1, head_dim=DIM, k=k, v=v, backend=1 if backend else 0)],
            backends=[backend] if backend else [], mixed_buckets=[cgr.Bucket(num_tokens=TOKENS, num_requests=1)],
        )  # fmt: skip
        self.runtime.capture(self.record)
        self.row = self.runtime.request_open(1)
        self.runtime.request_set_pages(self.row, 0, 0, [2, 3, 4, 5])

    def transform(self):
        arrays = {name: floats(values) for name, values in self.values.items()}
        self.made += [weakref.ref(array.base) for array in arrays.values()]
        rotary = dict(num_positions=LENGTH, rotary_dim=ROTARY) if "cos_sin" in arrays else {}
        return cgr.QkvTransform(norm_epsilon=EPSILON, **rotary, **arrays)

    def record(self, recorder):
        views = dict(q=(self.q, HEADS), k=(self.k, 1), v=(self.v, 1), out=(self.out, HEADS))
        views = {name: cgr.view_make(array, cgr.Dtype.FP32, heads, DIM) for name, (array, heads) in views.items()}
        recorder.attention(cgr.Attention(transform=self.transform(), **views))

    def expected(self, inputs, first):
        """What q, k and v of these tokens become."""
        of = lambda name, otherwise: self.values.get(name, otherwise)  # noqa: E731
        q, k, v = (x + of(f"{n}_bias", 0) for n, x in zip("qkv", inputs))
        q, k = (norm(x, self.values[f"{n}_norm"]) if f"{n}_norm" in self.values else x for n, x in zip("qk", (q, k)))
        if "cos_sin" in self.values:
            q, k = (rope(x, self.values["cos_sin"][first : first + len(x)]) for x in (q, k))
        return q, k, v

    def step(self, count):
        """The key of the step, and its inputs."""
        inputs = [self.rng.standard_normal((count, n, DIM)).astype(np.float32) for n in (HEADS, 1, 1)]
        for array, values in zip((self.q, self.k, self.v), inputs):
            array[:] = 0
            array[:count] = values
        step = self.runtime.prepare(cgr.Batch(rows=[self.row], query_lens=[count], tokens=[7] * count))
        step.launch(self.stream)
        step.wait()
        return step.key, inputs


class Transform(unittest.TestCase):
    def test_q_k_and_v_are_as_in_numpy(self):
        every = (tuple(ARRAYS), ("q_bias", "v_bias"), ("k_norm",), ("cos_sin",))
        for mode in (cgr.GraphMode.NONE, cgr.GraphMode.PIECEWISE, cgr.GraphMode.FULL):
            for arrays in every:
                with self.subTest(mode=mode, arrays=arrays, seed=SEED), Model(mode, arrays=arrays) as model:
                    self.run_steps(model, mode)

    def run_steps(self, model, mode):
        keys, values, kinds, junk = np.zeros((0, 1, DIM)), np.zeros((0, 1, DIM)), set(), []
        for count in (5, 1, 8, 1, 1, 3):
            gc.collect()
            junk += [floats(np.full(shape, np.nan)) for shape in ARRAYS.values()]  # takes the place of what is not kept
            key, inputs = model.step(count)
            kinds.add(key.kind)
            q, k, v = model.expected(inputs, len(keys))
            keys, values = np.concatenate((keys, k)), np.concatenate((values, v))
            np.testing.assert_allclose(model.q[:count], q, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(model.out[:count], attend(q, keys, values), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(model.k[:count], inputs[1], "the cache alone gets what k becomes")
        wanted = {cgr.GraphMode.NONE: cgr.GraphKind.NONE, cgr.GraphMode.PIECEWISE: cgr.GraphKind.PIECEWISE}
        self.assertEqual(kinds, {wanted.get(mode, cgr.GraphKind.FULL)})

    def test_its_arrays_live_as_long_as_graphs_read_them(self):
        model = Model(cgr.GraphMode.FULL)
        model.step(1)
        gc.collect()
        self.assertGreater(sum(ref() is not None for ref in model.made), len(ARRAYS) - 1)
        model.close()
        gc.collect()
        self.assertEqual([ref() for ref in model.made], [None] * len(model.made))

    def test_eager_steps_let_go_of_them(self):
        with Model(cgr.GraphMode.NONE) as model:
            for _ in range(3):
                model.step(1)
            model.stream.synchronize()
            gc.collect()
            self.assertEqual(len(model.made), 3 * len(ARRAYS))
            self.assertEqual([ref() for ref in model.made], [None] * len(model.made))

    def test_memory_of_the_runtime_does_not_keep_it(self):
        def record(recorder):
            buffer = recorder.buffer(cgr.Buffer.DECLARED).array()
            views = {name: cgr.view_make(array, cgr.Dtype.FP32, 1, 16) for name, array in memory.items()}
            given = cgr.Attention(transform=cgr.QkvTransform(q_bias=buffer), **views)
            recorder.attention(given)
            self.assertIs(type(given.transform.q_bias), cgr.Array)  # the engine's struct is as it was

        declared = cgr.BufferDecl(name="bias", dimension=cgr.Dimension.TOKENS, dtype=cgr.Dtype.FP32, width=16)
        memory = {name: floats(np.zeros((8, 1, 16))) for name in ("q", "k", "v", "out")}
        cache = floats(np.zeros((8, 2, PAGE, 1, 16)))
        k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, cache, cgr.Dtype.FP32, PAGE, 1, 16)
        runtime = cgr.Runtime(
            device="host", groups=[cgr.Group(num_pages=8)], max_requests=1, max_tokens=8, max_seq_len=16, buffers=[declared],
            layers=[cgr.Layer(num_q_heads=1, num_kv_heads=1, head_dim=16, k=k, v=v)], graph_mode=cgr.GraphMode.FULL,
        )  # fmt: skip
        runtime.capture(record)
        gone = weakref.ref(runtime)
        del runtime
        gc.collect()
        self.assertIsNone(gone())

    def test_a_struct_is_copied_when_it_is_given(self):
        transform = cgr.QkvTransform(rotary_dim=16, flags=cgr.TransformFlag.INTERLEAVED)
        attention = cgr.Attention(transform=transform)
        transform.rotary_dim = 32
        self.assertEqual((attention.transform.rotary_dim, attention.transform.flags), (16, cgr.TransformFlag.INTERLEAVED))
        attention.transform.rotary_dim = 64
        self.assertEqual((attention.copy().transform.rotary_dim, transform.rotary_dim), (64, 32))
        attention.transform = None
        self.assertIsNone(attention.transform)
        with self.assertRaisesRegex(TypeError, "transform is of .*View.*, expected cgr.QkvTransform"):
            attention.transform = cgr.View()

    def test_refusals(self):
        short = floats(np.zeros((LENGTH - 1, ROTARY)))
        with self.assertRaisesRegex(ValueError, "cos_sin has 1008 elements, expected at least 1024"):
            self.record_with(lambda transform: setattr(transform, "cos_sin", short))
        with cgr.Device("host") as device, device.alloc(4 * DIM * HEADS) as memory:
            with self.assertRaisesRegex(ValueError, "the memory is closed"):
                self.record_with(lambda transform: (setattr(transform, "q_bias", memory), memory.close()))
        with self.assertRaisesRegex(cgr.CgrError, "rotary_dim"):
            self.record_with(lambda transform: setattr(transform, "rotary_dim", 8))

    def record_with(self, change):
        with Model(cgr.GraphMode.NONE) as model:
            make = model.transform

            def changed():
                transform = make()
                change(transform)
                return transform

            model.transform = changed
            model.step(1)

    def test_a_backend_that_appends_is_told(self):
        told = []

        def record(recorder, attention):
            told.append(attention)
            t = attention.transform
            told.append((t.rotary_dim, t.num_positions, np.float32(t.norm_epsilon), [getattr(t, name) for name in ARRAYS]))

        backend = cgr.Backend(name="mine", record=record, flags=cgr.BackendFlag.APPENDS)
        with Model(cgr.GraphMode.NONE, backend) as model:
            seen, make = [], model.transform
            model.transform = lambda: seen.append(make()) or seen[-1]
            model.step(2)
        addresses = [getattr(seen[0], name).ctypes.data for name in ARRAYS]
        self.assertEqual(told[1], (ROTARY, LENGTH, np.float32(EPSILON), addresses))
        self.assertEqual(told[0].transform.rotary_dim, ROTARY, "a copy, good after the call")


if __name__ == "__main__":
    unittest.main()
