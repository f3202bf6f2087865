// The device's parallel form of FlashMLA's plan (interop/flashmla/jumps.h), one thread after the other: parts begin
// where those of a second planner do. This tests the kernel's arithmetic on machines without a GPU.
#include "interop/flashmla/jumps.h"
#include "tests/support/flashmla_case.h"

namespace cgr_test {
namespace {

// Where parts begin, from what each request knows once the cursor has come to it. Also asks for each pair of requests whether
// one snaps from the other; the residues must agree.
std::vector<std::pair<int32_t, int32_t>> Begins(const std::vector<int32_t> &blocks, int32_t parts, int32_t overhead) {
  const int32_t live = int32_t(blocks.size());
  int32_t total = 0, wraps = 0, num_parts = 0;
  for (int32_t n : blocks)
    total += n + overhead;
  const int32_t quota = std::max((total + parts - 1) / parts, 1);
  std::vector<std::pair<int32_t, int32_t>> begins;
  auto add = [&](int32_t request, cgr__flashmla_inside in, int32_t count) {
    EXPECT_EQ(in.part, num_parts);
    num_parts += count;
    for (int32_t k = 0; k < count; k++)
      begins.push_back({ request, in.block + k * quota });
  };
  if (quota > overhead) {
    const cgr__flashmla_circle o = cgr__flashmla_circle_for(quota, overhead);
    cgr__flashmla_place cursor = {};
    int32_t start = 0;
    for (int32_t i = 0; i < live; i++) {
      const cgr__flashmla_place place = cgr__flashmla_place_of(&o, uint32_t(start));
      EXPECT_EQ(place.turn, start / quota);
      EXPECT_EQ(place.residue, uint32_t(start % quota));
      const bool snaps = cgr__flashmla_snaps(place.angle, cursor.angle, o.reach);
      EXPECT_EQ(snaps, (int32_t(place.residue) - int32_t(cursor.residue) + quota) % quota <= overhead);
      if (snaps) {
        EXPECT_EQ(place.angle < cursor.angle, place.residue < cursor.residue);
        wraps += place.angle < cursor.angle;
        cursor = place;
      }
      const cgr__flashmla_inside in = cgr__flashmla_look(&o, place.turn, place.residue, cursor.residue, wraps);
      start += blocks[size_t(i)] + overhead;
      const cgr__flashmla_place end = cgr__flashmla_place_of(&o, uint32_t(start));
      const int32_t next = cgr__flashmla_end(&o, overhead, end.turn, end.residue, cursor.residue, wraps);
      EXPECT_EQ(next > in.part, in.block < blocks[size_t(i)]);
      add(i, in, next - in.part);
    }
  } else {
    for (int32_t i = 0; i < live; i++)
      add(i, { num_parts, 0 }, cgr__flashmla_ceil(blocks[size_t(i)], quota));
  }
  EXPECT_LE(num_parts, parts);
  while (int32_t(begins.size()) <= parts)
    begins.push_back({ live, 0 });
  return begins;
}

// One part after the other, by payload.
std::vector<std::pair<int32_t, int32_t>> Walk(const std::vector<int32_t> &blocks, int32_t parts, int32_t overhead) {
  int64_t total = 0;
  for (int32_t n : blocks)
    total += n + overhead;
  const int64_t payload = (total + parts - 1) / parts + overhead;
  int32_t request = 0, done = 0;
  std::vector<std::pair<int32_t, int32_t>> begins = { { 0, 0 } };
  for (int32_t p = 0; p < parts; p++) {
    int64_t rest = payload;
    while (request < int32_t(blocks.size()) && rest >= blocks[size_t(request)] - done + overhead) {
      rest -= blocks[size_t(request)] - done + overhead;
      request++;
      done = 0;
    }
    if (request < int32_t(blocks.size()) && rest > overhead)
      done += int32_t(rest) - overhead;
    begins.push_back({ request, done });
  }
  return begins;
}

TEST(FlashmlaJumps, PartsBeginWhereAWalkBeginsThem) {
  ForSeeds(30000, [&](Random &random) {
    const int32_t live = random.OneIn(60)  ? random.Pick32(1, 4096)
                         : random.OneIn(3) ? random.Pick32(0, 10)
                                           : random.Pick32(0, 300);
    const int32_t parts = random.OneIn(3)    ? 132
                          : random.OneIn(3)  ? random.Pick32(1, 6)
                          : random.OneIn(20) ? 1024
                                             : random.Pick32(1, 300);
    const int32_t overhead = random.OneIn(2) ? 5 : random.Pick32(1, 64);
    const int32_t longest = random.OneIn(2) ? random.Pick32(1, 8) : random.OneIn(2) ? 100 : random.Pick32(1, 20000);
    const bool equal = random.OneIn(4);
    std::vector<int32_t> blocks;
    for (int32_t i = 0; i < live; i++)
      blocks.push_back(equal ? longest : random.OneIn(4) ? 1 : random.Pick32(1, longest));
    ASSERT_EQ(Begins(blocks, parts, overhead), Walk(blocks, parts, overhead)) << live << " requests, " << parts << " parts";
  });
}

// Every number of requests around the sizes of words and summaries.
TEST(FlashmlaJumps, EveryNumberOfRequestsAroundAWord) {
  SeededRandom random;
  for (int32_t live : { 0, 1, 31, 32, 33, 63, 64, 65, 1022, 1023, 1024, 1025, 1055, 1056, 2047, 2048, 2049, 4095, 4096 })
    for (int32_t parts : { 1, 16, 132, 1024 })
      for (int round = 0; round < 4; round++) {
        std::vector<int32_t> blocks;
        for (int32_t i = 0; i < live; i++)
          blocks.push_back(round == 0 ? 1 : round == 1 ? 70 : random.Pick32(1, round == 2 ? 9 : 3000));
        ASSERT_EQ(Begins(blocks, parts, 5), Walk(blocks, parts, 5)) << live << " requests, " << parts << " parts";
      }
}

// Phases tell residues apart at both ends of the range of quotas, with an inverse that is as inexact as allowed.
TEST(FlashmlaJumps, PhasesAreExact) {
  SeededRandom random;
  for (int round = 0; round < 200000 && !HasFailure(); round++) {
    const int32_t overhead = random.Pick32(1, 64);
    const int32_t quota =
        random.OneIn(4) ? overhead + random.Pick32(1, 3) : random.Pick32(overhead + 1, random.OneIn(2) ? 3000 : 1 << 29);
    const int32_t most = int32_t(std::min<int64_t>(int64_t(quota) * 1024, 1 << 29));
    cgr__flashmla_circle o = cgr__flashmla_circle_for(quota, overhead);
    if (random.OneIn(2)) {
      uint64_t inverse = cgr__flashmla_wide_inverse(uint32_t(quota));
      inverse += inverse >> 46;
      o.high = uint32_t(inverse >> 32);
      o.low = uint32_t(inverse);
      o.reach = cgr__flashmla_angle(&o, uint32_t(overhead)) + 2;
    }
    const int32_t x = random.Pick32(0, most), away = random.OneIn(2) ? random.Pick32(0, overhead + 1) : random.Pick32(0, quota);
    const int32_t y = std::min(most, x / quota * quota + (x + away) % quota);
    const cgr__flashmla_place a = cgr__flashmla_place_of(&o, uint32_t(x)), b = cgr__flashmla_place_of(&o, uint32_t(y));
    EXPECT_EQ(a.turn, x / quota);
    EXPECT_EQ(a.residue, uint32_t(x % quota));
    EXPECT_EQ(bool(cgr__flashmla_snaps(b.angle, a.angle, o.reach)), (y % quota - x % quota + quota) % quota <= overhead)
        << "from " << x << " to " << y << ", quota " << quota << ", overhead " << overhead;
    EXPECT_EQ(b.angle < a.angle, b.residue < a.residue);
  }
}

} // namespace
} // namespace cgr_test
