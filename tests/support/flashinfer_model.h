// A second implementation of FlashInfer's DecodePlan and PrefillPlan, made step by step from what planners.h says of them.
#pragma once

#include "tests/support/expect.h"
#include "tests/support/flashinfer_case.h"

namespace cgr_test {

using Bytes = std::vector<unsigned char>;

inline int64_t CeilDiv(int64_t n, int64_t d) { return n / d + (n % d != 0); }

struct ExpectedPlan {
  bool refused = false; // more tiles than the graph has, or than 32 bits count
  std::vector<int64_t> info;
  Bytes bytes;
  uint64_t float_bytes = 0;
};

struct PlanBuffer {
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

struct PlanLists {
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

inline ExpectedPlan ExpectedDecode(const FlashInferCase &c) {
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
  PlanLists lists;
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
  PlanBuffer b;
  int64_t request = b.Add(4 * padded, 16), kv_tile = b.Add(4 * padded, 16), o = b.Add(4 * (padded + 1), 16), size = b.Add(4, 1);
  ExpectedPlan e;
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

inline int64_t TileQ(const cgr_flashinfer_prefill_input &p, int64_t packed) {
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

inline ExpectedPlan ExpectedPrefill(const FlashInferCase &c) {
  const cgr_flashinfer_prefill_input &p = c.p;
  int64_t n = p.num_requests, q_per_kv = p.num_q_heads / p.num_kv_heads, rows = 0, longest = 1, tiles_q = 0;
  int64_t most = std::max(0, 2 * p.num_multiprocessors - p.num_colocated_ctas) / p.num_kv_heads;
  bool graph = p.graph != 0, whole = p.disable_split_kv != 0, fixed = !whole && p.fixed_split_size > 0;
  bool since_0_7_1 = p.layout == CGR_FLASHINFER_V0_7_1;
  for (int32_t i = 0; i < n; i++)
    rows += c.Rows(i);
  int64_t packed = !graph ? rows * q_per_kv / n : (p.uniform_q_len ? p.uniform_q_len : p.total_num_rows - n + 1) * q_per_kv;
  int64_t tile = TileQ(p, packed);
  std::vector<int64_t> q_tiles, kv;
  for (int32_t i = 0; i < n; i++) {
    int64_t seen = p.window == 0 ? INT32_MAX : CeilDiv(p.window - 1 + tile, p.page_size);
    q_tiles.push_back(CeilDiv(c.Rows(i) * q_per_kv, tile));
    kv.push_back(std::max<int64_t>(1, std::min<int64_t>(c.Pages(i), seen)));
    longest = std::max(longest, kv.back());
    tiles_q += q_tiles.back();
  }
  if (graph)
    tiles_q = p.uniform_q_len ? n * CeilDiv(packed, tile) : CeilDiv(p.total_num_rows * q_per_kv, tile) + n - 1;
  int64_t chunk = whole ? INT64_MAX : p.fixed_split_size, count = 0;
  if (!whole && !fixed)
    chunk = SmallestChunk(std::max(128 / p.page_size, 1), longest, most, [&](int64_t pages) {
      int64_t sum = 0;
      for (size_t i = 0; i < kv.size(); i++)
        sum += q_tiles[i] * CeilDiv(kv[i], pages);
      return sum;
    });
  bool split = !whole && (fixed ? graph && p.force_split_kv : graph || chunk < longest);
  for (size_t i = 0; i < kv.size(); i++)
    count += q_tiles[i] * CeilDiv(kv[i], chunk);
  int64_t padded = graph ? std::max(most, tiles_q) : count;
  ExpectedPlan e;
  e.refused = graph ? count > padded : count > INT32_MAX;
  if (e.refused)
    return e;
  PlanLists lists;
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
  PlanBuffer b;
  int64_t request = b.Add(4 * padded, 16), q_tile = b.Add(4 * padded, 16), kv_tile = b.Add(4 * padded, 16);
  int64_t o = b.Add(4 * (n + 1), 16), size = b.Add(4, 1), total = graph ? b.Add(4, 16) : 0, merge = 0, mask = 0, s_offset = 0;
  if (graph)
    b.Put(total, { rows });
  if (split) {
    const int64_t partials = since_0_7_1 ? CeilDiv(padded * tile, q_per_kv) : padded * tile;
    merge = b.Add(4 * (p.total_num_rows + 1), 16);
    b.Put(merge, lists.merge);
    s_offset = CeilDiv(4 * p.num_q_heads * partials * p.head_dim_vo, 16) * 16;
    e.float_bytes = uint64_t(s_offset + 4 * p.num_q_heads * partials);
  }
  if (since_0_7_1 ? graph : split) {
    mask = b.Add(padded, 16);
    std::fill_n(b.bytes.begin() + mask, count, 1);
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

// Builds the plan of a batch, which has to be the model's. Returns its bytes; none if FlashInfer refuses the batch, in which case
// we must too.
inline Bytes CheckPlan(const FlashInferCase &c, cgr_flashinfer_plan &plan, unsigned char poison = 0xA5) {
  const ExpectedPlan e = c.decode ? ExpectedDecode(c) : ExpectedPrefill(c);
  cgr_flashinfer_plan sized = CGR_FLASHINFER_PLAN_INIT;
  plan = sized;
  if (e.refused) {
    FlashInferWorkspace workspace(1 << 22, poison);
    ExpectMessage(c.Build(workspace.data(), workspace.size(), &plan), CGR_ERROR_INVALID_ARGUMENT,
                  c.graph() ? Words{ "fixed_split_size", "more tiles than the graph has, expected at most" }
                            : Words{ "the lengths make ", "expected at most 2147483647" });
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

} // namespace cgr_test
