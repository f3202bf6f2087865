// Room for a prefill queue (A6a): the decode section takes so many parts that it ends with the queue, and at most
// mixed_parts.
#include <algorithm>
#include <vector>

#include "tests/support/plan_case.h"

namespace {

using namespace cgr_test;

// One stripe of a layer with 8 KV heads of 4 query heads each, head dim 128, as on an H100.
PlanCase Stripe() {
  PlanCase given;
  given.c.num_parts = 33;
  given.c.head_blocks = 1;
  given.c.decode_query_len = 4;
  given.c.decode_tile_kv = given.c.prefill_tile_kv = 64;
  given.c.prefill_tile_q = 16;
  given.c.cost_tile = given.c.cost_kv = 2000;
  given.c.snap = 4000;
  given.c.prefill_cost_tile = 6956;
  given.c.prefill_cost_kv = 3826;
  given.c.mixed_parts = 16;
  given.c.memory_parts = 14;
  return given;
}

void Add(PlanCase *given, int32_t count, int32_t query_len, int32_t seq_len) {
  given->query_lens.insert(given->query_lens.end(), static_cast<size_t>(count), query_len);
  given->seq_lens.insert(given->seq_lens.end(), static_cast<size_t>(count), seq_len);
}

int32_t DecodeParts(PlanCase given) {
  MakeRoom(&given, 0);
  return Planned(given).header().decode_parts;
}

int32_t DecodeParts(int32_t decodes, int32_t length, int32_t chunk, int32_t context) {
  PlanCase given = Stripe();
  Add(&given, decodes, 1, length);
  Add(&given, 1, chunk, context + chunk);
  return DecodeParts(given);
}

// W = 64 (2000 + 64 * 2000) = 8,320,000; 128 q tiles of 1 to 32 KV tiles cost C = 128 * 6956 + 2112 * 3826 = 8,970,880. Both
// together are 523,967 for each of 33 parts, of which the decodes fill 15.9. The memory takes 594,285 for them and a twentieth,
// less than that and the queue's 271,844 one after the other.
TEST(PlanRoom, IsLeftAsByHand) {
  EXPECT_EQ(DecodeParts(64, 4096, 2048, 0), 16);
  EXPECT_EQ(DecodeParts(32, 8192, 512, 8192), 11);  // W 8,256,000, C = 32 * 6956 + 4240 * 3826 = 16,444,832
  EXPECT_EQ(DecodeParts(64, 4096, 128, 0), 33);     // the queue is done in no time after the decodes
  EXPECT_EQ(DecodeParts(256, 4096, 2048, 0), 16);   // 26 parts, lowered to mixed_parts
  EXPECT_EQ(DecodeParts(32, 4096, 4096, 0), 5);     // 3.6 are raised to an eighth
  EXPECT_EQ(DecodeParts(32, 32768, 512, 65536), 7); // few tiles, which are cut
  EXPECT_EQ(DecodeParts(8, 32768, 512, 32768), 33); // 3.8 are not enough for those
  EXPECT_EQ(DecodeParts(8, 4096, 4096, 4096), 33);  // 0.4 is less than a sixteenth
}

TEST(PlanRoom, NeedsAQueueAndDecodes) {
  PlanCase given = Stripe();
  Add(&given, 64, 1, 4096);
  EXPECT_EQ(DecodeParts(given), 33);
  given = Stripe();
  Add(&given, 2, 512, 4096);
  EXPECT_EQ(DecodeParts(given), 33);
  given = Stripe();
  Add(&given, 64, 1, 4096);
  Add(&given, 8, 512, 0); // emptied by a guard
  EXPECT_EQ(DecodeParts(given), 33);
}

TEST(PlanRoom, IsFixedWhereTheMemorysRateIsNotKnown) {
  for (int32_t parts : { 1, 7, 33 }) {
    PlanCase given = Stripe();
    given.c.memory_parts = 0;
    given.c.mixed_parts = parts;
    Add(&given, 64, 1, 4096);
    Add(&given, 1, 17, 17);
    EXPECT_EQ(DecodeParts(given), parts);
  }
  PlanCase given = Stripe();
  given.c.mixed_parts = 0;
  Add(&given, 64, 1, 4096);
  Add(&given, 1, 2048, 2048);
  EXPECT_EQ(DecodeParts(given), 33);
}

// The more the queue costs, the fewer parts, from where it pays to where it does not any more.
TEST(PlanRoom, GrowsWithTheQueue) {
  for (int32_t context : { 0, 1024, 8192, 32768 }) {
    int32_t least = 33, most = 0;
    for (int32_t chunk = 32; chunk <= 8192; chunk += 32) {
      int32_t parts = DecodeParts(32, 8192, chunk, context);
      if (parts == 33)
        continue;
      ASSERT_LE(parts, least) << chunk << " at " << context;
      least = std::min(least, parts);
      most = std::max(most, parts);
    }
    EXPECT_TRUE(least < 8 && most == 16) << context << ": " << least << " to " << most;
  }
}

// With 2^30 tokens in each of 4096 sequences, a chunk of 2^20 of one of them costs thirty times the decodes, one of 1024 a 33rd.
TEST(PlanRoom, LongestSequences) {
  for (int32_t chunk : { 1 << 20, 1 << 10 }) {
    PlanCase given = Stripe();
    given.c.head_blocks = 16;
    Add(&given, 4095, 1, 1 << 30);
    Add(&given, 1, chunk, 1 << 30);
    EXPECT_EQ(DecodeParts(given), 33) << chunk;
  }
}

// Parts from D on have nothing to do in the decode section, and all before it work if there is enough.
TEST(PlanRoom, PartsAfterItBeginWithTheQueue) {
  PlanCase given = Stripe();
  Add(&given, 32, 1, 8192);
  Add(&given, 1, 512, 8192 + 512);
  MakeRoom(&given, 0);
  Planned planned(given);
  std::vector<bool> works(33, false);
  for (const cgr__cover_item &found : planned.Items())
    if (found.part >= 0)
      works[static_cast<size_t>(found.part)] = true;
  EXPECT_EQ(std::count(works.begin(), works.begin() + 11, true), 11);
  EXPECT_EQ(std::count(works.begin() + 11, works.end(), true), 0);
}

} // namespace
