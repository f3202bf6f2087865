"""An engine in Python on the host device: the guide's, kinds of graphs, callbacks, results, arrays."""

import os
import textwrap
import unittest

import numpy as np
from support import ROOT, Engine

import cgr


class TenLines(unittest.TestCase):
    def test_a_decode_loop(self):
        tokens = []
        # begin: docs/python.md
        with cgr.Device("host") as device, device.stream() as stream:
            runtime = cgr.Runtime(device=device, groups=[cgr.Group(num_pages=8)], max_requests=4, max_tokens=16, max_seq_len=96)
            ids, sampled = (runtime.buffer(b).array().numpy() for b in (cgr.Buffer.INPUT_IDS, cgr.Buffer.NEXT_TOKENS))

            def record(recorder):  # the model: here the next token is the last one plus 1
                info = recorder.info()
                device.launch_host(lambda n: np.add(ids[:n], 1, out=sampled[:n]), (info.num_requests,), info.stream)

            runtime.capture(record)
            row = runtime.request_open(tag=7)
            runtime.request_set_pages(row, group=0, first=0, pages=[2])
            batch = cgr.Batch(rows=[row], tokens=[41])
            for _ in range(5):
                step = runtime.prepare(batch)
                step.launch(stream)
                tokens.append(step.wait().tokens[0])
                batch.tokens = None  # the last one is on the device
        # end
        self.assertEqual(tokens, [42, 43, 44, 45, 46])

    def test_the_guide_has_these_lines(self):
        with open(os.path.join(ROOT, "docs/python.md"), encoding="utf-8") as file:
            page = file.read().split("```python\n")[1].split("```")[0]
        with open(__file__, encoding="utf-8") as file:
            mine = file.read().split("# begin: docs/python.md\n")[1].split("        # end")[0]
        self.assertEqual(textwrap.dedent(mine), page)


class OverwrittenResults(unittest.TestCase):
    def test_one_that_the_ring_has_overwritten_is_refused(self):
        for ring_depth in (2, 0):
            with self.subTest(ring_depth=ring_depth), Engine(ring_depth=ring_depth) as engine:
                depth = ring_depth or 4
                batch = cgr.Batch(rows=[engine.open(1)], tokens=[5])
                step, result = engine.step(batch)
                batch.tokens = None
                for _ in range(depth - 1):
                    engine.step(batch)
                self.assertEqual((result.tokens.tolist(), result.tags.tolist()), ([6], [1]))
                kept = result.tokens.tolist()
                engine.step(batch)
                for name in ("tokens", "num_tokens", "rows", "tags"):
                    with self.assertRaisesRegex(ValueError, f"{name} of step .* have been overwritten: .* ring_depth is {depth}"):
                        getattr(result, name)
                self.assertEqual((kept, result.num_requests), ([6], 1))
                self.assertRaises(cgr.CgrError, step.wait)


class Stops(unittest.TestCase):
    def test_a_request_ends_on_the_device(self):
        with Engine(max_stop_tokens=1) as engine:
            row, told = engine.open(7), []
            engine.runtime.request_set_stops(row, cgr.Stops(tokens=[44]))
            batch = cgr.Batch(rows=[row], tokens=[41])
            for _ in range(4):
                _, result = engine.step(batch)
                batch.tokens = None
                told.append((result.num_tokens.tolist(), result.ended.tolist()))
            self.assertEqual(told, [([1], [0]), ([1], [0]), ([1], [cgr.End.STOP_TOKEN]), ([0], [cgr.End.BEFORE])])
            self.assertEqual(engine.runtime.request_info(row).ended, cgr.End.STOP_TOKEN)
            with self.assertRaisesRegex(cgr.CgrError, r"stops->num_tokens is 2, expected 0 .. 1"):
                engine.runtime.request_set_stops(row, cgr.Stops(tokens=[44, 45]))


class Counts(unittest.TestCase):
    def test_choose_the_key_of_their_batch(self):
        with Engine() as engine:
            runtime, row = engine.runtime, engine.open(7)
            batch = cgr.Batch(rows=[row], query_lens=[2], tokens=[3, 4])
            counts = runtime.count(batch)
            self.assertEqual((counts.num_requests, counts.num_tokens, counts.query_len), (1, 2, 2))
            key, reason = runtime.choose_counts(counts)
            chosen = runtime.choose(batch)
            self.assertEqual((key.kind, key.num_tokens, key.num_requests), (chosen.kind, chosen.num_tokens, chosen.num_requests))
            self.assertIn(reason, (cgr.Reason.EXACT, cgr.Reason.PADDED))
            keys, usable = runtime.hash_keys()
            runtime.release_graphs()
            self.assertEqual(runtime.hash_keys()[0], keys)
            self.assertNotEqual(runtime.hash_keys()[1], usable)


class Graphs(unittest.TestCase):
    def generate(self, kind, **options):
        with Engine(**options) as engine:
            captured = len(engine.recorded)
            rows = np.array([engine.open(100 + i) for i in range(3)], np.int32)
            batch = cgr.Batch(rows=rows, query_lens=[2, 1, 3], tokens=[1, 2, 10, 20, 21, 22])
            step, result = engine.step(batch)
            self.assertEqual(result.tokens.tolist(), [3, 11, 23])
            batch.query_lens = batch.tokens = None
            for i in range(5):
                step, result = engine.step(batch)
                self.assertEqual(step.key.kind, kind)
                self.assertEqual(result.tokens.tolist(), [4 + i, 12 + i, 24 + i])
                self.assertEqual(result.tags.tolist(), [100, 101, 102])
                self.assertEqual(np.asarray(result.rows).tolist(), rows.tolist())
            if kind != cgr.GraphKind.NONE:
                self.assertEqual(len(engine.recorded), captured, "a replay does not call record")
            return engine

    def test_full_graphs_without_layers(self):
        for schedule in cgr.HostSchedule:
            self.generate(cgr.GraphKind.FULL, schedule=schedule)

    def test_full_graphs_with_a_layer(self):
        self.generate(cgr.GraphKind.FULL, layer=True)

    def test_pieces_call_python_between_them(self):
        self.generate(cgr.GraphKind.PIECEWISE, layer=True, call=True, graph_mode=cgr.GraphMode.PIECEWISE)

    def test_eager_steps_call_record(self):
        self.generate(cgr.GraphKind.NONE, layer=True, graph_mode=cgr.GraphMode.NONE)

    def test_equal_methods_are_one_record(self):
        with Engine() as engine:
            first = len(engine.recorded)
            engine.runtime.capture(engine.record)
            self.assertEqual(len(engine.recorded), first, "no graph became stale")

    def test_the_standing_batch(self):
        with Engine() as engine:
            rows = [engine.open(i) for i in range(3)]
            for i, row in enumerate(rows):
                engine.runtime.standing_add(row, 1, tokens=[10 * i])
            standing = cgr.Batch(num_requests=cgr.BATCH_STANDING)
            self.assertEqual(engine.step(standing)[1].tokens.tolist(), [1, 11, 21])
            engine.runtime.standing_remove(rows[0])
            self.assertEqual(engine.runtime.standing_rows().tolist(), [rows[2], rows[1]])
            self.assertEqual(engine.step(standing)[1].tokens.tolist(), [22, 12])
            engine.runtime.standing_update(rows[2], 2, tokens=[30, 31])
            engine.step(standing)
            engine.runtime.standing_update(rows[2], 1)  # no tokens: the last one, which is on the device
            self.assertEqual(engine.step(standing)[1].tokens.tolist(), [33, 14])
            engine.runtime.standing_remove(rows[1])
            engine.runtime.standing_add(rows[1], 1)
            self.assertEqual(engine.step(standing)[1].tokens.tolist(), [34, 15])
            for missing in ([], np.empty(0, np.int32)):
                with self.assertRaisesRegex(ValueError, "tokens has 0 elements, expected at least 1"):
                    engine.runtime.standing_update(rows[2], 1, tokens=missing)
            with self.assertRaisesRegex(cgr.CgrError, "tokens is NULL, expected 2 tokens"):
                engine.runtime.standing_update(rows[2], 2)

    def test_a_key_is_chosen_and_forced(self):
        with Engine() as engine:
            batch = cgr.Batch(rows=[engine.open(1)], tokens=[3])
            key = engine.runtime.choose(batch)
            self.assertEqual((key.kind, key.num_requests), (cgr.GraphKind.FULL, 1))
            batch.forced_key = cgr.Key(kind=cgr.GraphKind.FULL, num_requests=4, num_tokens=4, query_len=1)
            step, result = engine.step(batch)
            self.assertEqual((step.key, step.reason, result.tokens.tolist()), (batch.forced_key, cgr.Reason.FORCED, [4]))


class Callbacks(unittest.TestCase):
    def test_an_exception_of_record_is_that_of_capture(self):
        with Engine(capture=False) as engine:
            engine.raises = KeyError("weights")
            with self.assertRaisesRegex(KeyError, "weights"):
                engine.runtime.capture(engine.record)
            engine.raises = None
            engine.runtime.capture(engine.record)

    def test_an_exception_of_record_is_that_of_an_eager_step(self):
        with Engine(graph_mode=cgr.GraphMode.NONE) as engine:
            row = engine.open(1)
            batch = cgr.Batch(rows=[row], tokens=[3])
            engine.raises = KeyError("weights")
            step = engine.runtime.prepare(batch)
            with self.assertRaisesRegex(KeyError, "weights"):
                step.launch(engine.stream)
            self.assertEqual(step.state, cgr.StepState.ABANDONED)
            engine.raises = None
            self.assertEqual(engine.step(batch)[1].tokens.tolist(), [4])

    def test_a_refusal_inside_record_is_that_of_capture(self):
        with Engine(capture=False) as engine:
            with self.assertRaises(cgr.CgrError) as refused:
                engine.runtime.capture(lambda recorder: recorder.attention(cgr.Attention(layer=9)))
            self.assertEqual(refused.exception.status, cgr.Status.ERROR_INVALID_ARGUMENT)
            self.assertIn("layer", refused.exception.message)

    def test_a_recorder_is_closed_after_its_call(self):
        kept = []
        with Engine(capture=False) as engine:
            engine.runtime.capture(lambda recorder: (kept.append(recorder), engine.record(recorder)))
            self.assertRaisesRegex(ValueError, "during its call alone", kept[0].info)

    def test_logs_and_backends(self):
        logged, checked = [], []

        def check(device, group, layer):
            checked.append((device.kind, group.page_size, layer.num_q_heads))
            return [cgr.Finding(status=cgr.Status.ERROR_UNSUPPORTED, field="head_dim", text="not here")] if layer.head_dim > 16 else None

        def record(recorder, attention):
            self.assertEqual(attention.layer, 0)

        backend = cgr.Backend(name="mine", check=check, support=lambda device, group: cgr.GraphSupport.NEVER, record=record)
        with cgr.Device("host") as device, device.alloc(8 * 2 * 16 * 16 * 4) as cache:
            k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, cache, cgr.Dtype.FP32, 16, 1, 16)
            layer = cgr.Layer(num_q_heads=1, num_kv_heads=1, head_dim=16, k=k, v=v, backend=1)
            config = cgr.Config(
                device_handle=device,
                groups=[cgr.Group(num_pages=8)],
                layers=[layer],
                backends=[backend],
                max_requests=2,
                max_tokens=8,
                max_seq_len=32,
                log=lambda level, text: logged.append((cgr.LogLevel(level), text)),
            )
            self.assertEqual(cgr.validate(config), [])
            with cgr.Runtime(config) as runtime:
                mode, reason = runtime.graph_mode()
                self.assertEqual(mode, cgr.GraphMode.PIECEWISE)
                self.assertIn("mine", reason)
            self.assertIn((cgr.DeviceKind.HOST, 16, 1), checked)
            self.assertTrue(logged)
            config.layers = [cgr.Layer(num_q_heads=1, num_kv_heads=1, head_dim=32, k=k, v=v, backend=1)]
            self.assertIn("not here (backend mine)", [finding.text for finding in cgr.validate(config)])


class Results(unittest.TestCase):
    def test_texts(self):
        with Engine() as engine:
            engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            runtime = engine.runtime
            self.assertIn("full", runtime.stats_text())
            self.assertIn('engine="a"', runtime.metrics([cgr.Label(name="engine", value="a")]))
            self.assertTrue(runtime.dump().startswith("{"))
            self.assertTrue(runtime.trace().rstrip().endswith("}"))
            self.assertEqual(runtime.flight()[-1].outcome, cgr.FlightOutcome.LAUNCHED)
            self.assertGreater(runtime.stats().steps, 0)
            keys, advice = runtime.advise_keys(0.0)
            self.assertEqual(len(keys), advice.num_keys)

    def test_a_self_test_raises_its_findings(self):
        with Engine(rows=16) as engine:
            pages = list(range(2, 40))
            test = cgr.SelfTest(num_pages=len(pages), pages=pages, max_token=100)
            engine.runtime.self_test(test)
            self.assertGreater(engine.runtime.audit().num_graphs, 0)
            calls = iter(range(10**6))
            engine.sample = lambda count: next(calls)  # another function at each capture, with another address
            engine.record = lambda recorder: engine.enqueue_sampler(recorder)
            engine.runtime.capture(engine.record)
            with self.assertRaises(cgr.CgrError) as refused:
                engine.runtime.self_test(test)
            self.assertEqual(refused.exception.status, cgr.Status.ERROR_SELF_TEST)
            self.assertIn("next_tokens", refused.exception.findings[0].text)

    def test_a_poll_gives_nothing_until_the_step_is_complete(self):
        with Engine(schedule=cgr.HostSchedule.ASYNC) as engine:
            step = engine.runtime.prepare(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            step.launch(engine.stream)
            result = None
            while result is None:
                result = engine.runtime.wait(step, timeout_ms=0)
            self.assertEqual(result.tokens.tolist(), [4])


class Arrays(unittest.TestCase):
    def test_memory_for_numpy_and_dlpack(self):
        with cgr.Device("host") as device, device.alloc(1024) as memory:
            array = memory.array(cgr.Dtype.FP32, (4, 8), offset=64)
            ours = array.numpy()
            ours[:] = np.arange(32).reshape(4, 8)
            theirs = np.from_dlpack(array)
            self.assertTrue((theirs == ours).all())
            self.assertEqual(array.__dlpack_device__(), (1, 0))
            self.assertFalse(hasattr(array, "__cuda_array_interface__"))
            self.assertRaises(ValueError, memory.array, cgr.Dtype.FP32, (4, 80))

    def test_a_view_keeps_what_is_closed(self):
        engine = Engine(layer=True)
        array = engine.memory["cache"].array(cgr.Dtype.FP32).numpy()
        ids = engine.ids
        engine.close()
        self.assertTrue(engine.runtime.closed and engine.device.closed)
        ids[:], array[:] = 1, 2
        self.assertRaisesRegex(ValueError, "closed", engine.runtime.stats)
        engine.runtime.close()

    def test_copies_of_arrays_that_go_away(self):
        with cgr.Device("host") as device, device.stream() as stream, device.alloc(4096) as memory:
            for i in range(50):
                device.copy(memory, np.full(1024, i, np.int32), 4096, stream)
            stream.synchronize()
            self.assertEqual(set(memory.array(cgr.Dtype.I32).numpy()), {49})

    def test_a_batch_takes_arrays_without_a_copy(self):
        rows = np.arange(4, dtype=np.int32)
        batch = cgr.Batch(rows=rows)
        self.assertIs(batch.rows, rows)
        self.assertEqual(batch.num_requests, 4)
        self.assertRaises(TypeError, setattr, batch, "rows", np.arange(4))
        self.assertRaises(TypeError, setattr, batch, "rows", 5)
        self.assertRaises((ValueError, BufferError), setattr, batch, "rows", np.arange(8, dtype=np.int32)[::2])
        self.assertRaisesRegex(TypeError, "no field", cgr.Batch, row=rows)


if __name__ == "__main__":
    unittest.main()
