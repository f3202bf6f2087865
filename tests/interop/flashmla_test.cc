// cgr_flashmla_build against a second planner (tests/support/flashmla_case.h) on random batches, and by hand.
#include "tests/support/expect.h"
#include "tests/support/flashmla_case.h"
#include "tests/support/poisoned.h"

namespace cgr_test {
namespace {

// The metadata, in memory that was full of garbage.
std::vector<int32_t> Build(const FlashmlaBatch &b, int32_t *num_parts = nullptr) {
  int32_t parts = 0;
  size_t bytes = 0;
  CGR_EXPECT_OK(cgr_flashmla_size(&b.input, &parts, &bytes));
  Poisoned<32> memory(bytes);
  CGR_EXPECT_OK(cgr_flashmla_build(&b.input, memory.data(), bytes));
  EXPECT_TRUE(memory.EndIsUntouched()) << "written past the end";
  if (num_parts != nullptr)
    *num_parts = parts;
  return memory.Get();
}

TEST(Flashmla, EqualsASecondPlanner) {
  ForSeeds(24000, [&](Random &random) {
    FlashmlaBatch b;
    RandomFlashmla(random, random.OneIn(50) ? 4096 : 300, &b);
    ASSERT_EQ(Build(b), FlashmlaWords(b, b.input.num_parts));
  });
}

// Ten blocks and one, with a fixed cost of 2: 15 in all, so each of three parts takes 5 + 2. The first takes 5 of the ten blocks;
// the second takes the rest of them, which with the fixed cost fills it; the third takes the other request.
TEST(Flashmla, PlansTwoRequestsAsByHand) {
  FlashmlaBatch b;
  b.input.num_requests = 2;
  b.input.num_parts = 3;
  b.input.fixed_overhead = 2;
  b.seq_lens = { 640, 64 };
  b.Bind();
  EXPECT_EQ(Build(b), (std::vector<int32_t>{ 0, 0, 0, 5,  0, 1, 1, 0, //
                                             0, 0, 5, 10, 1, 1, 1, 0, //
                                             1, 1, 0, 1,  0, 0, 0, 0, //
                                             0, 2, 3 }));
  b.input.layout = CGR_FLASHMLA_V1;
  EXPECT_EQ(Build(b), (std::vector<int32_t>{ 0, 0, 0, 5,  0, 0, 0, 0, //
                                             0, 5, 0, 10, 1, 0, 0, 0, //
                                             1, 0, 1, 1,  0, 0, 0, 0, //
                                             0, 2, 3 }));
}

// More parts than blocks: those without work begin at request B, and at what upstream finds past its array, the last block of
// request 0.
TEST(Flashmla, PartsWithoutWorkBeginPastTheBatch) {
  FlashmlaBatch b;
  b.input.num_requests = 1;
  b.input.num_parts = 4;
  b.input.fixed_overhead = 1;
  b.seq_lens = { 130 };
  b.Bind();
  EXPECT_EQ(Build(b), (std::vector<int32_t>{ 0, 0, 0, 1, 0, 1, 1, 0, //
                                             0, 0, 1, 2, 1, 1, 1, 0, //
                                             0, 0, 2, 3, 2, 1, 1, 0, //
                                             1, 0, 2, 3, 0, 0, 0, 0, //
                                             0, 3 }));
}

TEST(Flashmla, LengthsAroundABlock) {
  for (int32_t layout : { CGR_FLASHMLA_CURRENT, CGR_FLASHMLA_V1 })
    for (int32_t parts : { 1, 2, 3, 66, 132, 1024 })
      for (int32_t block : { 1, 2, 64, 65536 })
        for (int32_t length : { 0, 1, block - 1, block, block + 1, 2 * block, 64 * block })
          for (int32_t requests : { 1, 2, 33, 1024 }) {
            FlashmlaBatch b;
            b.input.layout = layout;
            b.input.num_parts = parts;
            b.input.block_size = block;
            b.input.num_requests = requests;
            b.seq_lens.assign(size_t(requests), length);
            b.Bind();
            ASSERT_EQ(Build(b), FlashmlaWords(b, parts)) << parts << " parts, " << requests << " requests of " << length;
          }
}

// The longest lengths that are accepted: no sum wraps.
TEST(Flashmla, TheLongestLengths) {
  for (int32_t requests : { 1, 7, 4096 })
    for (int32_t parts : { 1, 132 })
      for (int32_t block : { 1, 64 }) {
        FlashmlaBatch b;
        b.input.num_requests = requests;
        b.input.num_parts = parts;
        b.input.block_size = block;
        int64_t longest = std::min<int64_t>(int64_t{ 1 } << 30, ((1 << 29) / requests - 5) * int64_t{ block });
        b.seq_lens.assign(size_t(requests), int32_t(longest));
        b.Bind();
        ASSERT_EQ(Build(b), FlashmlaWords(b, parts));
      }
}

// A request that is not live is not read and has no part and no split; the rest is as in a batch without it.
TEST(Flashmla, RequestsThatAreNotLiveChangeNothing) {
  ForSeeds(300, [&](Random &random) {
    FlashmlaBatch small, large;
    const int32_t live = random.Pick32(1, 60), padded = live + random.Pick32(1, 60);
    small.input.num_parts = large.input.num_parts = random.Pick32(1, 140);
    small.input.num_requests = live;
    large.input.num_requests = padded;
    for (int32_t i = 0; i < live; i++)
      small.seq_lens.push_back(random.Pick32(0, 5000));
    large.seq_lens = small.seq_lens;
    large.seq_lens.resize(size_t(padded), -1234567);
    large.live = live;
    small.Bind();
    large.Bind();
    std::vector<int32_t> a = Build(small), b = Build(large);
    for (int32_t p = 0; p < small.input.num_parts; p++) {
      const int32_t *x = &a[size_t(p) * 8], *y = &b[size_t(p) * 8];
      if (x[0] < live) {
        ASSERT_EQ(std::vector<int32_t>(x, x + 8), std::vector<int32_t>(y, y + 8)) << "part " << p;
      } else {
        ASSERT_GE(y[0], padded) << "part " << p << " has work";
      }
    }
    for (int32_t i = 0; i <= padded; i++)
      ASSERT_EQ(b[size_t(small.input.num_parts) * 8 + size_t(i)],
                a[size_t(small.input.num_parts) * 8 + size_t(std::min(i, live))]);
  });
}

TEST(Flashmla, ABatchWithoutLiveRequestsHasNoWork) {
  FlashmlaBatch b;
  b.input.num_requests = 5;
  b.input.num_parts = 2;
  b.seq_lens.assign(5, 777);
  b.live = 0;
  b.Bind();
  EXPECT_EQ(Build(b), (std::vector<int32_t>{ 5, 4, 0, 0, 0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }));
}

// As the API takes them on other GPUs, for which there are no records: csrc/api/sparse_decode.h and, of v1, csrc/pybind.cpp.
TEST(Flashmla, PartsAreThoseOfTheApi) {
  const struct {
    int32_t layout, capability, query_len, q_heads, kv_heads, head_dim, topk, parts;
  } cases[] = {
    { CGR_FLASHMLA_CURRENT, 90, 1, 128, 1, 0, 0, 66 },     { CGR_FLASHMLA_CURRENT, 90, 1, 16, 1, 0, 0, 132 },
    { CGR_FLASHMLA_CURRENT, 90, 100, 128, 1, 0, 0, 1 },    { CGR_FLASHMLA_V1, 90, 2, 96, 2, 0, 0, 33 },
    { CGR_FLASHMLA_CURRENT, 90, 2, 128, 1, 0, 64, 33 },    { CGR_FLASHMLA_CURRENT, 100, 2, 64, 1, 0, 64, 66 },
    { CGR_FLASHMLA_CURRENT, 103, 2, 128, 1, 576, 64, 66 }, { CGR_FLASHMLA_CURRENT, 100, 2, 128, 1, 512, 64, 33 },
    { CGR_FLASHMLA_V1, 90, 3, 128, 1, 0, 64, 22 },         { CGR_FLASHMLA_V1, 100, 3, 128, 1, 0, 64, 22 },
    { CGR_FLASHMLA_V1, 100, 1, 64, 1, 0, 64, 132 },        { CGR_FLASHMLA_V1, 90, 1, 64, 2, 0, 64, 33 },
  };
  for (const auto &c : cases) {
    FlashmlaBatch b;
    b.input.layout = c.layout;
    b.input.num_requests = 1;
    b.input.num_multiprocessors = 132;
    b.input.compute_capability = c.capability;
    b.input.query_len = c.query_len;
    b.input.num_q_heads = c.q_heads;
    b.input.num_kv_heads = c.kv_heads;
    b.input.qk_head_dim = c.head_dim;
    b.input.topk = c.topk;
    int32_t parts = 0;
    size_t bytes = 0;
    CGR_ASSERT_OK(cgr_flashmla_size(&b.input, &parts, &bytes));
    EXPECT_EQ(parts, c.parts) << "capability " << c.capability << ", layout " << c.layout << ", " << c.q_heads << " heads";
  }
}

// Blackwell's kernel for 128 heads of 512 has a fixed cost of 3, which the words show.
TEST(Flashmla, TheFixedCostIsThatOfTheKernel) {
  for (int32_t head_dim : { 512, 576 }) {
    FlashmlaBatch b;
    b.input.num_requests = 40;
    b.input.num_multiprocessors = 132;
    b.input.compute_capability = 100;
    b.input.query_len = 1;
    b.input.num_q_heads = 128;
    b.input.num_kv_heads = 1;
    b.input.qk_head_dim = head_dim;
    b.input.topk = 2048;
    b.Bind();
    int32_t parts = 0;
    std::vector<int32_t> got = Build(b, &parts);
    b.input.fixed_overhead = head_dim == 512 ? 3 : 5;
    EXPECT_EQ(got, FlashmlaWords(b, parts));
    b.input.fixed_overhead = head_dim == 512 ? 5 : 3;
    EXPECT_NE(got, FlashmlaWords(b, parts));
  }
}

} // namespace
} // namespace cgr_test
