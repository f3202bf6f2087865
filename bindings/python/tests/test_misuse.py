"""Misuse is an exception, and never the end of the interpreter: wrong arguments of every call, closed objects, threads."""

import gc
import os
import random
import threading
import unittest

import numpy as np
from support import Engine

import cgr

SEED = int(os.environ.get("CGR_SEED", "7"))
CASES = int(os.environ.get("CGR_CASES", "4000"))
REFUSALS = (cgr.CgrError, TypeError, ValueError, OverflowError, BufferError, RuntimeError, AttributeError, MemoryError)
# These wait for what a misuse never gives, or change the process.
UNCALLED = {"register", "wait"}


def setUpModule():
    """These tests collect garbage often, and need not look through all modules, of which torch has many."""
    gc.collect()
    gc.freeze()
    unittest.addModuleCleanup(gc.unfreeze)


class Broken:
    """Raises wherever it is asked for something."""

    def __index__(self):
        raise ZeroDivisionError

    def __getattr__(self, name):
        raise AttributeError(name)


class Closer:
    """Closes a runtime when it is asked for its number."""

    def __init__(self, engine):
        self.engine = engine

    def __index__(self):
        self.engine.runtime.close()
        return 1


def things(engine):
    """Arguments of many types, with some that are right."""
    i32 = np.arange(6, dtype=np.int32)
    return [
        None, True, 0, 1, -1, 3, 2**31, 2**63, 2**70, -(2**40), 0.5, float("nan"), "", "a", b"bytes", [], [1], [2**40], ["a"], {}, (),
        i32, i32.astype(np.int64), i32.astype(np.float32), i32[::2], i32.reshape(2, 3), np.empty(0, np.int32), np.array(["a"]),
        np.array([None, 1]), np.int32(3), memoryview(b"abcd"), bytearray(64), Broken(), Broken, len, engine, lambda *_: None,
        engine.device, engine.stream, engine.runtime, cgr.Batch(), cgr.Batch(rows=i32), cgr.Batch(num_requests=99, rows=i32[:1]),
        cgr.Key(), cgr.Step(), cgr.StepResult(), cgr.Mark(), cgr.Where(), cgr.Where(lane=9), cgr.Config(), cgr.Capture(), cgr.Layer(),
        cgr.Attention(), cgr.SelfTest(), cgr.PlanInput(num_requests=5), cgr.Metadata(num_requests=2), cgr.Histogram(),
        cgr.Fa3Input(num_requests=4), cgr.FlashinferCascade(num_requests=3), cgr.Label(name="a"), cgr.Dtype.I32, cgr.Buffer.PLAN,
        cgr.Gather(num_requests=2, kv_indptr=i32), cgr.Measure(num_heads=1, head_dim=8), cgr.PlanStep(rows=i32), cgr.PlanKey(),
        cgr.Backend(name="a", create=len, destroy=len, plan_host=len, plan=len), engine.runtime.buffer(cgr.Buffer.INPUT_IDS).array(),
    ]  # fmt: skip


def methods(thing):
    """The methods of a class of the extension, and of those above it, by name."""
    return [name for name in dir(thing) if not name.startswith("_") and callable(getattr(type(thing), name, None))]


class Random(unittest.TestCase):
    def call(self, function, rng, arguments):
        """Any result will do, and any of the exceptions that say what was wrong."""
        values = [rng.choice(arguments) for _ in range(rng.randrange(6))]
        try:
            return function(*values)
        except (*REFUSALS, ZeroDivisionError):
            return None

    def test_random_arguments_of_every_call(self):
        rng = random.Random(SEED)
        engine = Engine(layer=True)
        targets = [getattr(cgr, name) for name in sorted(set(cgr.__all__) - UNCALLED) if callable(getattr(cgr, name))]
        for thing in (engine.runtime, engine.device, cgr.Step(), cgr.BufferView()):
            skipped = {"close", "wait", "prepare_wait", "launch_host"}
            targets += [getattr(thing, name) for name in methods(thing) if name not in skipped]
        arguments = things(engine)
        for _ in range(CASES):
            self.call(rng.choice(targets), rng, arguments)
        engine.stream.synchronize()
        for row in range(8):
            try:
                engine.runtime.request_close(row)
            except cgr.CgrError:
                pass
        engine.close()

    def test_random_values_of_every_field(self):
        rng = random.Random(SEED + 1)
        with Engine() as engine:
            arguments = things(engine)
            structs = [getattr(cgr, name) for name in cgr._bound.STRUCTS.values()]
            for _ in range(CASES):
                struct = rng.choice(structs)()
                fields = [name for name in dir(struct) if not name.startswith("_") and name != "copy"]
                for field in rng.choices(fields, k=4):
                    self.call(lambda value, *_, s=struct, f=field: setattr(s, f, value), rng, arguments)
                    repr(getattr(struct, field))
                repr(struct)
                struct.copy()

    def test_random_batches(self):
        rng = random.Random(SEED + 2)
        with Engine(layer=True) as engine:
            arguments = things(engine)
            step = cgr.Step()
            for i in range(4):
                engine.open(i, pages=8)
            for _ in range(CASES):
                batch = cgr.Batch(rows=np.arange(rng.randrange(1, 5), dtype=np.int32))
                for field in rng.choices(("query_lens", "tokens", "flags", "num_requests", "staged", "forced_key", "variant"), k=2):
                    self.call(lambda value, *_, f=field: setattr(batch, f, value), rng, arguments)
                try:
                    engine.runtime.prepare(batch, step)
                    step.cancel()
                except REFUSALS:
                    pass


class Closed(unittest.TestCase):
    def test_every_method_of_what_is_closed_raises(self):
        engine = Engine()
        step, result = engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
        memory, event, stream = engine.device.alloc(64), engine.device.event(), engine.device.stream()
        launched_on = engine.stream
        for thing in (engine.runtime, memory, event, stream, engine.device):
            thing.close()
            thing.close()
            for name in methods(thing):
                if name != "close":
                    self.assertRaises((ValueError, TypeError), getattr(thing, name))
            with self.assertRaisesRegex(ValueError, "closed"):
                thing.__enter__()
        self.assertRaisesRegex(ValueError, "closed", step.wait)
        self.assertRaisesRegex(ValueError, "closed", step.launch, launched_on)
        del thing
        self.assertEqual(result.tokens.tolist(), [4], "the engine's arrays keep the runtime's memory")
        engine.ids = engine.last = engine.next = None
        self.assertRaisesRegex(ValueError, "closed", lambda: result.tokens)

    def test_structs_with_closed_things_are_refused(self):
        device = cgr.Device("host")
        memory = device.alloc(4096)
        group = cgr.Group(num_pages=4, page_table=memory)
        config = cgr.Config(device_handle=device, groups=[group], max_requests=1, max_tokens=1, max_seq_len=16)
        memory.close()
        self.assertRaisesRegex(ValueError, "memory is closed", cgr.Runtime, config)
        device.close()
        config.groups = [cgr.Group(num_pages=4)]
        self.assertRaisesRegex(ValueError, "device is closed", cgr.Runtime, config)

    def test_an_argument_that_closes_the_runtime(self):
        engine = Engine()
        self.assertRaisesRegex(ValueError, "closed", engine.runtime.request_set_length, Closer(engine), Closer(engine))

    def test_any_order_of_garbage_collection(self):
        rng = random.Random(SEED + 3)
        for _ in range(30):
            engine = Engine(layer=True)
            engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            parts = list(vars(engine).items())
            views = [engine.runtime.buffer(cgr.Buffer.INPUT_IDS).array().numpy()]
            rng.shuffle(parts)
            vars(engine).clear()
            del engine
            while parts:
                name, part = parts.pop()
                if hasattr(part, "close") and rng.random() < 0.5:
                    try:
                        part.close()
                    except cgr.CgrError as error:
                        self.assertEqual(error.status, cgr.Status.ERROR_STATE, name)
                del part
                gc.collect()
            views[0][:] = 1

    def test_any_order_of_closing_a_backend_that_plans(self):
        """States that keep the runtime, its memory or each other; all are let go of once."""
        rng = random.Random(SEED + 4)
        for _ in range(30):
            states, kept = [], []

            def create(key, states=states, kept=kept):
                part = rng.choice((key, key.plan, key.workspace.numpy(), key.device, None))
                states.append([part, states[-1] if states else None, *rng.sample(kept, min(1, len(kept)))])
                return states[-1]

            ended = []
            backend = cgr.Backend(
                name="a", support=lambda *_: cgr.GraphSupport.ALWAYS, create=create, plan_bytes=64, workspace_bytes=256,
                destroy=lambda state, ended=ended: ended.append(id(state)), plan_host=lambda state, step: None, record=lambda *_: None,
            )  # fmt: skip
            engine = Engine(layer=True, backends=[backend], backend=1, capture=False)
            kept += [engine.runtime, engine.device, engine.stream]
            engine.runtime.capture(engine.record)
            engine.step(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            count, parts = len(states), [engine.runtime, engine.stream, engine.device, *engine.memory.values()]
            del engine, backend, create
            states.clear(), kept.clear()
            rng.shuffle(parts)
            while parts:
                part = parts.pop()
                try:
                    part.close()
                except cgr.CgrError as error:
                    self.assertEqual(error.status, cgr.Status.ERROR_STATE)
                del part
                gc.collect()
            gc.collect()
            self.assertEqual((len(ended), len(set(ended))), (count, count))

    def test_closing_inside_a_callback(self):
        raised = []

        def record(recorder):
            try:
                engine.runtime.close()
            except RuntimeError as error:
                raised.append(str(error))
            engine.record(recorder)

        engine = Engine(capture=False)
        engine.runtime.capture(record)
        self.assertIn("the runtime is in a call", raised)


class Changed(unittest.TestCase):
    """What Python changes in the midst of a call that uses it."""

    def test_a_configuration_by_check(self):
        def check(*_):
            config.backends[0].name = "other"
            config.layers[0].k = cgr.KvView()
            config.backends[0].check = config.layers = config.groups = config.backends = None
            gc.collect()

        with cgr.Device("host") as device, device.alloc(8 * 2 * 16 * 16 * 4) as memory:
            for use in (cgr.validate, cgr.runtime_memory, cgr.Runtime):
                k, v = cgr.kv_view_make_pair(cgr.KvLayout.NHD, memory, cgr.Dtype.FP32, 16, 1, 16)
                config = cgr.Config(
                    device_handle=device, max_requests=1, max_tokens=8, max_seq_len=16, groups=[cgr.Group(num_pages=8)],
                    layers=[cgr.Layer(num_q_heads=1, num_kv_heads=1, head_dim=16, k=k, v=v, backend=1)],
                    backends=[cgr.Backend(name=f"own {use}"[:20], check=check, record=len)],
                )  # fmt: skip
                try:
                    use(config)
                except cgr.CgrError:
                    pass
                self.assertIsNone(config.layers)

    def test_a_step_given_to_another_runtime_in_its_launch(self):
        other = Engine()
        others = cgr.Batch(rows=[other.open(1)], tokens=[3])
        engine, step = Engine(graph_mode=cgr.GraphMode.NONE), cgr.Step()
        engine.runtime.prepare(cgr.Batch(rows=[engine.open(1)], tokens=[3]), step)
        enqueue = engine.enqueue_sampler

        def swap(recorder):
            other.runtime.prepare(others, step)
            vars(engine).pop("runtime", None)
            gc.collect()
            enqueue(recorder)

        engine.enqueue_sampler = swap
        try:
            step.launch(engine.stream)
        except cgr.CgrError as error:
            self.assertEqual(error.status, cgr.Status.ERROR_STATE)
        engine.stream.synchronize()
        other.close()


class Threads(unittest.TestCase):
    def test_a_wait_lets_other_threads_run(self):
        with Engine() as engine:
            started, go, seen = threading.Event(), threading.Event(), []

            def block():
                started.set()
                go.wait(30)

            step = engine.runtime.prepare(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            engine.device.launch_host(block, (), engine.stream)
            step.launch(engine.stream)

            def other():
                started.wait(30)
                while not seen:
                    try:
                        engine.runtime.stats()  # until the other thread waits
                    except RuntimeError as error:
                        seen.append(str(error))
                seen.append(engine.runtime.completed())  # for any thread
                go.set()

            thread = threading.Thread(target=other)
            thread.start()
            self.assertEqual(step.wait().tokens.tolist(), [4])
            thread.join()
            self.assertEqual(len(seen), 2)
            self.assertIn("another thread", seen[0])

    def test_threads_at_one_runtime(self):
        """They are refused or not; what counts is that all of them come back, and that the runtime works then."""
        with Engine(layer=True, graph_mode=cgr.GraphMode.NONE) as engine:
            rows = [engine.open(i, pages=4) for i in range(4)]

            def work(row):
                batch = cgr.Batch(rows=[row], tokens=[1])
                for _ in range(50):
                    try:
                        engine.runtime.request_set_length(row, 0)
                        engine.step(batch)
                    except REFUSALS:
                        pass

            threads = [threading.Thread(target=work, args=(row,)) for row in rows]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            engine.stream.synchronize()
            for row in rows:
                try:
                    engine.runtime.request_set_length(row, 0)
                except cgr.CgrError as error:  # another thread's step is still prepared
                    self.assertEqual(error.status, cgr.Status.ERROR_STATE)


if __name__ == "__main__":
    unittest.main()
