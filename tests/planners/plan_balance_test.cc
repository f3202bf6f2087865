// Classes like those of real kernels keep the device busy: when there is work for all parts, nearly all have some, and empty
// requests change nothing.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/plan_case.h"

namespace {

using namespace cgr_test;

constexpr int32_t kParts[] = { 132 * 2, 108 * 1, 148 * 2 }; // an H200, an A100 and a B200 with one or two CTAs to an SM
constexpr int32_t kHeadBlocks[] = { 1, 5, 8, 10, 36 };

// The costs of the mma kernels in kernels/registry.c.
PlanCase Real(int32_t num_parts, int32_t head_blocks) {
  PlanCase given;
  given.c.num_parts = num_parts;
  given.c.head_blocks = head_blocks;
  given.c.decode_query_len = 8;
  given.c.decode_tile_kv = given.c.prefill_tile_kv = 64;
  given.c.prefill_tile_q = 128;
  given.c.cost_tile = given.c.cost_kv = 2000;
  given.c.snap = 4000;
  return given;
}

int32_t KvTiles(const PlanCase &given, size_t i) { return (given.seq_lens[i] + 63) / 64; }

int64_t DecodeTiles(const PlanCase &given) {
  int64_t sum = 0;
  for (size_t i = 0; i < given.num_requests(); i++)
    sum += given.IsDecode(i) ? static_cast<int64_t>(KvTiles(given, i)) * given.c.head_blocks : 0;
  return sum;
}

int32_t BusyParts(const PlanCase &given) {
  std::vector<bool> is_busy(static_cast<size_t>(given.c.num_parts), false);
  for (const cgr__cover_item &found : Planned(given).Items())
    if (found.part >= 0)
      is_busy[static_cast<size_t>(found.part)] = true;
  return static_cast<int32_t>(std::count(is_busy.begin(), is_busy.end(), true));
}

void ExpectBusy(PlanCase given) {
  MakeRoom(&given, 0);
  ASSERT_GE(DecodeTiles(given), 4 * static_cast<int64_t>(given.c.num_parts));
  ASSERT_GE(BusyParts(given) * 100, 95 * given.c.num_parts) << given.Text();
}

// Just enough work, in tiles of one length each.
TEST(PlanBalance, NearlyAllPartsWorkOnTilesOfOneLength) {
  for (int32_t parts : kParts) {
    for (int32_t head_blocks : kHeadBlocks) {
      for (int32_t n : { 1, 2, 3, 4, 5, 7, 16, 17, 63, 200, 1000 }) {
        PlanCase given = Real(parts, head_blocks);
        do {
          given.query_lens.push_back(1);
          given.seq_lens.push_back(64 * n);
        } while (DecodeTiles(given) < 4 * static_cast<int64_t>(parts));
        ExpectBusy(given);
      }
      PlanCase one = Real(parts, head_blocks); // a single request
      one.query_lens = { 1 };
      one.seq_lens = { 64 * ((4 * parts + head_blocks - 1) / head_blocks) };
      ExpectBusy(one);
    }
  }
}

TEST(PlanBalance, NearlyAllPartsWorkOnRandomBatches) {
  SeededRandom random;
  for (int round = 0; round < 1500; round++) {
    PlanCase given = Real(kParts[random.Pick(0, 2)], kHeadBlocks[random.Pick(0, 4)]);
    int32_t longest = random.OneIn(2) ? 300 : random.OneIn(2) ? 5000 : 100000;
    do {
      given.query_lens.push_back(random.OneIn(8) ? 0 : random.Pick32(1, 8));
      given.seq_lens.push_back(given.query_lens.back() + random.Pick32(0, random.OneIn(4) ? 20 : longest));
    } while (DecodeTiles(given) < 4 * static_cast<int64_t>(given.c.num_parts));
    ExpectBusy(given);
    ASSERT_FALSE(HasFailure());
  }
}

// One request of 2^20 tokens keeps all parts busy.
TEST(PlanBalance, OneLongRequestIsSpread) {
  for (int32_t parts : kParts) {
    for (int32_t head_blocks : kHeadBlocks) {
      PlanCase given = Real(parts, head_blocks);
      given.query_lens = { 1 };
      given.seq_lens = { 1 << 20 };
      ExpectBusy(given);
    }
  }
}

// What a plan says besides the numbers of requests.
void ExpectSameParts(const PlanCase &crowd, const PlanCase &alone, int32_t live, int32_t emptied) {
  Planned one(crowd), other(alone);
  cgr__plan_header header = one.header();
  ASSERT_EQ(header.num_emptied, emptied);
  header.num_emptied = 0;
  ASSERT_EQ(std::memcmp(&header, &other.header(), sizeof header), 0);
  for (int32_t p = 0; p < alone.c.num_parts; p++) {
    cgr__plan_part part = one.part(p);
    ASSERT_EQ(part.request, other.part(p).request < 0 ? -1 : live);
    part.request = other.part(p).request;
    ASSERT_EQ(std::memcmp(&part, &other.part(p), sizeof part), 0) << "part " << p;
  }
  for (int32_t e = 0; e < header.num_entries; e++) {
    cgr__plan_entry entry = one.entry(e);
    ASSERT_EQ(entry.request, live);
    entry.request = 0;
    ASSERT_EQ(std::memcmp(&entry, &other.entry(e), sizeof entry), 0) << "entry " << e;
  }
}

TEST(PlanBalance, EmptyRequestsChangeNothing) {
  for (int32_t parts : kParts) {
    for (int32_t head_blocks : kHeadBlocks) {
      for (int32_t live : { 0, 1, 2047, 4095 }) {
        for (bool is_long : { false, true }) {    // in the decode section, in the prefill queue
          for (bool is_empty : { true, false }) { // without new tokens, emptied by a guard
            PlanCase alone = Real(parts, head_blocks);
            alone.query_lens = { is_long ? 300 : 1 };
            alone.seq_lens = { 9000 };
            PlanCase crowd = Real(parts, head_blocks);
            crowd.query_lens.assign(4096, is_empty ? 0 : 1);
            crowd.seq_lens.assign(4096, is_empty ? 777 : 0);
            crowd.query_lens[static_cast<size_t>(live)] = alone.query_lens[0];
            crowd.seq_lens[static_cast<size_t>(live)] = 9000;
            MakeRoom(&alone, 0);
            MakeRoom(&crowd, 0);
            ExpectSameParts(crowd, alone, live, is_empty ? 0 : 4095);
            ASSERT_FALSE(HasFailure()) << alone.Text() << " is request " << live;
          }
        }
      }
    }
  }
}

} // namespace
