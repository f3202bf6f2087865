// Plans equal those that FlashInfer's own planners wrote: plan_info and workspace sizes number for number, the int workspace at
// every word that they wrote; other words are 0. The records are older than 0.7.1: its plans are made of them.
// CGR_FLASHINFER_PLANS=<file> in the environment names other records, in the same format (tests/data/flashinfer_convert.py).
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/support/expect.h"
#include "tests/support/flashinfer_case.h"

namespace cgr_test {
namespace {

constexpr int64_t kUnwritten = INT64_MIN;

std::vector<int64_t> Numbers(const std::string &text) {
  std::vector<int64_t> numbers;
  std::istringstream in(text);
  for (std::string item; in >> item;) {
    size_t mark = item.find_first_of("*+");
    int64_t value = item[0] == 'x' ? kUnwritten : std::stoll(item), count = 1, step = 0;
    if (mark != std::string::npos) {
      count = std::stoll(item.substr(mark + 1));
      step = item[mark] == '+';
    }
    for (int64_t i = 0; i < count; i++)
      numbers.push_back(value + i * step);
  }
  return numbers;
}

struct Record {
  FlashInferCase input;
  bool refused;
  std::vector<int64_t> info, sizes, words;
};

// The numbers of flashinfer_convert.py's DECODE and PREFILL.
void ReadInput(const std::vector<int64_t> &n, FlashInferCase &c) {
  std::vector<int32_t> v(n.begin(), n.end());
  if (c.decode) {
    const std::vector<int32_t *> fields = { &c.d.num_requests,
                                            &c.d.num_q_heads,
                                            &c.d.num_kv_heads,
                                            &c.d.head_dim,
                                            &c.d.page_size,
                                            &c.d.num_multiprocessors,
                                            &c.d.blocks_per_multiprocessor,
                                            &c.d.graph };
    ASSERT_EQ(v.size(), fields.size());
    for (size_t i = 0; i < v.size(); i++)
      *fields[i] = v[i];
    return;
  }
  cgr_flashinfer_prefill_input &p = c.p;
  const std::vector<int32_t *> fields = { &p.num_requests,     &p.total_num_rows,      &p.num_q_heads,
                                          &p.num_kv_heads,     &p.head_dim_qk,         &p.head_dim_vo,
                                          &p.page_size,        &p.kv_dtype_bytes,      &p.window,
                                          &p.fixed_split_size, &p.disable_split_kv,    &p.num_colocated_ctas,
                                          &p.uniform_q_len,    &p.num_multiprocessors, &p.graph };
  ASSERT_EQ(v.size(), fields.size());
  for (size_t i = 0; i < v.size(); i++)
    *fields[i] = v[i];
  p.window += 1; // window_left -1: none
  p.fixed_split_size = std::max(p.fixed_split_size, 0);
}

Record ReadRecord(const std::string &line) {
  Record r;
  std::vector<std::string> parts(1);
  for (char ch : line) {
    if (ch == ';')
      parts.emplace_back();
    else
      parts.back() += ch;
  }
  size_t space = parts[0].find(' ');
  r.input.decode = parts[0].substr(0, space) == "decode";
  ReadInput(Numbers(parts[0].substr(space)), r.input);
  auto words = [&](size_t i) {
    std::vector<int64_t> numbers = Numbers(parts[i]);
    return std::vector<int32_t>(numbers.begin(), numbers.end());
  };
  r.input.qo = words(1);
  r.input.kv = words(2);
  r.input.Bind();
  r.refused = parts.size() == 3;
  if (!r.refused) {
    r.info = Numbers(parts[3]);
    r.sizes = Numbers(parts[4]);
    r.words = Numbers(parts[5]);
  }
  return r;
}

// What 0.7.1 makes of the same call: a mask with a graph and not without one, and partials of rows that are not multiplied by the
// query heads of a KV head.
Record Since071(Record r) {
  const cgr_flashinfer_prefill_input &p = r.input.p;
  r.input.p.layout = CGR_FLASHINFER_V0_7_1;
  if (r.refused)
    return r;
  const bool graph = r.info[13] != 0, split = r.info[14] != 0;
  const int64_t tiles = r.info[0], q_per_kv = p.num_q_heads / p.num_kv_heads,
                rows = (tiles * r.info[3] + q_per_kv - 1) / q_per_kv;
  if (split && !graph) { // the mask was the last array
    r.sizes[0] = r.info[7] + 4 * (r.info[1] + 1);
    r.words.resize(size_t(r.sizes[0] / 4));
    r.info[12] = 0;
  }
  if (split) {
    r.info[11] = (4 * p.num_q_heads * rows * p.head_dim_vo + 15) / 16 * 16;
    r.sizes[1] = r.info[11] + 4 * p.num_q_heads * rows;
  }
  if (graph && !split) {
    const auto first = r.words.begin() + r.info[4] / 4; // of request_indices, of which the real tiles were written
    const int64_t real = std::find(first, first + tiles, kUnwritten) - first;
    while (r.words.size() % 4 != 0)
      r.words.push_back(kUnwritten);
    r.info[12] = int64_t(4 * r.words.size());
    r.sizes[0] = r.info[12] + tiles;
    for (int64_t tile = 0; tile < tiles; tile += 4) {
      uint32_t word = 0;
      for (int64_t k = tile; k < std::min(tile + 4, real); k++)
        word |= 1u << 8 * (k - tile);
      r.words.push_back(int32_t(word));
    }
  }
  return r;
}

void ExpectWords(const Record &r, FlashInferWorkspace &workspace) {
  ASSERT_EQ(r.words.size(), (workspace.size() + 3) / 4);
  for (size_t i = 0; i < r.words.size(); i++) {
    uint32_t expected = r.words[i] == kUnwritten ? 0 : uint32_t(int32_t(r.words[i])), got = 0;
    size_t bytes = std::min<size_t>(4, workspace.size() - 4 * i);
    std::memcpy(&got, workspace.data() + 4 * i, bytes);
    if (bytes < 4)
      expected &= (1u << 8 * bytes) - 1;
    ASSERT_EQ(got, expected) << "word " << i;
  }
  EXPECT_TRUE(workspace.EndIsUntouched());
}

void ExpectRecord(const Record &r) {
  cgr_flashinfer_plan plan = CGR_FLASHINFER_PLAN_INIT, built = CGR_FLASHINFER_PLAN_INIT;
  cgr_status sized = r.input.Size(&plan);
  if (r.refused) {
    FlashInferWorkspace workspace(size_t(plan.int_bytes));
    ExpectMessage(r.input.Build(workspace.data(), workspace.size(), nullptr), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_flashinfer_prefill_build: fixed_split_size cuts these lengths into more tiles than the graph has" });
    return;
  }
  ASSERT_EQ(sized, CGR_OK) << cgr_last_message();
  EXPECT_EQ(std::vector<int64_t>(plan.info, plan.info + plan.num_info), r.info);
  ASSERT_EQ(int64_t(plan.int_bytes), r.sizes[0]);
  EXPECT_EQ(int64_t(plan.float_bytes), r.sizes[1]);
  FlashInferWorkspace workspace(size_t(plan.int_bytes));
  CGR_ASSERT_OK(r.input.Build(workspace.data(), workspace.size(), &built));
  EXPECT_EQ(std::memcmp(&plan, &built, sizeof plan), 0);
  ExpectWords(r, workspace);
}

TEST(FlashInferGolden, EqualsWhatFlashInferWrote) {
  const char *other = std::getenv("CGR_FLASHINFER_PLANS");
  std::ifstream in(other != nullptr ? other : "tests/data/flashinfer.txt");
  ASSERT_TRUE(in.good());
  int line_number = 0, plans[2] = { 0, 0 }, refused = 0;
  for (std::string line; std::getline(in, line);) {
    line_number++;
    if (line.empty() || line[0] == '#')
      continue;
    SCOPED_TRACE("line " + std::to_string(line_number));
    Record r = ReadRecord(line);
    ExpectRecord(r);
    if (!r.input.decode)
      ExpectRecord(Since071(r));
    ASSERT_FALSE(HasFailure());
    plans[r.input.decode]++;
    refused += r.refused;
  }
  std::cout << plans[1] << " of decode, " << plans[0] << " of prefill, " << refused << " of them refused\n";
  EXPECT_GE(plans[0], 30);
  EXPECT_GE(plans[1], 30);
}

} // namespace
} // namespace cgr_test
