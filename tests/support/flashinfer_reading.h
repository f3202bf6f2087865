// What FlashInfer's attention kernels would do with a plan: which rows and keys each CTA takes, where it leaves its partial, and
// which partials are merged. Reads only the plan's buffers, as BatchPrefillWithPagedKVCacheDevice (prefill.cuh) and
// BatchDecodeWithPagedKVCacheDevice (decode.cuh) of flashinfer-ai/flashinfer fb28d7242b35 do, or those of 0.7.1 and later.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cgr/interop/flashinfer.h"

namespace cgr_test {

// The work of a CTA of one KV head: packed rows (row * q_per_kv + query head of the KV head) of a request over keys [kv_begin,
// kv_end).
struct FlashInferWork {
  int32_t cta, request, kv_tile;
  int64_t packed_begin, packed_end;
  int64_t kv_begin, kv_end;
};

class FlashInferReading {
public:
  // `rows` and `kv_lens` (tokens) of each request. `window`: keys that a query sees; 0: all. `layout`: whose kernels they are.
  FlashInferReading(const cgr_flashinfer_plan &plan, const unsigned char *int_workspace, const std::vector<int32_t> &rows,
                    const std::vector<int64_t> &kv_lens, int32_t q_per_kv, int32_t window,
                    int32_t layout = CGR_FLASHINFER_V0_6_18)
      : plan_(plan), bytes_(int_workspace), rows_(rows), kv_lens_(kv_lens), q_per_kv_(q_per_kv), window_(window),
        layout_(layout) {}

  bool decode() const { return plan_.num_info == 10; }
  bool split() const { return plan_.info[decode() ? 9 : 14] != 0; }
  bool graph() const { return plan_.info[decode() ? 8 : 13] != 0; }
  // Whether CTAs look at the mask.
  bool HasMask() const { return graph() && (split() || (!decode() && layout_ == CGR_FLASHINFER_V0_7_1)); }
  int64_t tiles() const { return plan_.info[0]; }
  int64_t cta_tile_q() const { return decode() ? q_per_kv_ : plan_.info[3]; }
  int64_t chunk() const { return Word(plan_.info[decode() ? 7 : 9], 0); }

  // Every CTA that does not return at once. Without a mask, CTAs past the plan's tiles work too, on what the arrays hold there.
  std::vector<FlashInferWork> Works() const {
    std::vector<FlashInferWork> works;
    for (int64_t cta = 0; cta < tiles(); cta++)
      if (!HasMask() || bytes_[plan_.info[decode() ? 6 : 12] + cta] != 0)
        works.push_back(Work(cta));
    return works;
  }
  // Where a CTA leaves the partial of a row of its request; without splits, the row of the output.
  int64_t PartialIndex(const FlashInferWork &work, int64_t row) const {
    int64_t first = OIndptr(work.request);
    if (decode() || !split())
      return first + (decode() ? (split() ? work.kv_tile : 0) : row);
    int64_t seen = std::max<int64_t>(kv_lens_[size_t(work.request)], 1);
    if (window_ > 0)
      seen = std::min(seen, window_ - 1 + cta_tile_q());
    return first + row * ((seen + chunk() - 1) / chunk()) + work.kv_tile;
  }
  // The partials [begin, end) that are merged into a row of the output (a request, for decode).
  int64_t MergeBegin(int64_t row) const { return decode() ? OIndptr(row) : Word(plan_.info[7], row); }
  int64_t MergeEnd(int64_t row) const { return MergeBegin(row + 1); }
  // Whether the float workspace has room for the partial of a row with `num_heads` query heads of `head_dim` numbers.
  bool HasRoom(int64_t partial, int64_t num_heads, int64_t head_dim) const {
    const int64_t s_offset = plan_.info[decode() ? 2 : 11], end = (partial + 1) * num_heads * 4;
    return end * head_dim <= s_offset && s_offset + end <= int64_t(plan_.float_bytes);
  }
  // Rows that the merge visits.
  int64_t MergedRows() const { return decode() ? int64_t(rows_.size()) : graph() ? Word(plan_.info[2], 0) : plan_.info[1]; }

private:
  int64_t Word(int64_t offset, int64_t index) const {
    int32_t word;
    std::memcpy(&word, bytes_ + offset + 4 * index, 4);
    return word;
  }
  int64_t OIndptr(int64_t request) const { return Word(plan_.info[decode() ? 5 : 8], request); }
  FlashInferWork Work(int64_t cta) const {
    int64_t request = Word(plan_.info[decode() ? 3 : 4], cta), kv_tile = Word(plan_.info[decode() ? 4 : 6], cta);
    int64_t q_tile = decode() ? 0 : Word(plan_.info[5], cta);
    int64_t rows = rows_[size_t(request)], kv_len = kv_lens_[size_t(request)], start = 0;
    if (window_ > 0)
      start = std::max<int64_t>(0, kv_len + q_tile * cta_tile_q() / q_per_kv_ - rows - (window_ - 1));
    FlashInferWork work = { int32_t(cta), int32_t(request), int32_t(kv_tile), 0, 0, start, kv_len };
    work.packed_begin = q_tile * cta_tile_q();
    work.packed_end = std::min((q_tile + 1) * cta_tile_q(), rows * q_per_kv_);
    if (split()) {
      work.kv_begin = std::min(start + kv_tile * chunk(), kv_len);
      work.kv_end = std::min(start + (kv_tile + 1) * chunk(), kv_len);
    }
    return work;
  }

  cgr_flashinfer_plan plan_;
  const unsigned char *bytes_;
  std::vector<int32_t> rows_;
  std::vector<int64_t> kv_lens_;
  int32_t q_per_kv_, window_, layout_;
};

} // namespace cgr_test
