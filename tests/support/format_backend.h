// A backend over each format of planners, as an engine could write it. A state for each key holds what the format says about the
// key. `plan` enqueues the format's planner, from the persistent buffers into the backend's workspace; `record` enqueues the
// kernels of format_kernels.h, which read the plan.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cgr/interop/fa3.h"
#include "cgr/interop/flashinfer.h"
#include "cgr/interop/flashmla.h"
#include "tests/support/format_kernels.h"

namespace cgr_test {

struct FormatOptions {
  std::string name; // of the backend, and of the test's case
  Format format = Format::kFa3;
  int32_t layout = 0;     // of FA3, FlashMLA or FlashInfer's prefill
  int32_t num_splits = 4; // FA3
  int32_t tile_m = 0, tile_n = 0;
  int32_t num_parts = 0; // FlashMLA
  int32_t block_size = 64;
  int32_t fixed_split_size = 0; // FlashInfer, in pages
  bool disable_split_kv = false;
  int32_t num_multiprocessors = 132;
};

class FormatBackend {
public:
  // What the layers share. `config` is the runtime's; its backends are not read.
  FormatBackend(const FormatOptions &options, const cgr_config &config, bool on_cuda);

  cgr_backend backend(); // for one runtime; lives as long as that
  // Buffers, errors and the layers, once there is a device. `words`: [3] of the device, the planner's status, errors of the
  // kernels, and how many rows they have merged.
  void Bind(const cgr_layer *layers, int32_t *words);
  cgr_graph_support support() const {
    return o_.format == Format::kFlashInferDecode ? CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE : CGR_SUPPORT_ALWAYS;
  }

  uint64_t plan_room = 0; // bytes of the workspace that a plan may take; enough for the largest key
  uint64_t most_plan_bytes = 0;
  void *workspace = nullptr;
  uint64_t workspace_bytes() const { return plan_room + partial_bytes_; }
  int32_t num_created = 0, num_plans = 0, num_recorded = 0;
  std::set<void *> states; // alive

private:
  // What the key determines.
  struct State {
    cgr_plan_key key;
    Format format; // of this key
    cgr_fa3_input fa3;
    cgr_fa3_sizes fa3_sizes;
    cgr_flashmla_input flashmla;
    int32_t num_parts;
    cgr_flashinfer_decode_input decode;
    cgr_flashinfer_prefill_input prefill;
    cgr_flashinfer_plan flashinfer;
    uint64_t plan_bytes;
    int64_t num_partials;
    int32_t num_ctas;
  };

  cgr_status MakeState(const cgr_plan_key &key, State *state) const;
  cgr_status MakeFa3(State *state) const;
  cgr_status MakeFlashMla(State *state) const;
  cgr_status MakeFlashInfer(State *state) const;
  cgr_status Plan(State *state, cgr_recorder *recorder);
  cgr_status Record(cgr_recorder *recorder, const cgr_attention *attention);
  std::vector<cgr_plan_key> Keys(const cgr_config &config) const;
  uint64_t PartialBytes(int64_t partials) const {
    return uint64_t(partials) * uint64_t(layer_.num_q_heads * (layer_.head_dim + 1)) * 8;
  }
  int32_t QueryLen(const cgr_plan_key &key) const { return key.query_len > 0 ? key.query_len : key.num_tokens; }

  const FormatOptions o_;
  const bool on_cuda_;
  cgr_layer layer_; // the heads of all
  const cgr_layer *layers_ = nullptr;
  int32_t page_size_, max_seq_len_, num_pages_, pages_each_ = 1; // as its kernels count pages
  uint64_t partial_bytes_ = 0;
  int32_t *words_ = nullptr;
};

} // namespace cgr_test
