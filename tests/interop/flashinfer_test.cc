// FlashInfer's plans of random batches equal a second implementation of DecodePlan and PrefillPlan, made step by step; and the
// CTAs that follow them process every row and key exactly once, and merge what they leave.
#include <algorithm>
#include <map>

#include "tests/support/flashinfer_model.h"
#include "tests/support/flashinfer_reading.h"

namespace cgr_test {
namespace {

// ---------------------------------------------------------------------------------------------------------------- coverage

// Every query sees each of its keys once, and exactly its row's partials are merged, for which there is room. With a window it
// sees no key after itself, unless the kernel has no mask.
void ExpectCovered(const FlashInferCase &c, const FlashInferReading &reading, const std::vector<int64_t> &kv_lens,
                   int32_t window) {
  int64_t q_per_kv = c.decode ? c.d.num_q_heads / c.d.num_kv_heads : c.p.num_q_heads / c.p.num_kv_heads;
  std::map<std::pair<int32_t, int64_t>, std::vector<FlashInferWork>> by_tile;
  for (const FlashInferWork &work : reading.Works())
    by_tile[{ work.request, work.packed_begin }].push_back(work);
  int64_t first_row = 0;
  std::vector<int64_t> partials;
  for (int32_t i = 0; i < c.num_requests(); first_row += c.Rows(i++)) {
    int64_t packed = c.Rows(i) * q_per_kv;
    for (int64_t at = 0; at < packed;) {
      const std::vector<FlashInferWork> &works = by_tile[{ i, at }];
      ASSERT_FALSE(works.empty()) << "no request takes packed row " << at << " of request " << i;
      // Keys that some row of the tile sees.
      int64_t last = (works[0].packed_end - 1) / q_per_kv, kv_len = kv_lens[size_t(i)], begin = works[0].kv_begin;
      int64_t end = window == 0 || c.p.unmasked ? kv_len : kv_len - c.Rows(i) + last + 1, next = begin;
      int64_t needed = window == 0 ? 0 : std::max<int64_t>(0, kv_len - c.Rows(i) + at / q_per_kv - (window - 1));
      EXPECT_LE(begin, needed);
      int32_t chunks = 0;
      for (const FlashInferWork &work : works) {
        if (work.kv_tile < chunks) { // a CTA whose entry is past the tiles: the same work once more
          EXPECT_FALSE(reading.HasMask());
          EXPECT_EQ(work.kv_end, works[0].kv_end);
          continue;
        }
        ASSERT_EQ(work.kv_tile, chunks++);
        ASSERT_EQ(work.kv_begin, std::min(next, kv_len));
        ASSERT_EQ(work.packed_end, works[0].packed_end);
        next = work.kv_end;
      }
      EXPECT_GE(next, std::min(end, kv_len)) << "keys of request " << i;
      for (int64_t row = at / q_per_kv; row <= last; row++) {
        int64_t merged_row = c.decode ? i : first_row + row;
        if (!reading.split()) {
          EXPECT_EQ(reading.PartialIndex(works[0], row), merged_row);
          continue;
        }
        ASSERT_EQ(reading.MergeEnd(merged_row) - reading.MergeBegin(merged_row), chunks);
        for (int32_t k = 0; k < chunks; k++) {
          ASSERT_EQ(reading.PartialIndex(works[size_t(k)], row), reading.MergeBegin(merged_row) + k);
          partials.push_back(reading.MergeBegin(merged_row) + k);
          if (c.decode) { // the partial of a CTA has the CTA's number
            EXPECT_EQ(works[size_t(k)].cta, reading.MergeBegin(merged_row) + k);
          }
        }
      }
      at = works[0].packed_end;
    }
  }
  if (reading.split()) {
    if (c.graph() || c.decode || c.p.total_num_rows == first_row) {
      EXPECT_EQ(reading.MergedRows(), c.decode ? c.d.num_requests : first_row);
    }
    std::sort(partials.begin(), partials.end());
    partials.erase(std::unique(partials.begin(), partials.end()), partials.end());
    EXPECT_TRUE(partials.empty() || (partials[0] == 0 && partials.back() == int64_t(partials.size()) - 1))
        << "partials without rows";
    EXPECT_TRUE(partials.empty() || reading.HasRoom(partials.back(), c.decode ? c.d.num_q_heads : c.p.num_q_heads,
                                                    c.decode ? c.d.head_dim : c.p.head_dim_vo));
  }
}

void CheckCoverage(const FlashInferCase &c, const cgr_flashinfer_plan &plan, const Bytes &bytes, Random &random) {
  std::vector<int32_t> rows;
  std::vector<int64_t> kv_lens;
  for (int32_t i = 0; i < c.num_requests(); i++) {
    rows.push_back(c.Rows(i));
    kv_lens.push_back(c.Pages(i) == 0 ? 0 : int64_t{ c.Pages(i) } * c.page_size() - random.Pick(0, c.page_size() - 1));
    if (!c.decode && c.p.window > 0 && kv_lens.back() < rows.back())
      return; // with a window, queries are causal and no more than the keys
  }
  int32_t q_per_kv = c.decode ? c.d.num_q_heads / c.d.num_kv_heads : c.p.num_q_heads / c.p.num_kv_heads;
  const int32_t window = c.decode ? 0 : c.p.window;
  ExpectCovered(c, FlashInferReading(plan, bytes.data(), rows, kv_lens, q_per_kv, window, c.p.layout), kv_lens, window);
}

// ------------------------------------------------------------------------------------------------------------------- tests

void CheckMany(bool decode, bool graph) {
  const uint64_t first = Seed();
  int plans = 0;
  for (uint64_t seed = first; seed < first + 11000 && !testing::Test::HasFailure(); seed++) {
    SCOPED_TRACE(Repeat(seed));
    Random random(seed);
    FlashInferCase c = decode ? RandomDecode(random, graph) : RandomPrefill(random, graph);
    cgr_flashinfer_plan plan;
    const Bytes bytes = CheckPlan(c, plan, static_cast<unsigned char>(random.Bits()));
    plans += !bytes.empty();
    if (!bytes.empty() && seed % 4 == 0)
      CheckCoverage(c, plan, bytes, random);
  }
  EXPECT_GT(plans, 7000);
}

TEST(FlashInfer, DecodeWithGraphEqualsTheSecondReading) { CheckMany(true, true); }
TEST(FlashInfer, DecodeWithoutGraphEqualsTheSecondReading) { CheckMany(true, false); }
TEST(FlashInfer, PrefillWithGraphEqualsTheSecondReading) { CheckMany(false, true); }
TEST(FlashInfer, PrefillWithoutGraphEqualsTheSecondReading) { CheckMany(false, false); }

// With a graph nothing but the content follows from the lengths.
TEST(FlashInfer, WithAGraphSizesAreOfTheKeyAlone) {
  ForSeeds(2000, [&](Random &random) {
    FlashInferCase c = random.OneIn(2) ? RandomDecode(random, true) : RandomPrefill(random, true);
    c.p.force_split_kv = 1;
    cgr_flashinfer_plan full = CGR_FLASHINFER_PLAN_INIT, bare = CGR_FLASHINFER_PLAN_INIT;
    CGR_ASSERT_OK(c.Size(&full));
    c.d.kv_indptr = c.p.kv_indptr = c.d.live_requests = c.p.live_requests = nullptr;
    CGR_ASSERT_OK(c.Size(&bare));
    ASSERT_EQ(std::memcmp(&full, &bare, sizeof full), 0);
  });
}

// FlashInfer counts an empty request as no tile when it looks for the chunk size, and as one when it lists them: here 100
// requests, 99 of them empty, make 227 tiles in arrays of 132.
TEST(FlashInfer, DecodeWithAGraphTakesEmptyRequests) {
  FlashInferCase c;
  c.d.num_requests = 100;
  c.d.num_q_heads = c.d.num_kv_heads = 8;
  c.d.head_dim = 128;
  c.d.page_size = 16;
  c.d.num_multiprocessors = 132;
  c.d.blocks_per_multiprocessor = 8;
  c.d.graph = 1;
  c.kv = { 0, 2048 };
  c.kv.resize(101, 2048);
  c.Bind();
  cgr_flashinfer_plan plan;
  Random random(1);
  const Bytes bytes = CheckPlan(c, plan);
  CheckCoverage(c, plan, bytes, random);
  EXPECT_EQ(plan.info[0], 132);
  int32_t chunk;
  std::memcpy(&chunk, &bytes[size_t(plan.info[7])], 4);
  EXPECT_EQ(chunk, 63 * 16); // 33 chunks of 2048 pages, and 99 empty requests
}

// As in fast_decode_plan for decode with tensor cores: rows 0 .. B without an array give the same as with the array.
TEST(FlashInfer, DecodeWithTensorCoresNeedsNoRows) {
  for (int32_t mode = 0; mode < 3; mode++) {
    FlashInferCase c;
    c.decode = false;
    c.p.num_requests = c.p.total_num_rows = 9;
    c.p.num_q_heads = 32;
    c.p.num_kv_heads = 8;
    c.p.head_dim_qk = c.p.head_dim_vo = 128;
    c.p.page_size = 16;
    c.p.num_multiprocessors = 132;
    c.p.graph = c.p.force_split_kv = 1;
    c.p.fixed_split_size = mode == 1 ? 200 : 0;
    c.p.disable_split_kv = mode == 2;
    for (int32_t i = 0; i <= 9; i++) {
      c.qo.push_back(i);
      c.kv.push_back(40 * i * i);
    }
    c.Bind();
    cgr_flashinfer_plan plan, other;
    const Bytes given = CheckPlan(c, plan);
    c.qo.clear();
    c.Bind();
    EXPECT_EQ(CheckPlan(c, other), given);
    EXPECT_EQ(std::memcmp(&plan, &other, sizeof plan), 0);
    EXPECT_EQ(plan.info[3], 16) << "cta_tile_q";
  }
}

// The content of padding does not matter, and a smaller plan leaves nothing of a larger one.
TEST(FlashInfer, PaddingAndStaleWordsLeaveNoTrace) {
  ForSeeds(1000, [&](Random &random) {
    FlashInferCase c = random.OneIn(2) ? RandomDecode(random, true) : RandomPrefill(random, true);
    c.p.force_split_kv = 1;
    cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT;
    CGR_ASSERT_OK(c.Size(&plan));
    FlashInferWorkspace workspace(size_t(plan.int_bytes)), fresh(size_t(plan.int_bytes), 0x3C);
    c.Build(workspace.data(), workspace.size(), nullptr);
    c.live = { random.Pick32(0, c.num_requests()) };
    for (size_t i = size_t(c.live[0]) + 1; i < c.kv.size(); i++) {
      c.kv[i] = int32_t(random.Bits());
      if (!c.qo.empty())
        c.qo[i] = int32_t(random.Bits());
    }
    c.Bind();
    cgr_status small = c.Build(workspace.data(), workspace.size(), nullptr);
    if (small != CGR_OK) {
      ASSERT_TRUE(!c.decode && c.p.fixed_split_size > 0) << cgr_last_message(); // too many tiles
      return;
    }
    for (size_t i = size_t(c.live[0]) + 1; i < c.kv.size(); i++) {
      c.kv[i] = c.kv[i - 1];
      if (!c.qo.empty())
        c.qo[i] = c.qo[i - 1];
    }
    c.live.clear();
    c.Bind();
    CGR_ASSERT_OK(c.Build(fresh.data(), fresh.size(), nullptr));
    ASSERT_EQ(workspace.Get(), fresh.Get());
  });
}

} // namespace
} // namespace cgr_test
