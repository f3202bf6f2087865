"""Planners alone: from numpy arrays they give the bytes that C's callers get, and misuse is refused."""

import os
import subprocess
import tempfile
import unittest

import numpy as np
from programs import compile_program

import cgr


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
    out = cgr.FlashinferDecodeInput(
        num_requests=n, kv_indptr=a.indptr, num_multiprocessors=132, blocks_per_multiprocessor=2, **heads
    )
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


if __name__ == "__main__":
    unittest.main()
