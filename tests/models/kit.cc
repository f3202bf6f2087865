#include "tests/models/kit.h"

#include <algorithm>
#include <cmath>

#include "cgr/tracing.h"
#include "tests/emulation/device.h"
#include "tests/support/expect.h"
#include "tests/support/row_arithmetic.h"

namespace cgr_test {
namespace models {

namespace {

void OnViolation(void *, const char *message) { ADD_FAILURE() << "violation: " << message; }

// What fills elements that nothing may read: NaN, or 127 in i8, which has none.
int PoisonOf(cgr_dtype dtype) { return cgr_dtype_size(dtype) == 1 ? 0x7f : 0xff; }

} // namespace

Kit::Kit(const Setting &where, const Expected &what, const Maker &make)
    : setting(where), expected(what), on_cuda(where.device.IsCuda()) {
  OpenDevice();
  CGR_EXPECT_OK(cgr_stream_create(device, &stream));
  model_ = make(*this);
  MakeRuntime();
}

Kit::~Kit() {
  CGR_EXPECT_OK(cgr_runtime_destroy(runtime));
  CGR_EXPECT_OK(cgr_stream_destroy(device, stream));
  for (void *memory : memory_)
    CGR_EXPECT_OK(cgr_memory_free(device, memory));
  CGR_EXPECT_OK(cgr_device_close(device));
}

void Kit::OpenDevice() {
  cgr_device_config config = setting.device.config;
  if (setting.device.IsEmulated()) {
    config.layer = &cgr_emulation::kLayer;
  } else if (!on_cuda) {
    config.layer = cgr_validation_layer();
    config.on_violation = OnViolation;
  }
  CGR_EXPECT_OK(cgr_device_open(on_cuda ? setting.device.name.c_str() : "host", &config, &device));
}

// ------------------------------------------------------------------------------------------------------------------ memory

void *Kit::Alloc(size_t bytes) const {
  void *memory = nullptr;
  CGR_EXPECT_OK(cgr_memory_alloc(device, bytes, &memory));
  memory_.push_back(memory);
  return memory;
}

void Kit::Copy(void *to, const void *from, size_t bytes) const {
  CGR_EXPECT_OK(cgr_copy(device, to, from, bytes, stream));
  CGR_EXPECT_OK(cgr_stream_synchronize(device, stream));
}

RowTensor Kit::Weight(const std::string &name, int32_t rows, int32_t width, Range range) const {
  const Formula formula(name);
  const size_t count = size_t(rows) * size_t(width), element = cgr_dtype_size(setting.dtype);
  std::vector<unsigned char> bytes(count * element);
  const RowTensor here = { bytes.data(), width, setting.dtype };
  for (int32_t row = 0; row < rows; row++)
    for (int32_t e = 0; e < width; e++) {
      const float value = formula.Value(uint64_t(row) * uint64_t(width) + uint64_t(e), range.centre, range.scale);
      StoreRow(here, row, e, value);
      EXPECT_EQ(LoadRow(here, row, e), value) << name << " is rounded";
    }
  const RowTensor tensor = { Alloc(bytes.size()), width, setting.dtype };
  Copy(tensor.data, bytes.data(), bytes.size());
  return tensor;
}

Pair Kit::Linear(const std::string &name, int32_t out, int32_t in) const {
  return { Matrix(name + ".weight", out, in), Weight(name + ".bias", 1, out, kBias) };
}

Pair Kit::Norm(const std::string &name, int32_t width) const {
  return { Weight(name + ".weight", 1, width, kNorm), Weight(name + ".bias", 1, width, kBias) };
}

RowTensor Kit::Activation(int32_t width, cgr_dtype dtype) const {
  const size_t bytes = size_t(kMaxTokens) * size_t(width) * cgr_dtype_size(dtype);
  const RowTensor tensor = { Alloc(bytes), width, dtype };
  CGR_EXPECT_OK(cgr_fill(device, tensor.data, 0xff, bytes, stream));
  return tensor;
}

float *Kit::Floats(const std::vector<float> &values) const {
  float *memory = static_cast<float *>(Alloc(values.size() * sizeof(float)));
  Copy(memory, values.data(), values.size() * sizeof(float));
  return memory;
}

int32_t Kit::AddGroup(int32_t page_size, int32_t window, int32_t length_set) {
  groups.push_back({ page_size, window, length_set, 2 + kMaxRequests * ((kMaxSeqLen + page_size - 1) / page_size) });
  return int32_t(groups.size()) - 1;
}

// NaN except in the read-trash page; 127 in i8.
void Kit::MakeCache(const Group &group, int32_t heads, int32_t dim, cgr_kv_layout layout, cgr_kv_view *view) const {
  const cgr_kv_view asked = *view;
  const cgr_dtype dtype = asked.dtype == 0 ? setting.dtype : cgr_dtype(asked.dtype);
  const size_t page = size_t(group.page_size) * size_t(heads) * size_t(dim) * cgr_dtype_size(dtype);
  void *base = Alloc(page * size_t(group.num_pages));
  CGR_EXPECT_OK(cgr_fill(device, base, PoisonOf(dtype), page * size_t(group.num_pages), stream));
  CGR_EXPECT_OK(cgr_fill(device, base, 0, page, stream));
  CGR_EXPECT_OK(cgr_kv_view_make(layout, base, dtype, group.page_size, heads, dim, view));
  view->scale = asked.scale;
  view->scale_stride_head = asked.scale_stride_head;
  view->scale_stride_d = asked.scale_stride_d;
  if (asked.scale_stride_token == 0)
    return;
  const size_t factors = size_t(heads) * size_t(group.page_size);
  view->scale_stride_page = int64_t(factors);
  view->scale_stride_head = group.page_size;
  view->scale_stride_token = 1;
  view->scale = Floats(std::vector<float>(factors * size_t(group.num_pages), std::nanf("")));
  CGR_EXPECT_OK(cgr_fill(device, view->scale, 0, factors * sizeof(float), stream));
}

int32_t Kit::AddLayer(cgr_layer layer) {
  const cgr_kv_layout layout = layers_.size() % 2 == 0 ? CGR_LAYOUT_NHD : CGR_LAYOUT_HND;
  layer.dtype = setting.dtype;
  if (!(layer.flags & CGR_LAYER_NO_CACHE))
    for (cgr_kv_view *view : { &layer.k, &layer.v })
      MakeCache(groups.at(size_t(layer.group)), layer.num_kv_heads, layer.head_dim, layout, view);
  if (setting.plant)
    setting.plant(&layer);
  layers_.push_back(layer);
  return int32_t(layers_.size()) - 1;
}

bool Kit::HasEncoder() const {
  return std::any_of(layers_.begin(), layers_.end(), [](const cgr_layer &layer) { return layer.length_set != 0; });
}

std::vector<std::vector<float>> Kit::Result(int32_t count) const {
  const int64_t width = model_->result.width;
  std::vector<float> all(static_cast<size_t>(count * width));
  Copy(all.data(), model_->result.data, all.size() * sizeof(float));
  std::vector<std::vector<float>> rows;
  for (auto row = all.begin(); row != all.end(); row += width)
    rows.emplace_back(row, row + width);
  return rows;
}

void Kit::PoisonResult() const {
  const RowTensor &result = model_->result;
  CGR_EXPECT_OK(cgr_fill(device, result.data, 0xff, size_t(kMaxTokens) * size_t(result.width) * sizeof(float), stream));
}

void Kit::PoisonPage(int32_t group, int32_t page) const {
  for (const cgr_layer &layer : layers_)
    for (const cgr_kv_view *view : { &layer.k, &layer.v }) {
      if (view->base == nullptr || layer.group != group)
        continue;
      const cgr_dtype dtype = cgr_dtype(view->dtype);
      const size_t bytes = size_t(view->stride_page) * cgr_dtype_size(dtype), factors = size_t(view->scale_stride_page);
      char *base = static_cast<char *>(view->base) + size_t(page) * bytes;
      CGR_EXPECT_OK(cgr_fill(device, base, PoisonOf(dtype), bytes, stream));
      if (factors > 0)
        CGR_EXPECT_OK(cgr_fill(device, view->scale + size_t(page) * factors, 0xff, factors * sizeof(float), stream));
    }
}

// ----------------------------------------------------------------------------------------------------------------- runtime

void Kit::MakeRuntime() {
  static const int32_t buckets[] = { 1, 2, kMaxRequests };
  static const cgr_bucket mixed[] = { { 8, kMaxRequests }, { 32, kMaxRequests }, { kMaxTokens, kMaxRequests } };
  std::vector<cgr_group> of_config;
  for (const Group &group : groups) {
    of_config.push_back(CGR_GROUP_INIT);
    of_config.back().page_size = group.page_size;
    of_config.back().num_pages = group.num_pages;
    of_config.back().length_set = group.length_set;
  }
  cgr_variant encoder = {};
  encoder.word = kEncoder;
  encoder.captured = 1;
  encoder.length_set = 1;
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = device;
  config.groups = of_config.data();
  config.num_groups = int32_t(of_config.size());
  config.layers = layers_.data();
  config.num_layers = int32_t(layers_.size());
  config.max_requests = kMaxRequests;
  config.max_tokens = kMaxTokens;
  config.max_seq_len = kMaxSeqLen;
  config.graph_mode = setting.mode;
  config.decode_buckets = buckets;
  config.num_decode_buckets = 3;
  config.mixed_buckets = mixed;
  config.num_mixed_buckets = 3;
  config.wait_timeout_ms = 300000; // emulated kernels take their time
  if (HasEncoder()) {
    config.num_length_sets = 2;
    config.variants = &encoder;
    config.num_variants = 1;
  }
  CGR_EXPECT_OK(cgr_runtime_create(&config, &runtime));
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = Record;
  capture.engine = this;
  CGR_EXPECT_OK(cgr_runtime_warmup(runtime, &capture)); // loads the engine's kernels
  CGR_EXPECT_OK(cgr_runtime_capture(runtime, &capture));
}

cgr_status Kit::Record(cgr_recorder *recorder, void *kit) {
  Kit &self = *static_cast<Kit *>(kit);
  Pass pass(self, recorder);
  self.model_->Forward(pass);
  return pass.status;
}

uint64_t Kit::Steps(cgr_graph_kind kind) const {
  const cgr_stats stats = StatsOf(runtime);
  uint64_t sum = 0;
  for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
    sum += reason == CGR_REASON_INTERNAL ? 0 : stats.by_reason[kind][reason];
  return sum;
}

} // namespace models
} // namespace cgr_test
