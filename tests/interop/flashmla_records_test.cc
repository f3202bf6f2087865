// The metadata equals, bit for bit, what FlashMLA's own kernels wrote (tests/data/flashmla.txt says which and how it was
// converted), and the number of parts is the one that its API chose. CGR_FLASHMLA_RECORDS names another file of the same format.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/expect.h"
#include "tests/support/flashmla_case.h"
#include "tests/support/poisoned.h"

namespace cgr_test {
namespace {

std::vector<int32_t> ReadList(std::istream &in) {
  size_t count = 0;
  in >> count;
  std::vector<int32_t> list(count);
  for (int32_t &value : list)
    in >> value;
  return list;
}

void CheckRecord(const std::string &line) {
  std::istringstream in(line);
  FlashmlaBatch b;
  int32_t number = 0, parts = 0;
  in >> b.input.layout >> number >> b.input.num_multiprocessors >> parts >> b.input.num_requests >> b.input.query_len >>
      b.input.num_q_heads >> b.input.num_kv_heads >> b.input.block_size >> b.input.fixed_overhead >> b.input.topk >>
      b.input.extra_topk;
  b.input.compute_capability = 90;
  b.seq_lens = ReadList(in);
  b.topk_lens = ReadList(in);
  b.extra_topk_lens = ReadList(in);
  std::vector<int32_t> expected = ReadList(in), splits = ReadList(in);
  ASSERT_FALSE(in.fail()) << "a line breaks off";
  expected.insert(expected.end(), splits.begin(), splits.end());
  b.Bind();
  SCOPED_TRACE("layout " + std::to_string(b.input.layout) + " case " + std::to_string(number));

  for (int32_t given : { 0, parts }) {
    int32_t on_demand = -1;
    size_t bytes = 0;
    b.input.num_parts = given;
    CGR_ASSERT_OK(cgr_flashmla_size(&b.input, &on_demand, &bytes));
    ASSERT_EQ(on_demand, parts);
    ASSERT_EQ(bytes, expected.size() * sizeof(int32_t));
    Poisoned<32> memory(bytes);
    CGR_ASSERT_OK(cgr_flashmla_build(&b.input, memory.data(), bytes));
    ASSERT_EQ(memory.Get(), expected);
  }
  ASSERT_EQ(FlashmlaWords(b, parts), expected) << "the tests' own planner";
}

TEST(FlashmlaGolden, EveryRecordIsEqualWordForWord) {
  const char *other = std::getenv("CGR_FLASHMLA_RECORDS");
  std::ifstream file(other != nullptr ? other : "tests/data/flashmla.txt");
  ASSERT_TRUE(file.good());
  int records[2] = { 0, 0 };
  for (std::string line; std::getline(file, line) && !HasFatalFailure();) {
    if (line.empty() || line[0] == '#')
      continue;
    records[line[0] == '1']++;
    CheckRecord(line);
  }
  EXPECT_GE(records[0], 10);
  EXPECT_GE(records[1], 10);
  RecordProperty("current", records[0]);
  RecordProperty("v1", records[1]);
}

} // namespace
} // namespace cgr_test
