// The engine's creation and destruction, and its memory.
#include "tests/support/engine.h"

#include <cstring>

namespace cgr_test {

namespace {

EngineOptions Complete(EngineOptions o) {
  if (o.device.IsCuda() && o.feed == Feed::kTokens)
    o.feed = Feed::kUploads;
  for (LayerOptions &layer : o.layers)
    layer.dtype = layer.dtype == 0 ? o.dtype : layer.dtype;
  bool each_once = o.calls.empty();
  for (size_t l = 0; l < o.layers.size() && each_once; l++)
    o.calls.push_back({ int32_t(l), 0 });
  return o;
}

void OnViolation(void *, const char *message) { ADD_FAILURE() << "violation: " << message; }

} // namespace

Engine::Engine(const EngineOptions &options) : caches(Complete(options)), o(Complete(options)) { Make(); }

// -------------------------------------------------------------------------------------------------------------------- making

void Engine::MakeDevice() {
  dev = o.handle;
  cgr_device_config config = o.device.config;
  if (o.validation && !o.device.HasCudaKernels()) {
    config.layer = cgr_validation_layer();
    config.on_violation = OnViolation;
  }
  if (dev == nullptr)
    CGR_ASSERT_OK(cgr_device_open(o.device.name.c_str(), &config, &dev));
  CGR_ASSERT_OK(cgr_stream_create(dev, &stream));
}

void Engine::Make() {
  ASSERT_LE(o.layers.size(), size_t(kMaxLayers));
  ASSERT_LE(o.calls.size(), size_t(kMaxCalls));
  ASSERT_NO_FATAL_FAILURE(MakeDevice());
  caches.Place(Alloc(caches.bytes()));
  Write(caches.memory(), caches.image().data(), caches.bytes());
  for (int32_t page = 2; page < o.num_pages; page++)
    free_.push_back(page);
  std::mt19937 random(7);
  std::shuffle(free_.begin(), free_.end(), random);
  if (o.engine_table)
    MakeTable();
  for (const LayerOptions &layer : o.layers) {
    slopes_.push_back(Floats(layer.kind.alibi_slopes));
    sinks_.push_back(Floats(layer.kind.sinks));
  }
  cgr_config config = Config();
  CGR_ASSERT_OK(cgr_runtime_create(&config, &rt));
  MakeState();
}

// NULL for none.
const float *Engine::Floats(const std::vector<float> &values) {
  if (values.empty())
    return nullptr;
  float *there = static_cast<float *>(Alloc(values.size() * sizeof(float)));
  Write(there, values.data(), values.size() * sizeof(float));
  return there;
}

// Entries that were not set hold no valid page, so that reading one is noticed.
void Engine::MakeTable() {
  size_t stride = size_t(TableStride());
  std::vector<int32_t> empty(size_t(o.max_rows + 1) * stride, INT32_MAX);
  std::fill(empty.end() - int64_t(stride), empty.end(), 0);
  table = static_cast<int32_t *>(Alloc(empty.size() * 4));
  Write(table, empty.data(), empty.size() * 4);
}

cgr_config Engine::Config() {
  group_ = CGR_GROUP_INIT;
  group_.page_size = o.page_size;
  group_.num_pages = o.num_pages;
  group_.page_table = table;
  group_.page_table_stride = table != nullptr ? TableStride() : 0;
  layers_.assign(o.layers.size(), CGR_LAYER_INIT);
  for (size_t l = 0; l < o.layers.size(); l++) {
    layers_[l].num_q_heads = o.layers[l].num_q_heads;
    layers_[l].num_kv_heads = o.layers[l].num_kv_heads;
    layers_[l].head_dim = o.layers[l].head_dim;
    layers_[l].kv_source = o.layers[l].kv_source;
    layers_[l].scale = o.layers[l].scale;
    SetKind(&layers_[l], o.layers[l].kind);
    layers_[l].head_dim_v = o.layers[l].kind.head_dim_v;
    layers_[l].alibi_slopes = slopes_[l];
    layers_[l].sinks = sinks_[l];
    if (o.layers[l].kv_source != 0)
      continue;
    layers_[l].k = caches.View(int32_t(l), kK);
    layers_[l].v = caches.View(int32_t(l), kV);
  }
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = dev;
  config.groups = &group_;
  config.num_groups = 1;
  config.layers = layers_.data();
  config.num_layers = int32_t(layers_.size());
  config.max_requests = o.max_requests;
  config.max_rows = o.max_rows;
  config.max_tokens = o.max_tokens;
  config.max_seq_len = o.max_seq_len;
  config.graph_mode = o.mode;
  config.decode_buckets = o.buckets.data();
  config.num_decode_buckets = int32_t(o.buckets.size());
  config.mixed_buckets = o.mixed.data();
  config.num_mixed_buckets = int32_t(o.mixed.size());
  if (o.adjust)
    o.adjust(&config);
  return config;
}

// A view of [max_tokens, heads, dim] with the strides of the options, and the bytes that it spans.
cgr_view Engine::ActivationView(int32_t heads, int32_t dim, int32_t dtype, size_t *bytes) {
  int64_t tokens = o.max_tokens, gap = o.token_gap;
  cgr_view view = { nullptr, dtype, 0, heads * dim + gap, dim };
  if (o.heads_first)
    view.stride_token = dim + gap, view.stride_head = tokens * (dim + gap);
  int64_t elements = o.heads_first ? heads * view.stride_head : tokens * view.stride_token;
  *bytes = size_t(elements) * cgr_dtype_size(cgr_dtype(dtype));
  return view;
}

void Engine::MakeLayer(size_t l) {
  const LayerOptions &options = o.layers[l];
  RecordLayer &layer = state.layer[l];
  layer.heads[kQ] = options.num_q_heads;
  layer.heads[kK] = layer.heads[kV] = options.num_kv_heads;
  layer.dim[kQ] = layer.dim[kK] = options.head_dim;
  layer.dim[kV] = options.head_dim_v();
  layer.dtype = options.dtype;
  layer.values = options.same_inputs_as >= 0 ? options.same_inputs_as : int32_t(l);
  for (Tensor which : kTensors) {
    layer.in[which] = ActivationView(layer.heads[which], layer.dim[which], layer.dtype, &layer.in_bytes[which]);
    layer.in[which].data = Alloc(layer.in_bytes[which], o.feed == Feed::kNodes);
    CGR_ASSERT_OK(cgr_fill(dev, layer.in[which].data, 0xff, layer.in_bytes[which], stream));
  }
}

void Engine::MakeCall(size_t c) {
  RecordCall &call = state.call[c];
  const RecordLayer &layer = state.layer[o.calls[c].layer];
  cgr_attention &a = call.attention;
  a = CGR_ATTENTION_INIT;
  a.layer = o.calls[c].layer;
  a.flags = o.calls[c].flags;
  a.q = layer.in[kQ];
  if (!(a.flags & CGR_ATTENTION_NO_APPEND) && o.layers[size_t(a.layer)].kv_source == 0) {
    a.k = layer.in[kK];
    a.v = layer.in[kV];
  }
  a.out = a.q;
  if (!o.in_place) {
    a.out = ActivationView(layer.heads[kQ], layer.dim[kV], layer.dtype, &call.out_bytes);
    a.out.data = Alloc(call.out_bytes, o.feed == Feed::kNodes);
    CGR_ASSERT_OK(cgr_fill(dev, a.out.data, 0xff, call.out_bytes, stream));
  }
  if (!o.lse)
    return;
  a.lse = { nullptr, CGR_DTYPE_FP32, 0, layer.heads[kQ] + o.lse_gap, 1 };
  call.lse_bytes = size_t(o.max_tokens) * size_t(a.lse.stride_token) * 4;
  a.lse.data = Alloc(call.lse_bytes, o.feed == Feed::kNodes);
  CGR_ASSERT_OK(cgr_fill(dev, a.lse.data, 0xff, call.lse_bytes, stream));
}

void Engine::MakeState() {
  state.magic = kRecordMagic;
  state.feed = o.feed;
  state.num_layers = int32_t(o.layers.size());
  state.num_calls = int32_t(o.calls.size());
  state.max_tokens = o.max_tokens;
  state.fail_after = -1;
  state.fail_status = CGR_ERROR_CALLBACK;
  state.device = dev;
  state.recording = &recording;
  state.hook = &hook;
  state.records = &records;
  for (size_t l = 0; l < o.layers.size(); l++)
    MakeLayer(l);
  for (size_t c = 0; c < o.calls.size(); c++)
    MakeCall(c);
  check_call.assign(o.calls.size(), true);
  state.input_ids = static_cast<const int32_t *>(View(CGR_BUFFER_INPUT_IDS).data);
  state.positions = static_cast<const int32_t *>(View(CGR_BUFFER_POSITIONS).data);
  state.logits_indices = static_cast<const int32_t *>(View(CGR_BUFFER_LOGITS_INDICES).data);
  state.next_tokens = static_cast<int32_t *>(View(CGR_BUFFER_NEXT_TOKENS).data);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < o.max_requests; i++)
    tokens.push_back(kFixedToken + i);
  int32_t *on_device = static_cast<int32_t *>(Alloc(tokens.size() * 4));
  Write(on_device, tokens.data(), tokens.size() * 4);
  state.token_table = on_device;
}

// ----------------------------------------------------------------------------------------------------------------------- end

Engine::~Engine() {
  bool whole = rt != nullptr && !dead && !leave_in_flight && !::testing::Test::HasFailure();
  if (whole) {
    CheckAll();
    WaitForAll();
    CheckRows();
    if (!forgot_)
      CheckCaches();
    EXPECT_EQ(Stats().guard_errors, guard_errors);
  }
  Destroy();
}

// Streams are destroyed before memory: work of refused steps that is still on them uses it.
void Engine::Destroy() {
  CGR_EXPECT_OK(cgr_runtime_destroy(rt));
  for (cudaStream_t made : { stream, side })
    if (made != nullptr)
      CGR_EXPECT_OK(cgr_stream_destroy(dev, made));
  if (fork != nullptr)
    CGR_EXPECT_OK(cgr_event_destroy(dev, fork));
  for (const auto &[memory, pinned] : memory_)
    CGR_EXPECT_OK(pinned ? cgr_memory_free_pinned(dev, memory) : cgr_memory_free(dev, memory));
  CGR_EXPECT_OK(cgr_device_close(dev));
}

// -------------------------------------------------------------------------------------------------------------------- memory

void *Engine::Alloc(size_t bytes, bool pinned) {
  void *memory = nullptr;
  CGR_EXPECT_OK(pinned ? cgr_memory_alloc_pinned(dev, bytes, &memory) : cgr_memory_alloc(dev, bytes, &memory));
  memory_.push_back({ memory, pinned });
  return memory;
}

void Engine::Sync() { CGR_EXPECT_OK(cgr_stream_synchronize(dev, stream)); }

void Engine::Write(void *to, const void *from, size_t bytes) {
  CGR_EXPECT_OK(cgr_copy(dev, to, from, bytes, stream));
  Sync();
}

void Engine::ReadBytes(const void *from, void *to, size_t bytes) {
  if (bytes == 0)
    return;
  CGR_EXPECT_OK(cgr_copy(dev, to, from, bytes, stream));
  Sync();
}

cgr_buffer_view Engine::View(cgr_buffer buffer) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_EXPECT_OK(cgr_buffer_get(rt, nullptr, buffer, 0, &view));
  return view;
}

std::vector<int64_t> Engine::Buffer(cgr_buffer buffer) {
  cgr_buffer_view view = View(buffer);
  size_t count = size_t((view.shape[0] - 1) * view.stride + view.shape[1]);
  std::vector<int64_t> wide, all;
  if (view.dtype == CGR_DTYPE_I64) {
    wide = Read<int64_t>(view.data, count);
  } else {
    std::vector<int32_t> narrow = Read<int32_t>(view.data, count);
    wide.assign(narrow.begin(), narrow.end());
  }
  for (int64_t row = 0; row < view.shape[0]; row++)
    all.insert(all.end(), wide.begin() + row * view.stride, wide.begin() + row * view.stride + view.shape[1]);
  return all;
}

void Engine::CheckCaches() {
  std::vector<unsigned char> got = ReadCaches();
  int64_t at = caches.FindDifference(got);
  EXPECT_EQ(at, -1) << "byte " << at << " of the caches is " << (at < 0 ? 0 : int(got[size_t(at)])) << ", expected "
                    << (at < 0 ? 0 : int(caches.image()[size_t(at)]));
}

} // namespace cgr_test
