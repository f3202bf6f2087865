// Attention over pages against fp64, and its independence of everything that does not belong to the request.
#include <sys/mman.h>

#include "cgr/names.h"
#include "tests/support/attention_run.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

constexpr cgr_dtype kDtypes[] = { CGR_DTYPE_FP32, CGR_DTYPE_BF16, CGR_DTYPE_FP16 };

class KernelAttention : public AttentionTest {
protected:
  // In the emulation, where every thread of a GPU runs in turn, the middle one.
  std::vector<int32_t> Parts(int32_t few, int32_t some, int32_t many) const {
    return GetParam().IsEmulated() ? std::vector<int32_t>{ some } : std::vector<int32_t>{ few, some, many };
  }
};

// --------------------------------------------------------------------------------------------------------- against the oracle

TEST_P(KernelAttention, DecodesAtEveryEdge) {
  for (int32_t page_size : { 16, 32, 48, 64, 80, 96, 112, 256, 1024 }) {
    AttentionShape shape = Shape();
    shape.page_size = page_size;
    AttentionBatch batch;
    for (int32_t length : { 1, 2, page_size - 1, page_size, page_size + 1, 63, 64, 65, 127, 128, 129, 300 }) {
      batch.query_lens.push_back(1);
      batch.seq_lens.push_back(length);
    }
    for (int32_t parts : Parts(1, 5, 132)) {
      shape.num_parts = parts;
      Check(shape, batch, 1);
    }
  }
}

// Everything that the registry says the device can do.
TEST_P(KernelAttention, RunsEveryDtypeAndHeadDimOfTheRegistry) {
  for (cgr_dtype dtype : kDtypes) {
    for (int32_t head_dim = 1; head_dim <= 512; head_dim++) {
      if (!Supports(info_, dtype, head_dim))
        continue;
      AttentionShape shape;
      shape.dtype = dtype;
      shape.head_dim = head_dim;
      Check(shape, { { 1, 9, 1 }, { 1, 70, 130 }, 5, 2 }, 2);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  EXPECT_GE(cases_, 4);
}

TEST_P(KernelAttention, RunsEveryGroup) {
  for (int32_t q_per_kv : { 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 64, 71 }) {
    AttentionShape shape = Shape();
    shape.num_q_heads = 2 * q_per_kv;
    for (int32_t parts : { 3, 40 }) {
      shape.num_parts = parts;
      Check(shape, { { 1, 9, 1 }, { 130, 100, 5 }, 3, 1 }, 3);
    }
  }
}

// The class decides which requests are in the decode section and which are in the prefill queue; a tile of the decode section has
// up to 16 lines, or one token.
TEST_P(KernelAttention, RunsDecodesAndPrefills) {
  for (int32_t q_per_kv : { 1, 4, 8 }) {
    for (int32_t len = 1; len * q_per_kv <= 16; len *= 2) {
      AttentionShape shape = Shape();
      shape.num_q_heads = 2 * q_per_kv;
      shape.decode_query_len = len;
      for (int32_t parts : Parts(1, 11, 90)) {
        shape.num_parts = parts;
        if (q_per_kv == 1)
          Check(shape, { { 65, 1, 70, 3, 16 }, { 65, 129, 200, 300, 301 }, 1, 0 }, 4);
        else
          Check(shape, { { 33, 1, 18, 3, 2, 4 }, { 33, 129, 100, 200, 500, 4 }, 1, 0 }, 4);
      }
    }
  }
}

// The same, cut at borders that each request sets for itself.
TEST_P(KernelAttention, RunsBatchInvariant) {
  for (int32_t q_per_kv : { 1, 4, 16, 64 }) {
    AttentionShape shape = Shape();
    shape.num_q_heads = 2 * q_per_kv;
    shape.batch_invariant = true;
    for (int32_t parts : Parts(1, 11, 90)) {
      shape.num_parts = parts;
      Check(shape, { { 1, 1, 18, 1, 2, 1 }, { 33, 1290, 100, 2000, 500, 64 }, 1, 0 }, 4);
    }
  }
}

TEST_P(KernelAttention, RunsEveryLayout) {
  for (const CacheLayouts &layouts : EveryCacheLayout()) {
    for (int32_t page_size : { 16, 64 }) {
      AttentionShape shape = Shape();
      shape.layouts = layouts;
      shape.page_size = page_size;
      shape.q_padding = { 8, 32 };
      shape.out_padding = { 16, 8 };
      Check(shape, { { 1, 30, 1 }, { 77, 90, 33 }, 4, 4 }, 5);
      std::swap(shape.q_padding, shape.out_padding);
      shape.out_padding.head = 0;
      Check(shape, { { 1, 3 }, { 77, 90 }, 1, 1 }, 5);
    }
  }
}

// lse goes where both of its strides say, for whole tiles, split ones, padding and refused requests, and many query heads of a KV
// head.
TEST_P(KernelAttention, WritesLseInEveryLayout) {
  for (LseLayout lse : { LseLayout::kTokens, LseLayout::kHeads, LseLayout::kSparse }) {
    for (int32_t q_per_kv : { 2, 71 }) {
      for (int32_t parts : { 1, 29 }) {
        SCOPED_TRACE(int(lse));
        AttentionShape shape = Shape();
        shape.lse = lse;
        shape.num_q_heads = 2 * q_per_kv;
        shape.num_parts = parts;
        Check(shape, { { 1, 9, 2, 1 }, { 300, 40, 0, 33 }, 5, 3 }, 16);
      }
    }
  }
}

TEST_P(KernelAttention, AppliesTheScale) {
  for (float scale : { 0.01f, 0.05f, 0.125f, 0.25f, 1.0f / 64.0f }) {
    AttentionShape shape = Shape();
    shape.scale = scale;
    Check(shape, { { 1, 20, 1 }, { 200, 90, 1 }, 1, 0 }, 15);
  }
}

// Large scores: softmax picks one token, and sums of exponentials do not overflow.
TEST_P(KernelAttention, LargeScoresDoNotOverflow) {
  for (cgr_dtype dtype : kDtypes) {
    if (!Supports(info_, dtype, 64))
      continue;
    SCOPED_TRACE(cgr_dtype_name(dtype));
    AttentionShape shape;
    shape.dtype = dtype;
    AttentionCase made(shape, { { 1, 4 }, { 200, 90 }, 0, 0 }, 9);
    for (Values &values : made.q)
      for (double &x : values)
        x *= 64.0; // exact in every dtype
    FilledCache cache(*bench_, made, Poison::kInf);
    AttentionRun run(*bench_, made, cache);
    AttentionOutput output = run.Run();
    double largest = 0.0;
    for (double x : LoadElements(CGR_DTYPE_FP32, output.lse.data(), int64_t(output.lse.size() / sizeof(float))))
      largest = std::max(largest, std::fabs(x));
    EXPECT_GT(largest, 89.0); // exp of it is no fp32 number
    // A tensor core rounds the sums of a score towards 0: each of the head_dim / 16 sums may lose 2^-23 of it.
    ExpectAttention(made, cache, output, bench_->has_cuda_kernels() ? std::ldexp(largest, -20) : 0.0);
  }
}

TEST_P(KernelAttention, EmptyAndRefusedRequestsGetNothing) {
  AttentionShape shape = Shape();
  Check(shape, { {}, {}, 9, 3 }, 6);
  Check(shape, { { 0 }, { 0 }, 1, 0 }, 6);
  Check(shape, { { 0, 1, 0, 5, 0 }, { 0, 70, 40, 5, 0 }, 4, 4 }, 6);
  // Refused by a guard: tokens, but no length.
  Check(shape, { { 3, 1, 70, 2 }, { 0, 100, 0, 2 }, 4, 4 }, 6);
  Check(shape, { { 3 }, { 0 }, 0, 0 }, 6);
  shape.num_parts = 40; // more parts than tokens: each finds its share, or none
  Check(shape, { { 3, 1, 20 }, { 0, 100, 0 }, 7, 1 }, 6);
  shape.num_parts = 1;
  Check(shape, { { 3, 1, 20 }, { 0, 100, 0 }, 7, 1 }, 6);
}

TEST_P(KernelAttention, RunsManyRequests) {
  AttentionShape shape = Shape();
  shape.num_parts = 132;
  AttentionBatch batch;
  for (int32_t i = 0; i < 512; i++) {
    batch.query_lens.push_back(1);
    batch.seq_lens.push_back(1 + i % 67);
  }
  Check(shape, batch, 7);
}

// Parts that share a tile all read its queries; some are copied while the part still works on what comes before.
TEST_P(KernelAttention, OutMayOverlapTheQueries) {
  for (int32_t parts : { 3, 40 })
    for (bool batch_invariant : { false, true }) {
      AttentionShape shape = Shape();
      shape.num_parts = parts;
      shape.batch_invariant = batch_invariant;
      const AttentionBatch batch = { { 1, 1, 2, 70, 1, 1, 1, 3 }, { 700, 64, 130, 300, 1, 63, 65, 500 }, 2, 5 };
      AttentionCase made(shape, batch, uint64_t(parts));
      SCOPED_TRACE(made.shape().Text());
      FilledCache cache(*bench_, made, Poison::kNan);
      AttentionRun run(*bench_, made, cache);
      const AttentionOutput apart = run.Run();
      run.PutOutOverQueries();
      const AttentionOutput in_place = run.Run();
      EXPECT_EQ(in_place.out, apart.out);
      EXPECT_EQ(in_place.lse, apart.lse);
    }
}

// One long sequence split over more parts than it has tiles.
TEST_P(KernelAttention, SplitsOneLongRequest) {
  AttentionShape shape = Shape();
  for (int32_t parts : { 2, 33, 200 }) {
    shape.num_parts = parts;
    Check(shape, { { 1 }, { 4001 }, 0, 0 }, 8);
  }
}

// ------------------------------------------------------------------------------------------------------------ independence

TEST_P(KernelAttention, PoisonNeverChangesABit) {
  for (cgr_dtype dtype : kDtypes) {
    if (!Supports(info_, dtype, 128))
      continue;
    for (int32_t q_per_kv : { 1, 4 }) {
      AttentionShape shape;
      shape.dtype = dtype;
      shape.head_dim = 128;
      shape.num_q_heads = 2 * q_per_kv;
      shape.layouts = EveryCacheLayout()[q_per_kv == 1 ? 0 : 3];
      CheckPoison(shape, { { 1, 1, 7, 1, 33, 2 }, { 1, 17, 63, 65, 130, 0 }, 6, 3 }, 10);
    }
  }
}

TEST_P(KernelAttention, BatchInvariantBitsAreThoseAlone) {
  const uint64_t first = Seed();
  SCOPED_TRACE(Repeat(first));
  const uint64_t count = GetParam().IsCuda() ? 25 : 5;
  for (uint64_t seed = first; seed < first + count; seed++) {
    std::mt19937_64 random(seed);
    const int32_t q_per_kv_counts[] = { 1, 4, 5, 16, 64 };
    AttentionShape shape = Shape();
    shape.num_q_heads = shape.num_kv_heads * q_per_kv_counts[Pick(random, 0, 4)];
    shape.num_parts = Pick(random, 1, 60);
    AttentionBatch batch;
    for (int32_t n = Pick(random, 2, 6); n > 0; n--) {
      batch.query_lens.push_back(Pick(random, 0, 2) ? 1 : Pick(random, 1, 40));
      batch.seq_lens.push_back(batch.query_lens.back() + Pick(random, 0, Pick(random, 0, 1) ? 3000 : 90));
    }
    CheckAlone(shape, batch, Pick(random, 1, 60), seed);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// Running again on the same memory, without a planner between, gives the same bits, with or without lse. The cache is unchanged.
TEST_P(KernelAttention, RunsAgainTheSame) {
  AttentionShape shape = Shape();
  shape.num_parts = 29;
  AttentionCase made(shape, { { 1, 1, 40, 1 }, { 1000, 17, 640, 65 }, 3, 0 }, 11);
  FilledCache cache(*bench_, made, Poison::kNan);
  AttentionRun run(*bench_, made, cache);
  AttentionOutput first = run.Run();
  for (int i = 0; i < 5; i++)
    ASSERT_TRUE(SameBits(first, run.Run(), made.num_tokens() + 3, shape));
  AttentionOutput without = run.Run(false);
  EXPECT_EQ(without.out, first.out);
  cache.ExpectUnchanged();
}

TEST_P(KernelAttention, PaddingNeverChangesABit) {
  AttentionShape shape = Shape();
  shape.num_parts = 13;
  CheckPadding(shape, { { 1 }, { 333 }, 0, 0 }, { 0, 1, 7, 100 }, 12);
  CheckPadding(shape, { { 1, 20, 1 }, { 70, 99, 300 }, 0, 0 }, { 0, 1, 7, 100 }, 12);
}

// ------------------------------------------------------------------------------------------------------------------- pages

// A page outside the pool, or the one that may not be read, is read as the read-trash page, and reported.
class KernelAttentionBadPage : public KernelAttention {
protected:
  void CheckBadPage(const AttentionShape &shape, int bad_case) {
    AttentionCase made(shape, { { 1, 1, 9 }, { 100, 50, 64 }, 0, 0 }, 13);
    const int32_t num_pages = int32_t(made.num_pages());
    const int32_t bads[kCases] = { -1, INT32_MIN, INT32_MAX, num_pages, 1 << 20, made.shape().write_trash };
    const int32_t bad = bads[bad_case], index = shape.page_size == 16 ? 2 : 1;
    SCOPED_TRACE("trash " + std::to_string(shape.read_trash) + ", " + std::to_string(shape.write_trash) + " page_size " +
                 std::to_string(shape.page_size) + " page " + std::to_string(bad));
    FilledCache cache(*bench_, made, Poison::kNan);
    made.table(0, index) = bad;
    AttentionRun run(*bench_, made, cache);
    AttentionOutput output = run.Run();
    ExpectAttention(made, cache, output);
    EXPECT_EQ(output.error.error, CGR_GUARD_PAGE);
    EXPECT_EQ(output.error.row, made.row(0));
    EXPECT_EQ(output.error.index, index);
    EXPECT_EQ(output.error.value, bad);
  }
  static constexpr int kCases = 6;
};

TEST_P(KernelAttentionBadPage, IsReadAsTheReadTrashPage) {
  const std::pair<int32_t, int32_t> trash_pages[] = { { 0, 1 }, { 1, 0 }, { 4, 2 }, { 3, -1 }, { -1, 5 } };
  for (const auto &[read_trash, write_trash] : trash_pages) {
    for (int32_t page_size : { 16, 64 }) {
      for (int bad_case = 0; bad_case < kCases; bad_case++) {
        AttentionShape shape = Shape();
        shape.page_size = page_size;
        shape.read_trash = read_trash;
        shape.write_trash = write_trash;
        CheckBadPage(shape, bad_case);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

// No CTA looks at the pages of a request without queries, nor at those of one that a guard has refused.
TEST_P(KernelAttentionBadPage, OfARequestWithoutWorkIsNotLookedAt) {
  for (int32_t parts : { 1, 7 }) {
    AttentionShape shape = Shape();
    shape.num_parts = parts;
    AttentionCase made(shape, { { 0, 1, 0, 3, 0 }, { 40, 100, 20, 0, 200 }, 2, 1 }, 18);
    FilledCache cache(*bench_, made, Poison::kNan);
    for (int32_t i : { 0, 2, 4 })
      for (int32_t p = 0; p < made.NumPages(i); p++)
        made.table(i, p) = -7;
    AttentionRun run(*bench_, made, cache);
    AttentionOutput output = run.Run();
    ExpectAttention(made, cache, output);
    EXPECT_EQ(output.error.error, CGR_GUARD_NONE);
  }
}

// The first error of a step stays: attention does not take a record that another guard has claimed.
TEST_P(KernelAttentionBadPage, LeavesAnEarlierErrorAlone) {
  AttentionCase made(Shape(), { { 1 }, { 100 }, 0, 0 }, 17);
  FilledCache cache(*bench_, made, Poison::kNan);
  made.table(0, 3) = -5;
  AttentionRun run(*bench_, made, cache);
  const cgr__step_error earlier = { CGR_GUARD_LENGTH, 77, 3, 0, 1234 };
  run.PutError(earlier);
  AttentionOutput output = run.Run();
  ExpectAttention(made, cache, output);
  EXPECT_EQ(std::memcmp(&output.error, &earlier, sizeof earlier), 0);
}

// Pages after 4 GiB of K, with V after them: 2^31 elements and more. On the host the memory is only reserved.
TEST_P(KernelAttention, ReadsPagesBeyond4GiB) {
  AttentionShape shape = Shape();
  shape.num_pages = 40;
  shape.page_bytes = int64_t{ 256 } << 20;
  shape.pages_at_end = true;
  size_t bytes = size_t(2 * shape.num_pages * shape.page_bytes);
  void *memory = nullptr;
  if (!bench_->is_cuda()) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      GTEST_SKIP() << "no 20 GiB of addresses";
  }
  {
    AttentionCase made(shape, { { 1, 20 }, { 70, 33 }, 0, 0 }, 14);
    for (int32_t page : made.owned_pages)
      ASSERT_GE(page * shape.page_bytes, int64_t{ 1 } << 33);
    PagedCache cache(*bench_, made.Cache_(), memory);
    made.Fill(&cache, Poison::kNan, true);
    AttentionRun run(*bench_, made, cache);
    ExpectAttention(made, cache, run.Run());
  }
  if (memory != nullptr)
    munmap(memory, bytes);
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttention);
CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelAttentionBadPage);

} // namespace
} // namespace cgr_test
