// The engine's creation and destruction, and its memory.
#include "tests/support/engine.h"

CGR_TEMPLATES_OF_ENGINES()

namespace cgr_test {

EngineOptions::EngineOptions() = default;
EngineOptions::EngineOptions(const EngineOptions &) = default;
EngineOptions::EngineOptions(EngineOptions &&) noexcept = default;
EngineOptions &EngineOptions::operator=(const EngineOptions &) = default;
EngineOptions &EngineOptions::operator=(EngineOptions &&) noexcept = default;
EngineOptions::~EngineOptions() = default;

namespace {

EngineOptions Complete(EngineOptions o) {
  if (o.device.IsCuda() && o.feed == Feed::kTokens)
    o.feed = Feed::kUploads;
  for (LayerOptions &layer : o.layers)
    layer.dtype = layer.dtype == 0 ? o.dtype : layer.dtype;
  bool any_cache = false;
  for (const LayerOptions &layer : o.layers)
    any_cache = any_cache || layer.HasCache();
  if (o.groups.empty() && any_cache)
    o.groups = { { o.page_size, o.num_pages, 0, 1, 0, o.engine_table } };
  bool each_once = o.calls.empty();
  for (size_t l = 0; l < o.layers.size() && each_once; l++)
    o.calls.push_back({ int32_t(l), 0 });
  return o;
}

// Without groups there is an empty one, for a test that asks.
std::vector<Caches> MakeCaches(const EngineOptions &o) {
  std::vector<Caches> all;
  for (size_t g = 0; g < std::max<size_t>(o.groups.size(), 1); g++)
    all.emplace_back(o, int32_t(g), g < o.groups.size() ? o.groups[g] : GroupOptions());
  return all;
}

void OnViolation(void *, const char *message) { ADD_FAILURE() << "violation: " << message; }

} // namespace

Engine::Engine(const EngineOptions &options)
    : all_caches(MakeCaches(Complete(options))), caches(all_caches.front()), o(Complete(options)) {
  Make();
}

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
  for (Caches &of : all_caches) {
    of.Place(Alloc(of.bytes()));
    Write(of.memory(), of.image().data(), of.bytes());
  }
  for (size_t g = 0; g < o.groups.size(); g++) {
    pools_.push_back(MakePool(g));
    tables.push_back(o.groups[g].engine_table ? MakeTable(g) : nullptr);
  }
  for (const LayerOptions &layer : o.layers) {
    slopes_.push_back(Floats(layer.kind.alibi_slopes));
    sinks_.push_back(Floats(layer.kind.sinks));
  }
  if (o.pinned_bytes > 0)
    rings = Alloc(o.pinned_bytes, true);
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

Engine::Pool Engine::MakePool(size_t group) const {
  const GroupOptions &of = o.groups[group];
  Pool pool;
  for (int32_t page = 0; page < of.num_pages; page++)
    if (page != of.read_trash && page != of.write_trash)
      pool.free.push_back(page);
  std::mt19937_64 random(o.seed + 7);
  std::shuffle(pool.free.begin(), pool.free.end(), random);
  return pool;
}

// Entries that were not set hold no valid page, so that reading one is noticed.
int32_t *Engine::MakeTable(size_t group) {
  size_t stride = size_t(TableStride(group));
  std::vector<int32_t> empty(size_t(o.max_rows + 1) * stride, INT32_MAX);
  std::fill(empty.end() - int64_t(stride), empty.end(), o.groups[group].read_trash);
  int32_t *table = static_cast<int32_t *>(Alloc(empty.size() * 4));
  Write(table, empty.data(), empty.size() * 4);
  return table;
}

std::vector<cgr_group> Engine::ConfigGroups() const {
  std::vector<cgr_group> groups(o.groups.size(), CGR_GROUP_INIT);
  for (size_t g = 0; g < groups.size(); g++) {
    const GroupOptions &of = o.groups[g];
    groups[g].page_size = of.page_size;
    groups[g].num_pages = of.num_pages;
    groups[g].read_trash_page = of.read_trash;
    groups[g].write_trash_page = of.write_trash;
    groups[g].length_set = of.length_set;
    groups[g].page_table = tables[g];
    groups[g].page_table_stride = tables[g] != nullptr ? TableStride(g) : 0;
  }
  return groups;
}

cgr_layer Engine::ConfigLayer(size_t l) const {
  const LayerOptions &of = o.layers[l];
  cgr_layer layer = CGR_LAYER_INIT;
  layer.group = of.group;
  layer.num_q_heads = of.num_q_heads;
  layer.num_kv_heads = of.num_kv_heads;
  layer.head_dim = of.head_dim;
  layer.kv_source = of.kv_source;
  layer.scale = of.scale;
  SetKind(&layer, of.kind);
  layer.length_set = of.SetOf();
  layer.head_dim_v = of.kind.head_dim_v;
  layer.alibi_slopes = slopes_[l];
  layer.sinks = sinks_[l];
  layer.dtype = of.HasCache() ? 0 : of.dtype;
  if (of.HasOwnCache()) {
    layer.k = all_caches[size_t(of.group)].View(int32_t(l), kK);
    layer.v = all_caches[size_t(of.group)].View(int32_t(l), kV);
  }
  return layer;
}

cgr_config Engine::Config() {
  groups_ = ConfigGroups();
  layers_.clear();
  for (size_t l = 0; l < o.layers.size(); l++)
    layers_.push_back(ConfigLayer(l));
  variants_.clear();
  for (int32_t set = 1; set < o.num_sets; set++)
    variants_.push_back({ uint32_t(set), 0, 1, set });
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = dev;
  config.groups = groups_.data();
  config.num_groups = int32_t(groups_.size());
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
  config.pinned_memory = rings;
  config.pinned_memory_size = o.pinned_bytes;
  config.num_length_sets = o.num_sets;
  config.variants = variants_.data();
  config.num_variants = int32_t(variants_.size());
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
  layer.set = options.SetOf();
  layer.has_cache = options.HasCache();
  layer.has_own_cache = options.HasOwnCache();
  layer.attends = options.attends;
  for (Tensor which : kTensors) {
    layer.in[which] = ActivationView(layer.heads[which], layer.dim[which], layer.dtype, &layer.in_bytes[which]);
    layer.in[which].data = Alloc(layer.in_bytes[which], o.feed == Feed::kNodes);
    CGR_ASSERT_OK(cgr_fill(dev, layer.in[which].data, 0xff, layer.in_bytes[which], stream));
    layer.given[which] = o.feed == Feed::kCopies ? Alloc(layer.in_bytes[which]) : nullptr;
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
  state.adjust_call = &adjust_call;
  state.num_sets = o.num_sets;
  state.max_requests = o.max_requests;
  state.samples = o.samples;
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
  for (int32_t i = 0; i < o.num_sets * o.max_requests; i++)
    tokens.push_back(kFixedToken + i);
  int32_t *on_device = static_cast<int32_t *>(Alloc(tokens.size() * 4));
  Write(on_device, tokens.data(), tokens.size() * 4);
  state.token_table = on_device;
  if (o.feed == Feed::kUploads || o.feed == Feed::kCopies)
    uploads_ = int32_t(o.seed % 1000) * 100000; // other numbers have other values
}

// ----------------------------------------------------------------------------------------------------------------------- end

Engine::~Engine() {
  bool whole = rt != nullptr && check_at_end && !dead && !leave_in_flight && !::testing::Test::HasFailure();
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
  for (const Memory &memory : memory_)
    CGR_EXPECT_OK(memory.pinned ? cgr_memory_free_pinned(dev, memory.at) : cgr_memory_free(dev, memory.at));
  CGR_EXPECT_OK(cgr_device_close(dev));
}

// -------------------------------------------------------------------------------------------------------------------- memory

void *Engine::Alloc(size_t bytes, bool pinned) {
  void *memory = nullptr;
  CGR_EXPECT_OK(pinned ? cgr_memory_alloc_pinned(dev, bytes, &memory) : cgr_memory_alloc(dev, bytes, &memory));
  memory_.push_back({ memory, bytes, pinned });
  return memory;
}

void Engine::RegisterAll() {
  int32_t region = -1;
  for (const Memory &memory : memory_)
    if (!memory.pinned)
      CGR_EXPECT_OK(cgr_region_register(rt, memory.at, memory.bytes, &region));
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

cgr_buffer_view Engine::View(cgr_buffer buffer, int32_t index) { return BufferOf(rt, buffer, index); }

std::vector<int64_t> Engine::Buffer(cgr_buffer buffer, int32_t index) {
  cgr_buffer_view view = View(buffer, index);
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
  for (Caches &of : all_caches) {
    std::vector<unsigned char> got = Read<unsigned char>(of.memory(), of.bytes());
    int64_t at = of.FindDifference(got);
    EXPECT_EQ(at, -1) << "byte " << at << " of the caches of group " << &of - all_caches.data() << " is "
                      << (at < 0 ? 0 : int(got[size_t(at)])) << ", expected " << (at < 0 ? 0 : int(of.image()[size_t(at)]));
  }
}

} // namespace cgr_test
