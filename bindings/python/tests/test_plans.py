"""Backends of Python's that plan: when their functions are called and with what, in every kind of step; what a step finds of a plan;
failures of each; that nothing of it stays."""

import gc
import os
import random
import sys
import threading
import unittest
import weakref

import numpy as np
from support import Engine

import cgr

SEED = int(os.environ.get("CGR_SEED", "5"))
BYTES = 1003
MODES = (cgr.GraphMode.NONE, cgr.GraphMode.PIECEWISE, cgr.GraphMode.FULL, cgr.GraphMode.FULL_AND_PIECEWISE)
CALLS = ("create", "plan_host", "plan", "record")


class State:
    """What `create` returns."""

    def __init__(self, key):
        self.kind, self.num_requests, self.num_tokens, self.query_len = key.kind, key.num_requests, key.num_tokens, key.query_len
        self.plan, self.workspace, self.device = key.plan.address, key.workspace.address, key.device
        self.destroyed = 0


class Planner:
    """A backend that copies q to out. Its plan on the host is other bytes each time; its plan on the device copies that and the
    lengths to the workspace, and its record keeps what it finds in both."""

    def __init__(self, ends=True, **fields):
        self.calls, self.hosts, self.plans, self.seen = [], [], [], []
        self.states, self.raises, self.inside = [], {}, lambda name: None
        functions = dict(create=self.create, plan_host=self.plan_host, plan=self.plan, record=self.record)
        if ends:
            functions["destroy"] = self.destroy
        self.backend = cgr.Backend(
            **dict(name="planner", support=lambda *_: cgr.GraphSupport.ALWAYS, plan_bytes=BYTES, workspace_bytes=4096) | functions | fields
        )  # fmt: skip
        self.count = 0

    def enter(self, name):
        self.calls.append(name)
        if name in self.raises:
            raise self.raises[name]
        self.inside(name)

    def create(self, key):
        self.enter("create")
        assert len(key.plan.numpy()) == key.plan_bytes == BYTES and key.workspace.shape == (4096,)
        self.states.append(weakref.ref(state := State(key)))
        return state

    def destroy(self, state):
        state.destroyed += 1
        assert state.destroyed == 1
        self.enter("destroy")

    def plan_host(self, state, step):
        self.enter("plan_host")
        numbers = {name: getattr(step, name) for name in dir(step) if isinstance(getattr(step, name), int)}
        arrays = {name: list(getattr(step, name)) for name in ("rows", "query_start_loc", "seq_lens")}
        self.count += 1
        np.frombuffer(step.plan, np.uint8)[:] = np.random.default_rng(self.count).integers(0, 256, BYTES, np.uint8)
        self.hosts.append(((state.kind, state.num_requests, state.num_tokens), numbers, arrays, bytes(step.plan)))

    def told(self, recorder, state=None):
        """The info of the recorder, with the state and its key."""
        info = recorder.info()
        if state is not None:
            assert info.plan_state is state
        assert isinstance(info.plan_state, State) and info.plan_state.destroyed == 0
        key = info.plan_key
        assert (key.kind, key.num_requests, key.query_len) == (
            info.plan_state.kind, info.plan_state.num_requests, info.plan_state.query_len,
        )  # fmt: skip
        assert key.device is info.plan_state.device and key.plan.address == info.plan_state.plan
        return info, key

    def plan(self, state, recorder, flags, draft):
        self.enter("plan")
        info, key = self.told(recorder, state)
        lens = recorder.buffer(cgr.Buffer.SEQ_LENS)
        self.plans.append((flags, draft, bool(info.capturing), info.num_requests))
        key.device.copy(key.workspace, key.plan, BYTES, info.stream)
        key.device.copy(cgr.Address(key.workspace.address + 1024), lens.data, 4 * info.num_requests, info.stream)

    def record(self, recorder, attention):
        self.enter("record")
        info, key = self.told(recorder)
        bytes_of = info.num_tokens * attention.q.stride_token * 4
        key.device.copy(attention.out.data, attention.q.data, bytes_of, info.stream)
        key.device.launch_host(self.look, (key.plan, key.workspace, info.num_requests), info.stream)

    def look(self, plan, workspace, count):
        """A function of the stream: what the step found."""
        there = workspace.numpy()
        self.seen.append((plan.numpy().tobytes(), there[:BYTES].tobytes(), there[1024 : 1024 + 4 * count].view(np.int32).tolist()))

    def alive(self):
        return [s for s in (ref() for ref in self.states) if s is not None]


def planning(mode, planner=None, capture=True, **fields):
    """An engine of one layer that a planner attends to."""
    planner = planner or Planner()
    fields.setdefault("mixed_buckets", [cgr.Bucket(num_tokens=8, num_requests=4), cgr.Bucket(num_tokens=64, num_requests=8)])
    engine = Engine(layer=True, graph_mode=mode, backends=[planner.backend], capture=capture, backend=1, **fields)
    return engine, planner


class Steps(unittest.TestCase):
    def test_values_are_those_of_the_step(self):
        for mode in MODES:
            with self.subTest(mode):
                engine, planner = planning(mode)
                with engine:
                    self.run_random(engine, planner, random.Random(SEED))
                self.assertEqual(planner.alive(), [])

    def run_random(self, engine, planner, rng):
        rows = [engine.open(i, pages=6) for i in range(5)]
        tokens, kinds = dict.fromkeys(rows, 0), set()
        for n in range(60):
            chosen = rng.sample(rows, rng.randrange(0, 6))
            lens = [1] * len(chosen) if rng.random() < 0.5 else [rng.randrange(0, 4) for _ in chosen]
            batch = cgr.Batch(rows=chosen, query_lens=lens, tokens=[rng.randrange(50) for _ in range(sum(lens))])
            planner.hosts.clear(), planner.seen.clear()
            step, _ = engine.step(batch)
            kinds.add(step.key.kind)
            self.assertEqual(len(planner.hosts), 1, "once for each step")
            for row, count in zip(chosen, lens):
                tokens[row] += count
            self.check_step(engine, step, planner, chosen, lens, [tokens[row] for row in chosen])
            for row in chosen:
                if tokens[row] > 80:
                    engine.runtime.request_set_length(row, 3)
                    tokens[row] = 3
        if engine.mode != cgr.GraphMode.NONE:
            self.assertTrue(kinds & {cgr.GraphKind.FULL, cgr.GraphKind.PIECEWISE})
        if engine.mode == cgr.GraphMode.FULL_AND_PIECEWISE:
            self.assertLessEqual({cgr.GraphKind.FULL, cgr.GraphKind.PIECEWISE}, kinds)

    def check_step(self, engine, step, planner, rows, lens, seq_lens):
        (kind, requests, tokens), numbers, arrays, plan = planner.hosts[0]
        padded = step.key.num_requests
        padding = padded - len(rows)
        self.assertEqual(kind, step.key.kind)
        if kind != cgr.GraphKind.NONE:
            self.assertEqual((requests, tokens), (padded, step.key.num_tokens))
        wanted = dict(
            flags=0 if rows else cgr.PlanFlag.FAST, draft=0, num_requests=len(rows), num_tokens=sum(lens), padded_requests=padded,
            padded_tokens=step.key.num_tokens, max_query_len=max([1, *lens]), max_seq_len=max([1, *seq_lens]), num_decodes=-1,
            num_decode_tokens=-1, length_set=0, plan_bytes=BYTES, max_decode_query_len=-1, max_prefill_query_len=-1,
            max_decode_seq_len=-1, max_prefill_seq_len=-1, program=0, variant=0,
        )  # fmt: skip
        self.assertEqual(numbers, wanted)
        starts = np.concatenate(([0], np.cumsum(lens), [sum(lens)] * padding)).astype(int).tolist()
        self.assertEqual(arrays, dict(rows=rows + [engine.rows] * padding, query_start_loc=starts, seq_lens=seq_lens + [0] * padding))
        self.assertEqual(planner.seen, [(plan, plan, seq_lens + [0] * padding)], "what the device finds")

    def test_decodes_and_prefills_are_told_apart(self):
        engine, planner = planning(cgr.GraphMode.FULL, Planner(reorder_threshold=2))
        names = ("num_decodes", "num_decode_tokens") + tuple(f"max_{w}_{n}_len" for n in ("query", "seq") for w in ("decode", "prefill"))
        with engine:
            rows = [engine.open(i, pages=2) for i in range(4)]
            for lens, wanted in (([1, 2, 5, 3], (2, 3, 2, 5, 2, 5)), ([1, 1, 4], (2, 2, 1, 4, 3, 9)), ([2, 1], (2, 3, 2, 0, 4, 0))):
                planner.hosts.clear()
                engine.step(cgr.Batch(rows=rows[: len(lens)], query_lens=lens, tokens=[3] * sum(lens)))
                self.assertEqual(tuple(planner.hosts[0][1][name] for name in names), wanted, lens)

    def test_a_step_that_no_one_waits_for_is_planned_fast(self):
        engine, planner = planning(cgr.GraphMode.FULL_DECODE_ONLY, decode_buckets=[1])
        with engine:
            row = engine.open(1)
            for lens, kind in (([1], cgr.GraphKind.FULL), ([2], cgr.GraphKind.NONE)):
                for flags in (cgr.PlanFlag.FAST, 0):
                    planner.hosts.clear(), planner.plans.clear()
                    batch = cgr.Batch(rows=[row], query_lens=lens, tokens=[3] * lens[0], plan_flags=flags)
                    self.assertEqual(engine.step(batch)[0].key.kind, kind)
                    self.assertEqual(planner.hosts[0][1]["flags"], flags)
                    self.assertEqual([plan[0] for plan in planner.plans], [flags] if kind == cgr.GraphKind.NONE else [])
            with self.assertRaisesRegex(cgr.CgrError, "plan_flags"):
                engine.runtime.prepare(cgr.Batch(rows=[row], tokens=[3], plan_flags=cgr.PlanFlag.CAPTURE))

    def test_order_of_calls(self):
        engine, planner = planning(cgr.GraphMode.FULL_DECODE_ONLY, decode_buckets=[1, 2])
        with engine:
            eager, captured = ["create", "plan_host"], ["create", "plan_host", "plan", "record"]
            self.assertEqual(planner.calls, eager + 2 * captured)
            self.assertEqual([(host[1]["flags"], host[1]["num_requests"]) for host in planner.hosts[1:]], [(1, 2), (1, 1)])
            self.assertEqual(planner.plans, [(cgr.PlanFlag.CAPTURE, 0, True, n) for n in (2, 1)])
            row = engine.open(1)
            planner.calls.clear(), planner.plans.clear()
            engine.step(cgr.Batch(rows=[row], tokens=[3]))
            self.assertEqual(planner.calls, ["plan_host"], "a replay")
            planner.calls.clear()
            engine.step(cgr.Batch(rows=[row], query_lens=[2], tokens=[3, 4]))
            self.assertEqual(planner.calls, ["plan_host", "plan", "record"], "an eager step")
            self.assertEqual(planner.plans, [(0, 0, False, 1)])
            planner.calls.clear()
            engine.runtime.prepare(cgr.Batch(rows=[row])).cancel()
            self.assertEqual(planner.calls, ["plan_host"])
            planner.calls.clear()
            engine.runtime.release_graphs()
            self.assertEqual(planner.calls, ["destroy"] * 2)
            self.assertEqual([state.kind for state in planner.alive()], [cgr.GraphKind.NONE])
            planner.calls.clear()
        self.assertEqual(planner.calls, ["destroy"])

    def test_pieces_call_record_between_them(self):
        engine, planner = planning(cgr.GraphMode.PIECEWISE)
        with engine:
            planner.calls.clear()
            engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            self.assertEqual(planner.calls, ["plan_host", "record"])

    def test_states_of_any_kind(self):
        for made in (None, 0, (), "text"):
            told = []
            engine, planner = planning(
                cgr.GraphMode.FULL_DECODE_ONLY,
                Planner(
                    create=lambda key, made=made: made, destroy=told.append, plan_host=lambda state, step: told.append(state),
                    plan=lambda state, recorder, flags, draft: told.append(recorder.info().plan_state), record=lambda *_: None,
                ),
                decode_buckets=[1],
            )  # fmt: skip
            engine.close()
            self.assertEqual(told, [made] * 5)
            told.clear()

    def test_without_states(self):
        told = []
        planner = Planner(create=None, plan_host=lambda state, step: told.append(state), record=lambda *_: None, plan=None)
        engine, _ = planning(cgr.GraphMode.FULL, planner)
        with engine:
            engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
        self.assertEqual(set(told), {None})
        self.assertNotIn("destroy", planner.calls)

    def test_keys_and_steps_of_ones_own(self):
        """To try a backend's functions without a runtime."""
        step = cgr.PlanStep(num_requests=2, padded_requests=2, rows=[3, 4], plan=np.zeros(8, np.uint8))
        self.assertEqual((step.rows.tolist(), len(step.plan)), ([3, 4], 8))
        key = cgr.PlanKey(kind=cgr.GraphKind.FULL, num_requests=2)
        self.assertEqual((key.kind, key.plan, key.device), (cgr.GraphKind.FULL, None, None))


class Lent(unittest.TestCase):
    """What plan_host gets is good during its call."""

    def run_with(self, plan_host):
        engine, planner = planning(cgr.GraphMode.FULL, Planner(plan=None, record=lambda *_: None, plan_host=plan_host))
        with engine:
            engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))

    def test_arrays_are_not_copies_and_one_can_be_written(self):
        def plan_host(state, step):
            self.assertIs(step.rows, step.rows)
            self.assertEqual((step.rows.format, step.plan.format, step.rows.readonly, step.plan.readonly), ("i", "B", True, False))
            self.assertEqual(np.asarray(step.plan).ctypes.data % 64, 0)
            self.assertRaises(TypeError, step.rows.__setitem__, 0, 1)
            self.assertFalse(np.asarray(step.seq_lens).flags.writeable)
            self.assertRaises(AttributeError, setattr, step, "plan", bytes(BYTES))
            self.assertRaises(AttributeError, setattr, step, "rows", None)
            step.plan[:4] = b"abcd"

        self.run_with(plan_host)

    def test_what_is_kept_raises(self):
        kept = []

        def plan_host(state, step):
            kept.extend((step, step.copy(), step.plan, step.rows, step.plan.obj))

        self.run_with(plan_host)
        step, copy, plan, rows, array = kept[:5]
        for access in (
            lambda: step.plan, lambda: step.rows, lambda: step.copy().plan, lambda: copy.plan[0], lambda: plan[0], lambda: rows.tolist(),
            lambda: memoryview(array), lambda: np.from_dlpack(array), lambda: np.frombuffer(copy.rows, np.int32),
        ):  # fmt: skip
            self.assertRaises((ValueError, BufferError), access)
        self.assertEqual(step.num_requests, 8)
        self.assertIn("num_requests=8", repr(step))

    def test_a_view_that_is_kept_refuses_the_step(self):
        for keep in (np.asarray, memoryview, lambda view: view[1:], lambda view: np.frombuffer(view, np.uint8)[2:]):
            kept, on = [], []

            def plan_host(state, step):
                if on:
                    kept.append(keep(step.plan))
                    step.plan.release() if len(on) > 1 and isinstance(kept[0], memoryview) else None

            engine, _ = planning(cgr.GraphMode.FULL, Planner(plan=None, record=lambda *_: None, plan_host=plan_host))
            with engine:
                batch = cgr.Batch(rows=[engine.open(1)], tokens=[3])
                for more in (1, 2):
                    on.append(1)
                    self.assertRaisesRegex(BufferError, "plan_host has kept a view of plan", engine.runtime.prepare, batch)
                on.clear()
                engine.step(batch)
            kept[0][0]  # memory of the runtime, which is not destroyed meanwhile
            kept.clear()
            self.assertIs(engine.runtime.closed, True)

    def test_an_exception_wins_over_a_view_that_its_traceback_keeps(self):
        def plan_host(state, step):
            plan = np.asarray(step.plan)
            plan[0] = 1
            raise KeyError("inside")

        engine, planner = planning(cgr.GraphMode.FULL, Planner(plan_host=plan_host), capture=False)
        with engine:
            with self.assertRaisesRegex(KeyError, "inside") as raised:
                engine.runtime.capture(engine.record)
        raised.exception.__traceback__ = None
        self.assertEqual(planner.alive(), [])

    def test_plan_host_changes_the_batch(self):
        staged = cgr.Staged(buffer=0, data=np.full(4, 7, np.int32))
        batch = cgr.Batch(rows=np.arange(2, dtype=np.int32), tokens=np.array([3, 4], np.int32), staged=[staged])

        def plan_host(state, step):
            if batch.staged:
                batch.staged[0].data = None
            batch.rows = batch.tokens = batch.staged = None
            gc.collect()

        declared = cgr.BufferDecl(name="mine", dimension=cgr.Dimension.REQUESTS, dtype=cgr.Dtype.I32, source=cgr.Source.STAGED)
        planner = Planner(plan=None, record=lambda *_: None, plan_host=plan_host)
        engine, _ = planning(cgr.GraphMode.FULL, planner, buffers=[declared])
        with engine:
            self.assertIsNone(batch.rows)
            for prepare in (engine.runtime.prepare, lambda b: engine.runtime.prepare_wait(b, engine.stream)):
                rows = [engine.open(1), engine.open(2)]
                batch.rows, batch.tokens = np.array(rows, np.int32), np.array([3, 4], np.int32)
                batch.staged = [cgr.Staged(buffer=0, data=np.array([8, 9], np.int32))]
                step = prepare(batch)
                step.launch(engine.stream)
                self.assertEqual(step.wait().tokens.tolist(), [4, 5])
                mine = engine.runtime.buffer(cgr.Buffer.DECLARED, index=0).array().numpy()
                self.assertEqual(mine[:2].tolist(), [8, 9])


class Failures(unittest.TestCase):
    def test_each_function_fails_a_capture(self):
        for name in CALLS:
            engine, planner = planning(cgr.GraphMode.FULL, capture=False)
            with engine:
                planner.raises[name] = KeyError(name)
                for _ in range(2):
                    with self.assertRaisesRegex(KeyError, name) as raised:
                        engine.runtime.capture(engine.record)
                    raised.exception.__traceback__ = None
                self.assertEqual([s.kind for s in planner.alive()], [] if name in ("create", "plan_host") else [cgr.GraphKind.NONE])
                planner.raises.clear()
                engine.runtime.capture(engine.record)
                engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            self.assertEqual(planner.alive(), [])
            self.assertEqual(planner.calls.count("destroy"), len(planner.states))

    def test_each_function_fails_a_step(self):
        for mode, names in ((cgr.GraphMode.NONE, CALLS[1:]), (cgr.GraphMode.FULL, CALLS[1:2]), (cgr.GraphMode.PIECEWISE, ("record",))):
            for name in names:
                engine, planner = planning(mode)
                with engine:
                    batch = cgr.Batch(rows=[engine.open(1)], tokens=[3])
                    planner.raises[name] = KeyError(name)
                    with self.assertRaisesRegex(KeyError, name) as raised:
                        engine.step(batch)
                    raised.exception.__traceback__ = None
                    planner.raises.clear()
                    self.assertEqual(engine.step(batch)[1].tokens.tolist(), [4])
                self.assertEqual(planner.alive(), [])

    def test_a_refusal_inside(self):
        def plan(state, recorder, flags, draft):
            recorder.call(lambda recorder: None)

        engine, planner = planning(cgr.GraphMode.FULL, Planner(plan=plan), capture=False)
        with engine:
            with self.assertRaises(cgr.CgrError) as refused:
                engine.runtime.capture(engine.record)
            self.assertEqual(refused.exception.status, cgr.Status.ERROR_STATE)

    def test_destroy_has_nothing_to_fail(self):
        engine, planner = planning(cgr.GraphMode.FULL)
        planner.raises["destroy"], told = KeyError("destroy"), []
        before, sys.unraisablehook = sys.unraisablehook, lambda raised: told.append(repr(raised.exc_value))
        try:
            engine.runtime.release_graphs()
            engine.close()
        finally:
            sys.unraisablehook = before
        self.assertEqual(told, ["KeyError('destroy')"] * len(planner.states))
        planner.raises.clear()  # the exception's traceback has them
        self.assertEqual(planner.alive(), [])

    def test_calls_of_the_runtime_inside(self):
        """Of its own thread cgr refuses them, of others the package."""
        told = []

        def refused(call, *expected):
            try:
                call()
            except expected as error:
                told.append(type(error))

        def inside(name):
            if name != "destroy" and engine is not None:
                row_of = lambda: engine.runtime.request_open(1)  # noqa: E731
                refused(row_of, cgr.CgrError)
                refused(engine.runtime.close, RuntimeError)
                thread = threading.Thread(target=refused, args=(row_of, RuntimeError))
                thread.start()
                thread.join()

        engine, planner = planning(cgr.GraphMode.FULL, capture=False)
        with engine:
            planner.inside = inside
            engine.runtime.capture(engine.record)
        self.assertEqual(told, [cgr.CgrError, RuntimeError, RuntimeError] * (len(told) // 3))
        self.assertGreaterEqual(len(told), 3 * 4 * 3)

    def test_what_the_configuration_refuses(self):
        for fields, word in ((dict(plan_bytes=0), "plan_bytes"), (dict(plan_host=None), "plan_host")):
            with self.assertRaises(cgr.CgrError) as refused:
                planning(cgr.GraphMode.FULL, Planner(**fields))
            self.assertIn(word, refused.exception.message)
        self.assertRaisesRegex(TypeError, "plan_host", Planner, plan_host=5)


class Memory(unittest.TestCase):
    def test_states_are_counted_exactly(self):
        for destroy in (True, False):
            state = object()
            planner = Planner(ends=destroy)
            planner.backend.create = lambda key: state
            planner.backend.plan_host = lambda state, step: None
            planner.backend.plan = None
            planner.backend.record = lambda recorder, attention: None
            if destroy:
                planner.backend.destroy = lambda state: None
            before = sys.getrefcount(state)
            engine, _ = planning(cgr.GraphMode.FULL, planner, capture=False)
            for _ in range(5):
                engine.runtime.capture(engine.record)
                alive = sys.getrefcount(state) - before
                self.assertEqual(alive, 1 + engine.runtime.num_keys())
                engine.runtime.release_graphs()
                self.assertEqual(sys.getrefcount(state), before + 1)
            engine.close()
            self.assertEqual(sys.getrefcount(state), before)

    def test_a_failed_capture_keeps_no_state(self):
        planner = Planner(plan=lambda *_: 1 / 0)
        engine, _ = planning(cgr.GraphMode.FULL, planner, capture=False)
        with engine:
            for _ in range(20):
                with self.assertRaises(ZeroDivisionError) as raised:
                    engine.runtime.capture(engine.record)
                raised.exception.__traceback__ = None
                self.assertEqual(len(planner.alive()), 1)

    def test_steps_are_flat(self):
        for mode in (cgr.GraphMode.FULL, cgr.GraphMode.PIECEWISE, cgr.GraphMode.NONE):
            engine, planner = planning(mode)
            with engine:
                batch = cgr.Batch(rows=[engine.open(1)])
                batch.tokens = [3]

                def steps(count):
                    for _ in range(count):
                        engine.step(batch)
                        engine.runtime.request_set_length(batch.rows[0], 0)
                        for kept in (planner.calls, planner.hosts, planner.plans, planner.seen, engine.recorded):
                            kept.clear()

                steps(200)
                counts = [sys.getrefcount(s) for s in planner.alive()]
                gc.collect()
                before = sys.getallocatedblocks()  # tracemalloc counts blocks of the stream's thread that are free again
                steps(3000)
                gc.collect()
                self.assertLess(sys.getallocatedblocks() - before, 1500)
                self.assertEqual([sys.getrefcount(s) for s in planner.alive()], counts)

    def test_a_runtime_that_is_dropped_ends_its_states(self):
        for cycle in (False, True):
            engine, planner = planning(cgr.GraphMode.FULL, Planner(record=lambda *_: None))
            calls, states = planner.calls, planner.states
            engine.ids = engine.last = engine.next = None
            if cycle:
                planner.alive()[0].cycle = engine.runtime
                planner.alive()[1].cycle = engine
            calls.clear()
            del engine, planner
            gc.collect()
            self.assertEqual([ref() for ref in states], [None] * len(states), cycle)
            self.assertEqual(calls, ["destroy"] * len(states))

    def test_a_state_that_keeps_its_memory(self):
        """Closing ends it, since the runtime lets go of its states then."""
        planner = Planner()
        planner.create = lambda key: planner.states.append(weakref.ref(s := State(key))) or setattr(s, "memory", key.plan) or s
        planner.backend.create = planner.create
        engine, _ = planning(cgr.GraphMode.FULL, planner)
        engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
        runtime = weakref.ref(engine.runtime)
        engine.close()
        self.assertEqual(planner.alive(), [])
        self.assertEqual(planner.calls.count("destroy"), len(planner.states))
        del engine
        gc.collect()
        self.assertIsNone(runtime())

    def test_closing_after_a_launch_on_a_stream_of_others(self):
        """It may be gone when the runtime is closed, which waits for the step instead."""
        engine, planner = planning(cgr.GraphMode.NONE, schedule=cgr.HostSchedule.ASYNC)
        batch, streams = cgr.Batch(rows=[engine.open(1)], tokens=[3]), []
        planner.inside = lambda name: streams.append(engine.seen_stream) if name == "record" else None
        record = engine.record
        engine.seen_stream = None

        def watch(recorder):
            engine.seen_stream = recorder.info().stream
            record(recorder)

        engine.runtime.capture(watch)
        engine.step(batch)
        engine.runtime.prepare(batch).launch(streams[-1])
        engine.runtime.close()
        self.assertEqual(planner.calls.count("destroy"), len(planner.states))
        self.assertEqual(planner.alive(), [])
        engine.close()


if __name__ == "__main__":
    unittest.main()
