// Batches for FlashAttention-3's scheduler metadata: random ones, and those of the records in tests/data/fa3.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cgr/interop/fa3.h"
#include "tests/support/seed.h"

namespace cgr_test {

struct Fa3Case {
  cgr_fa3_input input = CGR_FA3_INPUT_INIT;
  std::vector<int32_t> starts{ 0 }, lens;
  int32_t live = 0; // the word that input.live_requests points to, if it does

  Fa3Case() = default;
  Fa3Case(const Fa3Case &) = delete; // `input` points into it
  void Add(int32_t query_len, int32_t seq_len) {
    starts.push_back(starts.back() + query_len);
    lens.push_back(seq_len);
  }
  // Padding up to `requests`.
  void Bind(int32_t requests = 0) {
    while (int32_t(lens.size()) < requests)
      Add(0, 0);
    input.num_requests = int32_t(lens.size());
    input.query_start_loc = starts.data();
    input.seq_lens = lens.data();
  }
  int32_t query_len(size_t i) const { return starts[i + 1] - starts[i]; }
};

// An accepted key.
inline cgr_fa3_input Fa3Key() {
  cgr_fa3_input in = CGR_FA3_INPUT_INIT;
  in.num_requests = 4;
  in.num_q_heads = 32;
  in.num_kv_heads = 8;
  in.head_dim = 128;
  in.dtype = CGR_DTYPE_BF16;
  in.page_size = 16;
  in.max_query_len = 64;
  in.max_seq_len = 8192;
  in.causal = 1;
  in.num_splits = 32;
  in.num_multiprocessors = 132;
  return in;
}

inline int32_t Fa3RandomLen(Random &random, int32_t tile, int32_t most) {
  switch (random.Pick(0, 7)) {
  case 0:
    return 0;
  case 1:
    return std::min(1, most);
  case 2: // next to a tile border
    return std::min(most, std::max(0, tile * random.Pick32(1, 4) + random.Pick32(-1, 1)));
  case 3:
    return most;
  default:
    return random.Pick32(0, random.OneIn(3) ? most : std::min(most, 3000));
  }
}

inline void Fa3RandomKey(Random &random, cgr_fa3_input &in) {
  const int32_t dims[] = { 64, 128, 128, 128, 96, 80, 192, 256 };
  in.layout = random.OneIn(2) ? CGR_FA3_UPSTREAM : CGR_FA3_VLLM;
  in.num_kv_heads = 1 << random.Pick(0, 4);
  in.num_q_heads = in.num_kv_heads * random.Pick32(1, 17);
  in.head_dim = dims[random.Pick(0, 7)];
  in.head_dim_v = in.head_dim <= 64 && random.OneIn(3) ? 128 << random.Pick(0, 2) : 0;
  in.dtype = random.OneIn(4) ? CGR_DTYPE_FP8_E4M3 : random.OneIn(2) ? CGR_DTYPE_FP16 : CGR_DTYPE_BF16;
  in.page_size = random.OneIn(4) ? 0 : 16 << random.Pick(0, 5);
  in.max_query_len = random.OneIn(2) ? 1 : random.Pick32(1, random.OneIn(2) ? 16 : 9000);
  in.max_seq_len = random.OneIn(40) ? 0 : random.Pick32(1, random.OneIn(3) ? 1 << 20 : 9000);
  in.causal = random.OneIn(2);
  auto reach = [&](int32_t most) { return random.OneIn(6) ? INT32_MAX - random.Pick32(0, 600) : random.Pick32(1, most); };
  in.window_left = random.OneIn(3) ? reach(5000) : 0;
  in.window_right = !in.causal && random.OneIn(4) ? reach(3000) : 0;
  in.attention_chunk = in.layout == CGR_FA3_UPSTREAM && random.OneIn(8) ? reach(4000) : 0;
  in.softcap = random.OneIn(5);
  in.pack_gqa = random.OneIn(2) ? 0 : random.Pick32(-1, 1);
  in.num_splits = random.OneIn(4) ? 1 : random.OneIn(3) ? 32 : random.Pick32(1, 255);
  in.num_multiprocessors = random.OneIn(2) ? 132 : random.Pick32(1, 160);
  in.num_tokens = random.Pick32(0, 4096);
  if (random.OneIn(12)) {
    in.tile_m = random.Pick32(16, 512);
    in.tile_n = random.Pick32(16, 512);
  }
}

// Live requests, then padding.
inline void Fa3RandomBatch(Random &random, int32_t live, int32_t padded, Fa3Case &c) {
  const int32_t tiles[] = { 64, 80, 96, 128, 160, 176, 192 };
  int32_t one = Fa3RandomLen(random, 128, c.input.max_seq_len);
  bool equal = random.OneIn(6), decodes = random.OneIn(3);
  for (int32_t i = 0; i < live; i++) {
    int32_t query_len = decodes ? 1 : Fa3RandomLen(random, 64, c.input.max_query_len);
    int32_t seq_len = equal ? one : Fa3RandomLen(random, tiles[random.Pick(0, 6)], c.input.max_seq_len);
    c.Add(query_len, random.OneIn(10) ? seq_len : std::max(seq_len, std::min(query_len, c.input.max_seq_len)));
  }
  c.Bind(padded);
  if (c.input.num_tokens > 0) // only the size of the partials depends on it
    c.input.num_tokens = c.starts.back() > 1 << 24 ? 0 : std::max(c.input.num_tokens, c.starts.back());
  const int32_t n = c.input.num_requests;
  c.input.max_requests = random.OneIn(2) ? 0 : random.Pick32(n, std::min(4096, n + random.Pick32(0, 300)));
}

// --------------------------------------------------------------------------------------------------------------- records

struct Fa3Record : Fa3Case {
  std::string name;
  bool undefined = false; // upstream divides by 0: splits are meaningless
  std::vector<int32_t> on_demand;
  std::vector<int32_t> words; // 0 where upstream writes nothing
};

// In the key's own terms a window of W keys is (W - 1, 0), and a right side of 0 is causal.
inline void Fa3FillRecord(std::istream &line, Fa3Record &r) {
  int32_t layout, number, fp8, left, right, pack, undefined;
  cgr_fa3_input &in = r.input;
  line >> layout >> number >> in.num_multiprocessors >> in.num_q_heads >> in.num_kv_heads >> in.head_dim >> in.head_dim_v >> fp8;
  line >> in.page_size >> in.max_query_len >> in.max_seq_len >> in.causal >> left >> right >> in.num_splits >> pack >> undefined;
  r.name = std::string(cgr_fa3_layout_name(cgr_fa3_layout(layout))) + " call " + std::to_string(number);
  r.undefined = undefined != 0;
  in.layout = layout;
  in.dtype = fp8 ? CGR_DTYPE_FP8_E4M3 : CGR_DTYPE_BF16;
  in.window_left = left + 1;
  in.causal |= right == 0;
  in.window_right = in.causal ? 0 : std::max(right, 0);
  in.pack_gqa = pack < 0 ? 0 : pack == 0 ? -1 : 1;
  std::string equals;
  line >> equals;
  for (int32_t value; line >> value;)
    r.on_demand.push_back(value);
}

// CGR_FA3_RECORDS=<file> in the environment selects another file of the same form.
inline std::vector<std::unique_ptr<Fa3Record>> Fa3Records() {
  const char *other = std::getenv("CGR_FA3_RECORDS");
  std::ifstream in(other != nullptr ? other : "tests/data/fa3.txt");
  std::vector<std::unique_ptr<Fa3Record>> records;
  std::vector<int32_t> queries;
  for (std::string text; std::getline(in, text);) {
    std::istringstream line(text);
    std::string kind;
    line >> kind;
    if (kind == "call") {
      records.push_back(std::make_unique<Fa3Record>());
      Fa3FillRecord(line, *records.back());
      queries.clear();
    }
    for (int32_t value; kind == "q" && line >> value;)
      queries.push_back(value);
    for (int32_t value; kind == "k" && line >> value;)
      records.back()->Add(queries.at(records.back()->lens.size()), value);
    for (std::string word; kind == "w" && line >> word;)
      records.back()->words.push_back(word == "." ? 0 : std::stoi(word));
    if (kind == "w")
      records.back()->Bind();
  }
  return records;
}

} // namespace cgr_test
