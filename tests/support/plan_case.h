// Random classes and batches for the attention plan, the plan in memory, and which KV tiles a q tile sees according to the text
// of planners/attention/plan_class.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "planners/attention/plan.h"
#include "planners/attention/plan_host.h"
#include "tests/support/cover.h"
#include "tests/support/seed.h"

namespace cgr_test {

struct PlanCase {
  cgr__plan_class c = {};
  std::vector<int32_t> query_lens, seq_lens;

  size_t num_requests() const { return query_lens.size(); }
  // Keys of a request: with CGR__SEES_STEP only its new tokens.
  int32_t NumKeys(size_t i) const { return c.sees == CGR__SEES_STEP ? std::min(query_lens[i], seq_lens[i]) : seq_lens[i]; }
  // New tokens to work on: none if a guard has emptied the request, or if another sequence does not exist yet.
  int32_t LiveLen(size_t i) const {
    const int32_t least = c.sees == CGR__SEES_OTHER ? 1 : query_lens[i];
    return seq_lens[i] < least ? 0 : query_lens[i];
  }
  bool IsDecode(size_t i) const { return LiveLen(i) > 0 && LiveLen(i) <= c.decode_query_len; }
  bool IsPrefill(size_t i) const { return LiveLen(i) > c.decode_query_len; }
  // New tokens of a q tile, and tokens of a KV tile.
  int32_t TileQ(size_t i) const { return IsDecode(i) ? LiveLen(i) : c.prefill_tile_q; }
  int32_t TileKv(size_t i) const { return IsDecode(i) ? c.decode_tile_kv : c.prefill_tile_kv; }
  std::string Text() const;
};

inline std::string PlanCase::Text() const {
  std::string text =
      "parts " + std::to_string(c.num_parts) + ", head blocks " + std::to_string(c.head_blocks) + ", decode section " +
      std::to_string(c.decode_query_len) + " x " + std::to_string(c.decode_tile_kv) + ", cost " + std::to_string(c.cost_tile) +
      " + n " + std::to_string(c.cost_kv) + ", snap " + std::to_string(c.snap) + ", prefill queue " +
      std::to_string(c.prefill_tile_q) + " x " + std::to_string(c.prefill_tile_kv) + ", keys " + std::to_string(c.sees) +
      ", chunk " + std::to_string(c.chunk) + ", window " + std::to_string(c.window_left) + " " + std::to_string(c.window_right) +
      ", bidirectional " + std::to_string(c.bidirectional) + ", splits " + std::to_string(c.max_splits) + ", query/seq";
  for (size_t i = 0; i < std::min<size_t>(num_requests(), 100); i++)
    text += " " + std::to_string(query_lens[i]) + "/" + std::to_string(seq_lens[i]);
  return text;
}

// Whether the query at a position sees a token of its sequence; every query sees all tokens of another sequence.
inline bool Sees(const cgr__plan_class &c, int64_t position, int64_t token) {
  if (c.sees == CGR__SEES_OTHER)
    return true;
  if (c.chunk > 0 && token / c.chunk < position / c.chunk)
    return false;
  if (c.window_left > 0 && token < position + 1 - c.window_left)
    return false;
  if (!c.bidirectional)
    return token <= position;
  return c.window_right == 0 || token < position + 1 + c.window_right;
}

// KV tiles [begin, end) with a token that one of the queries [first, first + count) of request i sees, token by token.
inline cgr__plan_range SeenTiles(const PlanCase &given, size_t i, int32_t first, int32_t count) {
  int32_t seq_len = given.NumKeys(i), context = seq_len - given.query_lens[i];
  auto is_seen = [&](int32_t token) {
    for (int32_t q = first; q < first + count; q++)
      if (Sees(given.c, context + q, token))
        return true;
    return false;
  };
  int32_t low = 0, high = seq_len - 1;
  while (low < high && !is_seen(low))
    low++;
  while (high > low && !is_seen(high))
    high--;
  return { low / given.TileKv(i), high / given.TileKv(i) + 1 };
}

// The q tiles of request i for one head block.
inline std::vector<cgr__plan_range> TilesOf(const PlanCase &given, size_t i) {
  std::vector<cgr__plan_range> tiles;
  for (int32_t q = 0; q < given.LiveLen(i); q += given.TileQ(i))
    tiles.push_back(SeenTiles(given, i, q, std::min(given.TileQ(i), given.LiveLen(i) - q)));
  return tiles;
}

// Room in the class for this batch, and `more` besides.
inline void MakeRoom(PlanCase *given, int32_t more) {
  int32_t tokens = 0;
  for (int32_t length : given->query_lens)
    tokens += length;
  given->c.max_requests = static_cast<int32_t>(given->num_requests()) + more;
  given->c.max_entries = static_cast<int32_t>(cgr__plan_max_entries(&given->c, given->c.max_requests, tokens + more));
}

// A plan in poisoned memory, with a guard behind the plan and another behind the scratch.
class Planned {
public:
  explicit Planned(const PlanCase &given, unsigned char poison = 0x5a) : given_(given), poison_(poison) {
    size_t scratch_bytes = cgr__plan_scratch_bytes(&given.c);
    memory_.resize(Bytes() / 16 + 1);
    std::memset(memory_.data(), poison, memory_.size() * 16);
    scratch_.assign(scratch_bytes / 8 + 2, 0x7171717171717171);
    query_start_.assign(1, 0);
    for (int32_t length : given.query_lens)
      query_start_.push_back(query_start_.back() + length);
    cgr__plan_fill(&given.c, query_start_.data(), given.seq_lens.data(), static_cast<int32_t>(given.num_requests()),
                   scratch_.data(), memory_.data());
    scratch_kept_ = true;
    for (size_t i = scratch_bytes; i < scratch_.size() * 8; i++)
      scratch_kept_ = scratch_kept_ && reinterpret_cast<const unsigned char *>(scratch_.data())[i] == 0x71;
  }
  // Where things are, according to the text of plan.h: each follows the one before, aligned to 16 bytes.
  size_t DecodesOffset() const { return Up(sizeof(cgr__plan_header) + NumParts() * sizeof(cgr__plan_part)); }
  size_t EntriesOffset() const { return Up(DecodesOffset() + static_cast<size_t>(given_.c.max_requests) * sizeof(int32_t)); }
  size_t Bytes() const { return Up(EntriesOffset() + static_cast<size_t>(given_.c.max_entries) * sizeof(cgr__plan_entry)); }
  const void *data() const { return memory_.data(); }
  const cgr__plan_header &header() const { return *static_cast<const cgr__plan_header *>(data()); }
  const cgr__plan_part &part(int32_t p) const { return reinterpret_cast<const cgr__plan_part *>(&header() + 1)[p]; }
  const int32_t *decodes() const { return reinterpret_cast<const int32_t *>(At(DecodesOffset())); }
  const cgr__plan_entry &entry(int32_t e) const { return reinterpret_cast<const cgr__plan_entry *>(At(EntriesOffset()))[e]; }
  // Who works on what; empty, with a failure, if that goes wrong.
  std::vector<cgr__cover_item> Items() const {
    int64_t most = 3 * static_cast<int64_t>(NumParts());
    for (size_t i = 0; i < given_.num_requests(); i++) {
      int64_t tiles = given_.LiveLen(i) == 0 ? 0 : (given_.LiveLen(i) + given_.TileQ(i) - 1) / given_.TileQ(i);
      most += tiles * given_.c.head_blocks * (given_.IsDecode(i) ? std::max(given_.c.max_splits, 1) : 1);
    }
    cgr__cover_batch batch = { static_cast<int32_t>(given_.num_requests()), query_start_.data(), given_.seq_lens.data() };
    std::vector<cgr__cover_item> items(static_cast<size_t>(most));
    int64_t found = cgr__cover_plan(&given_.c, data(), &batch, items.data(), most);
    EXPECT_GE(found, 0) << "more than " << most << " items, or an item outside the batch";
    items.resize(static_cast<size_t>(std::max<int64_t>(found, 0)));
    return items;
  }
  // Whether the bytes [from, to) are as they were.
  bool IsPoison(size_t from, size_t to) const {
    for (size_t i = from; i < to; i++)
      if (At(0)[i] != poison_)
        return false;
    return true;
  }
  bool KeepsWhatItMust() const {
    size_t decodes_end = DecodesOffset() + static_cast<size_t>(header().num_decodes) * sizeof(int32_t);
    size_t entries_end = EntriesOffset() + static_cast<size_t>(header().num_entries) * sizeof(cgr__plan_entry);
    return scratch_kept_ && IsPoison(decodes_end, EntriesOffset()) && IsPoison(entries_end, memory_.size() * 16);
  }

private:
  struct alignas(16) Block {
    unsigned char bytes[16];
  };
  static size_t Up(size_t bytes) { return (bytes + 15) / 16 * 16; }
  size_t NumParts() const { return static_cast<size_t>(given_.c.num_parts); }
  const unsigned char *At(size_t offset) const { return reinterpret_cast<const unsigned char *>(data()) + offset; }
  const PlanCase &given_;
  unsigned char poison_;
  bool scratch_kept_ = false;
  std::vector<Block> memory_;
  std::vector<int64_t> scratch_;
  std::vector<int32_t> query_start_;
};

inline int32_t RandomTile(Random &random) {
  static const int32_t kUsual[] = { 16, 32, 64, 128 };
  return random.OneIn(3) ? random.Pick32(1, 50) : kUsual[random.Pick(0, 3)];
}

inline cgr__plan_class RandomClass(Random &random) {
  cgr__plan_class c = {};
  c.num_parts = random.OneIn(400) ? 4096 : random.OneIn(3) ? random.Pick32(1, 12) : random.Pick32(1, 300);
  c.head_blocks = random.OneIn(2) ? random.Pick32(1, 4) : random.Pick32(1, 40);
  c.decode_query_len = random.OneIn(2) ? 1 : random.Pick32(1, 16);
  c.decode_tile_kv = RandomTile(random);
  c.prefill_tile_q = RandomTile(random);
  c.prefill_tile_kv = RandomTile(random);
  switch (random.Pick(0, 2)) { // as of a kernel, small, anything
  case 0:
    c.cost_tile = 4000, c.cost_kv = 2000, c.snap = 2000;
    break;
  case 1:
    c.cost_tile = random.Pick32(0, 10), c.cost_kv = random.Pick32(1, 7), c.snap = random.Pick32(0, 30);
    break;
  default:
    c.cost_tile = random.Pick32(0, 1 << 20), c.cost_kv = random.Pick32(1, 1 << 20), c.snap = random.Pick32(0, 1 << 20);
  }
  c.mixed_parts = random.OneIn(3) ? 0 : random.Pick32(1, c.num_parts);
  c.memory_parts = random.Pick32(0, c.num_parts);
  c.prefill_cost_tile = random.Pick32(0, 4 * std::min(c.cost_kv, 1 << 16));
  c.prefill_cost_kv = random.Pick32(0, 2 * std::min(c.cost_kv, 1 << 16));
  const int32_t keys[] = { CGR__SEES_CACHE, CGR__SEES_CACHE, CGR__SEES_STEP, CGR__SEES_OTHER };
  c.sees = keys[random.Pick(0, 3)];
  c.bidirectional = c.sees == CGR__SEES_OTHER || random.OneIn(3);
  if (c.sees != CGR__SEES_OTHER) {
    c.window_left = random.OneIn(2) ? 0 : random.OneIn(4) ? 1 : random.Pick32(1, 300);
    c.window_right = c.bidirectional && random.OneIn(2) ? random.Pick32(1, 200) : 0;
    c.chunk = !c.bidirectional && c.window_left == 0 && random.OneIn(2) ? random.Pick32(1, random.OneIn(3) ? 20 : 300) : 0;
  }
  c.max_splits = random.OneIn(2) ? 0 : random.OneIn(4) ? 1 : random.Pick32(1, 20);
  return c;
}

inline PlanCase RandomPlanCase(Random &random) {
  PlanCase given;
  given.c = RandomClass(random);
  const cgr__plan_class &c = given.c;
  int32_t style = random.Pick32(0, 4); // one token, decodes, long queries, anything, many that are empty
  int32_t n = random.OneIn(16) ? random.Pick32(0, 60) : random.Pick32(0, 8);
  for (int32_t i = 0; i < n; i++) {
    int32_t query = style == 0   ? 1
                    : style == 1 ? random.Pick32(0, c.decode_query_len)
                    : style == 2 ? random.Pick32(c.decode_query_len + 1, 130)
                    : style == 3 ? random.Pick32(0, 40)
                                 : random.Pick32(0, 1) * random.Pick32(0, 20);
    int32_t context = random.OneIn(2) ? random.Pick32(0, 500) : random.Pick32(0, 3) * c.decode_tile_kv + random.Pick32(-1, 1);
    bool is_emptied = query > 0 && random.OneIn(12);
    given.query_lens.push_back(query);
    if (c.sees == CGR__SEES_OTHER) {
      given.seq_lens.push_back(is_emptied ? 0 : std::max(context, 0));
      continue;
    }
    given.seq_lens.push_back(is_emptied ? random.Pick32(0, query - 1) : std::max(context, 0) + query);
  }
  MakeRoom(&given, random.Pick32(0, 5));
  return given;
}

// Calls check(case) for that many random cases, until one fails. A run with a case's own seed repeats it as the first case.
template <typename Check> void ForRandomPlans(int32_t count, Check check) {
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); seed++) {
    Random random(seed);
    PlanCase given = RandomPlanCase(random);
    check(given, random);
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << Repeat(seed) << ": " << given.Text();
      return;
    }
  }
}

} // namespace cgr_test
