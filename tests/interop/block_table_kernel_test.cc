// The block table's planner as a kernel, for CUDA also on a processor: it writes, bit for bit, what a second reading of the batch
// gives, whatever was in the memory and however wrong the live values are. Then the public call, in a captured graph that is
// replayed with other lengths.
#include "interop/block_table/host.h"
#include "interop/formats.h"
#include "tests/emulation/device.h"
#include "tests/support/block_table_case.h"
#include "tests/support/enqueue_case.h"

namespace cgr_test {
namespace {

using Ints = std::vector<int32_t>;

Ints OneWord(int32_t value) { return Ints(1, value); }

class BlockTableKernel : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_block_table }); }

  Ints Run(const BlockTableBatch &b) {
    cgr__block_table_args args = {};
    cgr_block_table_input input;
    CGR_EXPECT_OK(cgr__block_table_read_input("test", "input", &b.input, &input));
    cgr__block_table_task_of(&input, &args.task);
    const Array<int32_t> live(*bench_, OneWord(b.live)), first(*bench_, OneWord(b.first_prefill)), seq_lens(*bench_, b.seq_lens),
        rows(*bench_, b.rows);
    const Array<int32_t> query_start_loc(*bench_, b.query_start_loc), page_table(*bench_, b.page_table);
    const Array<int32_t> memory(*bench_, size_t(cgr__block_table_locate(&args.task).words));
    args.task.live_requests = b.live < 0 ? nullptr : live.data();
    args.task.first_prefill = input.max_prefill_query_len > 0 ? first.data() : nullptr;
    args.task.seq_lens = seq_lens.data();
    args.task.rows = rows.data();
    args.task.query_start_loc = query_start_loc.data();
    args.task.page_table = page_table.data();
    args.memory = memory.data();
    bench_->Run(cgr__kernel_block_table, &args);
    return memory.Get();
  }
};

TEST_P(BlockTableKernel, EqualsASecondReading) {
  ForSeeds(GetParam().HasCudaKernels() ? 1000 : 500, [&](Random &random) {
    BlockTableBatch b;
    RandomBlockTable(random, random.OneIn(20) ? 1100 : 40, random.OneIn(2), &b);
    cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
    CGR_ASSERT_OK(cgr_block_table_get_layout(&b.input, &at));
    ASSERT_EQ(Run(b), BlockTableWords(b, at));
  });
}

TEST_P(BlockTableKernel, OfManyRequests) {
  for (int32_t requests : { 255, 256, 257, 512, 513, 4095, 4096 })
    for (bool mixed : { false, true }) {
      BlockTableBatch b;
      Random random{ uint64_t(requests) };
      RandomBlockTable(random, 1, false, &b);
      b.input.num_requests = requests;
      b.input.query_len = 1;
      b.input.num_tokens = requests;
      b.input.max_prefill_query_len = mixed ? 9 : 0;
      b.live = requests - 1;
      b.first_prefill = mixed ? requests / 3 : -1;
      b.rows.assign(size_t(requests), 0);
      b.seq_lens.clear();
      b.query_start_loc.assign(1, 0);
      for (int32_t i = 0; i < requests; i++) {
        b.seq_lens.push_back(random.Pick32(0, b.input.max_seq_len)); // it may be below the new tokens
        b.query_start_loc.push_back(b.query_start_loc.back() + (mixed && i >= b.first_prefill ? random.Pick32(0, 9) : 1));
      }
      b.Bind();
      cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
      CGR_ASSERT_OK(cgr_block_table_get_layout(&b.input, &at));
      ASSERT_EQ(Run(b), BlockTableWords(b, at)) << requests << " requests";
    }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(BlockTableKernel);

// -------------------------------------------------------------------------------------------------------------- public call

class BlockTableCall : public EnqueueTest {};

TEST_P(BlockTableCall, ReplaysWithOtherLengths) {
  Random random(Seed());
  BlockTableBatch b;
  RandomBlockTable(random, 30, true, &b);
  b.live = b.input.num_requests;
  b.Bind();
  cgr_block_table_layout at = CGR_BLOCK_TABLE_LAYOUT_INIT;
  CGR_ASSERT_OK(cgr_block_table_get_layout(&b.input, &at));
  Array<int32_t> table(*bench_, b.page_table), rows(*bench_, b.rows), lens(*bench_, b.seq_lens);
  Array<int32_t> starts(*bench_, b.query_start_loc), live(*bench_, OneWord(b.live)), memory(*bench_, at.bytes / 4);
  Array<int32_t> first(*bench_, OneWord(b.first_prefill));
  cgr_block_table_input there = b.input;
  there.page_table = table.data();
  there.rows = rows.data();
  there.seq_lens = lens.data();
  there.query_start_loc = starts.data();
  there.live_requests = live.data();
  there.first_prefill = b.input.max_prefill_query_len > 0 ? first.data() : nullptr;
  auto put = [&] {
    first.Put(OneWord(b.first_prefill));
    table.Put(b.page_table);
    rows.Put(b.rows);
    lens.Put(b.seq_lens);
    starts.Put(b.query_start_loc);
    live.Put(OneWord(b.live));
  };
  auto enqueue = [&] { return cgr_block_table_enqueue(device_, &there, memory.data(), at.bytes, stream_); };
  CGR_ASSERT_OK(enqueue());
  Sync();
  ASSERT_EQ(memory.Get(), BlockTableWords(b, at));
  InAGraph(enqueue, [&](auto launch) {
    for (int step = 0; step < 20; step++) {
      for (int32_t &len : b.seq_lens)
        len = random.Pick32(0, b.input.max_seq_len);
      for (int32_t &row : b.rows)
        row = random.Pick32(0, b.input.num_rows - 1);
      b.live = random.Pick32(0, b.input.num_requests);
      b.first_prefill = random.Pick32(0, b.live);
      put();
      memory.Put(Ints(memory.size(), -99));
      ASSERT_NO_FATAL_FAILURE(launch());
      ASSERT_EQ(memory.Get(), BlockTableWords(b, at));
    }
  });
}

TEST_P(BlockTableCall, RefusesWhatTheOtherCallsRefuse) {
  alignas(16) int32_t words[64];
  Random random(1);
  BlockTableBatch b;
  RandomBlockTable(random, 1, false, &b);
  auto other = [&](cgr_device *dev, void *to, cudaStream_t stream) {
    return cgr_block_table_enqueue(dev, &b.input, to, size_t{ 1 } << 40, stream);
  };
  ExpectMessage(other(nullptr, words, stream_), CGR_ERROR_NULL_POINTER, { "cgr_block_table_enqueue", "device" });
  ExpectMessage(other(device_, nullptr, stream_), CGR_ERROR_NULL_POINTER, { "cgr_block_table_enqueue", "memory" });
  ExpectMessage(other(device_, words, nullptr), CGR_ERROR_INVALID_ARGUMENT, { "cgr_block_table_enqueue", "stream is NULL" });
  b.input.kv_layout = CGR_LAYOUT_NHD;
  ExpectMessage(other(device_, words, stream_), CGR_ERROR_UNSUPPORTED, { "cgr_block_table_enqueue", "kv_layout" });
}

CGR_INSTANTIATE_OVER_DEVICES(BlockTableCall);

} // namespace
} // namespace cgr_test
