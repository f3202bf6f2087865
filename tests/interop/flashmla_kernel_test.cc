// FlashMLA's planner as a kernel: it writes, bit for bit, what the tests' second planner writes, or, for live values out of
// range, what the host planner writes, whatever was in the memory. Then the public call, in a captured graph that is replayed
// with other lengths.
#include "interop/flashmla/host.h"
#include "interop/formats.h"
#include "tests/support/enqueue_case.h"
#include "tests/support/flashmla_case.h"

namespace cgr_test {
namespace {

using Ints = std::vector<int32_t>;

Ints OneWord(int32_t value) { return Ints(1, value); }

class KernelFormats : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_flashmla }); }

  Ints RunFlashmla(const FlashmlaBatch &b) {
    cgr__flashmla_args args = {};
    cgr__flashmla_lens lens;
    CGR_EXPECT_OK(cgr__flashmla_read_key("test", &b.input, &args.c, &lens));
    const Array<int32_t> live(*bench_, OneWord(b.live)), seq_lens(*bench_, b.seq_lens), topk_lens(*bench_, b.topk_lens);
    const Array<int32_t> extra(*bench_, b.extra_topk_lens), metadata(*bench_, cgr__flashmla_bytes(&args.c) / 4);
    args.lens.live_requests = lens.live_requests ? live.data() : nullptr;
    args.lens.seq_lens = lens.seq_lens ? seq_lens.data() : nullptr;
    args.lens.topk_lens = lens.topk_lens ? topk_lens.data() : nullptr;
    args.lens.extra_topk_lens = lens.extra_topk_lens ? extra.data() : nullptr;
    args.metadata = metadata.data();
    bench_->Run(cgr__kernel_flashmla, &args);
    EXPECT_TRUE(seq_lens.Get() == b.seq_lens) << "its input was written";
    return metadata.Get();
  }
};

TEST_P(KernelFormats, FlashmlaEqualsASecondPlanner) {
  ForSeeds(1500, [&](Random &random) {
    FlashmlaBatch b;
    RandomFlashmla(random, random.OneIn(10) ? 4096 : random.OneIn(3) ? 1100 : 200, &b);
    ASSERT_EQ(RunFlashmla(b), FlashmlaWords(b, b.input.num_parts));
  });
}

// Both sides of every number of requests and parts at which threads, words or rounds change.
TEST_P(KernelFormats, FlashmlaAtTheEdgesOfItsSizes) {
  SeededRandom random;
  for (int32_t requests :
       { 1, 31, 32, 33, 132, 133, 256, 257, 319, 320, 321, 512, 513, 1023, 1024, 1025, 1055, 1056, 2048, 2049, 4095, 4096 })
    for (int32_t parts : { 1, 31, 32, 33, 132, 160, 1023, 1024 })
      for (int kind = 0; kind < 3; kind++) {
        FlashmlaBatch b;
        b.input.num_requests = requests;
        b.input.num_parts = parts;
        for (int32_t i = 0; i < requests; i++)
          b.seq_lens.push_back(kind == 0 ? 0 : kind == 1 ? 4096 : random.Pick32(0, 30000));
        b.Bind();
        ASSERT_EQ(RunFlashmla(b), FlashmlaWords(b, parts)) << requests << " requests, " << parts << " parts";
      }
}

// Every other request begins exactly where a part does, whatever a part's size: no division may fall short.
TEST_P(KernelFormats, FlashmlaSnapsToExactMultiples) {
  ForSeeds(1500, [&](Random &random) {
    FlashmlaBatch b;
    b.input.num_parts = random.Pick32(2, 40);
    b.input.num_requests = 2 * b.input.num_parts;
    b.input.block_size = 1;
    const int32_t most = (1 << 29) / b.input.num_requests - 64;
    b.seq_lens.assign(size_t(b.input.num_requests), random.Pick32(1, most >> random.Pick(0, 20)));
    b.Bind();
    ASSERT_EQ(RunFlashmla(b), FlashmlaWords(b, b.input.num_parts));
  });
}

TEST_P(KernelFormats, FlashmlaTakesTheNearestGoodLengths) {
  ForSeeds(200, [&](Random &random) {
    FlashmlaBatch b;
    RandomFlashmla(random, 300, &b);
    for (Ints *lens : { &b.seq_lens, &b.topk_lens, &b.extra_topk_lens })
      for (int32_t &len : *lens)
        if (random.OneIn(3))
          len = random.OneIn(2) ? INT32_MAX : int32_t(random.Bits());
    if (b.live >= 0 && random.OneIn(2))
      b.live = random.OneIn(2) ? INT32_MAX : -7; // after Bind: the array is there
    cgr__flashmla_key c;
    cgr__flashmla_lens lens;
    CGR_ASSERT_OK(cgr__flashmla_read_key("test", &b.input, &c, &lens));
    Ints host(cgr__flashmla_bytes(&c) / 4);
    cgr__flashmla_fill(&c, &lens, host.data());
    ASSERT_EQ(RunFlashmla(b), host);
    // And against the second planner, with lengths clamped here.
    for (int32_t &len : b.seq_lens)
      len = std::clamp(len, 0, c.max_len);
    for (int32_t &len : b.topk_lens)
      len = std::clamp(len, 0, c.topk);
    for (int32_t &len : b.extra_topk_lens)
      len = std::clamp(len, 0, c.extra_topk);
    if (b.input.live_requests != nullptr)
      b.live = std::clamp(b.live, 0, b.input.num_requests);
    ASSERT_EQ(host, FlashmlaWords(b, b.input.num_parts));
  });
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelFormats);

// ------------------------------------------------------------------------------------------------------------- public calls

class Formats : public EnqueueTest {};

TEST_P(Formats, FlashmlaReplaysWithOtherLengths) {
  Random random(Seed());
  FlashmlaBatch b;
  b.input.num_requests = 50;
  b.input.num_parts = 132;
  b.seq_lens.assign(50, 1);
  b.live = 50;
  b.Bind();
  size_t bytes = 0;
  CGR_ASSERT_OK(cgr_flashmla_size(&b.input, nullptr, &bytes));
  Array<int32_t> lens(*bench_, 50), live(*bench_, 1), metadata(*bench_, bytes / 4);
  cgr_flashmla_input there = b.input;
  there.seq_lens = lens.data();
  there.live_requests = live.data();
  auto enqueue = [&] { return cgr_flashmla_enqueue(device_, &there, metadata.data(), bytes, stream_); };
  lens.Put(b.seq_lens);
  live.Put(OneWord(b.live));
  CGR_ASSERT_OK(enqueue());
  Sync();
  ASSERT_EQ(metadata.Get(), FlashmlaWords(b, 132));
  InAGraph(enqueue, [&](auto launch) {
    for (int step = 0; step < 20; step++) {
      for (int32_t &len : b.seq_lens)
        len = random.Pick32(0, step % 2 ? 100 : 60000); // a small plan after a large one: no stale word stays
      b.live = random.Pick32(0, 50);
      lens.Put(b.seq_lens);
      live.Put(OneWord(b.live));
      metadata.Put(Ints(metadata.size(), -99));
      ASSERT_NO_FATAL_FAILURE(launch());
      ASSERT_EQ(metadata.Get(), FlashmlaWords(b, 132));
    }
  });
}

TEST_P(Formats, RefuseWhatTheOtherCallsRefuse) {
  FlashmlaBatch f;
  f.input.num_requests = 1;
  f.input.num_parts = 2;
  f.seq_lens = { 5 };
  f.Bind();
  alignas(32) int32_t words[64];
  size_t bytes = 0;
  CGR_ASSERT_OK(cgr_flashmla_size(&f.input, nullptr, &bytes));
  const Words name = { "cgr_flashmla_enqueue" };
  auto call = [&](cgr_device *dev, void *to, size_t room, cudaStream_t stream) {
    return cgr_flashmla_enqueue(dev, &f.input, to, room, stream);
  };
  ExpectMessage(call(nullptr, words, bytes, stream_), CGR_ERROR_NULL_POINTER, { name[0], "device" });
  ExpectMessage(call(device_, nullptr, bytes, stream_), CGR_ERROR_NULL_POINTER, { name[0], "metadata" });
  ExpectMessage(call(device_, words, bytes - 1, stream_), CGR_ERROR_INVALID_ARGUMENT, { name[0], "bytes is" });
  ExpectMessage(call(device_, words + 1, bytes, stream_), CGR_ERROR_INVALID_ARGUMENT, { name[0], "multiple of 32" });
  ExpectMessage(call(device_, words, bytes, nullptr), CGR_ERROR_INVALID_ARGUMENT, { name[0], "stream is NULL" });
  alignas(16) static unsigned char junk[4096] = { 1 };
  ExpectMessage(call(reinterpret_cast<cgr_device *>(junk), words, bytes, stream_), CGR_ERROR_INVALID_STRUCT,
                { name[0], "not open" });
  f.input.num_requests = 0;
  ExpectMessage(call(device_, words, bytes, stream_), CGR_ERROR_INVALID_ARGUMENT, { name[0], "num_requests is 0" });
}

CGR_INSTANTIATE_OVER_DEVICES(Formats);

} // namespace
} // namespace cgr_test
