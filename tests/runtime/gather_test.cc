// cgr_gather_build and cgr_gather_enqueue against a loop over elements; and a captured gather, replayed with other batches.
#include "tests/support/enqueue_case.h"
#include "tests/support/gather_case.h"

namespace cgr_test {
namespace {

TEST(Gather, BuildEqualsALoop) {
  ForSeeds(100, [&](Random &random) {
    GatherCase c;
    RandomGather(random, &c);
    c.Bind();
    const GatherResult want = ExpectedGather(c);
    CGR_ASSERT_OK(cgr_gather_build(&c.gather));
    ExpectGathered(want, c.out, c.block_table, c.overflow);
  });
}

class GatherOnStream : public EnqueueTest {};

TEST_P(GatherOnStream, EqualsALoop) {
  ForSeeds(20, [&](Random &random) {
    GatherCase c;
    RandomGather(random, &c);
    const GatherMemory memory(*bench_, c);
    CGR_ASSERT_OK(cgr_gather_enqueue(device_, &memory.at, stream_));
    Sync();
    memory.Expect(c);
  });
}

TEST_P(GatherOnStream, ReplaysWithOtherBatches) {
  SeededRandom random;
  GatherCase c;
  c.gather.num_requests = 9;
  c.gather.capacity = 14;
  c.gather.page_size = 16;
  c.Lay(random, { false, true }, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_I8, Factors::kHeads, Factors::kTokens);
  c.LayOut({ true }, CGR_DTYPE_BF16, CGR_DTYPE_FP16);
  RandomGatherBatch(random, 20, &c);
  GatherMemory memory(*bench_, c);
  InAGraph([&] { return cgr_gather_enqueue(device_, &memory.at, stream_); },
           [&](auto launch) {
             for (int step = 0; step < 100; step++) {
               RandomGatherBatch(random, 20, &c);
               memory.Put(c);
               ASSERT_NO_FATAL_FAILURE(launch());
               ASSERT_NO_FATAL_FAILURE(memory.Expect(c)) << "step " << step;
             }
           });
}

TEST_P(GatherOnStream, RefusesWhatBuildRefuses) {
  SeededRandom random;
  GatherCase c;
  c.Lay(random, {}, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E4M3, Factors::kNone, Factors::kNone);
  c.LayOut({}, CGR_DTYPE_BF16, CGR_DTYPE_BF16);
  c.Bind();
  auto call = [&](cgr_device *dev, cudaStream_t stream) { return cgr_gather_enqueue(dev, &c.gather, stream); };
  const std::string name = "cgr_gather_enqueue";
  ExpectMessage(call(nullptr, stream_), CGR_ERROR_NULL_POINTER, { name, "device is NULL" });
  ExpectMessage(call(device_, nullptr), CGR_ERROR_INVALID_ARGUMENT, { name, "stream is NULL" });
  alignas(16) static unsigned char junk[4096] = { 1 };
  ExpectMessage(call(reinterpret_cast<cgr_device *>(junk), stream_), CGR_ERROR_INVALID_STRUCT, { name, "not open" });
  ExpectMessage(cgr_gather_enqueue(device_, nullptr, stream_), CGR_ERROR_NULL_POINTER, { name, "gather is NULL" });
  c.gather.out_k.dtype = CGR_DTYPE_FP32;
  ExpectMessage(call(device_, stream_), CGR_ERROR_UNSUPPORTED, { name, "out_k.dtype", "fp32" });
}

CGR_INSTANTIATE_OVER_DEVICES(GatherOnStream);

} // namespace
} // namespace cgr_test
