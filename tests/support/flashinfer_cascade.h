// Batches whose requests share prefixes.
#pragma once

#include <algorithm>
#include <vector>

#include "cgr/interop/flashinfer.h"
#include "tests/support/seed.h"

namespace cgr_test {

using Ints = std::vector<int32_t>;

struct Cascade {
  cgr_flashinfer_cascade c = CGR_FLASHINFER_CASCADE_INIT;
  Ints qo = { 0 }, kv = { 0 }, last, indices, start = { 0 }, prefix;
  Ints live; // one word, or none: all are live
  Ints shared_qo, shared_kv, shared_last, shared_indices, unique_kv, unique_last, unique_indices;

  void AddGroup(int32_t pages) {
    prefix.push_back(pages);
    start.push_back(start.back());
  }
  // A request of the last group: its pages are numbered so that those of the prefix are the group's.
  void Add(int32_t rows, int32_t pages, int32_t last_len) {
    for (int32_t k = 0; k < pages; k++)
      indices.push_back(k < prefix.back() ? int32_t(1000000 * prefix.size()) + k : int32_t(indices.size()));
    qo.push_back(qo.back() + rows);
    kv.push_back(kv.back() + pages);
    last.push_back(last_len);
    start.back()++;
  }
  int32_t num_live() const {
    const int32_t requests = int32_t(last.size());
    return live.empty() ? requests : std::clamp(live[0], 0, requests);
  }
  void Bind(bool with_indices = true) {
    c.num_requests = int32_t(last.size());
    c.num_groups = int32_t(prefix.size());
    c.page_size = 16;
    shared_qo.assign(start.size(), -7), shared_kv = shared_qo, shared_last.assign(prefix.size(), -7);
    unique_kv.assign(qo.size(), -7), unique_last.assign(last.size(), -7);
    shared_indices.assign(indices.size() + 1, -7), unique_indices = shared_indices;
    c.qo_indptr = qo.data(), c.kv_indptr = kv.data(), c.kv_last_page_len = last.data();
    c.group_start = start.data(), c.prefix_pages = prefix.data();
    c.live_requests = live.empty() ? nullptr : live.data();
    c.shared_qo_indptr = shared_qo.data(), c.shared_kv_indptr = shared_kv.data(), c.shared_last_page_len = shared_last.data();
    c.unique_kv_indptr = unique_kv.data(), c.unique_last_page_len = unique_last.data();
    c.kv_indices = with_indices ? indices.data() : nullptr;
    c.shared_kv_indices = with_indices ? shared_indices.data() : nullptr;
    c.unique_kv_indices = with_indices ? unique_indices.data() : nullptr;
  }
};

// Requests after the live ones; the arrays may hold anything for them. They are in the last group, or in none.
inline void Pad(Random &random, Cascade &s, int32_t count) {
  s.live = { int32_t(s.last.size()) };
  for (int32_t i = 0; i < count; i++)
    for (Ints *array : { &s.qo, &s.kv, &s.last })
      array->push_back(random.OneIn(2) ? int32_t(random.Bits()) : random.Pick32(-2, 30));
  s.start.back() += random.Pick32(0, count);
  s.Bind();
}

inline Cascade RandomCascade(Random &random) {
  Cascade s;
  int32_t groups = random.Pick32(1, 6);
  for (int32_t g = 0; g < groups; g++) {
    s.AddGroup(random.OneIn(3) ? 0 : random.Pick32(1, 40));
    for (int32_t i = random.Pick32(g == 0 ? 1 : 0, 6); i > 0; i--) {
      int32_t rows = random.Pick32(0, 20), last = random.Pick32(1, 16);
      int32_t tokens = s.prefix.back() * 16 + rows + random.Pick32(0, 100), pages = (tokens + 15) / 16;
      if (random.OneIn(6))
        s.Add(s.prefix.back() == 0 ? rows : 0, 0, 0); // padding
      else
        s.Add(rows, pages + 1, last);
    }
  }
  s.Bind();
  return s;
}

} // namespace cgr_test
