// A small engine whose own kernels work row by row: each layer's q, k and v come from the output of the layer before, the next
// token from the last layer. So a request's bits in a step depend only on its own tokens, if the attention's bits do. Two groups
// of pages, of 16 and 64 tokens; pages are taken at random.
#ifndef CGR_TESTS_SUPPORT_ROW_ENGINE_H
#define CGR_TESTS_SUPPORT_ROW_ENGINE_H

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/expect.h"
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
// For tests of many steps in which only the shape of a model counts: on the host a fortieth of the work.
Model SmallModelFor(const DeviceParam &device);

struct Options {
  cgr_graph_mode mode = CGR_MODE_FULL_DECODE_ONLY;
  bool batch_invariant = true;
  int32_t num_parts = 0;                    // the device's
  std::vector<cgr_bucket> mixed;            // empty: the default ones
  std::function<void(cgr_config *)> adjust; // the last word
  Model model = {};                         // without layers: the device's
  size_t pinned_bytes = 0;                  // of memory for the rings, which a test can look into; 0: the runtime's own
  bool engine_tables = false;               // the page tables are the engine's own
};

// A request's part of a batch.
struct Item {
  int32_t row;
  std::vector<int32_t> tokens;
  bool partial;
};

// What a step gave a request: the bytes of out and lse of each layer at its tokens, and the token; -1: none.
struct Answer {
  std::vector<std::vector<unsigned char>> out, lse;
  int32_t token = -1;
};

// "" or where the first difference is.
std::string DifferenceOf(const Answer &got, const Answer &expected);

// Every step is waited for.
class RowEngine {
public:
  RowEngine(const DeviceParam &device, uint64_t seed, Options options);
  ~RowEngine();
  RowEngine(const RowEngine &) = delete;
  RowEngine &operator=(const RowEngine &) = delete;

  int32_t Open();
  void Close(int32_t row);
  // Pages of both groups for `tokens` tokens.
  void Reserve(int32_t row, int32_t tokens);
  // The first pages of `row`, which has none, are those that `owner` has for `tokens` tokens.
  void Share(int32_t row, int32_t owner, int32_t tokens);
  // The answers in the order of the items; none after a failure. `standing`: the standing batch, which must be these items.
  std::vector<Answer> Run(const std::vector<Item> &items, bool standing = false);
  cgr_status Prepare(const std::vector<Item> &items, bool standing, cgr_step *step);
  // All pages of all layers.
  std::vector<unsigned char> ReadPages();
  // Pages that no row has, of every group, one group after another.
  std::vector<int32_t> FreePages(int32_t count) const;
  // The last layer's k and out, dense rows of a token each.
  const RowTensor &LastKeys() const { return layers_.back().in[1]; }
  const RowTensor &LastOut() const { return layers_.back().out; }
  const cgr_layer &ConfigLayer(size_t l) const { return config_layers_[l]; }
  // All allocations of the engine on its device, with their sizes in bytes.
  const std::vector<std::pair<void *, size_t>> &Memory() const { return memory_; }
  cgr_device *device() const { return dev_; }
  cudaStream_t stream() const { return stream_; }
  unsigned char *pinned() const { return static_cast<unsigned char *>(pinned_); }
  cgr_status Capture(uint32_t flags = 0);
  // Steps of one kind and reason so far.
  uint64_t Steps(cgr_graph_kind kind, cgr_reason reason);

  const Model model;
  cgr_runtime *rt = nullptr;
  // Called in `record` before the sampler is enqueued.
  std::function<cgr_status(cgr_recorder *, const cgr_record_info &)> hook;

private:
  struct Layer {
    RowTensor in[3], out;
    float *lse;
    cgr_attention call;
  };

  static cgr_status Record(cgr_recorder *recorder, void *engine);
  static void OnViolation(void *, const char *message) { ADD_FAILURE() << "violation: " << message; }
  void MakeLayer(size_t l);
  void MakeRuntime(Options options);
  void MakeTables(cgr_group *groups);
  void SetPages(int32_t row, int g, size_t first, const int32_t *pages, size_t count);
  void *Alloc(int64_t bytes);
  // Rows [first, first + count) of a layer's out or lse.
  std::vector<unsigned char> ReadRows(const void *data, size_t row_bytes, size_t first, size_t count);
  void Poison(int32_t num_tokens);
  size_t OutBytes(size_t l) const;
  size_t LseBytes(size_t l) const { return size_t(model.layers[l].q_heads) * 4; }

  const bool on_cuda_;
  Random random_;
  cgr_device *dev_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<cgr_layer> config_layers_;
  std::vector<std::pair<void *, size_t>> memory_;
  void *pinned_ = nullptr;
  uint64_t num_tags_ = 0;
  std::map<int32_t, uint64_t> tags_; // by row
  int32_t num_pages_[kNumGroups];
  int32_t *tables_[kNumGroups] = {}; // the engine's own, [kMaxRows + 1][TableStride]; NULL: the library's
  int64_t TableStride(int g) const { return (model.max_seq_len + kPageSizes[g] - 1) / kPageSizes[g]; }
  std::vector<int32_t> free_[kNumGroups];
  std::map<int32_t, std::vector<int32_t>> pages_[kNumGroups]; // by row
  std::map<int32_t, int32_t> shared_[kNumGroups];             // how many of them, the first, are another row's
};

} // namespace rows
} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_ROW_ENGINE_H
