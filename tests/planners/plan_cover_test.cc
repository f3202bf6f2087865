// The native plan covers its batch: every (request, new token, token of the cache) exactly once, in balanced parts, and parts
// that share a tile agree on who they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/cover.h"
#include "planners/attention/plan.h"
#include "planners/attention/plan_host.h"
#include "tests/support/seed.h"

namespace {

struct Batch {
  std::vector<int32_t> query_lens, seq_lens;
  int32_t tile_q = 1, num_parts = 1;
};

struct Planned {
  std::vector<int64_t> memory;
  std::vector<int32_t> query_start;
  const cgr__plan_header *header() const { return reinterpret_cast<const cgr__plan_header *>(memory.data()); }
  const cgr__plan_part *parts() const { return reinterpret_cast<const cgr__plan_part *>(header() + 1); }
};

Planned Plan(const Batch &batch) {
  int32_t n = static_cast<int32_t>(batch.query_lens.size());
  Planned planned;
  planned.memory.assign((cgr__plan_bytes(batch.num_parts) + 7) / 8, 0x5a5a5a5a5a5a5a5a);
  planned.query_start.assign(1, 0);
  for (int32_t length : batch.query_lens)
    planned.query_start.push_back(planned.query_start.back() + length);
  std::vector<int64_t> prefix(static_cast<size_t>(n) + 1);
  cgr__plan_fill(planned.query_start.data(), batch.seq_lens.data(), n, batch.num_parts, batch.tile_q, prefix.data(),
                 planned.memory.data());
  return planned;
}

bool IsEmptied(const Batch &batch, size_t i) { return batch.seq_lens[i] < batch.query_lens[i]; }

int32_t CeilDiv(int32_t a, int32_t b) { return a / b + (a % b != 0); }

// KV tiles of a q tile, counted the plain way: token by token to the last query of the tile.
int32_t TilesOf(const Batch &batch, size_t i, int32_t q_tile) {
  int32_t last = std::min((q_tile + 1) * batch.tile_q, batch.query_lens[i]) - 1;
  int32_t visible = batch.seq_lens[i] - batch.query_lens[i] + last + 1;
  return CeilDiv(visible, CGR__TILE_KV);
}

void CheckCounts(const Batch &batch, const std::vector<int64_t> &offsets, const std::vector<int32_t> &counts) {
  for (size_t i = 0; i < batch.query_lens.size(); i++) {
    for (int32_t j = 0; j < batch.query_lens[i] && !IsEmptied(batch, i); j++) {
      int32_t last = std::min((j / batch.tile_q + 1) * batch.tile_q, batch.query_lens[i]);
      int32_t end = batch.seq_lens[i] - batch.query_lens[i] + last;
      for (int32_t t = 0; t < batch.seq_lens[i]; t++)
        ASSERT_EQ(counts[offsets[i] + static_cast<int64_t>(j) * batch.seq_lens[i] + t], t < end ? 1 : 0)
            << "request " << i << " query " << j << " token " << t;
    }
  }
}

void CheckHeader(const Batch &batch, const Planned &planned) {
  const cgr__plan_header *header = planned.header();
  int64_t cost = 0;
  for (size_t i = 0; i < batch.query_lens.size(); i++)
    for (int32_t t = 0; !IsEmptied(batch, i) && t < CeilDiv(batch.query_lens[i], batch.tile_q); t++)
      cost += TilesOf(batch, i, t) + CGR__TILE_COST;
  ASSERT_EQ(header->num_parts, batch.num_parts);
  ASSERT_EQ(header->tile_q, batch.tile_q);
  ASSERT_EQ(header->tile_kv, CGR__TILE_KV);
  ASSERT_EQ(header->num_requests, static_cast<int32_t>(batch.query_lens.size()));
  ASSERT_EQ(header->cost, cost);
  ASSERT_EQ(header->cost_per_part, cost == 0 ? 1 : (cost + batch.num_parts - 1) / batch.num_parts);
  for (int32_t word : header->reserved)
    ASSERT_EQ(word, 0);
}

void CheckContiguous(const Batch &batch, const Planned &planned) {
  const cgr__plan_part *parts = planned.parts();
  for (int32_t p = 0; p < batch.num_parts; p++) {
    if (p > 0) {
      ASSERT_EQ(parts[p].request, parts[p - 1].end_request) << "part " << p;
      ASSERT_EQ(parts[p].q_tile, parts[p - 1].end_q_tile) << "part " << p;
      ASSERT_EQ(parts[p].kv_begin, parts[p - 1].end_kv) << "part " << p;
    }
    for (int32_t word : parts[p].reserved)
      ASSERT_EQ(word, 0);
  }
  ASSERT_EQ(parts[0].kv_begin, 0);
  ASSERT_EQ(parts[batch.num_parts - 1].end_request, static_cast<int32_t>(batch.query_lens.size()));
  ASSERT_EQ(parts[batch.num_parts - 1].end_q_tile, 0);
  ASSERT_EQ(parts[batch.num_parts - 1].end_kv, 0);
}

// Parts that share a tile are neighbours, know of each other, and have slots of their own; the slots are two per part.
void CheckSharing(const Batch &batch, const std::vector<cgr__cover_item> &items) {
  std::map<std::pair<int32_t, int32_t>, std::vector<cgr__cover_item>> tiles;
  std::map<int32_t, int> slots;
  for (const cgr__cover_item &s : items) {
    tiles[{ s.item.request, s.item.q_tile }].push_back(s);
    if (s.item.slot < 0)
      continue;
    ASSERT_LT(s.item.slot, 2 * batch.num_parts);
    ASSERT_EQ(++slots[s.item.slot], 1) << "slot " << s.item.slot;
  }
  for (const auto &tile : tiles) {
    const std::vector<cgr__cover_item> &sharers = tile.second;
    int32_t first = sharers.front().part, last = sharers.back().part;
    ASSERT_EQ(last - first + 1, static_cast<int32_t>(sharers.size()));
    for (size_t k = 0; k < sharers.size(); k++) {
      const cgr__cover_item &s = sharers[k];
      ASSERT_EQ(s.part, first + static_cast<int32_t>(k));
      ASSERT_EQ(s.item.first, first);
      ASSERT_EQ(s.item.last, last);
      ASSERT_EQ(s.item.slot, sharers.size() == 1 ? -1 : k == 0 ? 2 * s.part + 1 : 2 * s.part);
    }
  }
}

void CheckBalance(const Batch &batch, const Planned &planned, const std::vector<cgr__cover_item> &items) {
  std::vector<int64_t> cost(batch.num_parts, 0);
  for (const cgr__cover_item &s : items)
    cost[s.part] += s.item.kv_end - s.item.kv_begin + (s.item.kv_begin == 0 ? CGR__TILE_COST : 0);
  // A part that begins within or just after a tile's fixed cost has that whole fixed cost counted here.
  for (int64_t c : cost)
    ASSERT_LE(c, planned.header()->cost_per_part + CGR__TILE_COST);
}

void Check(const Batch &batch) {
  Planned planned = Plan(batch);
  std::vector<int64_t> offsets;
  int64_t cells = 0;
  size_t tiles = 0;
  for (size_t i = 0; i < batch.query_lens.size(); i++) {
    offsets.push_back(cells);
    cells += static_cast<int64_t>(batch.query_lens[i]) * batch.seq_lens[i];
    tiles += static_cast<size_t>(batch.query_lens[i]);
  }
  std::vector<int32_t> counts(static_cast<size_t>(cells), 0);
  std::vector<cgr__cover_item> items(tiles + 2 * static_cast<size_t>(batch.num_parts) + 1);
  cgr__cover_batch cover = { static_cast<int32_t>(batch.query_lens.size()), batch.tile_q, planned.query_start.data(),
                             batch.seq_lens.data(), offsets.data() };
  int64_t found = cgr__cover_plan(planned.memory.data(), &cover, counts.data(), items.data(), static_cast<int64_t>(items.size()));
  ASSERT_GE(found, 0) << "an item lies outside the batch";
  items.resize(static_cast<size_t>(found));
  CheckHeader(batch, planned);
  CheckCounts(batch, offsets, counts);
  CheckContiguous(batch, planned);
  CheckSharing(batch, items);
  CheckBalance(batch, planned, items);
}

int32_t Pick(std::mt19937_64 &random, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(random() % static_cast<uint64_t>(high - low + 1));
}

Batch RandomBatch(uint64_t seed) {
  std::mt19937_64 random(seed);
  static const int32_t kEdges[] = { 0, 1, 63, 64, 65, 127, 128, 129 };
  Batch batch;
  int32_t n = Pick(random, 0, seed % 4 == 0 ? 60 : 8);
  int32_t style = Pick(random, 0, 3); // decode, edges, prefill chunks, anything
  for (int32_t i = 0; i < n; i++) {
    int32_t context = Pick(random, 0, 1) ? kEdges[Pick(random, 0, 7)] : Pick(random, 0, 1500);
    int32_t query = style == 0 ? 1 : style == 1 ? kEdges[Pick(random, 0, 7)] : Pick(random, 0, style == 2 ? 400 : 20);
    batch.query_lens.push_back(query);
    batch.seq_lens.push_back(query > 0 && Pick(random, 0, 15) == 0 ? 0 : context + query);
  }
  do {
    batch.tile_q = 1 << Pick(random, 0, 6);
  } while (batch.tile_q > CGR__TILE_LINES);
  batch.num_parts = Pick(random, 0, 3) == 0 ? Pick(random, 1, 4) : Pick(random, 1, 300);
  return batch;
}

std::string Describe(uint64_t seed, const Batch &batch) {
  std::string text = "seed " + std::to_string(seed) + ", tile_q " + std::to_string(batch.tile_q) + ", parts " +
                     std::to_string(batch.num_parts) + ", query/seq";
  for (size_t i = 0; i < batch.query_lens.size(); i++)
    text += " " + std::to_string(batch.query_lens[i]) + "/" + std::to_string(batch.seq_lens[i]);
  return text;
}

TEST(PlanCover, RandomBatches) {
  const uint64_t first = cgr_test::Seed();
  SCOPED_TRACE(cgr_test::Repeat(first));
  for (uint64_t seed = first; seed < first + 400; seed++) {
    Batch batch = RandomBatch(seed);
    SCOPED_TRACE(Describe(seed, batch));
    Check(batch);
    if (HasFatalFailure())
      return;
  }
}

TEST(PlanCover, EveryShortRequest) {
  for (int32_t tile_q : { 1, 4, 16, 64 }) {
    for (int32_t query : { 0, 1, 2, 63, 64, 65 }) {
      for (int32_t context : { 0, 1, 62, 63, 64, 65, 191, 192, 193 }) {
        for (int32_t parts : { 1, 2, 3, 7, 132 }) {
          Batch batch = { { query, 0, query }, { context + query, context, context + query }, tile_q, parts };
          SCOPED_TRACE(Describe(0, batch));
          Check(batch);
          if (HasFatalFailure())
            return;
        }
      }
    }
  }
}

TEST(PlanCover, NoRequests) {
  for (int32_t parts : { 1, 2, 300 }) {
    Check({ {}, {}, 1, parts });
    Check({ { 0, 0 }, { 0, 77 }, 16, parts }); // requests without new tokens
    Check({ { 5 }, { 0 }, 16, parts });        // one that a guard has emptied
  }
}

TEST(PlanCover, OneLongRequest) {
  for (int32_t parts : { 1, 2, 13, 132, 300 }) {
    Check({ { 1 }, { 100000 }, 1, parts });
    Check({ { 1, 1, 1 }, { 1, 100000, 1 }, 8, parts });
  }
}

// A plan from lengths alone equals the plan from starts.
TEST(PlanCover, BuildEqualsFill) {
  const uint64_t first = cgr_test::Seed();
  SCOPED_TRACE(cgr_test::Repeat(first));
  for (uint64_t seed = first; seed < first + 50; seed++) {
    Batch batch = RandomBatch(seed);
    SCOPED_TRACE(Describe(seed, batch));
    Planned planned = Plan(batch);
    cgr_plan_input input = CGR_PLAN_INPUT_INIT;
    input.num_requests = static_cast<int32_t>(batch.query_lens.size());
    input.query_lens = batch.query_lens.data();
    input.seq_lens = batch.seq_lens.data();
    input.num_parts = batch.num_parts;
    input.tile_q = batch.tile_q;
    std::vector<int64_t> scratch(cgr__plan_scratch_words(input.num_requests));
    std::vector<int64_t> memory(planned.memory.size(), -1);
    cgr__plan_build(&input, scratch.data(), memory.data());
    ASSERT_EQ(std::memcmp(memory.data(), planned.memory.data(), cgr__plan_bytes(batch.num_parts)), 0);
  }
}

// Lengths near the limits do not overflow.
TEST(PlanCover, LargestLengths) {
  Batch batch = { { 1, 1 << 30 }, { INT32_MAX, INT32_MAX - 64 }, 1, 4096 };
  for (int32_t tile_q : { 1, CGR__TILE_LINES }) {
    batch.tile_q = tile_q;
    Planned planned = Plan(batch);
    EXPECT_GT(planned.header()->cost, 0);
    EXPECT_GE(planned.header()->cost_per_part * batch.num_parts, planned.header()->cost);
    CheckContiguous(batch, planned);
  }
}

} // namespace
