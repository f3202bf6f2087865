"""An exception in a host function is not lost: the next call that waits raises it."""

import sys
import traceback
import unittest

from support import Engine

import cgr


def fail(what):
    raise LookupError(what)


class Failures(unittest.TestCase):
    def setUp(self):
        self.told, before = [], sys.unraisablehook
        sys.unraisablehook = lambda raised: self.told.append(str(raised.exc_value))
        self.addCleanup(setattr, sys, "unraisablehook", before)

    def test_the_wait_of_a_step_raises_it_once_and_the_engine_goes_on(self):
        with Engine(capture=False) as engine:
            sample = engine.sample
            engine.sample = lambda count: fail("in a step") if engine.fails else sample(count)
            for prepare in (engine.runtime.warmup, engine.runtime.capture):
                engine.fails = False
                prepare(engine.record)
                engine.fails = True
                step = engine.runtime.prepare(cgr.Batch(rows=[engine.open(1)], tokens=[3]))
                step.launch(engine.stream)
                try:
                    step.wait()
                    self.fail("it raises nothing")
                except LookupError as error:
                    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
                    self.assertIn("fail", names, "it says where")
                self.assertEqual(step.wait().num_requests, 1, "the step has completed")
        self.assertEqual(self.told, [])

    def test_a_warmup_and_a_stream_raise_it_too(self):
        with Engine(capture=False) as engine:
            engine.sample = lambda count: fail(count)
            self.assertRaises(LookupError, engine.runtime.warmup, engine.record)
            self.told.clear()
            engine.device.launch_host(fail, ("alone",), engine.stream)
            self.assertRaisesRegex(LookupError, "alone", engine.stream.synchronize)
            engine.stream.synchronize()

    def test_of_several_the_first_is_raised_and_the_others_are_reported(self):
        with Engine() as engine:
            for what in "abc":
                engine.device.launch_host(fail, (what,), engine.stream)
            self.assertRaisesRegex(LookupError, "a", engine.stream.synchronize)
        self.assertEqual(self.told, ["b", "c"])

    def test_what_nobody_waits_for_is_reported_when_the_device_ends(self):
        with cgr.Device("host") as device, device.stream() as stream:
            device.launch_host(fail, ("left",), stream)
        self.assertEqual(self.told, ["left"])

    def test_devices_do_not_get_the_failures_of_others(self):
        with Engine() as engine, Engine() as other:
            engine.device.launch_host(fail, ("mine",), engine.stream)
            other.stream.synchronize()
            self.assertRaises(LookupError, engine.stream.synchronize)


if __name__ == "__main__":
    unittest.main()
