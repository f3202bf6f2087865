// Random batches for FlashMLA's metadata, and the words that they must give, from a second planner. It fills one part after the
// other with a payload, block by block, as upstream does; the library's planner uses closed forms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cgr/interop/flashmla.h"
#include "tests/support/seed.h"

namespace cgr_test {

struct FlashmlaBatch {
  cgr_flashmla_input input = CGR_FLASHMLA_INPUT_INIT;
  std::vector<int32_t> seq_lens, topk_lens, extra_topk_lens; // empty: NULL
  int32_t live = -1;                                         // -1: NULL

  FlashmlaBatch() = default;
  FlashmlaBatch(const FlashmlaBatch &) = delete; // `input` points into it
  FlashmlaBatch &operator=(const FlashmlaBatch &) = delete;

  void Bind() {
    auto data = [](std::vector<int32_t> &v) { return v.empty() ? nullptr : v.data(); };
    input.seq_lens = data(seq_lens);
    input.topk_lens = data(topk_lens);
    input.extra_topk_lens = data(extra_topk_lens);
    input.live_requests = live < 0 ? nullptr : &live;
  }
  int32_t num_live() const { return live < 0 ? input.num_requests : live; }
  int32_t block_size() const { return input.block_size == 0 ? 64 : input.block_size; }
  int32_t overhead() const { return input.fixed_overhead == 0 ? 5 : input.fixed_overhead; } // of given parts
  // Tokens of a live request.
  int32_t Tokens(size_t i) const {
    if (input.topk == 0)
      return seq_lens[i];
    int32_t tokens = std::max(topk_lens.empty() ? input.topk : topk_lens[i], 1);
    if (input.extra_topk > 0) {
      tokens = (tokens + block_size() - 1) / block_size() * block_size();
      tokens += extra_topk_lens.empty() ? input.extra_topk : extra_topk_lens[i];
    }
    return tokens;
  }
};

// The metadata of `num_parts` parts. Requests that are not live have no part; otherwise upstream's rules apply.
inline std::vector<int32_t> FlashmlaWords(const FlashmlaBatch &b, int32_t num_parts) {
  const int32_t live = b.num_live(), all = b.input.num_requests, c = b.overhead();
  std::vector<int32_t> blocks, ends, words(size_t(num_parts) * 8 + size_t(all) + 1, 0);
  int64_t total = 0;
  for (int32_t i = 0; i < live; i++) {
    int32_t tokens = b.Tokens(size_t(i));
    blocks.push_back(std::max((tokens + b.block_size() - 1) / b.block_size(), 1));
    ends.push_back(tokens == 0 ? 0 : blocks.back());
    total += blocks.back() + c;
  }
  const int64_t payload = (total + num_parts - 1) / num_parts + c;
  int32_t *splits = &words[size_t(num_parts) * 8];
  int32_t request = 0, done = 0, split = 0, sum = 0;
  for (int32_t p = 0; p < num_parts; p++) {
    int32_t *w = &words[size_t(p) * 8];
    const bool idle = request == live, begins_inside = done > 0;
    const int32_t begin[3] = { idle ? all : request, idle ? (live > 0 ? blocks[0] - 1 : 0) : done, split };
    for (int64_t rest = payload; request < live;) {
      int32_t left = blocks[size_t(request)] - done;
      if (rest < left + c) {
        if (rest > c) {
          done += int32_t(rest - c);
          split++;
        }
        break;
      }
      rest -= left + c;
      sum += split + 1;
      splits[++request] = sum;
      done = split = 0;
    }
    int32_t end = idle ? all - 1 : done > 0 ? request : request - 1;
    int32_t end_block = done > 0 ? done : end < live ? ends[size_t(end)] : 0;
    int32_t first = begins_inside, last = done > 0;
    if (begin[0] == end)
      first = last = first || last;
    const int32_t current[] = { begin[0], end, begin[1], end_block, begin[2], first, last, 0 };
    const int32_t v1[] = { begin[0], begin[1], end, end_block, begin[2], 0, 0, 0 };
    std::memcpy(w, b.input.layout == CGR_FLASHMLA_V1 ? v1 : current, sizeof v1);
  }
  EXPECT_TRUE(request == live && done == 0) << "the parts are too few";
  for (int32_t i = live + 1; i <= all; i++)
    splits[i] = sum;
  return words;
}

// A batch of at most this many requests; parts are given. Now and then a batch is like a real server's, full of equal lengths, at
// block borders, or made of requests so short that only the fixed cost counts.
inline void RandomFlashmla(Random &random, int32_t most_requests, FlashmlaBatch *b) {
  cgr_flashmla_input &in = b->input;
  in = CGR_FLASHMLA_INPUT_INIT;
  in.layout = random.OneIn(2) ? CGR_FLASHMLA_CURRENT : CGR_FLASHMLA_V1;
  in.num_requests = random.OneIn(3) ? random.Pick32(1, std::min(most_requests, 12)) : random.Pick32(1, most_requests);
  in.num_parts = random.OneIn(2) ? 132 : random.OneIn(2) ? random.Pick32(1, 8) : random.Pick32(1, 200);
  in.block_size = random.OneIn(3) ? random.Pick32(1, 200) : 64;
  in.fixed_overhead = random.OneIn(3) ? random.Pick32(1, 20) : 5;
  b->seq_lens.clear();
  b->topk_lens.clear();
  b->extra_topk_lens.clear();
  b->live = random.OneIn(4) ? random.Pick32(0, in.num_requests) : -1;
  const size_t n = size_t(in.num_requests);
  const int32_t block = in.block_size, longest = random.OneIn(2) ? 6 * block : random.OneIn(2) ? 3000 : 60000;
  const int kind = int(random.Pick(0, 4));
  auto length = [&](int32_t most) {
    switch (kind) {
    case 0:
      return most;
    case 1:
      return std::min(most, std::max(0, block * random.Pick32(0, 4) + random.Pick32(-1, 1)));
    case 2:
      return random.OneIn(2) ? 0 : random.Pick32(0, most);
    case 3:
      return random.OneIn(20) ? most : random.Pick32(0, std::min(most, 2 * block));
    default:
      return random.Pick32(0, most);
    }
  };
  if (random.OneIn(4)) {
    in.topk = random.Pick32(1, 3000);
    if (in.layout == CGR_FLASHMLA_CURRENT && random.OneIn(2))
      b->topk_lens.resize(n);
    for (int32_t &len : b->topk_lens)
      len = length(in.topk);
    if (in.layout == CGR_FLASHMLA_CURRENT && random.OneIn(2)) {
      in.extra_topk = random.Pick32(1, 600);
      if (random.OneIn(2))
        b->extra_topk_lens.resize(n);
      for (int32_t &len : b->extra_topk_lens)
        len = length(in.extra_topk);
    }
  } else {
    b->seq_lens.resize(n);
    for (int32_t &len : b->seq_lens)
      len = length(longest);
  }
  b->Bind();
}

} // namespace cgr_test
