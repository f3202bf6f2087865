"""Planners alone: from numpy arrays they give the bytes that C's callers get, and misuse is refused."""

import os
import subprocess
import tempfile
import unittest

import numpy as np
from programs import compile_program

import cgr

try:
    import torch
except ImportError:
    torch = None


class Arrays:
    """The batch of plans.c."""

    def __init__(self, n):
        index = np.arange(n, dtype=np.int32)
        self.query_lens = index % 5 + 1
        self.seq_lens = 37 * (index + 1)
        self.starts = np.concatenate(([0], np.cumsum(self.query_lens))).astype(np.int32)
        self.indptr = np.concatenate(([0], np.cumsum((self.seq_lens + 15) // 16))).astype(np.int32)
        self.rows = index[::-1].copy()
        self.table = (2 + np.arange((n + 1) * 64, dtype=np.int32)).reshape(n + 1, 64)


def plan(n, a):
    out = cgr.PlanInput(query_lens=a.query_lens, seq_lens=a.seq_lens, num_parts=132, head_blocks=8)
    memory = cgr.aligned(cgr.plan_size(out))
    cgr.plan_build(out, memory)
    return memory


def fa3(n, a):
    heads = dict(num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=cgr.Dtype.BF16, page_size=16)
    limits = dict(max_query_len=5, max_seq_len=16384, causal=1, num_splits=16, num_multiprocessors=132)
    out = cgr.Fa3Input(num_requests=n, query_start_loc=a.starts, seq_lens=a.seq_lens, **heads, **limits)
    memory = cgr.aligned(cgr.fa3_size(out).metadata_bytes)
    cgr.fa3_build(out, memory)
    return memory


def flashinfer(n, a):
    heads = dict(num_q_heads=32, num_kv_heads=8, head_dim=128, page_size=16)
    out = cgr.FlashinferDecodeInput(num_requests=n, kv_indptr=a.indptr, num_multiprocessors=132, blocks_per_multiprocessor=2, **heads)
    memory = cgr.aligned(cgr.flashinfer_decode_size(out).int_bytes)
    cgr.flashinfer_decode_build(out, memory)
    return memory


def flashmla(n, a):
    out = cgr.FlashmlaInput(num_requests=n, num_parts=72, query_len=1, seq_lens=a.seq_lens)
    memory = cgr.aligned(cgr.flashmla_size(out)[1])
    cgr.flashmla_build(out, memory)
    return memory


def block_table(n, a):
    out = cgr.BlockTableInput(
        num_requests=n,
        query_len=5,
        max_seq_len=1024,
        max_pages=64,
        page_size=16,
        num_rows=n + 1,
        num_pages=1 << 20,
        page_table_stride=64,
        page_table=a.table,
        rows=a.rows,
        seq_lens=a.seq_lens,
        query_start_loc=a.starts,
    )
    memory = cgr.aligned(cgr.block_table_layout(out).bytes)
    cgr.block_table_build(out, memory)
    return memory, out


class Planners(unittest.TestCase):
    def test_bytes_are_those_of_c(self):
        with tempfile.TemporaryDirectory() as folder:
            program = compile_program(folder, "plans")
            for n in (1, 7, 26):
                out = os.path.join(folder, "plans.bin")
                subprocess.run([program, str(n), out], check=True)
                arrays = Arrays(n)
                mine = [plan(n, arrays), fa3(n, arrays), flashinfer(n, arrays), flashmla(n, arrays), block_table(n, arrays)[0]]
                theirs = np.fromfile(out, np.uint8)
                self.assertGreater(theirs.size, 1000)
                self.assertTrue(np.array_equal(np.concatenate(mine), theirs), n)

    def test_the_same_on_a_stream_of_the_host_device(self):
        arrays = Arrays(7)
        wanted, table_input = block_table(7, arrays)
        with cgr.Device("host") as device, device.stream() as stream, device.alloc(wanted.size) as memory:
            device.block_table_enqueue(table_input, memory, stream)
            stream.synchronize()
            self.assertTrue(np.array_equal(memory.array(cgr.Dtype.U8).numpy(), wanted))

    def test_arrays_that_are_too_short_are_refused(self):
        arrays = Arrays(7)
        out = cgr.PlanInput(query_lens=arrays.query_lens, seq_lens=arrays.seq_lens[:3], num_parts=8)
        self.assertRaisesRegex(ValueError, "seq_lens has 3 elements, expected at least 7", cgr.plan_size, out)
        out.seq_lens = arrays.seq_lens
        memory = np.empty(cgr.plan_size(out) - 16, np.uint8)
        with self.assertRaises(cgr.CgrError) as refused:
            cgr.plan_build(out, memory)
        self.assertEqual(refused.exception.status, cgr.Status.ERROR_INVALID_ARGUMENT)
        memory.flags.writeable = False
        self.assertRaises((ValueError, BufferError), cgr.plan_build, out, memory)

    def test_metadata(self):
        def zeros(count, dtype=np.int32):
            return np.zeros(count, dtype)

        group = cgr.MetadataGroup(
            page_size=16, num_pages=64, read_trash_page=0, write_trash_page=1, page_table_stride=4,
            page_table=np.arange(2, 14, dtype=np.int32).reshape(3, 4), slot_mapping=zeros(4, np.int64),
            kv_indptr=zeros(3), kv_last_page_len=zeros(2),
        )  # fmt: skip
        names = ("request_rows", "logits_indices", "seq_lens")
        out = {name: zeros(2) for name in names} | {name: zeros(4) for name in ("input_ids", "positions")}
        metadata = cgr.Metadata(
            rows=[1, 0], query_lens=[2, 1], tokens=[5, 6, 7], padded_requests=2, padded_tokens=4, max_rows=2, max_seq_len=64,
            row_computed=[10, 20], groups=[group], query_start_loc=zeros(3), **out,
        )  # fmt: skip
        cgr.metadata_build(metadata)
        self.assertEqual(out["positions"].tolist(), [20, 21, 10, 0])
        self.assertEqual(group.slot_mapping.tolist(), [7 * 16 + 4, 7 * 16 + 5, 2 * 16 + 10, -1])
        group.slot_mapping = zeros(3, np.int64)
        metadata.groups = [group]
        self.assertRaisesRegex(ValueError, "slot_mapping has 3", cgr.metadata_build, metadata)

    def test_metadata_of_prefills(self):
        """Of two groups: the second one's block table is not wanted."""

        def zeros(*shape, dtype=np.int32):
            return np.zeros(shape, dtype)

        groups = [
            cgr.MetadataGroup(
                page_size=16, num_pages=64, read_trash_page=0, write_trash_page=1, page_table_stride=4,
                page_table=np.arange(2, 14, dtype=np.int32).reshape(3, 4), slot_mapping=zeros(8, dtype=np.int64),
                kv_indptr=zeros(4), kv_last_page_len=zeros(3),
            ) for _ in range(2)
        ]  # fmt: skip
        on_demand = [cgr.MetadataOnDemand(block_table=zeros(3, 4), block_table_stride=4), cgr.MetadataOnDemand()]
        names = ("request_rows", "logits_indices", "seq_lens", "prefill_seq_lens")
        out = {name: zeros(3) for name in names} | {name: zeros(8) for name in ("input_ids", "positions")}
        out |= {name: zeros(4) for name in ("query_start_loc", "prefill_query_start_loc", "prefill_kv_start_loc")}
        table = zeros(3, 4)
        metadata = cgr.Metadata(
            rows=[1, 0], query_lens=[1, 5], padded_requests=3, padded_tokens=8, max_rows=2, max_seq_len=64, row_computed=[10, 20],
            row_last_tokens=[1, 2], groups=groups, on_demand=on_demand, reorder_threshold=1, num_decodes=zeros(1),
            prefill_block_table=[table, None], **out,
        )  # fmt: skip
        cgr.metadata_build(metadata)
        self.assertEqual(metadata.num_decodes.tolist(), [1])
        self.assertEqual(out["prefill_seq_lens"].tolist(), [15, 0, 0])
        self.assertEqual(out["prefill_kv_start_loc"].tolist(), [0, 15, 15, 15])
        self.assertEqual(out["prefill_query_start_loc"].tolist(), [0, 5, 5, 5])
        self.assertEqual(table.tolist(), [[2, 0, 0, 0], [0] * 4, [0] * 4])
        self.assertIs(metadata.prefill_block_table[0], table)
        self.assertEqual(metadata.copy().prefill_block_table, metadata.prefill_block_table)
        for given, why in (([table], "has 1 items, expected at least 2"), ([zeros(11), None], "has 11 elements, expected at least 12")):
            metadata.prefill_block_table = given
            self.assertRaisesRegex(ValueError, "prefill_block_table " + why, cgr.metadata_build, metadata)
        metadata.on_demand, metadata.prefill_block_table = on_demand[:1], [table, None]
        self.assertRaisesRegex(ValueError, "on_demand has 1", cgr.metadata_build, metadata)
        with self.assertRaises(TypeError):
            metadata.prefill_block_table = [zeros(12, dtype=np.float32)]
        metadata.on_demand, metadata.prefill_block_table = on_demand, None
        cgr.metadata_build(metadata)

    def test_what_a_graph_keeps_of_a_block_table(self):
        class Sinks:  # in a GPU's memory: built on the host, a block table does not read them
            __cuda_array_interface__ = dict(shape=(8,), typestr="<f4", data=(0x7F0000000000, False), version=3)

        arrays = Arrays(7)
        built, captured = block_table(7, arrays)
        captured.sinks = Sinks()
        captured.bmm1_scale = cgr.block_table_bmm1_scale(2.0, 0.5, 0.125)
        memory = cgr.aligned(built.size)
        cgr.block_table_build(captured, memory)
        self.assertTrue(np.array_equal(memory, built))
        now = captured.copy()
        now.rows = now.seq_lens = now.query_start_loc = None
        cgr.block_table_check_replay(captured, now)
        self.assertEqual(cgr.block_table_layout(now).hash, cgr.block_table_layout(captured).hash)
        for name, value in (("bmm1_scale", 0.25), ("sinks", cgr.Address(0x7F0000000010)), ("max_seq_len", 512)):
            other = now.copy()
            setattr(other, name, value)
            with self.assertRaisesRegex(cgr.CgrError, name) as refused:
                cgr.block_table_check_replay(captured, other)
            self.assertEqual(refused.exception.status, cgr.Status.ERROR_STALE_GRAPH)
            self.assertNotEqual(cgr.block_table_layout(other).hash, cgr.block_table_layout(captured).hash)


class Enqueued:
    """A format: its input from arrays of `like`, the bytes that it takes, and its two functions."""

    def __init__(self, name, make, size):
        self.name, self.make, self.size = name, make, size

    def build(self, *arguments):
        return getattr(cgr, f"{self.name}_build")(*arguments)

    def enqueue(self, device, *arguments):
        return getattr(device, f"{self.name}_enqueue")(*arguments)


HEADS = dict(num_q_heads=32, num_kv_heads=8, page_size=16, num_multiprocessors=132)
ENQUEUED = [
    Enqueued(
        "fa3",
        lambda n, starts, seq_lens, indptr: cgr.Fa3Input(
            num_requests=n, query_start_loc=starts, seq_lens=seq_lens, head_dim=128, dtype=cgr.Dtype.BF16, max_query_len=5,
            max_seq_len=16384, causal=1, num_splits=16, **HEADS,
        ),
        lambda plan_input: cgr.fa3_size(plan_input).metadata_bytes,
    ),
    Enqueued(
        "flashinfer_decode",
        lambda n, starts, seq_lens, indptr: cgr.FlashinferDecodeInput(
            num_requests=n, kv_indptr=indptr, head_dim=128, blocks_per_multiprocessor=2, graph=1, **HEADS
        ),
        lambda plan_input: cgr.flashinfer_decode_size(plan_input).int_bytes,
    ),
    Enqueued(
        "flashinfer_prefill",
        lambda n, starts, seq_lens, indptr: cgr.FlashinferPrefillInput(
            num_requests=n, qo_indptr=starts, kv_indptr=indptr, total_num_rows=5 * n, head_dim_qk=128, head_dim_vo=128, graph=1,
            layout=cgr.FlashinferLayout.V0_7_1, **HEADS,
        ),
        lambda plan_input: cgr.flashinfer_prefill_size(plan_input).int_bytes,
    ),
    Enqueued(
        "flashmla",
        lambda n, starts, seq_lens, indptr: cgr.FlashmlaInput(num_requests=n, num_parts=72, query_len=1, seq_lens=seq_lens),
        lambda plan_input: cgr.flashmla_size(plan_input)[1],
    ),
]  # fmt: skip


class Far:
    """Memory of a GPU that is not there: who reads it ends the interpreter."""

    def __init__(self, elements=4096, typestr="<i4"):
        self.__cuda_array_interface__ = dict(shape=(elements,), typestr=typestr, data=(0x10000, False), version=3)


class InMemoryOfAGpu(unittest.TestCase):
    """What the host reads has to be its own; what it does not read may be anywhere."""

    def refuses(self, name, function, *arguments, **keywords):
        with self.assertRaisesRegex(TypeError, f"^{name} is in a GPU's memory, expected memory of the host"):
            function(*arguments, **keywords)

    def test_sizes_do_not_read_what_only_kernels_read(self):
        for f in ENQUEUED:
            with self.subTest(f.name):
                self.assertEqual(f.size(f.make(7, Far(8), Far(7), Far(8))), f.size(f.make(7, None, None, None)))
        queries = np.array([1, 3], np.int32)
        here, far = (cgr.PlanInput(query_lens=queries, seq_lens=seq_lens, num_parts=4) for seq_lens in (queries, Far()))
        self.assertEqual(cgr.plan_size(here), cgr.plan_size(far))

    def test_what_a_size_reads_is_refused(self):
        self.refuses("query_lens", cgr.plan_size, cgr.PlanInput(num_requests=2, query_lens=Far(2), num_parts=4))
        decode, prefill = (ENQUEUED[i].make(7, Far(8), Far(7), Far(8)) for i in (1, 2))
        for plan_input, function, name in (
            (decode, cgr.flashinfer_decode_size, "kv_indptr"),
            (prefill, cgr.flashinfer_prefill_size, "qo_indptr"),
        ):
            plan_input.graph = 0
            self.refuses(name, function, plan_input)
        prefill.graph, prefill.fixed_split_size = 1, 4
        self.refuses("qo_indptr", cgr.flashinfer_prefill_size, prefill)
        prefill.force_split_kv = 1
        self.assertGreater(cgr.flashinfer_prefill_size(prefill).int_bytes, 0)

    def test_a_status_is_not_written_by_the_host(self):
        arrays = Arrays(7)
        plan_input = ENQUEUED[1].make(7, arrays.starts, arrays.seq_lens, arrays.indptr)
        plan_input.status = Far(1)
        cgr.flashinfer_decode_build(plan_input, cgr.aligned(cgr.flashinfer_decode_size(plan_input).int_bytes))

    def test_the_host_device_computes_on_the_host(self):
        arrays = Arrays(7)
        here = arrays.starts, arrays.seq_lens, arrays.indptr
        with cgr.Device("host") as device, device.stream() as stream:
            for f in ENQUEUED:
                with self.subTest(f.name):
                    memory = cgr.aligned(f.size(f.make(7, *here)))
                    far, read = f.make(7, Far(8), Far(7), Far(8)), "query_start_loc|seq_lens|kv_indptr|qo_indptr"
                    self.refuses(f"({read})", f.enqueue, device, far, memory, stream)
                    words = "metadata" if hasattr(far, "seq_lens") else "int_workspace"
                    self.refuses(words, f.enqueue, device, f.make(7, *here), Far(memory.size, "|u1"), stream)
            cache = cgr.kv_view_make(cgr.KvLayout.NHD, Far(1 << 16), cgr.Dtype.FP32, 16, 2, 8)
            layer = cgr.Layer(num_q_heads=2, num_kv_heads=2, head_dim=8, k=cache, v=cache)
            sizes = dict(groups=[cgr.Group(num_pages=16)], max_requests=2, max_tokens=8, max_seq_len=32)
            for where in (device, "host"):
                self.refuses("base", cgr.Runtime, device=where, layers=[layer], **sizes)
            self.refuses("decode_buckets", cgr.Runtime, device=device, decode_buckets=Far(1), **sizes)


@unittest.skipIf(torch is None, "no torch")
class OfTensors(unittest.TestCase):
    """Inputs and results that are tensors, on the host and enqueued on a stream: of a GPU if torch and the library have one."""

    def setUp(self):
        self.device_name = "host"
        if torch.cuda.is_available():
            try:
                cgr.Device("cuda:0").close()
                self.device_name = "cuda:0"
            except cgr.CgrError:
                pass  # the library has no CUDA
        self.torch_device = "cuda" if self.device_name != "host" else "cpu"

    def arrays(self, n, change=0):
        a = Arrays(n)
        return a.starts, a.seq_lens + change, a.indptr

    def test_on_the_host_they_are_as_good_as_arrays(self):
        for f in ENQUEUED:
            with self.subTest(f.name):
                arrays = self.arrays(26)
                plan_input = f.make(26, *arrays)
                wanted = cgr.aligned(f.size(plan_input))
                f.build(plan_input, wanted)
                from_tensors = f.make(26, *(torch.from_numpy(array) for array in arrays))
                memory = torch.from_numpy(cgr.aligned(wanted.size))
                f.build(from_tensors, memory)
                self.assertTrue(np.array_equal(memory.numpy(), wanted))

    def test_enqueued_they_are_read_when_the_kernel_runs(self):
        with cgr.Device(self.device_name) as device, device.stream() as own:
            streams = [own] + ([torch.cuda.Stream()] if self.torch_device == "cuda" else [])
            for f in ENQUEUED:
                for stream in streams:
                    with self.subTest(f.name):
                        self.enqueue(f, device, stream)

    def enqueue(self, f, device, stream):
        tensors = [torch.from_numpy(array).to(self.torch_device, copy=True) for array in self.arrays(26)]
        plan_input = f.make(26, *tensors)
        size = f.size(f.make(26, None, None, None))  # follows from the numbers alone
        memory = torch.full((size + 256,), 0xAA, dtype=torch.uint8, device=self.torch_device)
        memory = memory[-memory.data_ptr() % 256 :][:size]
        for change in (0, 5):
            for tensor, array in zip(tensors, self.arrays(26, change)):
                tensor.copy_(torch.from_numpy(array))
            if self.torch_device == "cuda":
                torch.cuda.synchronize()
            f.enqueue(device, plan_input, memory, stream)
            stream.synchronize()
            wanted = cgr.aligned(memory.numel())
            f.build(f.make(26, *self.arrays(26, change)), wanted)
            self.assertTrue(np.array_equal(memory.cpu().numpy(), wanted), change)

    def test_what_is_no_array_of_int32_is_refused(self):
        starts, seq_lens, indptr = map(torch.from_numpy, self.arrays(7))
        for wrong, why in (
            (seq_lens.long(), "expected integers of 4 bytes"),
            (seq_lens[::2], "contiguous|stride"),
            (seq_lens[:3], "has 3"),
        ):
            with self.assertRaisesRegex((TypeError, ValueError, BufferError), why):
                plan_input = ENQUEUED[0].make(7, starts, wrong, indptr)
                cgr.fa3_build(plan_input, cgr.aligned(cgr.fa3_size(plan_input).metadata_bytes))


if __name__ == "__main__":
    unittest.main()
