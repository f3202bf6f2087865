// An engine whose own kernels work row by row: each layer's q, k and v come from the output of the layer before, the next token
// from the last layer. So a request's bits in a step depend only on its own tokens, if the attention's bits do. Two groups of
// pages, of 16 and 64 tokens. Nothing is compared with an oracle: of a request the engine knows only its pages.
#pragma once

#include "tests/support/engine.h"
#include "tests/support/row_kernels.h"
#include "tests/support/seed.h"

namespace cgr_test {

namespace rows {

enum { kMaxRequests = 12, kMaxRows = 16, kNumGroups = 2 };
const int32_t kPageSizes[kNumGroups] = { 16, 64 };

struct LayerSpec {
  int32_t group, q_heads, kv_heads, dim, dtype;
};

// What a device can do in a few seconds.
struct Model {
  std::vector<LayerSpec> layers;
  int32_t max_tokens, max_seq_len;
};
Model ModelFor(const DeviceParam &device);
// For tests of many steps in which only the shape of a model counts: on the host shorter.
Model SmallModelFor(const DeviceParam &device);

struct Options {
  cgr_graph_mode mode = CGR_MODE_FULL_DECODE_ONLY;
  bool batch_invariant = true;
  int32_t num_parts = 0;                    // the device's
  std::vector<cgr_bucket> mixed;            // empty: the default ones
  std::function<void(cgr_config *)> adjust; // the last word
  Model model = {};                         // without layers: the device's
  size_t pinned_bytes = 0;                  // as in EngineOptions
  bool engine_tables = false;               // the page tables are the engine's own
};

// What a step gave a request: the bytes of out and lse of each layer at its tokens, and the token; -1: none.
struct Answer {
  std::vector<std::vector<unsigned char>> out, lse;
  int32_t token = -1;
};

// "" or where the first difference is.
std::string DifferenceOf(const Answer &got, const Answer &expected);

// Every step is waited for.
class RowEngine : public Engine {
public:
  RowEngine(const DeviceParam &device, uint64_t seed, const Options &options);

  // The answers in the order of the items; none after a failure. `standing`: the standing batch, which must be these items.
  std::vector<Answer> Run(const std::vector<Item> &items, bool standing = false);
  cgr_status Prepare(const std::vector<Item> &items, bool standing, cgr_step *prepared);
  // All pages of all layers, until the next call.
  const std::vector<unsigned char> &ReadPages();
  // Pages that no row has, of every group, one group after another.
  std::vector<int32_t> FreePages(int32_t count);
  // The last layer's k and out, dense rows of a token each.
  RowTensor LastKeys() const { return In(model.layers.size() - 1, kK); }
  RowTensor LastOut() const { return Out(model.layers.size() - 1); }
  cgr_layer ConfigLayer(size_t l) { return Config().layers[l]; }
  // What the engine has on its device, with sizes in bytes.
  std::vector<std::pair<void *, size_t>> Memory() const;
  cgr_status Capture(uint32_t flags = 0);
  // Steps of one kind and reason so far.
  uint64_t Steps(cgr_graph_kind kind, cgr_reason reason);

  const Model model;
  // Called in `record` before the sampler is enqueued.
  std::function<cgr_status(cgr_recorder *, const cgr_record_info &)> hook;

private:
  static cgr_status Record(cgr_recorder *recorder, void *engine);
  RowTensor In(size_t l, Tensor which) const;
  RowTensor Out(size_t l) const;
  // Bytes of a row of a layer's out or lse.
  size_t OutBytes(size_t l) const;
  size_t LseBytes(size_t l) const { return size_t(model.layers[l].q_heads) * 4; }
  void Poison(int32_t num_tokens);
  Answer AnswerOf(size_t first, size_t count);

  std::vector<unsigned char> pages_; // kept: making room for them took longer than reading them
};

} // namespace rows
} // namespace cgr_test
