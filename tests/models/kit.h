// What small models are built from: weights by formula, activations, groups of pages and layers, a runtime over them, and the
// operations of a step. Uses only the public headers, as an engine does.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "tests/models/expected.h"
#include "tests/models/operations.h"
#include "tests/models/weights.h"
#include "tests/support/devices.h"

namespace cgr_test {
namespace models {

enum { kMaxRequests = 4, kMaxTokens = 80, kMaxSeqLen = 80 };

// The variant word of steps with an encoder's tokens, which are those of length set 1.
constexpr uint32_t kEncoder = 1;

// Where a model runs, and how.
struct Setting {
  DeviceParam device;
  cgr_dtype dtype;
  cgr_graph_mode mode;
  std::function<void(cgr_layer *)> plant; // a mistake in every layer; empty: none
};

struct Group {
  int32_t page_size, window; // keys that its layers see; 0: all
  int32_t length_set, num_pages;
};

struct Pair {
  RowTensor weight, bias;
};

class Pass;

// A model makes a kit's weights, groups and layers when it is constructed, and enqueues its steps.
class Model {
public:
  virtual ~Model() = default;
  virtual void Forward(Pass &pass) const = 0;

  RowTensor result = {}; // fp32, a row per token
};

class Kit {
public:
  using Maker = std::function<std::unique_ptr<Model>(Kit &)>;

  Kit(const Setting &setting, const Expected &expected, const Maker &make);
  ~Kit();
  Kit(const Kit &) = delete;
  Kit &operator=(const Kit &) = delete;

  // For makers of models.
  RowTensor Weight(const std::string &name, int32_t rows, int32_t width, Range range) const;
  RowTensor Matrix(const std::string &name, int32_t out, int32_t in) const {
    return Weight(name, out, in, { 0.0f, ScaleOf(in) });
  }
  // Of a linear layer, and of a norm: `name`.weight and `name`.bias.
  Pair Linear(const std::string &name, int32_t out, int32_t in) const;
  Pair Norm(const std::string &name, int32_t width) const;
  RowTensor Activation(int32_t width) const { return Activation(width, setting.dtype); }
  RowTensor Activation(int32_t width, cgr_dtype dtype) const;
  void Activations(int32_t width, const std::vector<RowTensor *> &made) const {
    for (RowTensor *x : made)
      *x = Activation(width);
  }
  float *Floats(const std::vector<float> &values) const;
  int32_t AddGroup(int32_t page_size, int32_t window, int32_t length_set = 0);
  // With its own cache, unless it has none. Its views may tell a dtype, and factors if it has 8 bits; those of tokens (a token
  // stride of 1) are the kit's.
  int32_t AddLayer(cgr_layer layer);
  bool HasEncoder() const; // next to a decoder
  const cgr_layer &Layer(int32_t layer) const { return layers_.at(size_t(layer)); }

  // Rows [0, count) of the model's result.
  std::vector<std::vector<float>> Result(int32_t count) const;
  void PoisonResult() const;
  // Fills a page that may no longer be read with NaN.
  void PoisonPage(int32_t group, int32_t page) const;
  // Steps of one kind so far.
  uint64_t Steps(cgr_graph_kind kind) const;

  const Setting setting;
  const Expected &expected;
  const bool on_cuda;
  cgr_device *device = nullptr;
  cudaStream_t stream = nullptr;
  cgr_runtime *runtime = nullptr;
  std::vector<Group> groups;

private:
  static cgr_status Record(cgr_recorder *recorder, void *kit);
  void OpenDevice();
  void MakeRuntime();
  void *Alloc(size_t bytes) const;
  void MakeCache(const Group &group, int32_t heads, int32_t dim, cgr_kv_layout layout, cgr_kv_view *view) const;
  // Of memory that the stream has written.
  void Copy(void *to, const void *from, size_t bytes) const;

  mutable std::vector<void *> memory_;
  std::vector<cgr_layer> layers_;
  std::unique_ptr<Model> model_;
};

// One call to `record`: enqueues until something fails.
class Pass {
public:
  Pass(Kit &kit, cgr_recorder *recorder);

  void Embed(RowTensor out, RowTensor table, float scale, RowTensor positions = {}, int32_t offset = 0, RowTensor row = {});
  void Linear(RowTensor out, RowTensor in, RowTensor weight) { Linear(out, in, { weight, {} }, {}); }
  void Linear(RowTensor out, RowTensor in, const Pair &pair, RowTensor residual = {});
  // Of a weight [in][out].
  void LinearTransposed(RowTensor out, RowTensor in, const Pair &pair);
  void LayerNorm(RowTensor out, RowTensor in, const Pair &pair, float eps);
  void RmsNorm(RowTensor out, RowTensor in, RowTensor weight, float centre, float eps, RowTensor residual = {});
  // Of each head.
  void RmsNormOfHeads(RowTensor out, RowTensor in, int32_t heads, RowTensor weight, float eps);
  void Rope(RowTensor inout, int32_t heads, const float *angles);
  void Activate(Kind kind, RowTensor out, RowTensor in, RowTensor second = {}, float scale = 0.0f);
  void ClampedGlu(RowTensor out, RowTensor in, float alpha, float limit);
  void Softmax(RowTensor out, RowTensor in);
  // inout += weights[column] * in.
  void Mix(RowTensor inout, RowTensor in, RowTensor weights, int32_t column);
  void Attend(int32_t layer, RowTensor q, RowTensor k, RowTensor v, RowTensor out, uint32_t flags = 0);
  // Of q, k and v of each head in turn.
  void AttendPacked(int32_t layer, RowTensor qkv, RowTensor out);

  // Of a step with the tokens of an encoder.
  bool Encodes() const { return info.key.variant == kEncoder; }

  cgr_status status = CGR_OK;
  cgr_record_info info = CGR_RECORD_INFO_INIT;

private:
  static Operation Make(Kind kind, RowTensor out, RowTensor in);
  // `heads`: rows of the operation per token.
  void Run(Operation operation, int32_t heads = 1);
  cgr_view View(RowTensor tensor, int32_t heads);

  Kit &kit_;
  cgr_recorder *recorder_;
  const int32_t *ids_, *positions_;
};

} // namespace models
} // namespace cgr_test
