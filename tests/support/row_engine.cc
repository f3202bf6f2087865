#include "cgr/tracing.h"
#include "tests/support/row_engine.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {
namespace rows {

// On CUDA, with so many KV heads that a batch of long requests is more than the GPU holds at once: the way a request's work is
// split then depends on the others, unless it must not.
Model ModelFor(const DeviceParam &device) {
  if (device.IsCuda())
    return { { { 0, 8, 8, 64, CGR_DTYPE_BF16 },
               { 1, 16, 4, 128, CGR_DTYPE_BF16 },
               { 1, 10, 2, 64, CGR_DTYPE_BF16 },
               { 0, 16, 1, 128, CGR_DTYPE_BF16 } },
             2048,
             4096 };
  return { { { 0, 2, 2, 128, CGR_DTYPE_BF16 },
             { 1, 4, 1, 64, CGR_DTYPE_FP32 },
             { 1, 5, 1, 64, CGR_DTYPE_BF16 },
             { 0, 16, 1, 64, CGR_DTYPE_BF16 } },
           512,
           1344 };
}

Model SmallModelFor(const DeviceParam &device) {
  if (device.IsCuda())
    return ModelFor(device);
  return { { { 0, 2, 2, 32, CGR_DTYPE_BF16 },
             { 1, 4, 1, 16, CGR_DTYPE_FP32 },
             { 1, 5, 1, 16, CGR_DTYPE_BF16 },
             { 0, 8, 1, 16, CGR_DTYPE_BF16 } },
           256,
           672 };
}

std::string DifferenceOf(const Answer &got, const Answer &expected) {
  for (size_t l = 0; l < expected.out.size(); l++) {
    if (got.out.at(l) != expected.out[l])
      return "out of layer " + std::to_string(l);
    if (got.lse.at(l) != expected.lse[l])
      return "lse of layer " + std::to_string(l);
  }
  return got.token != expected.token ? "the token" : "";
}

RowEngine::RowEngine(const DeviceParam &device, uint64_t seed, Options options)
    : model(options.model.layers.empty() ? ModelFor(device) : options.model), on_cuda_(device.IsCuda()), random_(seed) {
  cgr_device_config config = device.config;
  if (!on_cuda_ && config.layer == nullptr) {
    config.layer = cgr_validation_layer();
    config.on_violation = OnViolation;
  }
  CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &config, &dev_));
  CGR_EXPECT_OK(cgr_stream_create(dev_, &stream_));
  for (int g = 0; g < kNumGroups; g++) {
    num_pages_[g] = 2 + kMaxRows * (model.max_seq_len + kPageSizes[g] - 1) / kPageSizes[g];
    for (int32_t page = 2; page < num_pages_[g]; page++)
      free_[g].push_back(page);
  }
  layers_.resize(model.layers.size());
  config_layers_.assign(model.layers.size(), CGR_LAYER_INIT);
  for (size_t l = 0; l < layers_.size(); l++)
    MakeLayer(l);
  MakeRuntime(options);
  CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_)); // a self-test works on a stream of its own
}

RowEngine::~RowEngine() {
  CGR_EXPECT_OK(cgr_runtime_destroy(rt));
  CGR_EXPECT_OK(cgr_stream_destroy(dev_, stream_));
  for (const auto &memory : memory_)
    CGR_EXPECT_OK(cgr_memory_free(dev_, memory.first));
  if (pinned_ != nullptr)
    CGR_EXPECT_OK(cgr_memory_free_pinned(dev_, pinned_));
  CGR_EXPECT_OK(cgr_device_close(dev_));
}

// ------------------------------------------------------------------------------------------------------------------ creation

void *RowEngine::Alloc(int64_t bytes) {
  void *memory = nullptr;
  CGR_EXPECT_OK(cgr_memory_alloc(dev_, size_t(bytes), &memory));
  memory_.push_back({ memory, size_t(bytes) });
  return memory;
}

enum { kPerLayer = 7 }; // pieces of memory: K, V; q, k, v, out, lse

// Pages are NaN but for the read-trash page.
void RowEngine::MakeLayer(size_t l) {
  const LayerSpec &s = model.layers[l];
  const cgr_dtype dtype = cgr_dtype(s.dtype);
  const int64_t element = int64_t(cgr_dtype_size(dtype)), size = kPageSizes[s.group];
  cgr_layer &layer = config_layers_[l];
  layer.group = s.group;
  layer.num_q_heads = s.q_heads;
  layer.num_kv_heads = s.kv_heads;
  layer.head_dim = s.dim;
  for (cgr_kv_view *view : { &layer.k, &layer.v }) {
    const int64_t page = size * s.kv_heads * s.dim * element;
    void *base = Alloc(page * num_pages_[s.group]);
    CGR_EXPECT_OK(cgr_fill(dev_, base, 0xff, size_t(page * num_pages_[s.group]), stream_));
    CGR_EXPECT_OK(cgr_fill(dev_, base, 0, size_t(page), stream_));
    CGR_EXPECT_OK(
        cgr_kv_view_make(l % 2 == 0 ? CGR_LAYOUT_NHD : CGR_LAYOUT_HND, base, dtype, int32_t(size), s.kv_heads, s.dim, view));
  }
  Layer &made = layers_[l];
  const int32_t heads[3] = { s.q_heads, s.kv_heads, s.kv_heads };
  for (int which = 0; which < 3; which++) {
    const int32_t width = heads[which] * s.dim;
    made.in[which] = { Alloc(int64_t(model.max_tokens) * width * element), width, s.dtype };
  }
  made.out = { Alloc(int64_t(model.max_tokens) * made.in[0].width * element), made.in[0].width, s.dtype };
  made.lse = static_cast<float *>(Alloc(int64_t(model.max_tokens) * s.q_heads * 4));
  made.call = CGR_ATTENTION_INIT;
  made.call.layer = int32_t(l);
  CGR_EXPECT_OK(cgr_view_make(made.in[0].data, dtype, s.q_heads, s.dim, &made.call.q));
  CGR_EXPECT_OK(cgr_view_make(made.in[1].data, dtype, s.kv_heads, s.dim, &made.call.k));
  CGR_EXPECT_OK(cgr_view_make(made.in[2].data, dtype, s.kv_heads, s.dim, &made.call.v));
  CGR_EXPECT_OK(cgr_view_make(made.out.data, dtype, s.q_heads, s.dim, &made.call.out));
  made.call.lse = { made.lse, CGR_DTYPE_FP32, 0, s.q_heads, 1 };
}

// The largest bucket is smaller than the largest batch of decodes, which runs eagerly.
void RowEngine::MakeRuntime(Options options) {
  static const int32_t buckets[] = { 1, 2, 4, 8 };
  cgr_group groups[kNumGroups];
  for (int g = 0; g < kNumGroups; g++) {
    groups[g] = CGR_GROUP_INIT;
    groups[g].page_size = kPageSizes[g];
    groups[g].num_pages = num_pages_[g];
  }
  if (options.engine_tables)
    MakeTables(groups);
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = dev_;
  config.groups = groups;
  config.num_groups = kNumGroups;
  config.layers = config_layers_.data();
  config.num_layers = int32_t(config_layers_.size());
  config.max_requests = kMaxRequests;
  config.max_rows = kMaxRows;
  config.max_tokens = model.max_tokens;
  config.max_seq_len = model.max_seq_len;
  config.graph_mode = options.mode;
  config.decode_buckets = buckets;
  config.num_decode_buckets = 4;
  config.num_parts = options.num_parts;
  config.mixed_buckets = options.mixed.data();
  config.num_mixed_buckets = int32_t(options.mixed.size());
  config.batch_invariant = options.batch_invariant;
  if (options.pinned_bytes > 0)
    CGR_EXPECT_OK(cgr_memory_alloc_pinned(dev_, options.pinned_bytes, &pinned_));
  config.pinned_memory = pinned_;
  config.pinned_memory_size = options.pinned_bytes;
  if (options.adjust)
    options.adjust(&config);
  CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = Record;
  capture.engine = this;
  CGR_EXPECT_OK(cgr_runtime_warmup(rt, &capture)); // loads the engine's kernels
  CGR_EXPECT_OK(cgr_runtime_capture(rt, &capture));
}

// All entries begin as the read-trash page, 0.
void RowEngine::MakeTables(cgr_group *groups) {
  for (int g = 0; g < kNumGroups; g++) {
    const size_t bytes = size_t((kMaxRows + 1) * TableStride(g)) * sizeof(int32_t);
    tables_[g] = static_cast<int32_t *>(Alloc(int64_t(bytes)));
    CGR_EXPECT_OK(cgr_fill(dev_, tables_[g], 0, bytes, stream_));
    groups[g].page_table = tables_[g];
    groups[g].page_table_stride = TableStride(g);
  }
  CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
}

void RowEngine::SetPages(int32_t row, int g, size_t first, const int32_t *pages, size_t count) {
  if (tables_[g] == nullptr) {
    CGR_EXPECT_OK(cgr_request_set_pages(rt, row, g, int32_t(first), pages, int32_t(count)));
    return;
  }
  int32_t *to = tables_[g] + row * TableStride(g) + int64_t(first);
  CGR_EXPECT_OK(cgr_copy(dev_, to, pages, count * sizeof *pages, stream_));
  CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
}

cgr_status RowEngine::Capture(uint32_t flags) {
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = Record;
  capture.engine = this;
  capture.flags = flags;
  return cgr_runtime_capture(rt, &capture);
}

std::vector<int32_t> RowEngine::FreePages(int32_t count) const {
  std::vector<int32_t> pages;
  for (const std::vector<int32_t> &of_group : free_)
    pages.insert(pages.end(), of_group.end() - count, of_group.end());
  return pages;
}

// ---------------------------------------------------------------------------------------------------------------- the model

cgr_status RowEngine::Record(cgr_recorder *recorder, void *engine) {
  const RowEngine &e = *static_cast<RowEngine *>(engine);
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
  RowInputs inputs = { buffer(CGR_BUFFER_INPUT_IDS), buffer(CGR_BUFFER_POSITIONS), {}, {}, 0, info.num_tokens };
  RowSampler sampler = { e.layers_.back().out, buffer(CGR_BUFFER_LOGITS_INDICES), buffer(CGR_BUFFER_NEXT_TOKENS),
                         info.num_requests, 0 };
  for (const Layer &layer : e.layers_) {
    for (int which = 0; which < 3; which++)
      inputs.to[which] = layer.in[which];
    if (status == CGR_OK)
      status = EnqueueInputs(e.dev_, e.on_cuda_, inputs, info.stream);
    if (status == CGR_OK)
      status = cgr_record_attention(recorder, &layer.call);
    inputs.before = layer.out;
    inputs.layer++;
  }
  if (status == CGR_OK && e.hook)
    status = e.hook(recorder, info);
  return status == CGR_OK ? EnqueueSampler(e.dev_, e.on_cuda_, sampler, info.stream) : status;
}

// ----------------------------------------------------------------------------------------------------------------- requests

int32_t RowEngine::Open() {
  int32_t row = -1;
  CGR_EXPECT_OK(cgr_request_open(rt, ++num_tags_, &row));
  tags_[row] = num_tags_;
  return row;
}

// Every step has completed: the pages may go to others at once.
void RowEngine::Close(int32_t row) {
  CGR_EXPECT_OK(cgr_request_close(rt, row));
  for (int g = 0; g < kNumGroups; g++) {
    free_[g].insert(free_[g].end(), pages_[g][row].begin() + shared_[g][row], pages_[g][row].end());
    pages_[g].erase(row);
    shared_[g].erase(row);
  }
}

void RowEngine::Reserve(int32_t row, int32_t tokens) {
  for (int g = 0; g < kNumGroups; g++) {
    std::vector<int32_t> &has = pages_[g][row];
    const size_t first = has.size();
    while (int32_t(has.size()) * kPageSizes[g] < tokens) {
      std::swap(free_[g].at(size_t(random_.Pick(0, int64_t(free_[g].size()) - 1))), free_[g].back());
      has.push_back(free_[g].back());
      free_[g].pop_back();
    }
    if (has.size() > first)
      SetPages(row, g, first, has.data() + first, has.size() - first);
  }
}

void RowEngine::Share(int32_t row, int32_t owner, int32_t tokens) {
  for (int g = 0; g < kNumGroups; g++) {
    const std::vector<int32_t> &from = pages_[g].at(owner);
    const int32_t count = (tokens + kPageSizes[g] - 1) / kPageSizes[g];
    pages_[g][row].assign(from.begin(), from.begin() + count);
    shared_[g][row] = count;
    SetPages(row, g, 0, from.data(), size_t(count));
  }
}

// -------------------------------------------------------------------------------------------------------------------- steps

size_t RowEngine::OutBytes(size_t l) const {
  return size_t(layers_[l].out.width) * cgr_dtype_size(cgr_dtype(model.layers[l].dtype));
}

cgr_status RowEngine::Prepare(const std::vector<Item> &items, bool standing, cgr_step *step) {
  std::vector<int32_t> rows, lens, tokens;
  std::vector<uint32_t> flags;
  for (const Item &item : items) {
    rows.push_back(item.row);
    lens.push_back(int32_t(item.tokens.size()));
    flags.push_back(item.partial ? CGR_REQUEST_PARTIAL : 0);
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
  }
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = int32_t(items.size());
  batch.rows = rows.data();
  batch.query_lens = lens.data();
  batch.tokens = tokens.data();
  batch.flags = flags.data();
  if (standing) {
    batch = CGR_BATCH_INIT;
    batch.num_requests = CGR_BATCH_STANDING;
  }
  return cgr_step_prepare(rt, &batch, step);
}

// The leftovers of an earlier step must not pass for an answer.
void RowEngine::Poison(int32_t num_tokens) {
  for (size_t l = 0; l < layers_.size(); l++) {
    CGR_EXPECT_OK(cgr_fill(dev_, layers_[l].out.data, 0xff, size_t(num_tokens) * OutBytes(l), stream_));
    CGR_EXPECT_OK(cgr_fill(dev_, layers_[l].lse, 0xff, size_t(num_tokens) * LseBytes(l), stream_));
  }
}

std::vector<unsigned char> RowEngine::ReadRows(const void *data, size_t row_bytes, size_t first, size_t count) {
  std::vector<unsigned char> bytes(count * row_bytes);
  const unsigned char *from = static_cast<const unsigned char *>(data) + first * row_bytes;
  if (bytes.empty())
    return bytes;
  CGR_EXPECT_OK(cgr_copy(dev_, bytes.data(), from, bytes.size(), stream_));
  return bytes;
}

std::vector<unsigned char> RowEngine::ReadPages() {
  std::vector<unsigned char> bytes;
  for (size_t l = 0; l < layers_.size(); l++)
    for (size_t view = 0; view < 2; view++) { // K and V are a layer's first memory
      const auto &memory = memory_[l * kPerLayer + view];
      const size_t at = bytes.size();
      bytes.resize(at + memory.second);
      CGR_EXPECT_OK(cgr_copy(dev_, bytes.data() + at, memory.first, memory.second, stream_));
      CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
    }
  return bytes;
}

std::vector<Answer> RowEngine::Run(const std::vector<Item> &items, bool standing) {
  std::vector<Answer> answers;
  cgr_step step = CGR_STEP_INIT;
  cgr_status status = Prepare(items, standing, &step);
  CGR_EXPECT_OK(status);
  if (status != CGR_OK)
    return answers;
  Poison(step.key.num_tokens);
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT_OK(cgr_step_launch(rt, &step, stream_));
  status = cgr_step_wait(rt, step.mark, -1, &result);
  CGR_EXPECT_OK(status);
  if (status != CGR_OK || result.num_requests != int32_t(items.size())) {
    ADD_FAILURE() << "the step has " << result.num_requests << " requests, expected " << items.size();
    return answers;
  }
  size_t first = 0;
  for (size_t i = 0; i < items.size(); i++) {
    const size_t count = items[i].tokens.size();
    Answer answer;
    for (size_t l = 0; l < layers_.size(); l++) {
      answer.out.push_back(ReadRows(layers_[l].out.data, OutBytes(l), first, count));
      answer.lse.push_back(ReadRows(layers_[l].lse, LseBytes(l), first, count));
    }
    const bool samples = !items[i].partial && count > 0;
    EXPECT_EQ(result.rows[i], items[i].row);
    EXPECT_EQ(result.tags[i], tags_.at(items[i].row));
    EXPECT_EQ(result.num_tokens[i], samples ? 1 : 0);
    answer.token = samples ? result.tokens[int64_t(i) * result.token_stride] : -1;
    answers.push_back(std::move(answer));
    first += count;
  }
  // The vectors keep their memory when they move.
  CGR_EXPECT_OK(cgr_stream_synchronize(dev_, stream_));
  return answers;
}

uint64_t RowEngine::Steps(cgr_graph_kind kind, cgr_reason reason) {
  cgr_stats stats = CGR_STATS_INIT;
  CGR_EXPECT_OK(cgr_runtime_stats(rt, &stats));
  return stats.by_reason[kind][reason];
}

} // namespace rows
} // namespace cgr_test
