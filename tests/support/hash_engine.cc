#include "cgr/inspect.h"
#include "tests/support/hash_engine.h"

#include <cstring>

namespace cgr_test {

namespace {

uint32_t Mix(uint32_t x) {
  x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// What any kernel may need; each uses some of it.
struct Args {
  const int32_t *counts, *starts, *rows, *positions;
  const uint32_t *a, *b;
  const int32_t *data, *more;
  const float *from;
  uint32_t *to, *also;
  float *floats;
  uint32_t salt;
};

int32_t NumTokens(const Args &x) { return x.counts[CGR_COUNT_TOKENS]; }
int32_t NumRequests(const Args &x) { return x.counts[CGR_COUNT_REQUESTS]; }

template <void (*one)(const Args &, int32_t)> void EachToken(const void *raw) {
  const Args &x = *static_cast<const Args *>(raw);
  for (int32_t t = 0; t < NumTokens(x); t++)
    one(x, t);
}
template <void (*one)(const Args &, int32_t, int32_t, int32_t)> void EachRequest(const void *raw) {
  const Args &x = *static_cast<const Args *>(raw);
  for (int32_t i = 0; i < NumRequests(x); i++)
    one(x, i, x.starts[i], x.starts[i + 1]);
}

void Embed(const Args &x, int32_t t) { x.to[t] = Mix(uint32_t(x.data[t]) * 31u + uint32_t(x.positions[t]) * 7919u + 1u); }
void Project(const Args &x, int32_t t) {
  for (int d = 0; d < HashEngine::kDim; d++)
    x.floats[t * HashEngine::kDim + d] = float(int(Mix(x.a[t] + x.salt + uint32_t(d) * 101u) % 257u) - 128) / 64.0f;
}
void Digest(const Args &x, int32_t t) {
  uint32_t sum = 0, bits;
  for (int d = 0; d < HashEngine::kDim; d++) {
    std::memcpy(&bits, &x.from[t * HashEngine::kDim + d], sizeof bits);
    sum = Mix(sum ^ bits);
  }
  x.to[t] = sum;
}
void MixOne(const Args &x, int32_t t) { x.to[t] = Mix(x.a[t] + x.salt); }
void MixBoth(const Args &x, int32_t t) { x.to[t] = Mix(x.a[t] + x.salt) ^ x.b[t]; }
void Sum(const Args &x, int32_t t) { x.to[t] += x.a[t]; }
void FromPosition(const Args &x, int32_t t) { x.to[t] = Mix(uint32_t(x.positions[t]) + x.salt); }

void OfChunks(const Args &x, int32_t, int32_t begin, int32_t end) {
  for (int32_t t = begin; t < end && end - begin > 1; t++)
    x.to[t] = Mix(x.a[t] + x.salt);
}
void AddChunks(const Args &x, int32_t, int32_t begin, int32_t end) {
  for (int32_t t = begin; t < end; t++)
    x.to[t] = x.a[t] ^ (end - begin > 1 ? x.b[t] : 0u);
}
void Gather(const Args &x, int32_t i, int32_t, int32_t) {
  x.to[i] = Mix(uint32_t(x.data[i]) * 13u + uint32_t(x.more[x.rows[i]]) + x.salt);
}
void Apply(const Args &x, int32_t i, int32_t begin, int32_t end) {
  for (int32_t t = begin; t < end; t++)
    x.to[t] = x.a[t] ^ x.b[i] ^ Mix(uint32_t(x.data[t]));
}
// The state that the request leaves goes to `also`, by request: another kernel puts it back.
void Scan(const Args &x, int32_t i, int32_t begin, int32_t end) {
  uint32_t state = begin < end && x.positions[begin] == 0 ? 0u : x.b[x.rows[i]];
  for (int32_t t = begin; t < end; t++) {
    state = Mix(state ^ x.a[t]);
    x.to[t] = x.a[t] ^ state;
  }
  x.also[i] = state;
}
void Commit(const Args &x, int32_t i, int32_t, int32_t) { x.to[x.rows[i]] = x.a[i]; }
void Sample(const Args &x, int32_t i, int32_t begin, int32_t end) {
  if (begin < end)
    x.to[i] = Mix(x.a[end - 1] + 5u) % HashEngine::kVocabulary;
}

} // namespace

// ------------------------------------------------------------------------------------------------------------------ creation

template <class T> T *HashEngine::Alloc(size_t count) {
  void *memory = nullptr;
  CGR_EXPECT_OK(cgr_memory_alloc(dev, count * sizeof(T), &memory));
  std::memset(memory, 0, count * sizeof(T));
  memory_.push_back(memory);
  return static_cast<T *>(memory);
}

HashEngine::HashEngine(const DeviceParam &device, const HashOptions &options) : options_(options) {
  CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev));
  CGR_EXPECT_OK(cgr_stream_create(dev, &stream_));
  CGR_EXPECT_OK(cgr_stream_create(dev, &side_));
  CGR_EXPECT_OK(cgr_event_create(dev, &fork_));
  CGR_EXPECT_OK(cgr_event_create(dev, &join_));
  num_groups_ = options.groups ? 2 : 1;
  embedded_ = Alloc<uint32_t>(kMaxTokens + 1);
  state_ = Alloc<uint32_t>(size_t(options.max_rows) + 1);
  layers_.resize(2);
  for (Tokens &of : layers_) {
    for (uint32_t **p : { &of.hidden, &of.digest, &of.up, &of.chunk, &of.added, &of.applied, &of.copied, &of.sum, &of.branch,
                          &of.joined, &of.scanned, &of.called, &of.varied, &of.down, &of.gathered, &of.carried })
      *p = Alloc<uint32_t>(kMaxTokens + 1);
    for (float **p : { &of.q, &of.k, &of.v, &of.out })
      *p = Alloc<float>(kMaxTokens * kDim);
  }
  MakeRuntime();
}

HashEngine::~HashEngine() {
  CGR_EXPECT_OK(cgr_runtime_destroy(rt));
  CGR_EXPECT_OK(cgr_event_destroy(dev, fork_));
  CGR_EXPECT_OK(cgr_event_destroy(dev, join_));
  CGR_EXPECT_OK(cgr_stream_destroy(dev, side_));
  CGR_EXPECT_OK(cgr_stream_destroy(dev, stream_));
  for (void *memory : memory_)
    CGR_EXPECT_OK(cgr_memory_free(dev, memory));
  CGR_EXPECT_OK(cgr_device_close(dev));
}

// Every row has pages for its longest sequence; the last kTestPages of each group are for self-tests.
void HashEngine::MakeRuntime() {
  static const int32_t decodes[] = { 1, 3 }, query_lens[] = { 1 };
  static const cgr_bucket mixed[] = { { 12, 3 } };
  static const cgr_variant variants[] = { { 0, 0, 1, 0 }, { 5, 0, 1, 0 } };
  const int32_t pages = 2 + options_.max_rows * (kMaxSeqLen / kPageSize) + kTestPages;
  cgr_group groups[2] = { CGR_GROUP_INIT, CGR_GROUP_INIT };
  cgr_layer layers[2] = { CGR_LAYER_INIT, CGR_LAYER_INIT };
  for (int i = 0; i < 2; i++) {
    groups[i].page_size = kPageSize;
    groups[i].num_pages = pages;
    cgr_layer &l = layers[i];
    l.group = i < num_groups_ ? i : 0;
    l.num_q_heads = l.num_kv_heads = 1;
    l.head_dim = kDim;
    for (cgr_kv_view *view : { &l.k, &l.v })
      CGR_EXPECT_OK(cgr_kv_view_make(CGR_LAYOUT_NHD, Alloc<float>(size_t(pages) * kPageSize * kDim), CGR_DTYPE_FP32, kPageSize, 1,
                                     kDim, view));
    cgr_attention a = CGR_ATTENTION_INIT;
    a.layer = i;
    CGR_EXPECT_OK(cgr_view_make(layers_[size_t(i)].q, CGR_DTYPE_FP32, 1, kDim, &a.q));
    CGR_EXPECT_OK(cgr_view_make(layers_[size_t(i)].k, CGR_DTYPE_FP32, 1, kDim, &a.k));
    CGR_EXPECT_OK(cgr_view_make(layers_[size_t(i)].v, CGR_DTYPE_FP32, 1, kDim, &a.v));
    CGR_EXPECT_OK(cgr_view_make(layers_[size_t(i)].out, CGR_DTYPE_FP32, 1, kDim, &a.out));
    attention_.push_back(a);
  }
  cgr_buffer_decl decls[3] = { CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT, CGR_BUFFER_DECL_INIT };
  const char *const names[] = { "extra", "adapters", "of rows" };
  for (int i = 0; i < 3; i++) {
    decls[i].dimension = i + 1; // TOKENS, REQUESTS, ROWS
    decls[i].dtype = CGR_DTYPE_I32;
    decls[i].source = CGR_SOURCE_STAGED;
    decls[i].name = names[i];
    decls[i].padding = -1;
  }
  cgr_config config = CGR_CONFIG_INIT;
  config.device_handle = dev;
  config.groups = groups, config.num_groups = num_groups_;
  config.layers = layers, config.num_layers = 2;
  config.max_requests = options_.max_requests, config.max_rows = options_.max_rows;
  config.max_tokens = kMaxTokens, config.max_seq_len = kMaxSeqLen;
  config.graph_mode = options_.mode;
  config.decode_buckets = decodes, config.num_decode_buckets = 2;
  config.query_lens = query_lens, config.num_query_lens = 1;
  config.mixed_buckets = mixed, config.num_mixed_buckets = 1;
  config.buffers = decls, config.num_buffers = options_.staged ? 3 : 0;
  config.variants = variants, config.num_variants = options_.variants ? 2 : 0;
  config.num_parts = 2;
  config.wait_timeout_ms = 500;
  config.log_context = this;
  config.log = [](void *engine, cgr_log_level level, const char *text) {
    if (level <= CGR_LOG_WARNING)
      static_cast<HashEngine *>(engine)->logs.push_back(text);
  };
  if (options_.adjust)
    options_.adjust(&config);
  CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
  int32_t **const declared[] = { &extra_, &adapters_, &of_rows_ };
  for (int i = 0; i < 3 && options_.staged; i++) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CGR_EXPECT_OK(cgr_buffer_get(rt, nullptr, CGR_BUFFER_DECLARED, i, &view));
    *declared[i] = static_cast<int32_t *>(view.data);
  }
}

int32_t *HashEngine::Buffer(cgr_buffer buffer) {
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_EXPECT_OK(cgr_buffer_get(rt, nullptr, buffer, 0, &view));
  return static_cast<int32_t *>(view.data);
}

// -------------------------------------------------------------------------------------------------------------------- record

struct HashEngine::Enqueuer {
  HashEngine *engine;
  cgr_recorder *recorder;
  cgr_record_info info;
  Args base;
  cgr_status status = CGR_OK;

  bool Next(const char *name, int layer) { return status == CGR_OK && !(engine->skip && engine->skip(name, layer, info)); }
  void Kernel(const char *name, int layer, cgr_host_function function, const Args &args, cudaStream_t stream) {
    if (Next(name, layer))
      status = cgr_launch_host(engine->dev, function, &args, sizeof args, stream);
  }
  // A kernel over tokens: to = f(a, b).
  void Kernel(const char *name, int layer, cgr_host_function function, uint32_t *to, const uint32_t *a,
              const uint32_t *b = nullptr) {
    Args args = base;
    args.to = to, args.a = a, args.b = b;
    args.salt = uint32_t(layer + 1) * 977u;
    Kernel(name, layer, function, args, info.stream);
  }
  void Take(cgr_status next) { status = status == CGR_OK ? next : status; }
};

void HashEngine::RecordLayer(Enqueuer *e, int layer, const uint32_t **hidden) {
  Tokens &of = layers_[size_t(layer)];
  float *const projected[] = { of.q, of.k, of.v };
  const uint32_t *h = *hidden;
  for (uint32_t which = 0; which < 3; which++) {
    Args args = e->base;
    args.a = h, args.floats = projected[which], args.salt = uint32_t(layer) * 3u + which;
    e->Kernel("project", layer, EachToken<Project>, args, e->info.stream);
  }
  if (e->status == CGR_OK)
    e->status = cgr_record_attention(e->recorder, &attention_[size_t(layer)]);
  Args args = e->base;
  args.from = of.out, args.to = of.digest;
  e->Kernel("digest", layer, EachToken<Digest>, args, e->info.stream);
  e->Kernel("up", layer, EachToken<MixOne>, of.up, of.digest);
  e->Kernel("down", layer, EachToken<MixBoth>, of.down, of.up, h);
  h = of.down;
  if (options_.chunks) {
    e->Kernel("chunks", layer, EachRequest<OfChunks>, of.chunk, h);
    e->Kernel("add chunks", layer, EachRequest<AddChunks>, of.added, h, of.chunk);
    h = of.added;
  }
  if (options_.staged) {
    args = e->base;
    args.data = adapters_, args.more = of_rows_, args.to = of.gathered, args.salt = uint32_t(layer);
    e->Kernel("gather", layer, EachRequest<Gather>, args, e->info.stream);
    args = e->base;
    args.a = h, args.b = of.gathered, args.data = extra_, args.to = of.applied;
    e->Kernel("apply", layer, EachRequest<Apply>, args, e->info.stream);
    h = of.applied;
  }
  if (options_.copies) {
    const size_t bytes = size_t(e->info.num_tokens) * sizeof *h;
    if (e->Next("copy", layer))
      e->Take(cgr_copy(dev, of.copied, h, bytes, e->info.stream));
    if (e->Next("fill", layer))
      e->Take(cgr_fill(dev, of.sum, 0, bytes, e->info.stream));
    e->Kernel("sum", layer, EachToken<Sum>, of.sum, of.copied);
    h = of.sum;
  }
  if (options_.branch) {
    e->Take(cgr_event_record(dev, fork_, e->info.stream));
    e->Take(cgr_event_wait(dev, fork_, side_));
    args = e->base;
    args.to = of.branch, args.salt = uint32_t(layer);
    e->Kernel("branch", layer, EachToken<FromPosition>, args, side_);
    e->Kernel("mix", layer, EachToken<MixOne>, of.hidden, h);
    e->Take(cgr_event_record(dev, join_, side_));
    e->Take(cgr_event_wait(dev, join_, e->info.stream));
    e->Kernel("joined", layer, EachToken<MixBoth>, of.joined, of.hidden, of.branch);
    h = of.joined;
  }
  if (options_.call) {
    struct CallArgs {
      HashEngine *engine;
      Args args;
    } call = { this, e->base };
    call.args.to = of.called, call.args.a = h, call.args.salt = uint32_t(layer);
    const cgr_call_function function = [](cgr_recorder *recorder, const void *raw) {
      const CallArgs &given = *static_cast<const CallArgs *>(raw);
      cgr_record_info info = CGR_RECORD_INFO_INIT;
      const cgr_status status = cgr_record_get_info(recorder, &info);
      if (status != CGR_OK || (given.engine->skip && given.engine->skip("called", int(given.args.salt), info)))
        return status;
      return cgr_launch_host(given.engine->dev, EachToken<MixOne>, &given.args, sizeof given.args, info.stream);
    };
    if (e->Next("call", layer))
      e->Take(cgr_record_call(e->recorder, function, &call, sizeof call));
    h = of.called;
  }
  if (options_.variants) {
    if (e->info.key.variant == 5)
      e->Kernel("varied", layer, EachToken<MixOne>, of.varied, h);
    h = e->info.key.variant == 5 ? of.varied : h;
  }
  *hidden = h;
}

cgr_status HashEngine::Record(cgr_recorder *recorder, void *engine) {
  HashEngine &self = *static_cast<HashEngine *>(engine);
  Enqueuer e = { &self, recorder, CGR_RECORD_INFO_INIT, {}, CGR_OK };
  e.status = cgr_record_get_info(recorder, &e.info);
  e.base.counts = self.Buffer(CGR_BUFFER_COUNTS);
  e.base.starts = self.Buffer(CGR_BUFFER_QUERY_START_LOC);
  e.base.rows = self.Buffer(CGR_BUFFER_REQUEST_ROWS);
  e.base.positions = self.Buffer(CGR_BUFFER_POSITIONS);
  Args args = e.base;
  args.data = self.Buffer(CGR_BUFFER_INPUT_IDS), args.to = self.embedded_;
  e.Kernel("embed", -1, EachToken<Embed>, args, e.info.stream);
  const uint32_t *hidden = self.embedded_;
  self.RecordLayer(&e, 0, &hidden);
  if (self.options_.state) {
    Tokens &of = self.layers_[0];
    args = e.base;
    args.a = hidden, args.b = self.state_, args.to = of.scanned, args.also = of.carried;
    e.Kernel("scan", -1, EachRequest<Scan>, args, e.info.stream);
    e.Kernel("commit", -1, EachRequest<Commit>, self.state_, of.carried);
    hidden = of.scanned;
  }
  self.RecordLayer(&e, 1, &hidden);
  args = e.base;
  args.a = hidden, args.to = reinterpret_cast<uint32_t *>(self.Buffer(CGR_BUFFER_NEXT_TOKENS));
  e.Kernel("sample", -1, EachRequest<Sample>, args, e.info.stream);
  return e.status;
}

// --------------------------------------------------------------------------------------------------------------------- calls

cgr_status HashEngine::Capture(const std::vector<cgr_key> &keys) {
  cgr_capture capture = CGR_CAPTURE_INIT;
  capture.record = Record;
  capture.engine = this;
  capture.keys = keys.empty() ? nullptr : keys.data();
  capture.num_keys = int32_t(keys.size());
  return cgr_runtime_capture(rt, &capture);
}

std::vector<cgr_key> HashEngine::Keys() {
  std::vector<cgr_key> keys;
  for (int32_t i = 0; i < cgr_test::NumKeys(rt); i++) {
    cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
    CGR_EXPECT_OK(cgr_runtime_graph_stats(rt, i, &stats));
    keys.push_back(stats.key);
  }
  return keys;
}

cgr_status HashEngine::SelfTest(uint32_t seed, std::vector<cgr_finding> *findings, bool ranges) {
  static const cgr_staged_range staged[] = { { 0, 0, 0, 1000 }, { 1, 0, 0, 7 }, { 2, 0, -100, 100 } };
  std::vector<int32_t> pages;
  for (int g = 0; g < num_groups_; g++)
    for (int32_t p = 0; p < kTestPages; p++)
      pages.push_back(2 + options_.max_rows * (kMaxSeqLen / kPageSize) + p);
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.num_pages = kTestPages;
  test.pages = pages.data();
  test.max_token = kVocabulary;
  test.seed = seed;
  test.staged = staged;
  test.num_staged = options_.staged && ranges ? 3 : 0;
  int32_t count = 0;
  findings->assign(8, {});
  const cgr_status status = cgr_runtime_self_test(rt, &test, findings->data(), 8, &count);
  findings->resize(size_t(std::min(count, 8)));
  return status;
}

int32_t HashEngine::Open() {
  int32_t row = -1;
  CGR_EXPECT_OK(cgr_request_open(rt, 1, &row));
  const int32_t count = kMaxSeqLen / kPageSize;
  for (int g = 0; g < num_groups_; g++)
    for (int32_t p = 0; p < count; p++) {
      const int32_t page = 2 + row * count + p;
      CGR_EXPECT_OK(cgr_request_set_pages(rt, row, g, p, &page, 1));
    }
  return row;
}

void HashEngine::Close(int32_t row) { CGR_EXPECT_OK(cgr_request_close(rt, row)); }

int32_t HashEngine::Length(int32_t row) {
  cgr_request_info info = CGR_REQUEST_INFO_INIT;
  CGR_EXPECT_OK(cgr_request_get_info(rt, row, &info));
  return info.num_tokens;
}

std::vector<int32_t> HashEngine::Step(const std::vector<Request> &requests, const cgr_key *key, uint32_t variant) {
  std::vector<int32_t> rows, lens, tokens, extra, adapters;
  for (const Request &request : requests) {
    rows.push_back(request.row);
    lens.push_back(int32_t(request.tokens.size()));
    tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
    adapters.push_back(request.data % 8);
    for (size_t k = 0; k < request.tokens.size(); k++)
      extra.push_back(int32_t(request.data + int32_t(k)) % 1000);
    const int32_t of_row = request.data % 100;
    if (options_.staged)
      CGR_EXPECT_OK(cgr_request_set_data(rt, request.row, 2, &of_row));
  }
  const cgr_staged staged[] = { { 0, 0, extra.data() }, { 1, 0, adapters.data() } };
  cgr_batch batch = CGR_BATCH_INIT;
  batch.num_requests = int32_t(rows.size());
  batch.rows = rows.data(), batch.query_lens = lens.data(), batch.tokens = tokens.data();
  batch.variant = variant;
  batch.forced_key = key;
  batch.staged = staged;
  batch.num_staged = options_.staged ? 2 : 0;
  cgr_step step = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  cgr_status status = cgr_step_prepare(rt, &batch, &step);
  if (status == CGR_OK)
    status = cgr_step_launch(rt, &step, stream_);
  if (status == CGR_OK)
    status = cgr_step_wait(rt, step.mark, -1, &result);
  if (status != CGR_OK || result.num_requests != int32_t(rows.size()))
    return {};
  std::vector<int32_t> sampled;
  for (size_t i = 0; i < rows.size(); i++)
    sampled.push_back(result.num_tokens[i] > 0 ? result.tokens[i * size_t(result.token_stride)] : -1);
  return sampled;
}

} // namespace cgr_test
