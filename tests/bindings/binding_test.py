"""A binding generated from the headers, and an engine in Python that uses it on the host device.

python3 -B tests/bindings/binding_test.py [-v] [Class]      from a folder with include/cgr, libcgr.so and tests/abi/abi.txt; needs
                                                            cffi and pycparser
"""

import math
import os
import tempfile
import unittest

from binding import Binding, Error, declarations
from engine import ARGUMENTS, DIM, HEADS, Engine, attend, sample

BINDING = Binding("include", os.path.abspath("libcgr.so"))
BINDING.ffi.cdef(ARGUMENTS)
LIB = BINDING.lib


def kept_list():
    """The kept binary interface: {struct: (size, alignment, [(offset, bytes, field)])}, {enumerator: value}, functions."""
    structs, values, functions = {}, {}, {}
    members = None
    with open("tests/abi/abi.txt", encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if line.startswith("struct "):
                members = []
                structs[words[1]] = (int(words[2]), int(words[3]), members)
            elif line.startswith("enum "):
                members = None
            elif line.startswith("  ") and members is None:
                values[words[1]] = int(words[0])
            elif line.startswith("  "):
                # A pointer to a function has its name inside: (*name)(...)
                name = line.split("(*")[1].split(")")[0] if "(*" in line else words[-1].lstrip("*").split("[")[0]
                members.append((int(words[0]), int(words[1]), name))
            elif line.startswith("constant "):
                values[words[1]] = int(words[2])
            elif line.startswith("function "):
                functions[line.split("(")[0].split()[-1].lstrip("*")] = words[1]
    return structs, values, functions


class Declarations(unittest.TestCase):
    """The generator reads the headers as the compiler does: the list has the compiler's numbers."""

    STRUCTS, VALUES, FUNCTIONS = kept_list()

    def test_structs_have_the_same_layout(self):
        ffi = BINDING.ffi
        self.assertGreater(len(self.STRUCTS), 40)
        for name, (size, alignment, fields) in self.STRUCTS.items():
            self.assertEqual((ffi.sizeof(name), ffi.alignof(name)), (size, alignment), name)
            seen = [(f.offset, ffi.sizeof(f.type), field) for field, f in ffi.typeof(name).fields]
            self.assertEqual(seen, fields, name)

    def test_includes_that_end_in_a_slash_are_read_and_empty_ones_refused(self):
        self.assertEqual(declarations("include//"), declarations("include"))
        with tempfile.TemporaryDirectory() as empty:
            os.mkdir(os.path.join(empty, "cgr"))
            open(os.path.join(empty, "cgr/bindings.h"), "w").close()
            self.assertRaises(FileNotFoundError, declarations, empty)

    def test_constants_have_the_same_values(self):
        self.assertGreater(len(self.VALUES), 150)
        for name, value in self.VALUES.items():
            self.assertEqual(getattr(LIB, name), value, name)
        for name in ("CGR_TOKEN_LAST", "CGR_BATCH_STANDING", "CGR_CONFIG_MAGIC", "CGR_HISTOGRAM_BUCKETS"):
            self.assertTrue(name in self.VALUES, name)
        self.assertEqual(LIB.CGR_HEADER_VERSION, LIB.cgr_version())

    def test_functions_are_found_in_the_library(self):
        self.assertGreater(len(self.FUNCTIONS), 130)
        for name, node in self.FUNCTIONS.items():
            if node == "-":
                self.assertRaises(AttributeError, getattr, LIB, name)
            else:
                self.assertEqual(BINDING.ffi.typeof(getattr(LIB, name)).kind, "function", name)


class Engines(unittest.TestCase):
    """Steps, compared with attention from first principles, and the same steps without graphs."""

    PROMPTS = ([3, 14, 15, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4], [2, 7, 1], [31])

    def generate(self, engine, steps=6, standing=False):
        """The kinds of all steps, the sequences of the requests, and every out."""
        sequences = [list(prompt) for prompt in self.PROMPTS]
        rows = [engine.open(100 + i, [2 + 4 * i]) for i in range(len(sequences))]
        pages = [3 + 4 * i for i in range(len(rows))]
        BINDING.call("cgr_requests_set_pages", engine.runtime, 0, len(rows), rows, [1] * len(rows), BINDING.ffi.NULL, pages)
        kinds, outs = [], []

        def take(kind, results):
            kinds.append(kind)
            for i, (tag, token, out) in enumerate(results):
                self.assertEqual(tag, 100 + i)
                wanted = attend(sequences[i])
                self.assertLess(max(abs(a - b) for a, b in zip(out, wanted)), 1e-5)
                self.assertEqual(token, sample(sequences[i][-1], wanted))
                sequences[i].append(token)
                outs.append(out)

        take(*engine.step(rows, [len(s) for s in sequences], sum(sequences, [])))
        for row in rows if standing else ():
            BINDING.call("cgr_standing_add", engine.runtime, BINDING.ffi.NULL, row, 1, BINDING.ffi.NULL, 0)
        for _ in range(steps):
            if standing:
                take(*engine.run(BINDING.new("cgr_batch", num_requests=LIB.CGR_BATCH_STANDING), [1] * len(rows)))
            else:
                take(*engine.step(rows, [1] * len(rows), [LIB.CGR_TOKEN_LAST] * len(rows)))
        for row in rows:
            if standing:
                BINDING.call("cgr_standing_remove", engine.runtime, BINDING.ffi.NULL, row)
            BINDING.call("cgr_request_close", engine.runtime, row)
        return kinds, sequences, outs

    def compare(self, mode, kind, **options):
        for schedule in (LIB.CGR_SCHEDULE_ASYNC, LIB.CGR_SCHEDULE_LATEST, LIB.CGR_SCHEDULE_RANDOM):
            with Engine(BINDING, mode, schedule, **options) as engine:
                engine.capture()
                captured = len(engine.recorded)
                self.assertGreater(captured, 3)
                self.assertTrue(all(capturing for _, capturing in engine.recorded))
                kinds, sequences, outs = self.generate(engine)
                self.assertEqual(kinds, [kind] * 7)
                self.assertEqual(len(engine.recorded), captured, "a replay does not call record")
                BINDING.call("cgr_runtime_enable_graphs", engine.runtime, 0)
                eager, same_sequences, same_outs = self.generate(engine)
                self.assertEqual(eager, ["none"] * 7)
                self.assertEqual(engine.recorded[captured:], [("none", False)] * 7)
                self.assertEqual((same_sequences, same_outs), (sequences, outs), "bit for bit")
                self.assertEqual(engine.failures, [])

    def test_full_graphs_replay_what_python_recorded(self):
        self.compare(LIB.CGR_MODE_FULL, "full")

    def test_pieces_call_python_between_them(self):
        self.compare(LIB.CGR_MODE_PIECEWISE, "piecewise", pieces=True)

    def test_the_standing_batch(self):
        with Engine(BINDING, LIB.CGR_MODE_FULL, LIB.CGR_SCHEDULE_ASYNC) as engine:
            engine.capture()
            whole = self.generate(engine)
            self.assertEqual(self.generate(engine, standing=True), whole)

    def test_buffers_on_demand_are_bits(self):
        wanted = LIB.CGR_BUFFER_KV_START_LOC
        bit = 1 << (wanted - LIB.CGR_BUFFER_KV_INDICES)  # CGR_ON_DEMAND
        with Engine(BINDING, LIB.CGR_MODE_FULL, LIB.CGR_SCHEDULE_ASYNC, on_demand=bit) as engine:
            engine.capture()
            self.generate(engine)
            view = BINDING.new("cgr_buffer_view")
            BINDING.call("cgr_buffer_get", engine.runtime, BINDING.ffi.NULL, wanted, 0, view)
            self.assertEqual((view.dtype, view.shape[0]), (LIB.CGR_DTYPE_I32, 5))
            sums = BINDING.ffi.unpack(BINDING.ffi.cast("int32_t *", view.data), 4)
            lengths = [len(prompt) + 6 for prompt in self.PROMPTS]
            self.assertEqual(sums, [0, lengths[0], lengths[0] + lengths[1], sum(lengths)])
            with self.assertRaises(Error) as refused:
                BINDING.call("cgr_buffer_get", engine.runtime, BINDING.ffi.NULL, LIB.CGR_BUFFER_BLOCK_TABLE, 0, view)
            self.assertEqual(refused.exception.status, "CGR_ERROR_STATE")

    def test_statistics_count_the_steps(self):
        with Engine(BINDING, LIB.CGR_MODE_FULL, LIB.CGR_SCHEDULE_ASYNC) as engine:
            engine.capture()
            self.generate(engine)
            stats = BINDING.new("cgr_stats")
            BINDING.call("cgr_runtime_stats", engine.runtime, stats)
            self.assertEqual(sum(sum(kind) for kind in stats.by_reason), stats.steps)
            self.assertGreaterEqual(sum(stats.by_reason[LIB.CGR_KIND_FULL]), 7)
            prompts = sum(len(prompt) for prompt in self.PROMPTS)
            self.assertEqual(stats.real_tokens, prompts + 6 * len(self.PROMPTS))


class Errors(unittest.TestCase):
    """A failure comes through with its message, and the next good call works."""

    def engine(self):
        return Engine(BINDING, LIB.CGR_MODE_FULL, LIB.CGR_SCHEDULE_ASYNC)

    def test_a_refusal_has_its_message(self):
        with self.engine() as engine:
            engine.capture()
            with self.assertRaises(Error) as refused:
                engine.open(1, [2, 99])
            self.assertEqual(refused.exception.status, "CGR_ERROR_PAGE_OUT_OF_RANGE")
            self.assertIn("99", refused.exception.message)
            self.assertIn("page", refused.exception.message)
            row = engine.open(2, [2])
            with self.assertRaises(Error) as refused:
                engine.step([row, row], [1, 1], [5, 6])
            self.assertEqual(refused.exception.status, "CGR_ERROR_ROW_REPEATED")
            _, ((tag, token, out),) = engine.step([row], [1], [5])
            self.assertEqual((tag, token, len(out)), (2, sample(5, attend([5])), HEADS * DIM))

    def test_an_exception_in_record_fails_the_capture_alone(self):
        with self.engine() as engine:
            engine.raises = ValueError("of the engine's own")
            with self.assertRaises(Error) as refused:
                engine.capture()
            self.assertEqual(refused.exception.status, "CGR_ERROR_CALLBACK")
            self.assertIn("record: the engine's function returned CGR_ERROR_CALLBACK", refused.exception.message)
            self.assertTrue(engine.failures)
            self.assertTrue(all(isinstance(failure, ValueError) for failure in engine.failures))
            self.assertIn("warning", {level for level, _ in engine.logged})
            engine.raises = None
            engine.capture()
            row = engine.open(3, [2])
            kind, ((_, token, _),) = engine.step([row], [1], [11])
            self.assertEqual((kind, token), ("full", sample(11, attend([11]))))

    def test_a_struct_that_is_not_initialised_is_refused(self):
        for name, fields in (("size", {"size": 0}), ("magic", {"magic": 1}), ("version", {"version": 1})):
            config = BINDING.new("cgr_config", **fields)
            runtime = BINDING.ffi.new("cgr_runtime **")
            with self.assertRaises(Error) as refused:
                BINDING.call("cgr_runtime_create", config, runtime)
            self.assertEqual(refused.exception.status, "CGR_ERROR_INVALID_STRUCT")
            self.assertIn(name, refused.exception.message)
            self.assertEqual(runtime[0], BINDING.ffi.NULL)

    def test_findings_tell_every_reason(self):
        host = BINDING.ffi.new("char[]", b"host")
        config = BINDING.new("cgr_config", device=host, num_groups=1)
        findings, count = BINDING.ffi.new("cgr_finding[8]"), BINDING.ffi.new("int32_t *")
        self.assertNotEqual(LIB.cgr_validate(config, BINDING.ffi.NULL, findings, 8, count), LIB.CGR_OK)
        self.assertGreater(count[0], 1)
        fields = {BINDING.string(finding.field) for finding in findings[0 : min(count[0], 8)]}
        self.assertIn("max_requests", fields)


class Reference(unittest.TestCase):
    """The reference that the engine is compared with."""

    def test_one_token_attends_to_itself(self):
        out = attend([5])
        value = [((5 * 7 + i * 13) % 29 - 14) / 16 for i in range(DIM)]
        self.assertTrue(all(math.isclose(a, b) for a, b in zip(out, value * HEADS)))


if __name__ == "__main__":
    unittest.main()
