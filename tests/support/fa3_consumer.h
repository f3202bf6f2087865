// Who works on what under FlashAttention-3's scheduler metadata, read as the attention kernels read it: the tiles that
// VarlenDynamicPersistentTileScheduler (hopper/tile_scheduler.hpp) deals out one by one, and the keys that BlockMN
// (hopper/block.h) gives each. It reads only the metadata, the batch and the kernel's own parameters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/support/fa3_case.h"

namespace cgr_test {

// A CTA's work: rows [m * tile_m, ...) of a request for a head, against the KV tiles [n_begin, n_end). Partial `split` of
// `splits`; with one split the result is final.
struct Fa3Work {
  int32_t request, head; // a KV head when query heads are packed
  int32_t m, n_begin, n_end;
  int32_t split, splits;
};

class Fa3Consumer {
public:
  Fa3Consumer(const Fa3Case &c, const cgr_fa3_sizes &sizes, const std::vector<int32_t> &words)
      : c_(c), in_(c.input), s_(sizes), words_(words) {}

  // In the order in which the tile counter deals it out.
  std::vector<Fa3Work> All() const {
    std::vector<Fa3Work> all;
    for (int32_t v = 0; v < in_.num_requests; v++) {
      const int32_t m_tiles = NumTiles(v), splits = Splits(v);
      for (int64_t tile = 0; tile < int64_t(m_tiles) * heads() * splits; tile++)
        all.push_back(Tile(v, m_tiles, splits, tile));
    }
    return all;
  }
  // How many partials the combine kernel merges for entry v, and whose partials.
  int32_t Splits(int32_t v) const {
    const bool is_split_kernel = s_.num_splits > 1;
    return is_split_kernel && s_.at_num_splits >= 0 ? Word(s_.at_num_splits, v) : 1;
  }
  int32_t Request(int32_t v) const { return s_.at_batch_idx >= 0 ? Word(s_.at_batch_idx, v) : v; }
  int32_t heads() const { return s_.pack_gqa ? in_.num_kv_heads : in_.num_q_heads; }
  int32_t packed() const { return s_.pack_gqa ? in_.num_q_heads / in_.num_kv_heads : 1; }

private:
  int32_t Word(int32_t at, int32_t i) const { return words_.at(size_t(at) + size_t(i)); }
  int32_t NumTiles(int32_t v) const {
    if (s_.at_num_m_blocks >= 0)
      return Word(s_.at_num_m_blocks, v);
    return (Word(s_.at_seqlen_q, v) + s_.tile_m - 1) / s_.tile_m;
  }

  Fa3Work Tile(int32_t v, int32_t m_tiles, int32_t splits, int64_t tile) const {
    Fa3Work w = { Request(v), 0, 0, 0, 0, 0, splits };
    if (s_.head_swizzle && splits == 1) {
      const int64_t in_l2 = Word(s_.at_nheads_in_l2, v), section = tile / (in_l2 * m_tiles), rest = tile % (in_l2 * m_tiles);
      const int64_t here = std::min(in_l2, heads() - section * in_l2);
      w.m = int32_t(rest / here);
      w.head = int32_t(section * in_l2 + rest % here);
    } else {
      const int64_t head_split = tile / m_tiles;
      w.m = int32_t(tile % m_tiles);
      w.head = int32_t(head_split / splits);
      w.split = int32_t(head_split % splits);
    }
    if (s_.head_swizzle)
      w.m = m_tiles - 1 - w.m;
    SeeKeys(w);
    return w;
  }

  // The window as the kernel gets it; -1: no bound.
  void SeeKeys(Fa3Work &w) const {
    const int64_t keys = c_.lens[size_t(w.request)], queries = c_.query_len(size_t(w.request)), chunk = in_.attention_chunk;
    const int64_t shift = keys - queries, tile_n = s_.tile_n;
    int64_t left = in_.window_left - 1, right = in_.causal ? 0 : in_.window_right > 0 ? in_.window_right : -1;
    if (left < 0)
      left = in_.max_seq_len - 1;
    if (right < 0)
      right = in_.max_query_len - 1;
    if (chunk > 0) {
      left = std::min(left, chunk - 1);
      right = std::min(right, chunk - 1);
    }
    int64_t begin = 0, end = (keys + tile_n - 1) / tile_n;
    if (s_.is_causal || s_.is_local) {
      const int64_t last = (int64_t(w.m + 1) * s_.tile_m - 1) / packed() + 1 + shift; // one past the last row's own key
      int64_t stop = s_.is_local ? last + right : last;
      if (s_.is_local && chunk > 0)
        stop = std::min(stop, (last + chunk - 1) / chunk * chunk);
      end = std::min(end, (stop + tile_n - 1) / tile_n);
    }
    if (s_.is_local) {
      const int64_t first = int64_t(w.m) * s_.tile_m / packed() + shift;
      int64_t start = first - left;
      if (chunk > 0)
        start = std::max(start, first / chunk * chunk);
      begin = std::max<int64_t>(0, start / tile_n);
    }
    const int64_t each = end <= begin ? 0 : (end - begin + w.splits - 1) / w.splits;
    w.n_begin = int32_t(begin + w.split * each);
    w.n_end = int32_t(std::max<int64_t>(w.n_begin, std::min(w.n_begin + each, end)));
  }

  const Fa3Case &c_;
  const cgr_fa3_input &in_;
  const cgr_fa3_sizes &s_;
  const std::vector<int32_t> &words_;
};

} // namespace cgr_test
