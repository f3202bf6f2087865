// The kernel for FlashAttention-3's scheduler metadata writes the host planner's words on every device, whatever the arrays and
// the memory hold, and nothing past the memory's end.
#include "interop/fa3/host.h"
#include "interop/formats.h"
#include "tests/support/device_memory.h"
#include "tests/support/fa3_case.h"

namespace cgr_test {
namespace {

using Words = std::vector<int32_t>;

class Fa3Kernel : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_fa3 }); }

  // Checks the kernel against the host planner; `words` receives what the kernel wrote.
  void Check(const Fa3Case &c, Words *words = nullptr) {
    cgr_fa3_input in;
    cgr_fa3_sizes s;
    cgr__fa3_args args = {};
    ASSERT_EQ(cgr__fa3_read_key("test", &c.input, &in, &s, &args.c), CGR_OK) << cgr_last_message();
    const Array<int32_t> starts(*bench_, c.starts), lens(*bench_, c.lens), live(*bench_, Words{ c.live });
    const Array<int32_t> metadata(*bench_, s.metadata_bytes / 4);
    args.query_start_loc = starts.data();
    args.seq_lens = lens.data();
    args.live_requests = in.live_requests ? live.data() : nullptr;
    args.metadata = metadata.data();
    bench_->Run(cgr__kernel_fa3, &args);
    Words expected(s.metadata_bytes / 4, 0x3C3C3C3C);
    cgr__fa3_fill(&args.c, c.starts.data(), c.lens.data(), in.live_requests, expected.data());
    const Words got = metadata.Get();
    if (words != nullptr)
      *words = got;
    for (size_t i = 0; i < got.size(); i++)
      ASSERT_EQ(got[i], expected[i]) << "word " << i << " of " << got.size() << ", " << in.num_requests << " requests, "
                                     << cgr_fa3_layout_name(cgr_fa3_layout(in.layout)) << ", sort " << s.sort << ", splits "
                                     << s.num_splits;
    EXPECT_TRUE(starts.Get() == c.starts && lens.Get() == c.lens) << "its input was written";
  }
};

void MaybeLive(Random &random, Fa3Case &c) {
  if (!random.OneIn(3))
    return;
  c.live = random.OneIn(4) ? int32_t(random.Bits()) : random.Pick32(0, c.input.num_requests);
  c.input.live_requests = &c.live;
}

TEST_P(Fa3Kernel, EqualsTheHostPlanner) {
  ForSeeds(2000, [&](Random &random) {
    Fa3Case c;
    Fa3RandomKey(random, c.input);
    const int32_t live = random.OneIn(20) ? random.Pick32(900, 2100) : random.Pick32(1, random.OneIn(3) ? 400 : 40);
    Fa3RandomBatch(random, live, live + (random.OneIn(2) ? random.Pick32(0, 70) : 0), c);
    MaybeLive(random, c);
    Check(c);
  });
}

// What the real planners wrote (tests/data/fa3).
TEST_P(Fa3Kernel, WritesTheRecords) {
  std::vector<std::unique_ptr<Fa3Record>> records = Fa3Records();
  ASSERT_GT(records.size(), 80u) << "the test does not see the records";
  for (auto &r : records) {
    SCOPED_TRACE(r->name);
    Words got;
    Check(*r, &got);
    got.resize(r->words.size());
    if (!r->undefined) {
      EXPECT_EQ(got, r->words);
    }
  }
}

// Every number of warps, of blocks that share the sorting, and of chunks.
TEST_P(Fa3Kernel, PlansEveryNumberOfRequests) {
  SeededRandom random;
  std::vector<int32_t> counts = { 1984, 1985, 2047, 2048, 2976, 2977, 3968, 3969, 4095, 4096 };
  for (int32_t n = 1; n <= 1060; n += n < 140 || n > 980 ? 1 : 7)
    counts.push_back(n);
  for (int32_t n : counts) {
    Fa3Case c;
    Fa3RandomKey(random, c.input);
    c.input.layout = random.OneIn(4) ? CGR_FA3_VLLM : CGR_FA3_UPSTREAM;
    c.input.attention_chunk = 0;
    if (random.OneIn(2)) // sorted
      c.input.window_left = c.input.window_right = 0;
    Fa3RandomBatch(random, n, n, c);
    if (random.OneIn(4))
      c.input.max_requests = 4096;
    Check(c);
  }
}

// Words that no batch has: nothing overruns, and both planners interpret them alike.
TEST_P(Fa3Kernel, TakesAnyWords) {
  SeededRandom random;
  const int32_t odd[] = { INT32_MAX, INT32_MIN, -1, 1 << 30, 0, 1 };
  for (int repeat = 0; repeat < 300; repeat++) {
    Fa3Case c;
    Fa3RandomKey(random, c.input);
    if (random.OneIn(3)) { // as much work as there can be
      c.input.max_query_len = (1 << 30) / (c.input.num_q_heads / c.input.num_kv_heads);
      c.input.max_seq_len = 1 << 30;
    }
    c.starts.clear();
    const int32_t n = random.Pick32(1, random.OneIn(5) ? 1100 : 70);
    for (int32_t i = 0; i <= n; i++) {
      c.starts.push_back(random.OneIn(2) ? odd[random.Pick(0, 5)] : int32_t(random.Bits()));
      if (i < n)
        c.lens.push_back(random.OneIn(2) ? odd[random.Pick(0, 5)] : int32_t(random.Bits()));
    }
    c.Bind();
    MaybeLive(random, c);
    Check(c);
  }
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(Fa3Kernel);

} // namespace
} // namespace cgr_test
