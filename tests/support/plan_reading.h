// A second reading of planners/attention/plan.h, for tests: the plan of a batch, written from the prose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "planners/attention/plan.h"

namespace cgr_test {

using Words = std::vector<int32_t>;

struct PlanBatch {
  Words lens, seq_lens[CGR__MAX_SETS]; // a seq_len below its query length: a request that a guard has emptied
};

// The plan, from the prose and structs of plan.h, and from none of its functions but those that say where things are. It finds
// segments and partials by walking the tiles, while the library walks the parts.
class PlanReading {
public:
  PlanReading(const cgr__plan_class &c, const PlanBatch &batch) : c_(c), batch_(batch), seq_lens_(batch.seq_lens[c.length_set]) {
    for (size_t i = 0; i < batch.lens.size(); i++)
      Sort(int32_t(i));
    decode_parts_ = DecodeParts();
    per_part_ = std::max<int64_t>(1, cost_ / decode_parts_ + (cost_ % decode_parts_ != 0));
    snap_ = std::max<int64_t>(c.snap, per_part_ / 32);
    snap_ = std::max<int64_t>(std::min<int64_t>(snap_, per_part_ / 4), (c.cost_kv + 1) / 2);
    if (!decodes_.empty() && std::set<int64_t>(num_kv_.begin(), num_kv_.end()).size() == 1)
      Align(TileCost(0));
    Cut();
    parts_.resize(size_t(c.num_parts));
    for (int32_t p = 0; p < c.num_parts; p++)
      FillPart(p);
    ShareTiles();
    FillEntries();
  }
  // Writes it to its place in the class; everything else stays as it is.
  void WriteTo(unsigned char *plan) const {
    cgr__plan_header header = {};
    header.num_parts = c_.num_parts;
    header.head_blocks = c_.head_blocks;
    header.num_decodes = int32_t(decodes_.size());
    header.num_entries = int32_t(entries_.size());
    header.num_items = header.num_entries * c_.head_blocks;
    header.num_emptied = num_emptied_;
    header.cost = cost_;
    header.cost_per_part = per_part_;
    header.snap = snap_;
    header.decode_parts = int32_t(decode_parts_);
    Put(plan, &header, sizeof header);
    Put(plan + sizeof header, parts_.data(), parts_.size() * sizeof parts_[0]);
    Put(plan + cgr__plan_decodes_offset(&c_), decodes_.data(), decodes_.size() * sizeof decodes_[0]);
    Put(plan + cgr__plan_entries_offset(&c_), entries_.data(), entries_.size() * sizeof entries_[0]);
  }
  bool Fits() const { return entries_.size() <= size_t(c_.max_entries); }

private:
  struct Range {
    int64_t begin, end;
    int64_t size() const { return end - begin; }
  };
  struct PrefillTile {
    int32_t request, q_tile;
    Range kv;
  };

  static void Put(unsigned char *to, const void *from, size_t bytes) {
    if (bytes > 0)
      std::memcpy(to, from, bytes);
  }
  // KV tiles that the new tokens first .. last see: from the first token's first key to the last token's last key.
  Range Seen(int32_t i, int64_t first, int64_t last, int64_t tile_kv) const {
    int64_t seq_len = NumKeys(i), context = seq_len - batch_.lens[i], begin = 0, end = context + last + 1;
    if (c_.sees == CGR__SEES_OTHER)
      return { 0, seq_len / tile_kv + (seq_len % tile_kv != 0) };
    if (c_.chunk != 0)
      begin = (context + first) - (context + first) % c_.chunk;
    if (c_.window_left != 0)
      begin = std::max<int64_t>(0, context + first + 1 - c_.window_left);
    if (c_.bidirectional)
      end = c_.window_right == 0 ? seq_len : std::min(seq_len, end + c_.window_right);
    return { begin / tile_kv, end / tile_kv + (end % tile_kv != 0) };
  }
  // Keys of a request: with CGR__SEES_STEP only the new tokens.
  int64_t NumKeys(int32_t i) const {
    return c_.sees == CGR__SEES_STEP ? std::min(batch_.lens[size_t(i)], seq_lens_[size_t(i)]) : seq_lens_[size_t(i)];
  }
  void Sort(int32_t i) {
    int32_t len = batch_.lens[i], step = c_.prefill_tile_q;
    if (len == 0)
      return;
    if (seq_lens_[i] < (c_.sees == CGR__SEES_OTHER ? 1 : len)) {
      num_emptied_++;
    } else if (len <= c_.decode_query_len) {
      decodes_.push_back(i);
      num_kv_.push_back(Seen(i, 0, len - 1, c_.decode_tile_kv).size());
      cost_ += c_.head_blocks * TileCost(decodes_.size() - 1);
    } else {
      const size_t before = tiles_.size();
      for (int32_t t = 0; t * step < len; t++)
        tiles_.push_back({ i, t, Seen(i, t * step, std::min(len, (t + 1) * step) - 1, c_.prefill_tile_kv) });
      const int64_t ends = tiles_[before].kv.size() + tiles_.back().kv.size(); // their mean stands for all
      queue_kv_ += (int64_t(tiles_.size() - before) * ends + 1) / 2;
    }
  }
  int64_t TileCost(size_t decode) const { return c_.cost_tile + num_kv_[decode] * c_.cost_kv; }
  void Align(int64_t tile) {
    int64_t tiles = per_part_ / tile, splits = tile / per_part_, raised = 0;
    const int64_t more = std::min<int64_t>(per_part_ / 20, tile <= per_part_ ? 2 * c_.snap : c_.snap);
    if (tile <= per_part_) {
      raised = per_part_ % tile == 0 ? per_part_ : (tiles + 1) * tile;
    } else if (snap_ >= c_.cost_kv && c_.max_splits == 0) {
      raised = tile % splits == 0 ? tile / splits : tile / splits + 1;
    }
    if (raised > per_part_ && raised <= per_part_ + more)
      per_part_ = raised;
  }
  int64_t SplitSize(int64_t n) const { return c_.max_splits > 0 ? (n + c_.max_splits - 1) / c_.max_splits : n; }

  // Walks the requests of the decode section with the cuts in order.
  void Cut() {
    int64_t before = 0;
    size_t decode = 0;
    for (int64_t p = 0; p <= c_.num_parts; p++) {
      int64_t x = p * per_part_;
      while (decode < decodes_.size() && x >= before + c_.head_blocks * TileCost(decode))
        before += c_.head_blocks * TileCost(decode++);
      cgr__plan_point cut = { int32_t(decode), 0, 0 };
      if (decode < decodes_.size()) {
        cut.head_block = int32_t((x - before) / TileCost(decode));
        cut.kv = int32_t(Border(num_kv_[decode], (x - before) % TileCost(decode) - c_.cost_tile));
        if (cut.kv == num_kv_[decode])
          cut = { cut.decode, cut.head_block + 1, 0 };
        if (cut.head_block == c_.head_blocks)
          cut = { cut.decode + 1, 0, 0 };
      }
      cuts_.push_back(cut);
    }
  }
  // The border of a tile of n KV tiles to which a cut `units` after its fixed cost moves: of two equally near, the later one.
  int64_t Border(int64_t n, int64_t units) const {
    if (units <= snap_)
      return 0;
    if (n * c_.cost_kv - units <= snap_)
      return n;
    int64_t step = c_.max_splits > 0 ? SplitSize(n) : 1, cost = step * c_.cost_kv;
    int64_t below = units / cost, up = 2 * (units - below * cost) >= cost;
    return std::min(n, (below + up) * step);
  }

  void FillPart(int32_t p) {
    cgr__plan_part &part = parts_[size_t(p)];
    part.begin = cuts_[p];
    part.end = cuts_[p + 1];
    part.request = part.begin.decode < int32_t(decodes_.size()) ? decodes_[part.begin.decode] : -1;
    part.begin_partial = part.begin_first = part.end_first = -1;
    part.begin_count = part.end_count = 0;
  }
  // Assigns partials to the tiles that several parts work on, in the order of the decode section.
  void ShareTiles() {
    using Tile = std::pair<int32_t, int32_t>;
    std::map<Tile, std::vector<int32_t>> inside; // of each tile that is cut, the cuts, each position once: the last of them
    for (int32_t p = 1; p <= c_.num_parts; p++) {
      if (cuts_[p].kv == 0)
        continue;
      std::vector<int32_t> &cuts = inside[{ cuts_[p].decode, cuts_[p].head_block }];
      if (!cuts.empty() && cuts_[cuts.back()].kv == cuts_[p].kv)
        cuts.back() = p;
      else
        cuts.push_back(p);
    }
    int32_t next = c_.max_splits > 0 ? c_.num_parts : 0;
    for (const auto &[tile, cuts] : inside) {
      int64_t n = num_kv_[tile.first], split = SplitSize(n), first = next, at = cuts_[cuts[0]].kv;
      int32_t count = c_.max_splits > 0 ? int32_t(1 + (n - at + split - 1) / split) : 1 + int32_t(cuts.size());
      next += count;
      int32_t before = cuts[0]; // the first part that ends at the first cut is the one that starts the tile
      while (before > 0 && SamePoint(cuts_[before - 1], cuts_[cuts[0]]))
        before--;
      parts_[size_t(before) - 1].end_first = int32_t(first);
      parts_[size_t(before) - 1].end_count = count;
      int32_t partial = int32_t(first) + 1;
      for (size_t s = 0; s < cuts.size(); s++) {
        int64_t begin = cuts_[cuts[s]].kv, end = s + 1 < cuts.size() ? cuts_[cuts[s + 1]].kv : n;
        parts_[size_t(cuts[s])].begin_partial = partial;
        parts_[size_t(cuts[s])].begin_first = int32_t(first);
        parts_[size_t(cuts[s])].begin_count = count;
        partial += c_.max_splits > 0 ? int32_t((end - begin + split - 1) / split) : 1;
      }
    }
  }
  static bool SamePoint(const cgr__plan_point &a, const cgr__plan_point &b) {
    return a.decode == b.decode && a.head_block == b.head_block && a.kv == b.kv;
  }

  // Four buckets to each doubling: 1, 1.25, 1.5, 1.75 times a power of two.
  static int64_t Bucket(int64_t n) {
    int64_t power = 1, doublings = 0;
    for (; 2 * power <= n; power *= 2)
      doublings++;
    return std::max<int64_t>(0, CGR__PLAN_BUCKETS - 1 - 4 * doublings - 4 * (n - power) / power);
  }
  // How many parts work on the decode section: so many that it ends with the queue, unless one after the other is faster.
  int64_t DecodeParts() const {
    const int64_t all = c_.num_parts;
    const int64_t queue = c_.head_blocks * (int64_t(tiles_.size()) * c_.prefill_cost_tile + queue_kv_ * c_.prefill_cost_kv);
    if (queue == 0 || cost_ == 0 || c_.mixed_parts == 0)
      return all;
    if (c_.memory_parts == 0)
      return c_.mixed_parts;
    const int64_t mean = (cost_ + queue) / all + ((cost_ + queue) % all != 0);
    const bool is_cut = c_.max_splits == 0 && int64_t(tiles_.size()) * c_.head_blocks < all;
    const int64_t rounded = (2 * cost_ + mean) / (2 * mean);
    if (rounded < (is_cut ? (all + 7) / 8 : all / 16))
      return all;
    const int64_t parts = std::min<int64_t>(c_.mixed_parts, std::max((all + 7) / 8, rounded));
    const int64_t memory = cost_ / c_.memory_parts, together = std::max(cost_ / parts, memory + memory / 20);
    return together < memory + queue / all + 2 * c_.prefill_cost_tile ? parts : all;
  }
  void FillEntries() {
    int64_t all = int64_t(tiles_.size()) * c_.head_blocks, sum = 0;
    if (c_.max_splits > 0 || all >= c_.num_parts) {
      std::stable_sort(tiles_.begin(), tiles_.end(),
                       [](const PrefillTile &a, const PrefillTile &b) { return Bucket(a.kv.size()) < Bucket(b.kv.size()); });
      for (const PrefillTile &tile : tiles_)
        entries_.push_back({ tile.request, tile.q_tile, int32_t(tile.kv.begin), int32_t(tile.kv.end), -1, 1, 0, 0 });
      return;
    }
    for (const PrefillTile &tile : tiles_)
      sum += tile.kv.size() * c_.head_blocks;
    for (const PrefillTile &tile : tiles_) {
      int64_t n = tile.kv.size(), share = n * c_.num_parts, first = int64_t(entries_.size());
      int64_t count = std::min(n, share / sum + (share % sum != 0));
      for (int64_t i = 0; i < count; i++)
        entries_.push_back({ tile.request, tile.q_tile, int32_t(tile.kv.begin + n * i / count),
                             int32_t(tile.kv.begin + n * (i + 1) / count), count > 1 ? int32_t(first) : -1, int32_t(count),
                             int32_t(i), 0 });
    }
  }

  const cgr__plan_class &c_;
  const PlanBatch &batch_;
  const Words &seq_lens_;
  int64_t cost_ = 0, per_part_ = 1, snap_ = 0, queue_kv_ = 0, decode_parts_ = 0;
  int32_t num_emptied_ = 0;
  Words decodes_;
  std::vector<int64_t> num_kv_;       // of the decode section's requests
  std::vector<cgr__plan_point> cuts_; // [G + 1]
  std::vector<cgr__plan_part> parts_; // [G]
  std::vector<PrefillTile> tiles_;    // of the prefill queue
  std::vector<cgr__plan_entry> entries_;
};

} // namespace cgr_test
