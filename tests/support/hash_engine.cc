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
void Adapt(const Args &x, int32_t i, int32_t begin, int32_t end) {
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

namespace {

void Adjust(cgr_config *config, const HashOptions &options, HashParts *parts) {
  static const int32_t query_lens[] = { 1 };
  static const cgr_variant variants[] = { { 0, 0, 1, 0 }, { 5, 0, 1, 0 } };
  config->query_lens = query_lens, config->num_query_lens = 1;
  config->buffers = parts->decls, config->num_buffers = options.staged ? 3 : 0;
  config->variants = variants, config->num_variants = options.variants ? 2 : 0;
  config->num_parts = 2;
  config->wait_timeout_ms = 500;
  config->log_context = parts;
  config->log = [](void *of, cgr_log_level level, const char *text) {
    if (level <= CGR_LOG_WARNING)
      static_cast<HashParts *>(of)->logs.push_back(text);
  };
  if (options.adjust)
    options.adjust(config);
}

} // namespace

// Every row has pages for its longest sequence; the others are for self-tests.
EngineOptions HashEngine::Complete(const DeviceParam &device, const HashOptions &options, HashParts *parts) {
  const int32_t pages = 2 + options.max_rows * (kMaxSeqLen / kPageSize) + kTestPages;
  EngineOptions o;
  o.device = device;
  o.validation = false;
  o.feed = Feed::kUploads;
  o.layers = { { 1, 1, kDim }, { 1, 1, kDim } };
  o.layers[1].group = options.groups ? 1 : 0;
  o.groups.assign(options.groups ? 2 : 1, { kPageSize, pages });
  o.lse = false;
  o.max_requests = options.max_requests;
  o.max_rows = options.max_rows;
  o.max_tokens = kMaxTokens;
  o.max_seq_len = kMaxSeqLen;
  o.mode = options.mode;
  o.buckets = { 1, 3 };
  o.mixed = { { 12, 3 } };
  o.unowned = 0.0;
  const char *const names[] = { "extra", "adapters", "of rows" };
  for (int i = 0; i < 3; i++) {
    parts->decls[i].dimension = i + 1; // TOKENS, REQUESTS, ROWS
    parts->decls[i].dtype = CGR_DTYPE_I32;
    parts->decls[i].source = CGR_SOURCE_STAGED;
    parts->decls[i].name = names[i];
    parts->decls[i].padding = -1;
  }
  o.adjust = [parts, options](cgr_config *config) { Adjust(config, options, parts); };
  return o;
}

template <class T> T *HashEngine::Zeros(size_t count) {
  void *memory = Alloc(count * sizeof(T));
  std::memset(memory, 0, count * sizeof(T));
  return static_cast<T *>(memory);
}

HashEngine::HashEngine(const DeviceParam &device, const HashOptions &options)
    : Engine(Complete(device, options, this)), options_(options) {
  check_at_end = false; // there is no model of what steps give
  record = Record;
  record_engine = this;
  CGR_EXPECT_OK(cgr_stream_create(dev, &side));
  CGR_EXPECT_OK(cgr_event_create(dev, &fork));
  CGR_EXPECT_OK(cgr_event_create(dev, &join_));
  embedded_ = Zeros<uint32_t>(kMaxTokens + 1);
  state_ = Zeros<uint32_t>(size_t(options.max_rows) + 1);
  layers_.resize(2);
  for (size_t l = 0; l < layers_.size(); l++) {
    Tokens &of = layers_[l];
    for (uint32_t **p : { &of.hidden, &of.digest, &of.up, &of.chunk, &of.added, &of.applied, &of.copied, &of.sum, &of.branch,
                          &of.joined, &of.scanned, &of.called, &of.varied, &of.down, &of.gathered, &of.carried })
      *p = Zeros<uint32_t>(kMaxTokens + 1);
    const cgr_attention &a = state.call[l].attention;
    const std::pair<float **, void *> places[] = {
      { &of.q, a.q.data }, { &of.k, a.k.data }, { &of.v, a.v.data }, { &of.out, a.out.data }
    };
    for (const auto &[to, data] : places) {
      *to = static_cast<float *>(data);
      std::memset(data, 0, kMaxTokens * kDim * sizeof(float));
    }
  }
  int32_t **const declared[] = { &extra_, &adapters_, &of_rows_ };
  for (int32_t i = 0; i < 3 && options_.staged; i++)
    *declared[i] = static_cast<int32_t *>(View(CGR_BUFFER_DECLARED, i).data);
}

HashEngine::~HashEngine() {
  CGR_EXPECT_OK(cgr_runtime_destroy(rt)); // its graphs have the event
  rt = nullptr;
  CGR_EXPECT_OK(cgr_event_destroy(dev, join_));
}

// -------------------------------------------------------------------------------------------------------------------- record

int32_t *HashEngine::Buffer(cgr_buffer buffer) { return static_cast<int32_t *>(View(buffer).data); }

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

const uint32_t *HashEngine::RecordStaged(Enqueuer *e, int layer, const uint32_t *h) {
  Tokens &of = layers_[size_t(layer)];
  Args args = e->base;
  args.data = adapters_, args.more = of_rows_, args.to = of.gathered, args.salt = uint32_t(layer);
  e->Kernel("gather", layer, EachRequest<Gather>, args, e->info.stream);
  args = e->base;
  args.a = h, args.b = of.gathered, args.data = extra_, args.to = of.applied;
  e->Kernel("apply", layer, EachRequest<Adapt>, args, e->info.stream);
  return of.applied;
}

const uint32_t *HashEngine::RecordCopies(Enqueuer *e, int layer, const uint32_t *h) {
  Tokens &of = layers_[size_t(layer)];
  const size_t bytes = size_t(e->info.num_tokens) * sizeof *h;
  if (e->Next("copy", layer))
    e->Take(cgr_copy(dev, of.copied, h, bytes, e->info.stream));
  if (e->Next("fill", layer))
    e->Take(cgr_fill(dev, of.sum, 0, bytes, e->info.stream));
  e->Kernel("sum", layer, EachToken<Sum>, of.sum, of.copied);
  return of.sum;
}

const uint32_t *HashEngine::RecordBranch(Enqueuer *e, int layer, const uint32_t *h) {
  Tokens &of = layers_[size_t(layer)];
  e->Take(cgr_event_record(dev, fork, e->info.stream));
  e->Take(cgr_event_wait(dev, fork, side));
  Args args = e->base;
  args.to = of.branch, args.salt = uint32_t(layer);
  e->Kernel("branch", layer, EachToken<FromPosition>, args, side);
  e->Kernel("mix", layer, EachToken<MixOne>, of.hidden, h);
  e->Take(cgr_event_record(dev, join_, side));
  e->Take(cgr_event_wait(dev, join_, e->info.stream));
  e->Kernel("joined", layer, EachToken<MixBoth>, of.joined, of.hidden, of.branch);
  return of.joined;
}

const uint32_t *HashEngine::RecordCall(Enqueuer *e, int layer, const uint32_t *h) {
  Tokens &of = layers_[size_t(layer)];
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
  return of.called;
}

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
    e->status = cgr_record_attention(e->recorder, &state.call[layer].attention);
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
  if (options_.staged)
    h = RecordStaged(e, layer, h);
  if (options_.copies)
    h = RecordCopies(e, layer, h);
  if (options_.branch)
    h = RecordBranch(e, layer, h);
  if (options_.call)
    h = RecordCall(e, layer, h);
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
  cgr_capture capture = CaptureStruct();
  capture.keys = keys.empty() ? nullptr : keys.data();
  capture.num_keys = int32_t(keys.size());
  return cgr_runtime_capture(rt, &capture);
}

std::vector<cgr_key> HashEngine::Keys() {
  std::vector<cgr_key> keys;
  for (int32_t i = 0; i < NumKeys(rt); i++)
    keys.push_back(GraphStats(i).key);
  return keys;
}

cgr_status HashEngine::SelfTest(uint32_t seed, std::vector<cgr_finding> *findings, bool ranges) {
  static const cgr_staged_range staged[] = { { 0, 0, 0, 1000 }, { 1, 0, 0, 7 }, { 2, 0, -100, 100 } };
  std::vector<int32_t> pages;
  for (size_t g = 0; g < o.groups.size(); g++) {
    const std::vector<int32_t> spare = SparePages(test_pages, g);
    pages.insert(pages.end(), spare.begin(), spare.end());
  }
  cgr_self_test test = CGR_SELF_TEST_INIT;
  test.num_pages = test_pages;
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
  const int32_t row = Engine::Open();
  Reserve(row, kMaxSeqLen);
  return row;
}

int32_t HashEngine::Length(int32_t row) { return Info(row).num_tokens; }

std::vector<int32_t> HashEngine::Step(const std::vector<Request> &asked, const cgr_key *key, uint32_t word) {
  std::vector<int32_t> rows, lens, tokens, extra, adapters;
  for (const Request &request : asked) {
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
  batch.variant = word;
  batch.forced_key = key;
  batch.staged = staged;
  batch.num_staged = options_.staged ? 2 : 0;
  step = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  cgr_status status = cgr_step_prepare(rt, &batch, &step);
  if (status == CGR_OK)
    status = cgr_step_launch(rt, &step, stream);
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
