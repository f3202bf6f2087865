// The gather against a loop over elements: every dtype, arrangement of factors and layout, parts of batches, pages that do not
// fit, and not a byte next to its outputs.
#include "kernels/gather.h"

#include <sys/mman.h>

#include "tests/support/gather_case.h"

namespace cgr_test {
namespace {

class KernelGather : public KernelTest {
protected:
  void SetUp() override { Open({ &cgr__kernel_gather }); }

  static cgr__gather_args Args(const cgr_gather &g) {
    cgr__gather_args args = {};
    args.k = g.k, args.v = g.v, args.out_k = g.out_k, args.out_v = g.out_v;
    args.num_pages = g.num_pages, args.capacity = g.capacity, args.table_stride = g.table_stride;
    args.kv_indptr = g.kv_indptr, args.kv_indices = g.kv_indices;
    args.first_request = g.first_request, args.live_requests = g.live_requests;
    args.block_table = g.block_table, args.overflow = g.overflow;
    args.num_requests = g.num_requests, args.num_kv_heads = g.num_kv_heads, args.page_size = g.page_size;
    args.head_dim = g.head_dim, args.head_dim_v = g.head_dim_v == 0 ? g.head_dim : g.head_dim_v;
    args.read_trash_page = g.read_trash_page;
    return args;
  }
  void Check(const GatherCase &c) {
    const GatherMemory memory(*bench_, c);
    const cgr__gather_args args = Args(memory.at);
    bench_->Run(cgr__kernel_gather, &args);
    memory.Expect(c);
  }
};

TEST_P(KernelGather, EveryDtypeWithEveryFactors) {
  SeededRandom random;
  for (cgr_dtype dtype : kGatherCodes)
    for (Factors factors : kEveryFactors)
      for (cgr_dtype out : kGatherHalves) {
        SCOPED_TRACE(std::to_string(dtype) + " " + std::to_string(int(factors)) + " " + std::to_string(out));
        if (dtype == CGR_DTYPE_I8 && factors == Factors::kNone)
          continue;
        GatherCase c;
        c.Lay(random, {}, dtype, dtype, factors, factors);
        c.LayOut({}, out, out);
        ASSERT_NO_FATAL_FAILURE(Check(c));
      }
}

TEST_P(KernelGather, KAndVOfTheirOwnDtypes) {
  SeededRandom random;
  for (cgr_dtype k : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8, CGR_DTYPE_FP16, CGR_DTYPE_BF16 })
    for (cgr_dtype v : { CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_I8, CGR_DTYPE_FP16, CGR_DTYPE_BF16 })
      for (cgr_dtype out_k : kGatherHalves)
        for (cgr_dtype out_v : kGatherHalves) {
          SCOPED_TRACE(std::to_string(k) + " " + std::to_string(v) + " to " + std::to_string(out_k) + " " +
                       std::to_string(out_v));
          GatherCase c;
          c.Lay(random, { true, true }, k, v, IsHalf(k) ? Factors::kNone : Factors::kTokens,
                IsHalf(v) ? Factors::kNone : Factors::kChannels);
          c.LayOut({ false, true }, out_k, out_v);
          ASSERT_NO_FATAL_FAILURE(Check(c));
        }
}

TEST_P(KernelGather, EveryPairOfLayouts) {
  SeededRandom random;
  for (const GatherLayout &from : EveryGatherLayout())
    for (const GatherLayout &to : EveryGatherLayout()) {
      GatherCase c;
      c.Lay(random, from, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_I8, Factors::kHeads, Factors::kAll);
      c.LayOut(to, CGR_DTYPE_BF16, CGR_DTYPE_FP16);
      ASSERT_NO_FATAL_FAILURE(Check(c)) << "from " << from.heads_first << from.interleaved << from.token_padding << " to "
                                        << to.heads_first << to.interleaved << to.token_padding;
    }
}

// Heads that codes could not have.
TEST_P(KernelGather, HeadsOf16BitsAreMultiplesOf8) {
  SeededRandom random;
  for (cgr_dtype out : kGatherHalves) {
    GatherCase c;
    c.gather.head_dim = 24, c.gather.head_dim_v = 8;
    c.Lay(random, {}, CGR_DTYPE_BF16, CGR_DTYPE_FP16, Factors::kNone, Factors::kNone);
    c.LayOut({ true }, out, out);
    ASSERT_NO_FATAL_FAILURE(Check(c));
  }
}

// All 256 codes, with factors that are powers of two.
TEST_P(KernelGather, EveryCode) {
  SeededRandom random;
  for (cgr_dtype dtype : kGatherCodes) {
    GatherCase c;
    c.gather.num_requests = c.gather.num_kv_heads = 1, c.gather.page_size = 16, c.gather.head_dim = c.gather.head_dim_v = 16;
    c.gather.num_pages = c.gather.capacity = 2, c.live = 1;
    c.kv_indptr = { 0, 1 }, c.kv_indices = { 1 };
    c.Lay(random, {}, dtype, dtype, Factors::kOne, Factors::kOne);
    c.scales[0] = { 1.0f }, c.scales[1] = { 0.0078125f };
    for (size_t i = 0; i < c.source.size(); i++)
      c.source[i] = static_cast<unsigned char>(i);
    c.LayOut({}, CGR_DTYPE_FP16, CGR_DTYPE_BF16);
    ASSERT_NO_FATAL_FAILURE(Check(c)) << dtype;
  }
}

// The worked example: the table [[7, 9], [4, 5]] is [[1, 2], [3, 4]] in the output; with a page 0 that windows have passed, too.
TEST_P(KernelGather, PagesFollowOneAnother) {
  SeededRandom random;
  for (bool has_passed : { false, true }) {
    GatherCase c;
    c.gather.num_requests = 2, c.live = 2, c.gather.table_stride = 3;
    c.gather.capacity = has_passed ? 6 : 5;
    c.kv_indptr = has_passed ? std::vector<int32_t>{ 0, 3, 5 } : std::vector<int32_t>{ 0, 2, 4 };
    c.kv_indices = has_passed ? std::vector<int32_t>{ 7, 0, 9, 4, 5 } : std::vector<int32_t>{ 7, 9, 4, 5 };
    c.Lay(random, {}, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E4M3, Factors::kOne, Factors::kOne);
    c.LayOut({}, CGR_DTYPE_BF16, CGR_DTYPE_BF16);
    const GatherResult want = ExpectedGather(c);
    ASSERT_EQ(want.overflow, 0);
    ASSERT_EQ(want.block_table,
              has_passed ? (std::vector<int32_t>{ 1, 2, 3, 4, 5, 0 }) : (std::vector<int32_t>{ 1, 2, 0, 3, 4, 0 }));
    ASSERT_NO_FATAL_FAILURE(Check(c));
  }
}

TEST_P(KernelGather, EveryPartOfABatch) {
  SeededRandom random;
  GatherCase c;
  c.gather.num_requests = 6;
  c.kv_indptr = { 2, 4, 4, 5, 9, 9, 10 };
  c.kv_indices = { -1, -1, 3, 1, 4, 1, 5, 9, 2, 6 };
  c.Lay(random, { true }, CGR_DTYPE_FP8_E5M2, CGR_DTYPE_FP8_E4M3, Factors::kNone, Factors::kHeads);
  c.LayOut({ true }, CGR_DTYPE_FP16, CGR_DTYPE_BF16);
  for (c.live = -1; c.live <= 7; c.live++)
    for (c.first = -1; c.first <= 7; c.first++)
      ASSERT_NO_FATAL_FAILURE(Check(c)) << "requests " << c.first << " .. " << c.live;
  for (bool has_first : { false, true }) {
    c.has_first = has_first, c.has_live = !has_first, c.first = 3, c.live = 4;
    ASSERT_NO_FATAL_FAILURE(Check(c));
  }
}

// Of the output, and of rows of the table.
TEST_P(KernelGather, WhatDoesNotFitIsCounted) {
  SeededRandom random;
  for (int64_t capacity = 1; capacity <= 7; capacity++)
    for (int64_t stride = 1; stride <= 4; stride++) {
      GatherCase c;
      c.gather.capacity = capacity, c.gather.table_stride = stride;
      c.Lay(random, {}, CGR_DTYPE_I8, CGR_DTYPE_I8, Factors::kTokens, Factors::kOne);
      c.LayOut({ false, true }, CGR_DTYPE_BF16, CGR_DTYPE_BF16);
      ASSERT_EQ(ExpectedGather(c).overflow == 0, capacity >= 6 && stride >= 3);
      ASSERT_NO_FATAL_FAILURE(Check(c)) << capacity << " pages, rows of " << stride;
    }
}

TEST_P(KernelGather, APageOutsideThePoolIsReplaced) {
  SeededRandom random;
  GatherCase c;
  c.gather.read_trash_page = 6;
  c.kv_indices = { -1, 9, 10, INT32_MAX, INT32_MIN };
  c.Lay(random, {}, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_BF16, Factors::kTokens, Factors::kNone);
  c.LayOut({}, CGR_DTYPE_BF16, CGR_DTYPE_FP16);
  Check(c);
}

// Several tiles of a page, and more pages than blocks that copy.
TEST_P(KernelGather, LargePagesAndManyPages) {
  SeededRandom random;
  GatherCase c;
  c.gather.page_size = 64, c.gather.num_kv_heads = 7, c.gather.head_dim = 128, c.gather.head_dim_v = 80;
  c.Lay(random, { true }, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E5M2, Factors::kChannels, Factors::kHeads);
  c.LayOut({ false }, CGR_DTYPE_BF16, CGR_DTYPE_BF16);
  ASSERT_NO_FATAL_FAILURE(Check(c));
  GatherCase many;
  many.gather.num_kv_heads = many.gather.page_size = 1, many.gather.head_dim = many.gather.head_dim_v = 16;
  many.gather.capacity = 4500, many.gather.table_stride = 4400;
  many.kv_indptr = { 0, 4400, 4410, 4410 };
  many.kv_indices.clear();
  for (int32_t i = 0; i < 4410; i++)
    many.kv_indices.push_back(random.Pick32(0, 9));
  many.Lay(random, {}, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_I8, Factors::kTokens, Factors::kTokens);
  many.LayOut({}, CGR_DTYPE_FP16, CGR_DTYPE_BF16);
  Check(many);
}

// Pages that are 2^31 elements apart, in memory that is only reserved.
TEST_P(KernelGather, OffsetsOf64Bits) {
  if (bench_->is_cuda())
    GTEST_SKIP() << "the memory is the host's";
  SeededRandom random;
  GatherCase c;
  c.kv_indptr = { 0, 2, 2, 2 }, c.kv_indices = { 3, 1 };
  c.gather.num_pages = 4, c.gather.capacity = 3;
  c.Lay(random, {}, CGR_DTYPE_FP8_E4M3, CGR_DTYPE_FP8_E4M3, Factors::kNone, Factors::kNone);
  c.LayOut({}, CGR_DTYPE_BF16, CGR_DTYPE_BF16);
  const GatherResult want = ExpectedGather(c);
  const GatherMemory memory(*bench_, c);
  const int64_t apart = int64_t{ 1 } << 31;
  const size_t bytes = size_t(apart) * 11;
  void *map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED)
    GTEST_SKIP() << "no address space";
  unsigned char *in = static_cast<unsigned char *>(map), *out = in + apart * 4;
  const size_t k_page = size_t(c.gather.k.stride_page), v_page = size_t(c.gather.v.stride_page);
  for (size_t page = 0; page < 4; page++) {
    std::memcpy(in + page * size_t(apart), &c.source[page * k_page], k_page);
    std::memcpy(in + page * size_t(apart) + k_page, &c.source[c.source_v + page * v_page], v_page);
  }
  cgr__gather_args args = Args(memory.at);
  args.k.base = in, args.v.base = in + k_page, args.out_k.base = out, args.out_v.base = out + 2 * k_page;
  args.k.stride_page = args.v.stride_page = args.out_k.stride_page = args.out_v.stride_page = apart;
  bench_->Run(cgr__kernel_gather, &args);
  Bytes got = c.out;
  for (size_t page = 0; page < 3; page++) {
    std::memcpy(&got[page * 2 * k_page], out + page * 2 * size_t(apart), 2 * k_page);
    std::memcpy(&got[c.out_v + page * 2 * v_page], out + page * 2 * size_t(apart) + 2 * k_page, 2 * v_page);
  }
  ExpectGathered(want, got, want.block_table, want.overflow);
  munmap(map, bytes);
}

TEST_P(KernelGather, RandomBatches) {
  ForSeeds(150, [&](Random &random) {
    GatherCase c;
    RandomGather(random, &c);
    ASSERT_NO_FATAL_FAILURE(Check(c));
  });
}

CGR_INSTANTIATE_OVER_KERNEL_DEVICES(KernelGather);

} // namespace
} // namespace cgr_test
