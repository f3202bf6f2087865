// FlashInfer's plans of random batches equal a second implementation of DecodePlan and PrefillPlan, made step by step; and the
// CTAs that follow them process every row and key exactly once, and merge what they leave.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/expect.h"
#include "tests/support/flashinfer_case.h"
#include "tests/support/flashinfer_reading.h"

namespace cgr_test {
namespace {

using Bytes = std::vector<unsigned char>;

// ---------------------------------------------------------------------------------------------------------- second reading

int64_t CeilDiv(int64_t n, int64_t d) { return n / d + (n % d != 0); }

struct Expected {
  bool refused = false; // more tiles than the graph has
  std::vector<int64_t> info;
  Bytes bytes;
  uint64_t float_bytes = 0;
};

struct Buffer {
  Bytes bytes;
  int64_t Add(int64_t count, int64_t alignment) {
    while (int64_t(bytes.size()) % alignment != 0)
      bytes.push_back(0);
    int64_t offset = int64_t(bytes.size());
    bytes.resize(size_t(offset + count));
    return offset;
  }
  void Put(int64_t offset, const std::vector<int64_t> &values) {
    for (int64_t value : values) {
      int32_t word = int32_t(uint32_t(uint64_t(value)));
      std::memcpy(&bytes[size_t(offset)], &word, 4);
      offset += 4;
    }
  }
};

struct Lists {
  std::vector<int64_t> request, q_tile, kv_tile, o_indptr = { 0 }, merge = { 0 };
};

// The smallest chunk from `low` up that gives at most `most` tiles, or else the longest.
template <class Count> int64_t SmallestChunk(int64_t low, int64_t longest, int64_t most, Count count) {
  int64_t high = longest;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (count(middle) > most)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

Expected ExpectedDecode(const FlashInferCase &c) {
  int64_t n = c.d.num_requests, heads = c.d.num_kv_heads, most = c.d.num_multiprocessors * c.d.blocks_per_multiprocessor;
  bool graph = c.d.graph != 0, split = n * heads < most;
  int64_t longest = 1, chunk, tiles = 0;
  for (int32_t i = 0; i < n; i++)
    longest = std::max<int64_t>(longest, c.Pages(i));
  chunk = longest;
  if (split)
    chunk = SmallestChunk(std::max(128 / c.d.page_size, 1), longest, most / heads, [&](int64_t pages) {
      int64_t sum = 0;
      for (int32_t i = 0; i < n; i++)
        sum += CeilDiv(graph ? std::max(c.Pages(i), 1) : c.Pages(i), pages); // see planners.h about empty requests
      return sum;
    });
  Lists lists;
  for (int32_t i = 0; i < n; i++) {
    int64_t chunks = CeilDiv(std::max(c.Pages(i), 1), chunk);
    for (int64_t k = 0; k < chunks; k++) {
      lists.request.push_back(i);
      lists.kv_tile.push_back(k);
    }
    lists.o_indptr.push_back(tiles += chunks);
  }
  split = split && (graph || tiles != n);
  int64_t padded = graph ? (split ? most / heads : n) : tiles, s_offset = 0, mask = 0;
  Buffer b;
  int64_t request = b.Add(4 * padded, 16), kv_tile = b.Add(4 * padded, 16), o = b.Add(4 * (padded + 1), 16), size = b.Add(4, 1);
  Expected e;
  if (split) {
    mask = b.Add(padded, 16);
    std::fill_n(b.bytes.begin() + mask, tiles, 1);
    s_offset = CeilDiv(4 * c.d.num_q_heads * padded * c.d.head_dim, 16) * 16;
    e.float_bytes = uint64_t(s_offset + 4 * c.d.num_q_heads * padded);
  }
  b.Put(request, lists.request);
  b.Put(kv_tile, lists.kv_tile);
  b.Put(o, lists.o_indptr);
  b.Put(size, { chunk * c.d.page_size });
  e.info = { padded, 0, s_offset, request, kv_tile, o, mask, size, graph, split };
  e.bytes = b.bytes;
  return e;
}

int64_t TileQ(const cgr_flashinfer_prefill_input &p, int64_t packed) {
  int64_t vo = p.head_dim_vo, qk = p.head_dim_qk, kv_bytes = p.kv_dtype_bytes ? p.kv_dtype_bytes : 2;
  int64_t memory = p.shared_memory ? p.shared_memory : 232448;
  if (vo >= 512)
    return packed > 32 ? 32 : 16;
  if (qk >= 512)
    return 16;
  if (vo < 256 && packed > 64)
    return 128;
  if (p.compute_capability != 0 && p.compute_capability < 80)
    return 64;
  return packed > 16 || 32 * qk + 64 * kv_bytes * (qk + vo) > memory ? 64 : 16;
}

Expected ExpectedPrefill(const FlashInferCase &c) {
  const cgr_flashinfer_prefill_input &p = c.p;
  int64_t n = p.num_requests, group = p.num_q_heads / p.num_kv_heads, rows = 0, longest = 1, tiles_q = 0;
  int64_t most = std::max(0, 2 * p.num_multiprocessors - p.num_colocated_ctas) / p.num_kv_heads;
  bool graph = p.graph != 0, whole = p.disable_split_kv != 0, fixed = !whole && p.fixed_split_size > 0;
  for (int32_t i = 0; i < n; i++)
    rows += c.Rows(i);
  int64_t packed = !graph ? rows * group / n : (p.uniform_q_len ? p.uniform_q_len : p.total_num_rows - n + 1) * group;
  int64_t tile = TileQ(p, packed);
  std::vector<int64_t> q_tiles, kv;
  for (int32_t i = 0; i < n; i++) {
    int64_t seen = p.window == 0 ? INT32_MAX : CeilDiv(p.window - 1 + tile, p.page_size);
    q_tiles.push_back(CeilDiv(c.Rows(i) * group, tile));
    kv.push_back(std::max<int64_t>(1, std::min<int64_t>(c.Pages(i), seen)));
    longest = std::max(longest, kv.back());
    tiles_q += q_tiles.back();
  }
  if (graph)
    tiles_q = p.uniform_q_len ? n * CeilDiv(packed, tile) : CeilDiv(p.total_num_rows * group, tile) + n - 1;
  int64_t chunk = whole ? INT64_MAX : p.fixed_split_size;
  if (!whole && !fixed)
    chunk = SmallestChunk(std::max(128 / p.page_size, 1), longest, most, [&](int64_t pages) {
      int64_t sum = 0;
      for (size_t i = 0; i < kv.size(); i++)
        sum += q_tiles[i] * CeilDiv(kv[i], pages);
      return sum;
    });
  bool split = !whole && (fixed ? graph && p.force_split_kv : graph || chunk < longest);
  Lists lists;
  for (int32_t i = 0; i < n; i++) {
    int64_t chunks = CeilDiv(kv[size_t(i)], chunk);
    split = split || (fixed && chunks > 1);
    for (int64_t q = 0; q < q_tiles[size_t(i)]; q++)
      for (int64_t k = 0; k < chunks; k++) {
        lists.request.push_back(i);
        lists.q_tile.push_back(q);
        lists.kv_tile.push_back(k);
      }
    for (int64_t row = 0; row < c.Rows(i); row++)
      lists.merge.push_back(lists.merge.back() + chunks);
    lists.o_indptr.push_back(lists.merge.back());
  }
  int64_t count = int64_t(lists.request.size()), padded = graph ? std::max(most, tiles_q) : count;
  Expected e;
  e.refused = count > padded;
  if (e.refused)
    return e;
  Buffer b;
  int64_t request = b.Add(4 * padded, 16), q_tile = b.Add(4 * padded, 16), kv_tile = b.Add(4 * padded, 16);
  int64_t o = b.Add(4 * (n + 1), 16), size = b.Add(4, 1), total = graph ? b.Add(4, 16) : 0, merge = 0, mask = 0, s_offset = 0;
  if (graph)
    b.Put(total, { rows });
  if (split) {
    merge = b.Add(4 * (p.total_num_rows + 1), 16);
    mask = b.Add(padded, 16);
    b.Put(merge, lists.merge);
    std::fill_n(b.bytes.begin() + mask, count, 1);
    s_offset = CeilDiv(4 * p.num_q_heads * padded * tile * p.head_dim_vo, 16) * 16;
    e.float_bytes = uint64_t(s_offset + 4 * p.num_q_heads * padded * tile);
  }
  b.Put(request, lists.request);
  b.Put(q_tile, lists.q_tile);
  b.Put(kv_tile, lists.kv_tile);
  b.Put(o, lists.o_indptr);
  b.Put(size, { whole ? -p.page_size : chunk * p.page_size });
  e.info = { padded, p.total_num_rows, total, tile, request, q_tile, kv_tile, merge, o, size, 0, s_offset, mask, graph, split };
  e.bytes = b.bytes;
  return e;
}

// ---------------------------------------------------------------------------------------------------------------- coverage

// Every query sees each of its keys once, and exactly its row's partials are merged. `causal`: it sees no key after itself.
void ExpectCovered(const FlashInferCase &c, const FlashInferReading &reading, const std::vector<int64_t> &kv_lens,
                   int32_t window) {
  int64_t group = c.decode ? c.d.num_q_heads / c.d.num_kv_heads : c.p.num_q_heads / c.p.num_kv_heads;
  std::map<std::pair<int32_t, int64_t>, std::vector<FlashInferWork>> by_tile;
  for (const FlashInferWork &work : reading.Works())
    by_tile[{ work.request, work.packed_begin }].push_back(work);
  int64_t first_row = 0;
  std::set<int64_t> slots;
  for (int32_t i = 0; i < c.num_requests(); first_row += c.Rows(i++)) {
    int64_t packed = c.Rows(i) * group;
    for (int64_t at = 0; at < packed;) {
      const std::vector<FlashInferWork> &works = by_tile[{ i, at }];
      ASSERT_FALSE(works.empty()) << "nobody takes packed row " << at << " of request " << i;
      // Keys that some row of the tile sees.
      int64_t last = (works[0].packed_end - 1) / group, kv_len = kv_lens[size_t(i)], begin = works[0].kv_begin;
      int64_t end = window == 0 ? kv_len : kv_len - c.Rows(i) + last + 1, next = begin;
      int64_t needed = window == 0 ? 0 : std::max<int64_t>(0, kv_len - c.Rows(i) + at / group - (window - 1));
      EXPECT_LE(begin, needed);
      int32_t chunks = 0;
      for (const FlashInferWork &work : works) {
        if (work.kv_tile < chunks) { // a CTA whose entry lies past the tiles: the same work once more
          EXPECT_FALSE(reading.split());
          EXPECT_EQ(work.kv_end, works[0].kv_end);
          continue;
        }
        ASSERT_EQ(work.kv_tile, chunks++);
        ASSERT_EQ(work.kv_begin, std::min(next, kv_len));
        ASSERT_EQ(work.packed_end, works[0].packed_end);
        next = work.kv_end;
      }
      EXPECT_GE(next, std::min(end, kv_len)) << "keys of request " << i;
      for (int64_t row = at / group; row <= last; row++) {
        int64_t merged_row = c.decode ? i : first_row + row;
        if (!reading.split()) {
          EXPECT_EQ(reading.Slot(works[0], row), merged_row);
          continue;
        }
        ASSERT_EQ(reading.MergeEnd(merged_row) - reading.MergeBegin(merged_row), chunks);
        for (int32_t k = 0; k < chunks; k++) {
          ASSERT_EQ(reading.Slot(works[size_t(k)], row), reading.MergeBegin(merged_row) + k);
          slots.insert(reading.MergeBegin(merged_row) + k);
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
    EXPECT_TRUE(slots.empty() || (*slots.begin() == 0 && *slots.rbegin() == int64_t(slots.size()) - 1)) << "slots without rows";
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
  int32_t group = c.decode ? c.d.num_q_heads / c.d.num_kv_heads : c.p.num_q_heads / c.p.num_kv_heads;
  ExpectCovered(c, FlashInferReading(plan, bytes.data(), rows, kv_lens, group, c.decode ? 0 : c.p.window), kv_lens,
                c.decode ? 0 : c.p.window);
}

// ------------------------------------------------------------------------------------------------------------------- tests

// Returns the plan's bytes; none if FlashInfer refuses the batch, in which case we must too.
Bytes CheckCase(const FlashInferCase &c, cgr_flashinfer_plan &plan, unsigned char poison = 0xA5) {
  const Expected e = c.decode ? ExpectedDecode(c) : ExpectedPrefill(c);
  cgr_flashinfer_plan sized = CGR_FLASHINFER_PLAN_INIT;
  plan = sized;
  if (e.refused) {
    FlashInferWorkspace workspace(1 << 22, poison);
    ExpectMessage(c.Build(workspace.data(), workspace.size(), &plan), CGR_ERROR_INVALID_ARGUMENT,
                  { "fixed_split_size", "more tiles than the graph has, expected at most" });
    EXPECT_EQ(workspace.Get(), Bytes(workspace.size(), poison)) << "written all the same";
    return {};
  }
  EXPECT_EQ(c.Size(&sized), CGR_OK) << cgr_last_message();
  EXPECT_EQ(sized.int_bytes, e.bytes.size());
  EXPECT_EQ(sized.float_bytes, e.float_bytes);
  EXPECT_EQ(std::vector<int64_t>(sized.info, sized.info + sized.num_info), e.info);
  FlashInferWorkspace workspace(size_t(sized.int_bytes), poison);
  EXPECT_EQ(c.Build(workspace.data(), workspace.size(), &plan), CGR_OK) << cgr_last_message();
  EXPECT_EQ(std::memcmp(&sized, &plan, sizeof plan), 0);
  EXPECT_TRUE(workspace.EndIsUntouched(poison));
  const Bytes got = workspace.Get();
  EXPECT_TRUE(got == e.bytes) << "the first byte that differs: "
                              << std::mismatch(got.begin(), got.end(), e.bytes.begin(), e.bytes.end()).first - got.begin();
  return got;
}

void CheckMany(bool decode, bool graph) {
  const uint64_t first = Seed();
  int plans = 0;
  for (uint64_t seed = first; seed < first + 11000 && !testing::Test::HasFailure(); seed++) {
    SCOPED_TRACE(Repeat(seed));
    Random random(seed);
    FlashInferCase c = decode ? RandomDecode(random, graph) : RandomPrefill(random, graph);
    cgr_flashinfer_plan plan;
    const Bytes bytes = CheckCase(c, plan, static_cast<unsigned char>(random.Bits()));
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
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + 2000; seed++) {
    SCOPED_TRACE(Repeat(seed));
    Random random(seed);
    FlashInferCase c = random.OneIn(2) ? RandomDecode(random, true) : RandomPrefill(random, true);
    c.p.force_split_kv = 1;
    cgr_flashinfer_plan full = CGR_FLASHINFER_PLAN_INIT, bare = CGR_FLASHINFER_PLAN_INIT;
    CGR_ASSERT_OK(c.Size(&full));
    c.d.kv_indptr = c.p.kv_indptr = c.d.live_requests = c.p.live_requests = nullptr;
    CGR_ASSERT_OK(c.Size(&bare));
    ASSERT_EQ(std::memcmp(&full, &bare, sizeof full), 0);
  }
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
  const Bytes bytes = CheckCase(c, plan);
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
    const Bytes given = CheckCase(c, plan);
    c.qo.clear();
    c.Bind();
    EXPECT_EQ(CheckCase(c, other), given);
    EXPECT_EQ(std::memcmp(&plan, &other, sizeof plan), 0);
    EXPECT_EQ(plan.info[3], 16) << "cta_tile_q";
  }
}

// The content of padding does not matter, and a smaller plan leaves nothing of a larger one.
TEST(FlashInfer, PaddingAndStaleWordsLeaveNoTrace) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + 1000; seed++) {
    SCOPED_TRACE(Repeat(seed));
    Random random(seed);
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
      continue;
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
  }
}

} // namespace
} // namespace cgr_test
