#include "tests/support/row_engine.h"
#include "tests/support/record_buffers.h"

namespace cgr_test {
namespace rows {

// On CUDA, with so many KV heads that a batch of long requests is more than the GPU holds at once: the way a request's work is
// split then depends on the others, unless it must not. On the host heads are narrow: what they compute takes most of a test's
// time, and its width changes nothing in how work is split.
Model ModelFor(const DeviceParam &device) {
  if (device.IsCuda())
    return { { { 0, 8, 8, 64, CGR_DTYPE_BF16 },
               { 1, 16, 4, 128, CGR_DTYPE_BF16 },
               { 1, 10, 2, 64, CGR_DTYPE_BF16 },
               { 0, 16, 1, 128, CGR_DTYPE_BF16 } },
             2048,
             4096 };
  return { { { 0, 2, 2, 32, CGR_DTYPE_BF16 },
             { 1, 4, 1, 16, CGR_DTYPE_FP32 },
             { 1, 5, 1, 16, CGR_DTYPE_BF16 },
             { 0, 8, 1, 16, CGR_DTYPE_BF16 } },
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

namespace {

EngineOptions Complete(const DeviceParam &device, uint64_t seed, const Options &options) {
  const Model model = options.model.layers.empty() ? ModelFor(device) : options.model;
  EngineOptions o;
  o.device = device;
  o.feed = Feed::kUploads;
  o.seed = seed;
  o.layers.clear();
  for (const LayerSpec &s : model.layers) {
    o.layers.push_back({ s.q_heads, s.kv_heads, s.dim });
    o.layers.back().group = s.group;
    o.layers.back().dtype = s.dtype;
    o.layers.back().hnd = o.layers.size() % 2 == 0;
  }
  for (int32_t size : kPageSizes)
    o.groups.push_back({ size, 2 + kMaxRows * (model.max_seq_len + size - 1) / size, 0, 1, 0, options.engine_tables });
  o.lse_gap = 0;
  o.max_requests = kMaxRequests;
  o.max_rows = kMaxRows;
  o.max_tokens = model.max_tokens;
  o.max_seq_len = model.max_seq_len;
  o.mode = options.mode;
  o.buckets = { 1, 2, 4, 8 }; // smaller than the largest batch of decodes, which runs eagerly
  o.mixed = options.mixed;
  o.pinned_bytes = options.pinned_bytes;
  o.adjust = [options](cgr_config *config) {
    config->num_parts = options.num_parts;
    config->batch_invariant = options.batch_invariant;
    if (options.adjust)
      options.adjust(config);
  };
  return o;
}

} // namespace

RowEngine::RowEngine(const DeviceParam &device, uint64_t seed, const Options &options)
    : Engine(Complete(device, seed, options)), model(options.model.layers.empty() ? ModelFor(device) : options.model) {
  check_at_end = false; // there is no model of what steps give
  record = Record;
  record_engine = this;
  CGR_EXPECT_OK(Warmup()); // loads the engine's kernels
  CGR_EXPECT_OK(Capture());
}

// -------------------------------------------------------------------------------------------------------------------- memory

RowTensor RowEngine::In(size_t l, Tensor which) const {
  const RecordLayer &layer = state.layer[l];
  return { layer.in[which].data, layer.heads[which] * layer.dim[which], layer.dtype };
}

RowTensor RowEngine::Out(size_t l) const { return { state.call[l].attention.out.data, In(l, kQ).width, state.layer[l].dtype }; }

std::vector<std::pair<void *, size_t>> RowEngine::Memory() const {
  std::vector<std::pair<void *, size_t>> all;
  for (const Caches &of : all_caches)
    all.push_back({ of.memory(), of.bytes() });
  for (size_t l = 0; l < model.layers.size(); l++) {
    for (Tensor which : kTensors)
      all.push_back({ state.layer[l].in[which].data, state.layer[l].in_bytes[which] });
    all.push_back({ state.call[l].attention.out.data, state.call[l].out_bytes });
    all.push_back({ state.call[l].attention.lse.data, state.call[l].lse_bytes });
  }
  return all;
}

const std::vector<unsigned char> &RowEngine::ReadPages() {
  size_t bytes = 0;
  for (const Caches &of : all_caches)
    bytes += of.bytes();
  pages_.resize(bytes);
  size_t at = 0;
  for (const Caches &of : all_caches) {
    ReadBytes(of.memory(), pages_.data() + at, of.bytes());
    at += of.bytes();
  }
  return pages_;
}

std::vector<int32_t> RowEngine::FreePages(int32_t count) {
  std::vector<int32_t> pages = SparePages(count, 0);
  const std::vector<int32_t> more = SparePages(count, 1);
  pages.insert(pages.end(), more.begin(), more.end());
  return pages;
}

// ---------------------------------------------------------------------------------------------------------------- the model

cgr_status RowEngine::Capture(uint32_t flags) {
  cgr_capture capture = CaptureStruct();
  capture.flags = flags;
  return cgr_runtime_capture(rt, &capture);
}

cgr_status RowEngine::Record(cgr_recorder *recorder, void *engine) {
  const RowEngine &e = *static_cast<RowEngine *>(engine);
  const bool on_cuda = e.o.device.IsCuda();
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  auto buffer = [&](cgr_buffer which) { return RecordBuffer(recorder, which, &status); };
  RowInputs inputs = { buffer(CGR_BUFFER_INPUT_IDS), buffer(CGR_BUFFER_POSITIONS), {}, {}, 0, info.num_tokens };
  RowSampler sampler = { e.LastOut(), buffer(CGR_BUFFER_LOGITS_INDICES), buffer(CGR_BUFFER_NEXT_TOKENS), info.num_requests, 0 };
  for (size_t l = 0; l < e.model.layers.size(); l++) {
    for (Tensor which : kTensors)
      inputs.to[which] = e.In(l, which);
    if (status == CGR_OK)
      status = EnqueueInputs(e.dev, on_cuda, inputs, info.stream);
    if (status == CGR_OK)
      status = cgr_record_attention(recorder, &e.state.call[l].attention);
    inputs.before = e.Out(l);
    inputs.layer++;
  }
  if (status == CGR_OK && e.hook)
    status = e.hook(recorder, info);
  return status == CGR_OK ? EnqueueSampler(e.dev, on_cuda, sampler, info.stream) : status;
}

// -------------------------------------------------------------------------------------------------------------------- steps

size_t RowEngine::OutBytes(size_t l) const { return size_t(Out(l).width) * cgr_dtype_size(cgr_dtype(model.layers[l].dtype)); }

cgr_status RowEngine::Prepare(const std::vector<Item> &items, bool standing, cgr_step *prepared) {
  const cgr_status status = standing ? PrepareStandingAsIs(items) : Engine::Prepare(items);
  *prepared = step;
  return status;
}

// The leftovers of an earlier step must not pass for an answer.
void RowEngine::Poison(int32_t num_tokens) {
  for (size_t l = 0; l < model.layers.size(); l++) {
    CGR_EXPECT_OK(cgr_fill(dev, Out(l).data, 0xff, size_t(num_tokens) * OutBytes(l), stream));
    CGR_EXPECT_OK(cgr_fill(dev, state.call[l].attention.lse.data, 0xff, size_t(num_tokens) * LseBytes(l), stream));
  }
}

// Of the tokens [first, first + count) of a step.
Answer RowEngine::AnswerOf(size_t first, size_t count) {
  Answer answer;
  auto rows = [&](const void *data, size_t bytes) {
    return Read<unsigned char>(static_cast<const unsigned char *>(data) + first * bytes, count * bytes);
  };
  for (size_t l = 0; l < model.layers.size(); l++) {
    answer.out.push_back(rows(Out(l).data, OutBytes(l)));
    answer.lse.push_back(rows(state.call[l].attention.lse.data, LseBytes(l)));
  }
  return answer;
}

std::vector<Answer> RowEngine::Run(const std::vector<Item> &items, bool standing) {
  std::vector<Answer> answers;
  cgr_status status = Prepare(items, standing, &step);
  CGR_EXPECT_OK(status);
  if (status != CGR_OK)
    return answers;
  Poison(step.key.num_tokens);
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  CGR_EXPECT_OK(cgr_step_launch(rt, &step, stream));
  status = cgr_step_wait(rt, step.mark, -1, &result);
  CGR_EXPECT_OK(status);
  if (status != CGR_OK || result.num_requests != int32_t(items.size())) {
    ADD_FAILURE() << "the step has " << result.num_requests << " requests, expected " << items.size();
    return answers;
  }
  size_t first = 0;
  for (size_t i = 0; i < items.size(); i++) {
    const size_t count = items[i].tokens.size();
    const bool samples = !items[i].partial && count > 0;
    EXPECT_EQ(result.rows[i], items[i].row);
    EXPECT_EQ(result.tags[i], requests.at(items[i].row)->tag);
    EXPECT_EQ(result.num_tokens[i], samples ? 1 : 0);
    answers.push_back(AnswerOf(first, count));
    answers.back().token = samples ? result.tokens[int64_t(i) * result.token_stride] : -1;
    first += count;
  }
  return answers;
}

uint64_t RowEngine::Steps(cgr_graph_kind kind, cgr_reason reason) { return Stats().by_reason[kind][reason]; }

} // namespace rows
} // namespace cgr_test
