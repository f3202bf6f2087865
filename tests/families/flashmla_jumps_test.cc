// The parallel form of FlashMLA's plan (planners/families/flashmla_jumps.h), which is the device's, one thread after the other:
// parts begin where those of a second planner do. So what the kernel computes is tested where there is no GPU.
#include <gtest/gtest.h>

#include "planners/families/flashmla_jumps.h"
#include "tests/support/flashmla_case.h"

namespace cgr_test {
namespace {

struct Line {
  std::vector<int32_t> start{ 0 };
  std::vector<uint32_t> bits, summary;
  cgr__flashmla_line line = {};

  Line(const std::vector<int32_t> &blocks, int32_t padded, int32_t parts, int32_t overhead) {
    for (int32_t n : blocks)
      start.push_back(start.back() + n + overhead);
    line.total = start.back();
    line.start = start.data();
    line.num_live = int32_t(blocks.size());
    line.quota = std::max((line.total + parts - 1) / parts, 1);
    line.overhead = overhead;
    line.inverse = ~0u / uint32_t(line.quota);
    line.inverse_width = ~0u / uint32_t(overhead + 1);
    line.marks = cgr__flashmla_marks_for(padded);
    bits.resize(size_t(line.marks.sets) * size_t(line.marks.words));
    summary.resize(size_t(line.marks.sets) * size_t(line.marks.summary_words));
    line.bits = bits.data();
    line.summary = summary.data();
    for (int32_t i = 1; i < line.num_live && line.quota > overhead; i++)
      cgr__flashmla_mark(&line, i);
  }
};

// Where parts begin, and how many landings and rounds it took.
std::vector<std::pair<int32_t, int32_t>> Begins(const cgr__flashmla_line &line, int32_t parts) {
  const int32_t live = line.num_live;
  std::vector<cgr__flashmla_jump> jumps, twice(size_t(live) + 1), landings(size_t(parts) * 2 + 2, 0xdeadbeef);
  for (int32_t i = 0; i <= live; i++)
    jumps.push_back(cgr__flashmla_first_jump(&line, i));
  landings[0] = cgr__flashmla_pack(0, 0);
  int32_t count = 1;
  while (cgr__flashmla_jump_request(landings[size_t(count) - 1]) < live) {
    EXPECT_LE(count, parts) << "more landings than there is room for";
    for (int32_t i = 0; i < count; i++)
      landings[size_t(count + i)] = cgr__flashmla_then(landings[size_t(i)], jumps.data());
    for (int32_t i = 0; i <= live; i++)
      twice[size_t(i)] = cgr__flashmla_then(jumps[size_t(i)], jumps.data());
    jumps.swap(twice);
    count *= 2;
  }
  std::vector<std::pair<int32_t, int32_t>> begins;
  for (int32_t p = 0; p <= parts; p++) {
    cgr__flashmla_point point = { -1, -1 };
    int32_t x = cgr__flashmla_locate(&line, landings.data(), count, p, &point);
    EXPECT_EQ(x, line.start[point.request] + point.block);
    begins.push_back({ point.request, point.block });
  }
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
  const uint64_t first = Seed();
  for (uint64_t seed = first; seed < first + 30000 && !HasFailure(); seed++) {
    SCOPED_TRACE(Repeat(seed));
    Random random(seed);
    const int32_t live = random.OneIn(60)  ? random.Pick32(1, 4096)
                         : random.OneIn(3) ? random.Pick32(0, 10)
                                           : random.Pick32(0, 300);
    const int32_t padded = std::min(4096, std::max(1, live + (random.OneIn(2) ? 0 : random.Pick32(0, 300))));
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
    Line line(blocks, padded, parts, overhead);
    ASSERT_EQ(Begins(line.line, parts), Walk(blocks, parts, overhead)) << live << " requests, " << parts << " parts";
  }
}

// Every number of requests around the sizes of words and summaries.
TEST(FlashmlaJumps, EveryNumberOfRequestsAroundAWord) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  Random random(seed);
  for (int32_t live : { 0, 1, 31, 32, 33, 63, 64, 65, 1022, 1023, 1024, 1025, 1055, 1056, 2047, 2048, 2049, 4095, 4096 })
    for (int32_t padded : { live, 4096 })
      for (int32_t parts : { 1, 16, 132, 1024 })
        for (int round = 0; round < 4; round++) {
          std::vector<int32_t> blocks;
          for (int32_t i = 0; i < live; i++)
            blocks.push_back(round == 0 ? 1 : round == 1 ? 70 : random.Pick32(1, round == 2 ? 9 : 3000));
          Line line(blocks, std::max(padded, 1), parts, 5);
          ASSERT_EQ(Begins(line.line, parts), Walk(blocks, parts, 5)) << live << " requests, " << parts << " parts";
        }
}

// No more words than are taken for them, for any number of requests.
TEST(FlashmlaJumps, TheBitSetsFit) {
  for (int32_t requests = 1; requests <= 4096; requests++) {
    cgr__flashmla_marks m = cgr__flashmla_marks_for(requests);
    ASSERT_LE(m.sets * m.words, CGR__FLASHMLA_MARK_WORDS);
    ASSERT_LE(m.sets * m.summary_words, 512);
    ASSERT_GT(m.words * 32, requests);
    ASSERT_GE(m.summary_words * 32, m.words);
    ASSERT_GE(m.sets, 64);
  }
}

} // namespace
} // namespace cgr_test
