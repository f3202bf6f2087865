"""Tensors of other libraries by DLPack, as arguments and as what they see of cgr's memory: capsules, and the functions in C."""

import ctypes
import gc
import importlib.util
import sys
import unittest
import weakref

import numpy as np
from support import Engine
from test_arguments import layered

import cgr

CPU, CUDA, PINNED, METAL, MANAGED = 1, 2, 3, 8, 13
INT, UINT, FLOAT, BFLOAT = 0, 1, 2, 4
I32 = (INT, 32, 1)


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]  # fmt: skip

    def read(self):
        shape, strides = ([numbers[i] for i in range(self.ndim)] for numbers in (self.shape, self.strides))
        return self.data, (self.device_type, self.device_id), (self.code, self.bits, self.lanes), shape, strides


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", DELETER),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]  # fmt: skip


FAIL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
POINTER = ctypes.POINTER(ctypes.c_void_p)


class Exchange(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
                ("allocate", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), POINTER, ctypes.c_void_p, FAIL)),
                ("give", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, POINTER)),
                ("take", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, POINTER)),
                ("view", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))),
                ("stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, POINTER))]  # fmt: skip


capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype, capsule_new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


class Producer:
    """Another library's tensor over a numpy array, which says of itself what a test wants."""

    def __init__(self, array, dtype=I32, strides=None, device=CPU, offset=0, versioned=True, major=1, read_only=0, knows=True):
        self.array, self.versioned, self.knows, self.asked = array, versioned, knows, []
        self.device = device
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = None if strides is None else (ctypes.c_int64 * array.ndim)(*strides)
        tensor = Tensor(array.ctypes.data - offset, device, 0, array.ndim, *dtype, shape, strides, offset)
        self.managed = Versioned(major, 0, None, DELETER(), read_only, tensor) if versioned else Managed(tensor)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **asked):
        self.asked.append(asked)
        if "max_version" in asked and not self.knows:
            raise TypeError("no max_version")
        return capsule_new(ctypes.addressof(self.managed), NAMES[self.versioned], None)


ROWS = np.arange(4, dtype=np.int32)


def plan_of(seq_lens):
    """Bytes that follow from an array's numbers."""
    plan_input = cgr.PlanInput(query_lens=np.ones(4, np.int32), seq_lens=seq_lens, num_parts=132, head_blocks=8)
    memory = cgr.aligned(cgr.plan_size(plan_input))
    cgr.plan_build(plan_input, memory)
    return memory.tobytes()


class Arguments(unittest.TestCase):
    """What a library without the buffer protocol and the functions in C gives."""

    def test_memory_is_read_where_it_is(self):
        for options in ({}, {"versioned": False}, {"strides": [1]}, {"offset": 64}, {"knows": False, "versioned": False}):
            with self.subTest(**options), Engine() as engine:
                rows = np.array([engine.open(100 + i) for i in range(3)], np.int32)
                producer = Producer(rows, **options)
                batch = cgr.Batch(rows=producer, tokens=Producer(np.array([5, 6, 7], np.int32)))
                self.assertEqual(engine.step(batch)[1].tokens.tolist(), [6, 7, 8])
                rows[:] = rows[::-1].copy()
                batch.tokens = None
                self.assertEqual(engine.step(batch)[1].tags.tolist(), [102, 101, 100], "not a copy")
                self.assertEqual(producer.asked[0], {"max_version": (1, 3)})

    def test_dimensions_of_one_and_empty_tensors_are_dense_whatever_their_strides(self):
        for shape, strides in (((1, 4), [99, 1]), ((4, 1), [1, 77]), ((0, 4), [3, 9])):
            array = np.zeros(shape, np.int32)
            cgr.Batch(rows=Producer(array, strides=strides))

    def test_the_memory_is_kept(self):
        array = np.arange(4, dtype=np.int32)
        gone = weakref.ref(array)
        batch = cgr.Batch(rows=Producer(array))
        self.assertIs(batch.rows.array, array)
        del array
        gc.collect()
        self.assertIsNotNone(gone())
        del batch
        gc.collect()
        self.assertIsNone(gone())

    def test_a_capsule_is_ended_by_what_made_it(self):
        """An array of cgr's own, through a library that has capsules alone."""
        device = cgr.Device("host")
        memory = device.alloc(64)
        array = memory.array(cgr.Dtype.I32)

        class Proxy:
            __dlpack_device__ = staticmethod(array.__dlpack_device__)
            __dlpack__ = staticmethod(array.__dlpack__)

        before = sys.getrefcount(array)
        batch = cgr.Batch(rows=Proxy())
        self.assertEqual(sys.getrefcount(array), before + 1)
        del batch
        gc.collect()
        self.assertEqual(sys.getrefcount(array), before)
        del array, Proxy
        gc.collect()
        memory.close(), device.close()

    def test_memory_of_a_gpu_is_asked_for_without_waiting_and_not_for_the_host(self):
        for device in (CUDA, MANAGED):
            producer = Producer(ROWS, device=device)
            with Engine() as engine:
                with self.assertRaisesRegex(TypeError, "rows is in a GPU's memory, expected memory of the host"):
                    engine.runtime.prepare(cgr.Batch(rows=producer, tokens=[1, 2, 3, 4]))
            self.assertEqual(producer.asked[0].get("stream"), -1 if device == CUDA else None)
        producer = Producer(ROWS, device=CUDA)
        self.assertIs(cgr.view_make(producer, cgr.Dtype.I32, 1, 4).data, producer)
        self.assertEqual(plan_of(Producer(ROWS + 1, device=PINNED)), plan_of(ROWS + 1))

    def test_what_does_not_fit_is_refused_by_name(self):
        table = np.zeros((4, 4), np.int32)
        refused = (
            (Producer(ROWS, dtype=(UINT, 32, 1)), TypeError, "rows has elements of format 'uint' and 4 bytes, expected int"),
            (Producer(ROWS, dtype=(FLOAT, 32, 1)), TypeError, "format 'float' and 4 bytes"),
            (Producer(ROWS, dtype=(BFLOAT, 16, 1)), TypeError, "format 'bfloat' and 2 bytes"),
            (Producer(ROWS, dtype=(10, 8, 1)), TypeError, "format 'float of 8 bits or fewer' and 1 bytes"),
            (Producer(ROWS, dtype=(INT, 64, 1)), TypeError, "format 'int' and 8 bytes, expected integers of 4 bytes"),
            (Producer(ROWS, dtype=(INT, 16, 2)), TypeError, "format 'int' and 4 bytes"),
            (Producer(ROWS, dtype=(INT, 4, 1)), TypeError, "format 'int' and 0 bytes"),
            (Producer(ROWS, strides=[2]), ValueError, "rows has strides"),
            (Producer(table, strides=[1, 4]), ValueError, "rows has strides"),
            (Producer(ROWS, strides=[0]), ValueError, "rows has strides"),
            (Producer(ROWS, device=METAL), TypeError, "rows is on a device of DLPack's type 8, expected the host or CUDA"),
            (Producer(ROWS, major=2), ValueError, "rows is of DLPack 2.0, expected 1"),
            (Producer(ROWS.view(np.int8)[1:13].view(), dtype=I32), ValueError, "rows is not aligned to its elements of 4 bytes"),
        )  # fmt: skip
        for producer, error, message in refused:
            with self.subTest(message), self.assertRaisesRegex(error, message):
                cgr.Batch(rows=producer)

    def test_views_of_tensors_with_strides_reach_to_their_last_element(self):
        """Parts of one tensor [tokens, 4, 16]; 15 tokens reach less far than the 16 that a call reads."""
        engine, qkv, out = layered(self), np.zeros((16, 4, 16), np.float32), np.zeros((16, 2, 16), np.float32)

        def part(array, heads, tokens=16, dtype=(FLOAT, 32, 1), strides=(64, 16, 1)):
            data = Producer(array[:tokens, heads], dtype=dtype, strides=strides)
            return cgr.View(data=data, dtype=cgr.Dtype.FP32, stride_token=64, stride_head=16)

        views = {"q": part(qkv, slice(0, 2)), "k": part(qkv, slice(2, 3)), "v": part(qkv, slice(3, 4))}
        out = cgr.View(data=Producer(out, dtype=(FLOAT, 32, 1)), dtype=cgr.Dtype.FP32, stride_token=32, stride_head=16)

        def capture(**fields):
            given = dict(views, **fields)
            engine.runtime.capture(lambda recorder: recorder.attention(cgr.Attention(layer=0, out=out, **given)))

        with self.assertRaisesRegex(ValueError, "attention.v has 3648 bytes, expected at least 3904"):  # 4 * (14 * 64 + 16)
            capture(v=part(qkv, slice(3, 4), tokens=15))
        with self.assertRaisesRegex(TypeError, "attention.q has elements of 2 bytes, expected 4, those of fp32"):
            capture(q=part(qkv, slice(0, 2), dtype=(BFLOAT, 16, 1)))
        with self.assertRaisesRegex(ValueError, "data has a negative stride, expected its first element at the lowest"):
            part(qkv, slice(0, 2), strides=(-64, 16, 1))
        capture()

    def test_what_is_written_may_not_be_read_only(self):
        plan_input = cgr.PlanInput(query_lens=np.ones(4, np.int32), seq_lens=ROWS + 1, num_parts=132, head_blocks=8)
        memory, same = (cgr.aligned(cgr.plan_size(plan_input)) for _ in range(2))
        with self.assertRaisesRegex(ValueError, "plan is read-only"):
            cgr.plan_build(plan_input, Producer(memory, dtype=(UINT, 8, 1), read_only=1))
        cgr.plan_build(plan_input, Producer(memory, dtype=(UINT, 8, 1)))
        cgr.plan_build(plan_input, same)
        self.assertEqual(memory.tobytes(), same.tobytes())
        cgr.Batch(rows=Producer(ROWS, read_only=1))

    def test_an_exception_of_the_library_is_raised(self):
        class Broken(Producer):
            def __dlpack__(self, **_):
                raise BufferError("not today")

        self.assertRaisesRegex(BufferError, "not today", lambda: cgr.Batch(rows=Broken(ROWS)))


def exchange_of(kind):
    return Exchange.from_address(capsule_pointer(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


class Functions(unittest.TestCase):
    """The functions in C of cgr.Array, and those of other types."""

    def setUp(self):
        self.device = cgr.Device("host")
        self.memory = self.device.alloc(96)
        self.addCleanup(self.device.close)
        self.addCleanup(self.memory.close)

    def test_an_array_is_viewed(self):
        array, tensor, functions = self.memory.array(cgr.Dtype.FP32, (3, 8)), Tensor(), exchange_of(cgr.Array)
        self.assertEqual((functions.major, functions.minor, functions.older), (1, 3, None))
        self.assertEqual(functions.view(array, tensor), 0)
        self.assertEqual(tensor.read(), (int(self.memory.address), (CPU, 0), (FLOAT, 32, 1), [3, 8], [8, 1]))
        self.assertEqual(tensor.byte_offset, 0)

    def test_an_array_is_given_and_kept_until_it_is_deleted(self):
        array, out = self.memory.array(cgr.Dtype.BF16), ctypes.c_void_p()
        before = sys.getrefcount(array)
        self.assertEqual(exchange_of(cgr.Array).give(array, out), 0)
        managed = Versioned.from_address(out.value)
        self.assertEqual((managed.major, managed.flags, managed.tensor.read()),
                         (1, 0, (int(self.memory.address), (CPU, 0), (BFLOAT, 16, 1), [48], [1])))  # fmt: skip
        self.assertEqual(sys.getrefcount(array), before + 1)
        managed.deleter(out.value)
        self.assertEqual(sys.getrefcount(array), before)

    def test_it_takes_and_allocates_nothing(self):
        functions, out, said = exchange_of(cgr.Array), ctypes.c_void_p(1), []
        with self.assertRaisesRegex(BufferError, "a cgr.Array is of cgr's memory"):
            functions.take(None, out)
        fail = FAIL(lambda context, kind, message: said.append((context, kind, message)))
        self.assertEqual((functions.allocate(Tensor(), out, 7, fail), out.value), (-1, None))
        message = b"cgr allocates no tensors for kernels: give the kernel the memory of its result"
        self.assertEqual(said, [(7, b"RuntimeError", message)])

    def test_the_stream_of_the_host_is_none(self):
        seen = []

        def record(recorder):
            out = ctypes.c_void_p(1)
            seen.append((exchange_of(cgr.Array).stream(CPU, 0, out), out.value))
            out.value = 1
            seen.append((exchange_of(cgr.Array).stream(CUDA, 0, out), out.value))  # none of that GPU is recorded

        with Engine(capture=False) as engine:
            engine.runtime.capture(record)
        self.assertEqual(set(seen), {(0, None)})

    def test_the_stream_of_a_gpu_is_the_recorder_s(self):
        try:
            device = cgr.Device("cuda:0")
        except cgr.CgrError as error:
            self.skipTest(f"no GPU: {error}")
        seen, out = [], ctypes.c_void_p()

        def record(recorder):
            self.assertEqual(exchange_of(cgr.Array).stream(CUDA, 0, out), 0)
            seen.append((out.value, int(recorder.info().stream)))

        with device:
            limits = dict(max_requests=4, max_tokens=16, max_seq_len=96)
            runtime = cgr.Runtime(device=device, groups=[cgr.Group(num_pages=8)], **limits)
            runtime.capture(record)
            self.assertEqual(exchange_of(cgr.Array).stream(CUDA, 0, out), 0)
            runtime.close()
        self.assertTrue(seen and all(asked == stream for asked, stream in seen), seen)
        self.assertIsNone(out.value, "outside of a record it is the default stream")

    def test_a_stream_tells_its_address(self):
        with self.device.stream() as stream:
            version, address = stream.__cuda_stream__()
            self.assertEqual(version, 0)
            self.assertGreater(address, 0)
            self.device.fill(self.memory, 3, 96, cgr.Address(address))
            stream.synchronize()
            self.assertEqual(set(self.memory.array(cgr.Dtype.U8).numpy().tolist()), {3})

    def make_type(self, major=1, older=None, view=True, result=0, read_only=0):
        """A type with such functions over ROWS + 1, and what they were asked."""
        producer, asked = Producer(ROWS + 1, read_only=read_only), []

        def give(_, out):
            asked.append("give")
            out[0] = ctypes.addressof(producer.managed)
            return result

        def look(_, out):
            asked.append("view")
            ctypes.memmove(out, ctypes.addressof(producer.managed.tensor), ctypes.sizeof(Tensor))
            return result

        kinds = dict(Exchange._fields_)
        table = Exchange(major, 0, older, kinds["allocate"](), kinds["give"](give), kinds["take"]())
        table.view = kinds["view"](look) if view else kinds["view"]()
        capsule = capsule_new(ctypes.addressof(table), b"dlpack_exchange_api", None)
        return type("Theirs", (), {"__dlpack_c_exchange_api__": capsule, "keeps": (table, producer)}), table, asked

    def test_tensors_are_read_by_their_types_functions(self):
        for view in (True, False):
            kind, _, asked = self.make_type(view=view)
            self.assertEqual(plan_of(kind()), plan_of(ROWS + 1))
            self.assertEqual(asked, ["view" if view else "give"])

    def test_what_is_written_is_asked_whether_it_is_read_only(self):
        plan_input = cgr.PlanInput(query_lens=np.ones(4, np.int32), seq_lens=ROWS + 1, num_parts=132, head_blocks=8)
        kind, _, asked = self.make_type(read_only=1)
        self.assertRaisesRegex(ValueError, "plan is read-only", cgr.plan_build, plan_input, kind())
        self.assertEqual(asked, ["give"])

    def test_of_newer_functions_the_older_ones_are_taken(self):
        older, table, asked = self.make_type()
        newer, _, unasked = self.make_type(major=2, older=ctypes.addressof(table))
        cgr.Batch(rows=newer())
        self.assertEqual((asked, unasked), (["view"], []))
        newer, _, unasked = self.make_type(major=2)
        self.assertRaisesRegex(TypeError, "rows is of <class .*Theirs'>, expected an array", lambda: cgr.Batch(rows=newer()))
        self.assertEqual(unasked, [])

    def test_a_tensor_that_its_functions_do_not_give_is_asked_otherwise(self):
        kind, _, asked = self.make_type(result=-1)
        kind.__dlpack__, kind.__dlpack_device__ = Producer(ROWS).__dlpack__, Producer(ROWS).__dlpack_device__
        cgr.Batch(rows=kind())
        self.assertEqual(asked, ["view"])


@unittest.skipUnless(importlib.util.find_spec("tvm_ffi"), "no tvm_ffi (PyPI's apache-tvm-ffi)")
class TvmFfi(unittest.TestCase):
    """The package itself."""

    def tensor(self, *numbers, dtype=np.int32):
        import tvm_ffi

        return tvm_ffi.from_dlpack(np.array(numbers, dtype))

    def test_its_tensors_are_arguments(self):
        with Engine() as engine:
            rows = self.tensor(*(engine.open(100 + i) for i in range(3)))
            batch = cgr.Batch(rows=rows, query_lens=self.tensor(2, 1, 3), tokens=self.tensor(1, 2, 10, 20, 21, 22))
            self.assertEqual(engine.step(batch)[1].tokens.tolist(), [3, 11, 23])
            with self.assertRaisesRegex(TypeError, "rows has elements of format 'int' and 8 bytes, expected integers of 4 bytes"):
                cgr.Batch(rows=self.tensor(1, dtype=np.int64))

    def test_its_own_functions_in_c_are_asked(self):
        from tvm_ffi import core

        lengths = [17, 5, 300, 1]
        wrapped = core.DLTensorTestWrapper(self.tensor(*lengths))
        self.assertTrue(hasattr(type(wrapped), "__dlpack_c_exchange_api__"))
        self.assertEqual(plan_of(wrapped), plan_of(lengths))

    def test_functions_take_arrays_without_a_copy(self):
        import tvm_ffi

        seen = []

        @tvm_ffi.register_global_func("cgr.test.add_one", override=True)
        def add_one(x, out):
            seen.append((str(x.dtype), tuple(x.shape), str(x.device)))
            there = np.from_dlpack(out)  # before 2.1 numpy takes nothing that may be written
            np.frombuffer((ctypes.c_int32 * there.size).from_address(there.ctypes.data), np.int32)[:] = np.from_dlpack(x) + 1

        with Engine(capture=False) as engine:
            function, buffers = tvm_ffi.get_global_func("cgr.test.add_one"), (cgr.Buffer.INPUT_IDS, cgr.Buffer.NEXT_TOKENS)
            ids, sampled = (engine.runtime.buffer(b).array() for b in buffers)

            def record(recorder):
                info = recorder.info()
                views = [recorder.buffer(b).array() for b in buffers]
                engine.device.launch_host(lambda: function(*(cut(view, info.num_requests) for view in views)), (), info.stream)

            def cut(view, count):
                return tvm_ffi.from_dlpack(view.numpy()[:count])

            engine.runtime.capture(record)
            row = engine.open(7)
            self.assertEqual(engine.step(cgr.Batch(rows=[row], tokens=[41]))[1].tokens.tolist(), [42])
            self.assertIn(("int32", (1,), "cpu:0"), seen)
            ids.numpy()[:] = 5
            function(ids, memory := engine.device.alloc(4 * ids.shape[0]).array(cgr.Dtype.I32))
            self.assertEqual(set(memory.numpy().tolist()), {6})
            del memory, ids, sampled
            gc.collect()

    def test_a_tensor_keeps_the_array_and_comes_back_as_one_of_its_own(self):
        import tvm_ffi

        device = cgr.Device("host")
        memory = device.alloc(64)
        array = memory.array(cgr.Dtype.I32, (4, 4))
        before = sys.getrefcount(array)
        tensor = tvm_ffi.from_dlpack(array)
        self.assertEqual(sys.getrefcount(array), before + 1)
        self.assertEqual((tensor.data_ptr(), tuple(tensor.shape)), (int(memory.address), (4, 4)))
        back = tvm_ffi.get_global_func("testing.echo")(array)
        self.assertIsInstance(back, tvm_ffi.Tensor)
        self.assertEqual(back.data_ptr(), tensor.data_ptr())
        del tensor, back
        gc.collect()
        self.assertEqual(sys.getrefcount(array), before)
        del array
        memory.close(), device.close()


if __name__ == "__main__":
    unittest.main()
