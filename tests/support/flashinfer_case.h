// Random batches for FlashInfer's plans, and their inputs.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "cgr/cgr.h"
#include "cgr/interop/flashinfer.h"
#include "tests/support/seed.h"

namespace cgr_test {

// One plan's input with the arrays that it points to. Exactly one of the two inputs is used.
struct FlashInferCase {
  bool decode = true;
  cgr_flashinfer_decode_input d = CGR_FLASHINFER_DECODE_INPUT_INIT;
  cgr_flashinfer_prefill_input p = CGR_FLASHINFER_PREFILL_INPUT_INIT;
  std::vector<int32_t> qo, kv; // running sums; qo is empty for decode, and if every request has the same number of rows
  std::vector<int32_t> live;   // one number, or empty

  int32_t num_requests() const { return decode ? d.num_requests : p.num_requests; }
  int32_t page_size() const { return decode ? d.page_size : p.page_size; }
  bool graph() const { return (decode ? d.graph : p.graph) != 0; }
  int32_t num_live() const { return live.empty() ? num_requests() : std::max(0, std::min(live[0], num_requests())); }
  int32_t Rows(int32_t i) const {
    if (decode)
      return 1;
    if (qo.empty())
      return std::max(1, p.uniform_q_len);
    return i < num_live() ? qo[size_t(i) + 1] - qo[size_t(i)] : 0;
  }
  int32_t Pages(int32_t i) const { return i < num_live() ? kv[size_t(i) + 1] - kv[size_t(i)] : 0; }

  // Points the input at the vectors, which may have moved.
  void Bind() {
    const int32_t *qo_there = qo.empty() ? nullptr : qo.data(), *live_there = live.empty() ? nullptr : live.data();
    d.kv_indptr = p.kv_indptr = kv.data();
    p.qo_indptr = qo_there;
    d.live_requests = p.live_requests = live_there;
  }
  cgr_status Size(cgr_flashinfer_plan *plan) const {
    return decode ? cgr_flashinfer_decode_size(&d, plan) : cgr_flashinfer_prefill_size(&p, plan);
  }
  cgr_status Build(void *workspace, size_t bytes, cgr_flashinfer_plan *plan) const {
    return decode ? cgr_flashinfer_decode_build(&d, workspace, bytes, plan)
                  : cgr_flashinfer_prefill_build(&p, workspace, bytes, plan);
  }
  cgr_status Enqueue(cgr_device *device, void *workspace, size_t bytes, cudaStream_t stream) const {
    return decode ? cgr_flashinfer_decode_enqueue(device, &d, workspace, bytes, stream)
                  : cgr_flashinfer_prefill_enqueue(device, &p, workspace, bytes, stream);
  }
};

// Aligned memory for a plan, full of poison.
class FlashInferWorkspace {
public:
  explicit FlashInferWorkspace(size_t bytes, unsigned char poison = 0xA5) : words_(bytes / 16 + 2), bytes_(bytes) {
    std::memset(words_.data(), poison, words_.size() * sizeof(Word));
  }
  unsigned char *data() { return reinterpret_cast<unsigned char *>(words_.data()); }
  size_t size() const { return bytes_; }
  std::vector<unsigned char> Get() { return { data(), data() + bytes_ }; }
  // Nothing past the plan was written.
  bool EndIsUntouched(unsigned char poison = 0xA5) {
    return std::all_of(data() + bytes_, data() + words_.size() * sizeof(Word), [&](unsigned char b) { return b == poison; });
  }

private:
  struct alignas(16) Word {
    unsigned char bytes[16];
  };
  std::vector<Word> words_;
  size_t bytes_;
};

// Lengths: 0 and 1, at borders of chunks and tiles, equal, very different.
inline int32_t RandomLength(Random &random, int32_t style, int32_t longest, int32_t unit) {
  switch (style) {
  case 0:
    return longest;
  case 1:
    return random.OneIn(2) ? 0 : random.Pick32(0, longest);
  case 2:
    return std::max(0, unit * random.Pick32(0, 4) + random.Pick32(-1, 1));
  case 3:
    return random.OneIn(8) ? longest : random.Pick32(0, 2);
  case 4:
    return 1;
  default:
    return random.Pick32(0, longest);
  }
}

inline void FillLengths(Random &random, FlashInferCase &c, int32_t requests, bool uniform) {
  int32_t kv_style = random.Pick32(0, 5), q_style = random.Pick32(0, 5), longest = random.OneIn(4) ? 8000 : random.Pick32(1, 300);
  int32_t longest_q = random.OneIn(3) && requests < 60 ? 700 : 9;
  c.kv = { random.OneIn(2) ? 0 : random.Pick32(1, 1000) };
  c.qo.clear();
  if (!c.decode)
    c.qo = { 0 };
  for (int32_t i = 0; i < requests; i++) {
    c.kv.push_back(c.kv.back() + RandomLength(random, kv_style, longest, 8));
    int32_t rows = uniform ? (random.OneIn(4) ? 0 : c.p.uniform_q_len) : RandomLength(random, q_style, longest_q, 16);
    if (!c.decode)
      c.qo.push_back(c.qo.back() + rows);
  }
  if (random.OneIn(3))
    c.live = { random.Pick32(-1, requests + 1) };
}

inline int32_t RandomRequests(Random &random) {
  return random.OneIn(40) ? random.Pick32(1, 4096) : random.OneIn(8) ? random.Pick32(1, 1100) : random.Pick32(1, 40);
}

inline FlashInferCase RandomDecode(Random &random, bool graph) {
  FlashInferCase c;
  c.d.num_requests = RandomRequests(random);
  c.d.num_kv_heads = 1 << random.Pick(0, 4);
  c.d.num_q_heads = c.d.num_kv_heads * random.Pick32(1, 9);
  c.d.head_dim = 64 * random.Pick32(1, 4);
  c.d.page_size = random.OneIn(2) ? 16 : 1 << random.Pick(0, 9);
  c.d.num_multiprocessors = random.OneIn(3) ? random.Pick32(1, 200) : 132;
  c.d.blocks_per_multiprocessor = random.Pick32(1, 9);
  c.d.graph = graph;
  FillLengths(random, c, c.d.num_requests, false);
  c.Bind();
  return c;
}

inline FlashInferCase RandomPrefill(Random &random, bool graph) {
  FlashInferCase c;
  c.decode = false;
  cgr_flashinfer_prefill_input &p = c.p;
  p.num_requests = RandomRequests(random);
  p.num_kv_heads = 1 << random.Pick(0, 4);
  p.num_q_heads = p.num_kv_heads * random.Pick32(1, 9);
  p.head_dim_vo = random.OneIn(3) ? 64 * random.Pick32(1, 9) : 128;
  p.head_dim_qk = random.OneIn(4) ? 64 * random.Pick32(1, 9) : p.head_dim_vo;
  p.page_size = random.OneIn(2) ? 16 : 1 << random.Pick(0, 9);
  p.kv_dtype_bytes = random.Pick32(0, 2);
  p.num_multiprocessors = random.OneIn(3) ? random.Pick32(1, 200) : 132;
  p.compute_capability = random.OneIn(4) ? 75 : 0;
  p.shared_memory = random.OneIn(4) ? 101376 : 0;
  p.num_colocated_ctas = random.OneIn(4) ? random.Pick32(0, 300) : 0;
  p.window = random.OneIn(3) ? random.Pick32(1, 3000) : 0;
  p.graph = graph;
  p.disable_split_kv = random.OneIn(6);
  p.fixed_split_size = random.OneIn(4) ? random.Pick32(1, random.OneIn(2) ? 40 : 4000) : 0;
  p.force_split_kv = random.OneIn(2);
  p.layout = random.Pick32(0, 1);
  p.unmasked = (p.window == 0 || p.disable_split_kv) && random.OneIn(2);
  bool uniform = graph && random.OneIn(5);
  if (uniform)
    p.uniform_q_len = random.Pick32(1, 40);
  FillLengths(random, c, p.num_requests, uniform);
  p.total_num_rows = std::max(c.qo.back() + (random.OneIn(2) ? 0 : random.Pick32(0, 300)), p.num_requests - 1);
  if (random.OneIn(6)) { // as decode with tensor cores
    c.qo.clear();
    p.total_num_rows = p.num_requests * std::max(1, p.uniform_q_len);
  }
  c.Bind();
  return c;
}

} // namespace cgr_test
