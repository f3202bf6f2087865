"""The process around the package: forks, the interpreter's exit, and threads that both cut off."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import numpy as np
from support import ROOT, Engine

import cgr

START = """
import atexit, os, sys, threading, time
import cgr
from support import Engine
schedule = cgr.HostSchedule(int(sys.argv[1]))


class Bare:
    # Nothing but the module refers to it, so that the exit ends it.
    def __init__(self, function=time.sleep, args=(0.02,), **fields):
        self.device = device = cgr.Device("host", host_schedule=schedule)
        self.stream = device.stream()
        self.runtime = cgr.Runtime(
            device=device, groups=[cgr.Group(num_pages=8)], max_requests=4, max_tokens=16, max_seq_len=96, **fields
        )
        self.runtime.capture(lambda recorder: device.launch_host(function, args, recorder.info().stream))
        self.row = self.runtime.request_open(1)
        self.runtime.request_set_pages(self.row, 0, 0, [2])
        self.batch = cgr.Batch(rows=[self.row], tokens=[3])

    def launch(self):
        step = self.runtime.prepare(self.batch)
        step.launch(self.stream)
        return step

    def loop(self):
        while True:
            self.launch().wait()
            self.runtime.request_set_length(self.row, 0)


def start(function):
    threading.Thread(target=function, daemon=True).start()
    time.sleep(0.05)


"""

EXITS = {
    "with all open": "bare = Bare(); bare.launch().wait(); engine = Engine(schedule=schedule, layer=True)",
    "with a step in flight": "bare = Bare(args=(0.2,)); bare.launch(); del bare.batch",
    "with a host function in flight": "bare = Bare(); bare.device.launch_host(time.sleep, (0.2,), bare.stream)",
    "with a prepared step": "bare = Bare(); step = bare.runtime.prepare(bare.batch)",
    "while a thread replays": "bare = Bare(); start(bare.loop)",
    "while a thread runs eager steps": "bare = Bare(graph_mode=cgr.GraphMode.NONE); start(bare.loop)",
    "while a thread waits": "bare = Bare(args=(0.3,)); step = bare.launch(); start(step.wait)",
    "while a thread captures": "bare = Bare(); start(lambda: [bare.runtime.capture(lambda r: time.sleep(0.01)) for _ in range(99)])",
    "with functions for the exit": "bare = Bare(); atexit.register(lambda: bare.launch().wait().tokens[0])",
    "with a plan's states": """
        ended = []
        backend = cgr.Backend(
            name="a", support=lambda *_: cgr.GraphSupport.ALWAYS, create=lambda key: key, destroy=ended.append, plan_bytes=64,
            plan_host=lambda state, step: None, record=lambda *_: None,
        )
        engine = Engine(schedule=schedule, layer=True, backends=[backend], backend=1)
    """,
}


class Sources(unittest.TestCase):
    def test_the_folder_of_the_sources_says_that_it_is_one(self):
        folder = os.path.join(ROOT, "bindings/python")
        for module in ("cgr", "cgr.torch"):
            result = subprocess.run([sys.executable, "-B", "-c", f"import {module}"], cwd=folder, capture_output=True, text=True,
                                    env={**os.environ, "PYTHONPATH": folder}, timeout=60)  # fmt: skip
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stderr, "ImportError: .*/cgr has only sources of cgr: install its wheel")


class Exits(unittest.TestCase):
    def run_program(self, text, schedule):
        program = START + textwrap.dedent(text)
        command = [sys.executable, "-B", "-X", "faulthandler", "-X", "dev", "-W", "ignore", "-c", program, str(int(schedule))]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def test_of_the_interpreter(self):
        latest = ("with all open", cgr.HostSchedule.LATEST)
        for name, schedule in [*itertools.product(EXITS, (cgr.HostSchedule.ASYNC,)), latest]:
            with self.subTest(name, schedule=schedule):
                ran = self.run_program(EXITS[name], schedule)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                if "thread" not in name:  # one that is cut off may be told of
                    self.assertEqual(ran.stderr, "")

    def test_by_an_exception(self):
        ran = self.run_program("bare = Bare(args=(0.2,)); bare.launch(); raise SystemExit(7)", cgr.HostSchedule.ASYNC)
        self.assertEqual((ran.returncode, ran.stderr), (7, ""))

    def test_a_runtime_closes_whose_last_array_a_host_function_has(self):
        for schedule in cgr.HostSchedule:
            with self.subTest(schedule=schedule):
                ran = self.run_program(
                    """
                    bare = Bare(graph_mode=cgr.GraphMode.NONE)
                    function = lambda ids: time.sleep(0.02)
                    bare.runtime.capture(lambda recorder: bare.device.launch_host(
                        function, (recorder.buffer(cgr.Buffer.INPUT_IDS).array(),), recorder.info().stream))
                    bare.launch()
                    bare.runtime.close()
                    bare.device.close()  # refused while a runtime of it is left
                    """,
                    schedule,
                )
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def test_nothing_is_launched_after_it(self):
        ran = self.run_program(
            """
            def last():
                for call in (bare.launch, lambda: bare.device.launch_host(print, (), bare.stream)):
                    try:
                        call()
                    except RuntimeError as error:
                        print(error)
            bare = Bare()
            cgr._cgr._finish_work()
            last()
            """,
            cgr.HostSchedule.ASYNC,
        )
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(ran.stdout, 2 * "the interpreter exits, and nothing is launched any more\n")


class Forks(unittest.TestCase):
    def in_child(self, function):
        """What the child says; it must end by itself."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # its end if it hangs
            code = 1
            try:
                os.write(writing, function().encode())
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().decode()
        self.assertEqual(os.waitpid(child, 0)[1], 0, said)
        return said

    def refusals(self, *calls):
        said = []
        for call in calls:
            try:
                call()
                said.append("nothing")
            except (cgr.CgrError, RuntimeError) as error:
                said.append(error.status.name if isinstance(error, cgr.CgrError) else "RuntimeError")
        return " ".join(said)

    def test_a_child_is_refused(self):
        for schedule in cgr.HostSchedule:
            with Engine(schedule=schedule, layer=True) as engine:
                batch = cgr.Batch(rows=[engine.open(1)], tokens=[3])
                engine.step(batch)

                def use():
                    memory = engine.memory["q"]
                    said = self.refusals(
                        lambda: engine.step(batch), engine.stream.synchronize, lambda: engine.device.alloc(64), engine.device.stream,
                        lambda: engine.device.copy(memory, np.zeros(4, np.int32), 16, engine.stream),
                        lambda: engine.runtime.capture(engine.record),
                    )  # fmt: skip
                    engine.close()
                    return said

                self.assertEqual(self.in_child(use), " ".join(["ERROR_DEAD"] * 6))
                self.assertEqual(engine.step(batch)[1].tokens.tolist(), [4], "the parent goes on")

    def test_a_child_ends_what_its_parent_is_in(self):
        """Steps in flight, and a thread inside the runtime, which the child has not."""
        with Engine(schedule=cgr.HostSchedule.ASYNC) as engine:
            go = threading.Event()
            engine.device.launch_host(go.wait, (30,), engine.stream)
            step = engine.runtime.prepare(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
            step.launch(engine.stream)
            thread = threading.Thread(target=step.wait)
            thread.start()
            time.sleep(0.1)

            def end():
                said = self.refusals(engine.stream.synchronize, step.wait, engine.runtime.close)
                vars(engine).clear()
                return said

            self.assertEqual(self.in_child(end), "ERROR_DEAD RuntimeError RuntimeError")
            go.set()
            thread.join()

    def test_a_child_in_the_midst_of_a_capture(self):
        said = []

        def record(recorder):
            if not said:
                said.append(self.in_child(lambda: self.refusals(lambda: engine.record(recorder), engine.runtime.close)))
            engine.record(recorder)

        with Engine(capture=False) as engine:
            engine.runtime.capture(record)
        self.assertEqual(said, ["ERROR_DEAD RuntimeError"])

    def test_a_child_has_planners_and_new_devices(self):
        def work():
            with Engine() as mine:
                return str(mine.step(cgr.Batch(rows=[mine.open(1)], tokens=[3]))[1].tokens.tolist())

        with Engine():
            self.assertEqual(self.in_child(work), "[4]")

    def test_a_child_that_exits_as_a_program_does(self):
        for schedule in (cgr.HostSchedule.ASYNC, cgr.HostSchedule.LATEST):
            ran = Exits.run_program(
                self,
                """
                bare = Bare(args=(0.1,))
                bare.launch()
                child = os.fork()
                if child:
                    print(os.waitpid(child, 0)[1])
                """,
                schedule,
            )
            self.assertEqual((ran.returncode, ran.stdout), (0, "0\n"), ran.stderr)


if __name__ == "__main__":
    unittest.main()
