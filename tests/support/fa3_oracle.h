// A second implementation of FlashAttention-3's scheduler metadata: what both projects' kernels do to each request, one request
// after another, and a stable sort from the standard library. Tiles, bound, packing and the vectors' places come from
// cgr_fa3_size: the records and fa3_api_test.cc test what the key decides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/fa3_case.h"

namespace cgr_test {

inline int64_t Fa3DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Fa3Row {
  int64_t rows, m, n, splits, request;
};

inline int64_t Fa3HeadsInL2(const cgr_fa3_input &in, const cgr_fa3_sizes &s, int64_t n) {
  const int64_t q_per_kv = in.num_q_heads / in.num_kv_heads, dim_v = in.head_dim_v ? in.head_dim_v : in.head_dim;
  int64_t l2 = 8 * 1024 * 1024;
  if (in.layout == CGR_FA3_VLLM) {
    int64_t share = 1;
    while (share < q_per_kv && share < 16)
      share *= 2;
    l2 = 32 * 1024 * 1024 / share;
  }
  const int64_t tile_bytes = s.tile_n * (in.head_dim + dim_v) * (in.dtype == CGR_DTYPE_FP8_E4M3 ? 1 : 2);
  int64_t heads = 1;
  for (int64_t more : { 2, 4, 8, 16 })
    if (std::max<int64_t>(n, 1) * more <= l2 / tile_bytes)
      heads = more;
  return std::min(s.pack_gqa ? heads : heads * q_per_kv, int64_t(s.pack_gqa ? in.num_kv_heads : in.num_q_heads));
}

inline std::vector<int32_t> Fa3Oracle(const Fa3Case &c, const cgr_fa3_sizes &s) {
  const cgr_fa3_input &in = c.input;
  const int64_t packed = s.pack_gqa ? in.num_q_heads / in.num_kv_heads : 1;
  const int64_t live = in.live_requests ? *in.live_requests : in.num_requests;
  const float heads = float(s.pack_gqa ? in.num_kv_heads : in.num_q_heads);
  std::vector<Fa3Row> rows;
  int64_t tiles = 0;
  for (int32_t i = 0; i < in.num_requests; i++) {
    const int64_t queries = i < live ? packed * c.query_len(size_t(i)) : 0, keys = i < live ? c.lens[size_t(i)] : 0;
    rows.push_back({ queries, Fa3DivideUp(queries, s.tile_m), Fa3DivideUp(keys, s.tile_n), 1, i });
    tiles += rows.back().m * rows.back().n;
  }
  if (in.num_requests <= 992 && s.num_splits > 1 && tiles > 0) {
    const float margin = float(tiles) * 1.1f;
    const float per_sm = std::ceil(margin * heads / float(in.num_multiprocessors));
    for (Fa3Row &row : rows) {
      while (row.splits < s.num_splits && double(row.splits) * double(per_sm) < double(row.n))
        row.splits++;
      row.n = Fa3DivideUp(row.n, row.splits);
    }
  }
  for (size_t first = 0; s.sort && first < rows.size(); first += 992) {
    auto work = [&](const Fa3Row &row) { return s.is_causal ? row.n * s.tile_n - row.m * s.tile_m : row.n; };
    auto end = first + 992 < rows.size() ? rows.begin() + int64_t(first) + 992 : rows.end();
    std::stable_sort(rows.begin() + int64_t(first), end, [&](const Fa3Row &a, const Fa3Row &b) { return work(a) > work(b); });
  }
  std::vector<int32_t> words(s.metadata_bytes / 4, 0);
  auto put = [&](int32_t at, size_t i, int64_t value) {
    if (at >= 0)
      words.at(size_t(at) + i) = int32_t(value);
  };
  for (size_t i = 0; i < rows.size(); i++) {
    put(s.at_num_splits, i, rows[i].splits);
    put(s.at_num_m_blocks, i, rows[i].m);
    put(s.at_seqlen_q, i, rows[i].rows);
    put(s.at_batch_idx, i, rows[i].request);
    put(s.at_nheads_in_l2, i, Fa3HeadsInL2(in, s, rows[i].n));
  }
  return words;
}

} // namespace cgr_test
