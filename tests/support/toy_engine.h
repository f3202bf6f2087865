// A small engine on cgr.h for tests, and a model of it on the host.
//
// Two modes. In `tokens` mode the engine's "kernels" are host functions, so that it runs on the host device only: q, k and v
// are functions of (token, position, layer), and a sampler picks the next token from the outputs of all layers. In `fixed`
// mode, which every device runs, q, k and v are uploaded before each step and the next token of request i is 1000 + i.
//
// The model keeps what every request's cache must hold. Toy::Check waits for a step and compares its tokens, and in fixed mode
// its outputs, with attention computed in double.
#ifndef CGR_TESTS_SUPPORT_TOY_ENGINE_H
#define CGR_TESTS_SUPPORT_TOY_ENGINE_H

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cgr/cgr.h"
#include "kernels/reference/reference.h"
#include "tests/support/devices.h"

#define CGR_EXPECT(status, call)                                                                                   \
  do {                                                                                                             \
    cgr_status got_ = (call);                                                                                      \
    EXPECT_EQ(cgr_status_name(got_), std::string(cgr_status_name(status))) << #call << ": " << cgr_last_message(); \
  } while (0)
#define CGR_EXPECT_OK(call) CGR_EXPECT(CGR_OK, call)
#define CGR_ASSERT_OK(call)                                                                         \
  do {                                                                                              \
    cgr_status got_ = (call);                                                                       \
    ASSERT_EQ(cgr_status_name(got_), std::string("CGR_OK")) << #call << ": " << cgr_last_message(); \
  } while (0)

namespace cgr_test {

enum { kVocabulary = 61, kToyMagic = 0x70e57, kFixedToken = 1000 };
enum { kQ = 0, kK = 1, kV = 2 };

// Element (h, d) of q, k or v of what (a, b) names: (token, position), or (number of the upload, token of the step). A multiple
// of 1/64 (of 1/16 for q), so that every dtype holds it exactly.
inline double ToyValue(int32_t layer, int32_t which, int32_t a, int32_t b, int32_t h, int32_t d) {
  uint64_t x = static_cast<uint64_t>(a) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(b) * 0xbf58476d1ce4e5b9u +
               static_cast<uint64_t>(((layer * 3 + which) * 64 + h) * 1024 + d) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 32;
  return (static_cast<int32_t>(x % 129) - 64) / (which == kQ ? 16.0 : 64.0);
}

inline double ToyWeight(int32_t token, int32_t layer, int32_t e) { return ToyValue(layer, kV, -7, token, 1, e); }

// The engine's state as `record` sees it: plain data, so that a test can overwrite it after capture.
struct ToyEngine {
  int32_t magic;
  int32_t fixed, num_layers, num_q_heads, num_kv_heads, head_dim, dtype;
  int32_t fail_after; // `record` fails once it has enqueued so many things; -1: never
  cgr_status fail_status;
  cgr_device *device;
  void *q[2], *k[2], *v[2], *out[2];
  float *lse[2];
  const int32_t *input_ids, *positions, *logits_indices;
  int32_t *next_tokens;
  const int32_t *token_table;                        // fixed mode
  cgr_status (*before)(cgr_recorder *, ToyEngine *); // called first when set
  std::vector<cgr_record_info> *records;
};

inline int &ToyPoisonedRecords() {
  static int count = 0;
  return count;
}

struct ToyQkvArgs {
  const int32_t *input_ids, *positions;
  void *q, *k, *v;
  int32_t num_tokens, layer, num_q_heads, num_kv_heads, head_dim, dtype;
};

inline void ToyQkv(const void *raw) {
  const ToyQkvArgs &a = *static_cast<const ToyQkvArgs *>(raw);
  void *to[3] = { a.q, a.k, a.v };
  int64_t size = a.dtype == CGR_DTYPE_FP32 ? 4 : 2;
  for (int32_t which = kQ; which <= kV; which++) {
    int32_t heads = which == kQ ? a.num_q_heads : a.num_kv_heads;
    for (int32_t t = 0; t < a.num_tokens; t++)
      for (int32_t h = 0; h < heads; h++)
        for (int32_t d = 0; d < a.head_dim; d++)
          cgr__reference_store(a.dtype, static_cast<char *>(to[which]) + ((int64_t{ 1 } * t * heads + h) * a.head_dim + d) * size,
                               ToyValue(a.layer, which, a.input_ids[t], a.positions[t], h, d));
  }
}

struct ToySamplerArgs {
  const void *out[2];
  const int32_t *logits_indices;
  int32_t *next_tokens;
  int32_t num_requests, num_layers, width, dtype;
};

inline void ToySampler(const void *raw) {
  const ToySamplerArgs &a = *static_cast<const ToySamplerArgs *>(raw);
  int64_t size = a.dtype == CGR_DTYPE_FP32 ? 4 : 2;
  for (int32_t i = 0; i < a.num_requests; i++) {
    double best = -std::numeric_limits<double>::infinity();
    int32_t token = 0;
    for (int32_t c = 0; c < kVocabulary; c++) {
      double score = 0.0;
      for (int32_t l = 0; l < a.num_layers; l++) {
        const char *out = static_cast<const char *>(a.out[l]) + int64_t{ 1 } * a.logits_indices[i] * a.width * size;
        for (int32_t e = 0; e < a.width; e++)
          score += cgr__reference_load(a.dtype, out + e * size) * ToyWeight(c, l, e);
      }
      if (score > best)
        best = score, token = c;
    }
    a.next_tokens[i] = token;
  }
}

inline cgr_status ToyRecord(cgr_recorder *recorder, void *context) {
  ToyEngine *e = static_cast<ToyEngine *>(context);
  if (e->magic != kToyMagic) {
    ToyPoisonedRecords()++;
    return CGR_ERROR_CALLBACK;
  }
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  if (status != CGR_OK)
    return status;
  if (e->records != nullptr)
    e->records->push_back(info);
  if (e->before != nullptr && (status = e->before(recorder, e)) != CGR_OK)
    return status;
  int32_t enqueued = 0;
#define TOY_ENQUEUE(call)            \
  do {                               \
    if (enqueued++ == e->fail_after) \
      return e->fail_status;         \
    if ((status = (call)) != CGR_OK) \
      return status;                 \
  } while (0)
  for (int32_t l = 0; l < e->num_layers; l++) {
    if (!e->fixed) {
      ToyQkvArgs args = { e->input_ids,   e->positions,    e->q[l],     e->k[l], e->v[l], info.num_tokens, l,
                          e->num_q_heads, e->num_kv_heads, e->head_dim, e->dtype };
      TOY_ENQUEUE(cgr_launch_host(e->device, ToyQkv, &args, sizeof args, info.stream));
    }
    cgr_attention attention = {};
    attention.size = static_cast<uint32_t>(sizeof attention);
    attention.layer = l;
    int64_t q_width = int64_t{ 1 } * e->num_q_heads * e->head_dim, kv_width = int64_t{ 1 } * e->num_kv_heads * e->head_dim;
    attention.q = { e->q[l], e->dtype, 0, q_width, e->head_dim };
    attention.k = { e->k[l], e->dtype, 0, kv_width, e->head_dim };
    attention.v = { e->v[l], e->dtype, 0, kv_width, e->head_dim };
    attention.out = { e->out[l], e->dtype, 0, q_width, e->head_dim };
    attention.lse = e->lse[l];
    attention.lse_stride = e->num_q_heads;
    TOY_ENQUEUE(cgr_record_attention(recorder, &attention));
  }
  if (e->fixed) {
    if (info.num_requests > 0)
      TOY_ENQUEUE(cgr_copy(e->device, e->next_tokens, e->token_table, static_cast<size_t>(info.num_requests) * 4, info.stream));
  } else {
    ToySamplerArgs args = { { e->out[0], e->out[1] },     e->logits_indices, e->next_tokens, info.num_requests, e->num_layers,
                            e->num_q_heads * e->head_dim, e->dtype };
    TOY_ENQUEUE(cgr_launch_host(e->device, ToySampler, &args, sizeof args, info.stream));
  }
  if (enqueued == e->fail_after)
    return e->fail_status;
#undef TOY_ENQUEUE
  return CGR_OK;
}

struct ToyOptions {
  DeviceParam device = HostParam(CGR_HOST_ASYNC);
  cgr_device *handle = nullptr; // an open device instead; the toy closes it
  bool fixed = false;           // always so on CUDA
  int32_t dtype = CGR_DTYPE_FP32;
  int32_t num_layers = 2, num_q_heads = 2, num_kv_heads = 1, head_dim = 8;
  int32_t page_size = 16, num_pages = 128;
  int32_t max_requests = 8, max_rows = 16, max_tokens = 64, max_seq_len = 160;
  std::vector<int32_t> buckets = { 1, 2, 4, 8 };
  double unowned = std::numeric_limits<double>::quiet_NaN(); // what pages hold that nobody has written
  std::function<void(cgr_config *)> adjust;                  // last word on the configuration
};

// The defaults for a device: what it supports.
inline ToyOptions ToyOptionsFor(const DeviceParam &device) {
  ToyOptions options;
  options.device = device;
  if (device.IsCuda()) {
    options.fixed = true;
    options.dtype = CGR_DTYPE_BF16;
    options.head_dim = 64;
  }
  return options;
}

// What a request's cache must hold.
struct ToyRequest {
  struct Entry {
    int32_t a, b; // see ToyValue
  };
  std::vector<Entry> cache;
  std::vector<int32_t> pages;
  std::vector<int32_t> sampled; // tokens that steps gave, in order
  int32_t num_tokens = 0;       // after every step launched so far
  int32_t last = 0;             // CGR_TOKEN_LAST, as of the steps checked so far
};

// One request of a step.
struct ToyItem {
  int32_t row;
  std::vector<int32_t> tokens;
  bool partial = false;
};

class Toy {
public:
  explicit Toy(const ToyOptions &options) : o(options) { Make(); }
  ~Toy() {
    EXPECT_EQ(cgr_runtime_destroy(rt), CGR_OK) << cgr_last_message();
    for (void *memory : memory_)
      EXPECT_EQ(cgr_memory_free(dev, memory), CGR_OK) << cgr_last_message();
    if (stream != nullptr) {
      EXPECT_EQ(cgr_stream_destroy(dev, stream), CGR_OK) << cgr_last_message();
    }
    EXPECT_EQ(cgr_device_close(dev), CGR_OK) << cgr_last_message();
  }
  Toy(const Toy &) = delete;
  Toy &operator=(const Toy &) = delete;

  // ---- memory
  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    EXPECT_EQ(cgr_memory_alloc(dev, bytes, &memory), CGR_OK) << cgr_last_message();
    memory_.push_back(memory);
    return memory;
  }
  void Sync() { CGR_EXPECT_OK(cgr_stream_synchronize(dev, stream)); }
  void Write(void *to, const void *from, size_t bytes) {
    CGR_EXPECT_OK(cgr_copy(dev, to, from, bytes, stream));
    Sync();
  }
  template <class T> std::vector<T> Read(const void *from, size_t count) {
    std::vector<T> content(count);
    if (count == 0)
      return content;
    CGR_EXPECT_OK(cgr_copy(dev, content.data(), from, count * sizeof(T), stream));
    Sync();
    return content;
  }
  cgr_buffer_view View(cgr_buffer buffer) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CGR_EXPECT_OK(cgr_buffer_get(rt, buffer, 0, &view));
    return view;
  }
  std::vector<int64_t> Buffer(cgr_buffer buffer) {
    cgr_buffer_view view = View(buffer);
    size_t count = static_cast<size_t>(view.shape[0] * view.shape[1]);
    if (view.dtype == CGR_DTYPE_I64)
      return Read<int64_t>(view.data, count);
    std::vector<int32_t> narrow = Read<int32_t>(view.data, count);
    return std::vector<int64_t>(narrow.begin(), narrow.end());
  }
  size_t ElementBytes() const { return o.dtype == CGR_DTYPE_FP32 ? 4 : 2; }
  size_t PageElements() const { return static_cast<size_t>(o.page_size) * static_cast<size_t>(o.num_kv_heads * o.head_dim); }
  size_t PoolBytes() const { return static_cast<size_t>(o.num_pages) * PageElements() * ElementBytes(); }
  std::vector<unsigned char> Pool(int32_t layer, bool v) { return Read<unsigned char>(pool_[layer][v ? 1 : 0], PoolBytes()); }
  void *pool(int32_t layer, bool v) const { return pool_[layer][v ? 1 : 0]; }
  void FillElements(void *to, size_t elements, double value) {
    std::vector<unsigned char> bytes(elements * ElementBytes());
    for (size_t i = 0; i < elements; i++)
      cgr__reference_store(o.dtype, &bytes[i * ElementBytes()], value);
    Write(to, bytes.data(), bytes.size());
  }
  // Fills whatever no request owns: pages but the read-trash page, and the tails of owned pages.
  void FillUnowned(double value) {
    std::vector<int32_t> owned(static_cast<size_t>(o.num_pages), 0); // tokens that must stay
    owned[0] = o.page_size;
    for (auto &[row, r] : requests)
      for (size_t p = 0; p < r->pages.size(); p++)
        owned[static_cast<size_t>(r->pages[p])] =
            std::clamp(r->num_tokens - static_cast<int32_t>(p) * o.page_size, 0, o.page_size);
    size_t token = static_cast<size_t>(o.num_kv_heads * o.head_dim) * ElementBytes();
    for (int32_t l = 0; l < o.num_layers; l++)
      for (int which = 0; which < 2; which++) {
        std::vector<unsigned char> bytes = Pool(l, which != 0);
        for (size_t p = 0; p < owned.size(); p++)
          for (size_t t = static_cast<size_t>(owned[p]); t < static_cast<size_t>(o.page_size); t++)
            for (size_t e = 0; e < token; e += ElementBytes())
              cgr__reference_store(o.dtype, &bytes[(p * static_cast<size_t>(o.page_size) + t) * token + e], value);
        Write(pool_[l][which], bytes.data(), bytes.size());
      }
  }

  // ---- requests
  int32_t Open() {
    int32_t row = -1;
    CGR_EXPECT_OK(cgr_request_open(rt, &row));
    EXPECT_EQ(requests.count(row), 0u) << "an open row was given out again";
    requests[row] = std::make_shared<ToyRequest>();
    changes++;
    return row;
  }
  void Close(int32_t row) {
    CGR_EXPECT_OK(cgr_request_close(rt, row));
    retired_.push_back({ launched, requests[row]->pages });
    requests.erase(row);
  }
  // Sets pages until the row has room for `tokens`.
  void Reserve(int32_t row, int32_t tokens) {
    ToyRequest &r = *requests[row];
    std::vector<int32_t> pages;
    int32_t first = static_cast<int32_t>(r.pages.size());
    while ((first + static_cast<int32_t>(pages.size())) * o.page_size < tokens)
      pages.push_back(TakePage());
    if (pages.empty())
      return;
    CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, first, pages.data(), static_cast<int32_t>(pages.size())));
    r.pages.insert(r.pages.end(), pages.begin(), pages.end());
    changes += pages.size();
  }
  // All steps must have been checked.
  void Rewind(int32_t row, int32_t tokens) {
    CGR_EXPECT_OK(cgr_request_rewind(rt, row, tokens));
    requests[row]->num_tokens = tokens;
    requests[row]->cache.resize(static_cast<size_t>(tokens));
    changes++;
  }
  cgr_request_info Info(int32_t row) {
    cgr_request_info info = CGR_REQUEST_INFO_INIT;
    CGR_EXPECT_OK(cgr_request_get_info(rt, row, &info));
    return info;
  }
  cgr_stats Stats() {
    cgr_stats stats = CGR_STATS_INIT;
    CGR_EXPECT_OK(cgr_runtime_stats(rt, &stats));
    uint64_t sum = 0;
    for (auto &kind : stats.by_reason)
      for (uint64_t count : kind)
        sum += count;
    EXPECT_EQ(sum, stats.steps) << "counters do not add up";
    return stats;
  }
  cgr_status Capture() { return cgr_runtime_capture(rt, ToyRecord, &engine); }

  // ---- steps
  // Gives `record` to the runtime without a graph: in mode NONE capture only keeps the function.
  cgr_status Prepare(const std::vector<ToyItem> &items, const cgr_key *forced = nullptr, uint32_t variant = 0) {
    rows_.clear(), lens_.clear(), tokens_.clear(), flags_.clear();
    items_ = items;
    for (const ToyItem &item : items) {
      rows_.push_back(item.row);
      lens_.push_back(static_cast<int32_t>(item.tokens.size()));
      tokens_.insert(tokens_.end(), item.tokens.begin(), item.tokens.end());
      flags_.push_back(item.partial ? static_cast<uint32_t>(CGR_REQUEST_PARTIAL) : 0u);
    }
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = static_cast<int32_t>(items.size());
    batch.rows = rows_.data();
    batch.query_lens = lens_.data();
    bool told = std::any_of(tokens_.begin(), tokens_.end(), [](int32_t token) { return token != CGR_TOKEN_LAST; });
    batch.tokens = told || tokens_.size() % 2 == 1 ? tokens_.data() : nullptr; // the array of nothing but LAST now and then
    bool partial = std::any_of(flags_.begin(), flags_.end(), [](uint32_t flag) { return flag != 0; });
    batch.flags = partial ? flags_.data() : nullptr;
    batch.forced_key = forced;
    batch.variant = variant;
    step = CGR_STEP_INIT;
    return cgr_step_prepare(rt, &batch, &step);
  }
  // Launches what Prepare prepared.
  cgr_status Launch() {
    auto pending = std::make_unique<Pending>();
    pending->number = ++uploads_;
    if (o.fixed && upload)
      Upload(pending.get());
    cgr_status status = cgr_step_launch(rt, &step, stream);
    if (status != CGR_OK) {
      Sync(); // the uploaded arrays go
      return status;
    }
    EXPECT_GT(step.seq, launched);
    launched = step.seq;
    pending->step = step;
    for (const ToyItem &item : items_) {
      std::shared_ptr<ToyRequest> r = requests.at(item.row);
      pending->items.push_back({ item, r, r->num_tokens });
      r->num_tokens += static_cast<int32_t>(item.tokens.size());
    }
    pending_.push_back(std::move(pending));
    return status;
  }
  // Waits for the oldest step that has not been checked and compares.
  void CheckOne() {
    ASSERT_FALSE(pending_.empty());
    std::unique_ptr<Pending> p = std::move(pending_.front());
    pending_.pop_front();
    SCOPED_TRACE("step " + std::to_string(p->step.seq));
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_ASSERT_OK(cgr_step_wait(rt, p->step.seq, &result));
    ASSERT_EQ(result.seq, p->step.seq);
    ASSERT_EQ(result.num_requests, static_cast<int32_t>(p->items.size()));
    ASSERT_EQ(result.error, CGR_STEP_OK);
    ASSERT_EQ(result.error_row, -1);
    Apply(*p);
    std::vector<int32_t> tokens(result.tokens, result.tokens + result.num_requests);
    for (size_t i = 0; i < p->items.size(); i++) {
      Taken &taken = p->items[i];
      if (taken.item.tokens.empty())
        continue;
      if (o.fixed)
        ASSERT_EQ(tokens[i], kFixedToken + static_cast<int32_t>(i)) << "row " << taken.item.row;
      else
        CheckToken(taken, tokens[i]);
      taken.request->sampled.push_back(tokens[i]);
      if (!taken.item.partial)
        taken.request->last = tokens[i];
    }
    if (pending_.empty() && check_outputs)
      CheckOutputs(*p);
  }
  void CheckAll() {
    while (!pending_.empty() && !::testing::Test::HasFatalFailure())
      CheckOne();
  }
  size_t num_pending() const { return pending_.size(); }
  // One whole step.
  void Step(const std::vector<ToyItem> &items, const cgr_key *forced = nullptr) {
    CGR_ASSERT_OK(Prepare(items, forced));
    CGR_ASSERT_OK(Launch());
    CheckAll();
  }
  // Opens a request and runs a prompt of `length` tokens through it.
  int32_t Start(int32_t length, int32_t salt = 0) {
    int32_t row = Open();
    Reserve(row, length);
    Step({ { row, Prompt(length, salt), false } });
    return row;
  }
  static std::vector<int32_t> Prompt(int32_t length, int32_t salt) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < length; i++)
      tokens.push_back((i * 7 + salt * 13 + 3) % kVocabulary);
    return tokens;
  }
  // One decode token for each of `rows`, its page included.
  std::vector<ToyItem> Decode(const std::vector<int32_t> &rows) {
    std::vector<ToyItem> items;
    for (int32_t row : rows) {
      Reserve(row, requests[row]->num_tokens + 1);
      items.push_back({ row, { CGR_TOKEN_LAST }, false });
    }
    return items;
  }
  std::vector<int32_t> Rows() const {
    std::vector<int32_t> rows;
    for (auto &[row, r] : requests)
      rows.push_back(row);
    return rows;
  }
  // Forgets what was launched and not checked: for tests in which steps go wrong on purpose.
  void Forget() { pending_.clear(); }
  size_t free_pages() {
    ReturnPages();
    return free_.size();
  }

  // Output bits of the last step, of layer `layer`, for its first `tokens` tokens.
  std::vector<unsigned char> Out(int32_t layer, int32_t tokens) {
    return Read<unsigned char>(engine.out[layer], static_cast<size_t>(tokens * o.num_q_heads * o.head_dim) * ElementBytes());
  }
  std::vector<float> Lse(int32_t layer, int32_t tokens) {
    return Read<float>(engine.lse[layer], static_cast<size_t>(tokens * o.num_q_heads));
  }

  ToyOptions o;
  cgr_device *dev = nullptr;
  cgr_runtime *rt = nullptr;
  cudaStream_t stream = nullptr;
  ToyEngine engine = {};
  std::vector<cgr_record_info> records;
  cgr_step step = CGR_STEP_INIT;
  uint64_t launched = 0; // last number
  bool check_outputs = true;
  bool upload = true;   // fixed mode: new q, k and v for each step
  uint64_t changes = 0; // words of rows and pages that were changed; tests set it back
  std::map<int32_t, std::shared_ptr<ToyRequest>> requests;

  // What the runtime is made from; for tests that make one themselves.
  cgr_config Config() {
    group_ = CGR_GROUP_INIT;
    group_.page_size = o.page_size;
    group_.num_pages = o.num_pages;
    layers_.assign(static_cast<size_t>(o.num_layers), CGR_LAYER_INIT);
    for (int32_t l = 0; l < o.num_layers; l++) {
      cgr_layer &layer = layers_[static_cast<size_t>(l)];
      layer.num_q_heads = o.num_q_heads;
      layer.num_kv_heads = o.num_kv_heads;
      layer.head_dim = o.head_dim;
      int64_t token = int64_t{ 1 } * o.num_kv_heads * o.head_dim;
      layer.k = { pool_[l][0], o.dtype, 0, token * o.page_size, token, o.head_dim };
      layer.v = { pool_[l][1], o.dtype, 0, token * o.page_size, token, o.head_dim };
    }
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev;
    config.groups = &group_;
    config.num_groups = 1;
    config.layers = layers_.data();
    config.num_layers = o.num_layers;
    config.max_requests = o.max_requests;
    config.max_rows = o.max_rows;
    config.max_tokens = o.max_tokens;
    config.max_seq_len = o.max_seq_len;
    config.buckets = o.buckets.data();
    config.num_buckets = static_cast<int32_t>(o.buckets.size());
    if (o.adjust)
      o.adjust(&config);
    return config;
  }

private:
  struct Taken {
    ToyItem item;
    std::shared_ptr<ToyRequest> request;
    int32_t start; // position of its first token
  };
  struct Pending {
    cgr_step step;
    int32_t number = 0;
    std::vector<Taken> items;
    std::vector<unsigned char> uploads[2][3];
  };

  void Make() {
    if (o.device.IsCuda())
      o.fixed = true;
    dev = o.handle;
    if (dev == nullptr)
      CGR_ASSERT_OK(cgr_device_open(o.device.name.c_str(), &o.device.config, &dev));
    CGR_ASSERT_OK(cgr_stream_create(dev, &stream));
    for (int32_t l = 0; l < o.num_layers; l++)
      for (int which = 0; which < 2; which++) {
        pool_[l][which] = Alloc(PoolBytes());
        FillElements(pool_[l][which], PoolBytes() / ElementBytes(), o.unowned);
        FillElements(pool_[l][which], PageElements(), 0.0); // read trash
      }
    for (int32_t p = o.num_pages - 1; p >= 2; p--)
      free_.push_back(p);
    std::mt19937 random(7);
    std::shuffle(free_.begin(), free_.end(), random);
    cgr_config config = Config();
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt));
    MakeEngine();
  }
  void MakeEngine() {
    engine.magic = kToyMagic;
    engine.fixed = o.fixed;
    engine.num_layers = o.num_layers;
    engine.num_q_heads = o.num_q_heads;
    engine.num_kv_heads = o.num_kv_heads;
    engine.head_dim = o.head_dim;
    engine.dtype = o.dtype;
    engine.fail_after = -1;
    engine.fail_status = CGR_ERROR_CALLBACK;
    engine.device = dev;
    engine.records = &records;
    size_t tokens = static_cast<size_t>(o.max_tokens), dim = static_cast<size_t>(o.head_dim) * ElementBytes();
    for (int32_t l = 0; l < o.num_layers; l++) {
      engine.q[l] = Alloc(tokens * static_cast<size_t>(o.num_q_heads) * dim);
      engine.k[l] = Alloc(tokens * static_cast<size_t>(o.num_kv_heads) * dim);
      engine.v[l] = Alloc(tokens * static_cast<size_t>(o.num_kv_heads) * dim);
      engine.out[l] = Alloc(tokens * static_cast<size_t>(o.num_q_heads) * dim);
      engine.lse[l] = static_cast<float *>(Alloc(tokens * static_cast<size_t>(o.num_q_heads) * sizeof(float)));
      FillElements(engine.q[l], tokens * static_cast<size_t>(o.num_q_heads * o.head_dim), NAN);
      FillElements(engine.k[l], tokens * static_cast<size_t>(o.num_kv_heads * o.head_dim), NAN);
      FillElements(engine.v[l], tokens * static_cast<size_t>(o.num_kv_heads * o.head_dim), NAN);
    }
    engine.input_ids = static_cast<const int32_t *>(View(CGR_BUFFER_INPUT_IDS).data);
    engine.positions = static_cast<const int32_t *>(View(CGR_BUFFER_POSITIONS).data);
    engine.logits_indices = static_cast<const int32_t *>(View(CGR_BUFFER_LOGITS_INDICES).data);
    engine.next_tokens = static_cast<int32_t *>(View(CGR_BUFFER_NEXT_TOKENS).data);
    std::vector<int32_t> table;
    for (int32_t i = 0; i < o.max_requests; i++)
      table.push_back(kFixedToken + i);
    int32_t *on_device = static_cast<int32_t *>(Alloc(table.size() * sizeof(int32_t)));
    Write(on_device, table.data(), table.size() * sizeof(int32_t));
    engine.token_table = on_device;
  }
  void ReturnPages() {
    uint64_t done = cgr_runtime_completed(rt);
    for (size_t i = 0; i < retired_.size();) {
      if (retired_[i].first <= done) {
        free_.insert(free_.begin(), retired_[i].second.begin(), retired_[i].second.end());
        retired_.erase(retired_.begin() + static_cast<int64_t>(i));
      } else {
        i++;
      }
    }
  }
  int32_t TakePage() {
    if (free_.empty())
      ReturnPages();
    EXPECT_FALSE(free_.empty()) << "the toy's pool is too small for this test";
    int32_t page = free_.back();
    free_.pop_back();
    return page;
  }
  // q, k and v of the step's tokens; padded tokens get NaN.
  void Upload(Pending *p) {
    int32_t real = step.num_tokens;
    for (int32_t l = 0; l < o.num_layers; l++) {
      void *to[3] = { engine.q[l], engine.k[l], engine.v[l] };
      for (int32_t which = kQ; which <= kV; which++) {
        int32_t heads = which == kQ ? o.num_q_heads : o.num_kv_heads;
        std::vector<unsigned char> &bytes = p->uploads[l][which];
        bytes.resize(static_cast<size_t>(o.max_tokens * heads * o.head_dim) * ElementBytes());
        for (int32_t t = 0; t < o.max_tokens; t++)
          for (int32_t h = 0; h < heads; h++)
            for (int32_t d = 0; d < o.head_dim; d++)
              cgr__reference_store(o.dtype, &bytes[static_cast<size_t>((t * heads + h) * o.head_dim + d) * ElementBytes()],
                                   t < real ? ToyValue(l, which, p->number, t, h, d) : NAN);
        CGR_EXPECT_OK(cgr_copy(dev, to[which], bytes.data(), bytes.size(), stream));
      }
    }
  }
  // The model takes the step's tokens.
  void Apply(Pending &p) {
    int32_t t = 0;
    for (Taken &taken : p.items) {
      ToyRequest &r = *taken.request;
      r.cache.resize(static_cast<size_t>(taken.start));
      for (size_t j = 0; j < taken.item.tokens.size(); j++, t++) {
        int32_t token = taken.item.tokens[j] == CGR_TOKEN_LAST ? r.last : taken.item.tokens[j];
        int32_t position = static_cast<int32_t>(r.cache.size());
        r.cache.push_back(o.fixed ? ToyRequest::Entry{ p.number, t } : ToyRequest::Entry{ token, position });
      }
    }
  }
  // Output of `layer` for the last `queries` tokens of a request, [queries][heads][dim], and of the same-precision reference.
  void Expect(const ToyRequest &r, int32_t layer, size_t queries, std::vector<double> *out, std::vector<double> *near,
              std::vector<double> *lse) const {
    size_t length = r.cache.size();
    auto fill = [&](int32_t which, size_t begin) {
      int32_t heads = which == kQ ? o.num_q_heads : o.num_kv_heads;
      std::vector<double> values;
      for (size_t i = begin; i < length; i++)
        for (int32_t h = 0; h < heads; h++)
          for (int32_t d = 0; d < o.head_dim; d++)
            values.push_back(ToyValue(layer, which, r.cache[i].a, r.cache[i].b, h, d));
      return values;
    };
    std::vector<double> q = fill(kQ, length - queries), k = fill(kK, 0), v = fill(kV, 0);
    cgr__reference_shape shape = { static_cast<int32_t>(queries),
                                   static_cast<int32_t>(length),
                                   o.num_q_heads,
                                   o.num_kv_heads,
                                   o.head_dim,
                                   1,
                                   1.0 / std::sqrt(static_cast<float>(o.head_dim)) };
    out->assign(q.size(), 0.0);
    lse->assign(queries * static_cast<size_t>(o.num_q_heads), 0.0);
    cgr__reference_attention(&shape, q.data(), k.data(), v.data(), out->data(), lse->data());
    if (near == nullptr)
      return;
    near->assign(q.size(), 0.0);
    std::vector<double> unused(lse->size());
    cgr__reference_attention_in(o.dtype, &shape, q.data(), k.data(), v.data(), near->data(), unused.data());
  }
  // `token` must have the best score, or one that rounding cannot tell from it.
  void CheckToken(const Taken &taken, int32_t token) const {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, kVocabulary);
    std::vector<double> scores(kVocabulary, 0.0), out, lse;
    for (int32_t l = 0; l < o.num_layers; l++) {
      Expect(*taken.request, l, 1, &out, nullptr, &lse);
      for (int32_t c = 0; c < kVocabulary; c++)
        for (size_t e = 0; e < out.size(); e++)
          scores[static_cast<size_t>(c)] += out[e] * ToyWeight(c, l, static_cast<int32_t>(e));
    }
    double best = *std::max_element(scores.begin(), scores.end());
    double tolerance = o.dtype == CGR_DTYPE_FP32 ? 1e-4 : 0.05;
    ASSERT_GE(scores[static_cast<size_t>(token)], best - tolerance)
        << "row " << taken.item.row << ", " << taken.request->cache.size() << " tokens: sampled " << token << ", expected "
        << std::max_element(scores.begin(), scores.end()) - scores.begin();
  }
  // The outputs of the last step: real tokens near the reference, padded ones 0 and -inf.
  void CheckOutputs(const Pending &p) {
    int32_t padded = std::max(p.step.key.num_tokens, p.step.num_tokens);
    size_t width = static_cast<size_t>(o.num_q_heads * o.head_dim), heads = static_cast<size_t>(o.num_q_heads);
    for (int32_t l = 0; l < o.num_layers; l++) {
      SCOPED_TRACE("layer " + std::to_string(l));
      std::vector<unsigned char> bytes = Out(l, padded);
      std::vector<float> lse = Lse(l, padded);
      size_t t = 0;
      for (const Taken &taken : p.items) {
        size_t queries = taken.item.tokens.size();
        if (queries == 0)
          continue;
        std::vector<double> out, near, out_lse;
        Expect(*taken.request, l, queries, &out, &near, &out_lse);
        double allowed = 0.0;
        for (size_t e = 0; e < out.size(); e++)
          allowed = std::max(allowed, std::fabs(near[e] - out[e]));
        for (size_t e = 0; e < out.size(); e++)
          ASSERT_NEAR(cgr__reference_load(o.dtype, &bytes[(t * width + e) * ElementBytes()]), out[e], 2 * allowed + 1e-5)
              << "row " << taken.item.row << " element " << e;
        for (size_t e = 0; e < out_lse.size(); e++)
          ASSERT_NEAR(lse[t * heads + e], out_lse[e], 1e-3) << "row " << taken.item.row;
        t += queries;
      }
      for (size_t e = t * width; e < static_cast<size_t>(padded) * width; e++)
        ASSERT_EQ(cgr__reference_load(o.dtype, &bytes[e * ElementBytes()]), 0.0) << "padded token " << e / width;
      for (size_t e = t * heads; e < static_cast<size_t>(padded) * heads; e++)
        ASSERT_EQ(lse[e], -INFINITY) << "padded token";
    }
  }

  void *pool_[2][2] = {};
  std::vector<void *> memory_;
  std::vector<int32_t> free_;
  std::vector<std::pair<uint64_t, std::vector<int32_t>>> retired_;
  cgr_group group_;
  std::vector<cgr_layer> layers_;
  std::vector<ToyItem> items_;
  std::vector<int32_t> rows_, lens_, tokens_;
  std::vector<uint32_t> flags_;
  std::deque<std::unique_ptr<Pending>> pending_;
  int32_t uploads_ = 0;
};

// Everything that a call which is refused must leave alone.
struct ToySnapshot {
  explicit ToySnapshot(Toy &toy) : stats(toy.Stats()), completed(toy.launched == 0 ? 0 : cgr_runtime_completed(toy.rt)) {
    for (int32_t row = 0; row < toy.o.max_rows; row++) {
      cgr_request_info info = CGR_REQUEST_INFO_INIT;
      EXPECT_EQ(cgr_request_get_info(toy.rt, row, &info), CGR_OK) << cgr_last_message();
      info.size = 0;
      infos.push_back(info);
    }
  }
  // `refused`: prepare calls that failed in between.
  void ExpectSame(const ToySnapshot &now, uint64_t refused = 0) const {
    EXPECT_EQ(now.stats.refused, stats.refused + refused);
    cgr_stats then = stats;
    then.refused = now.stats.refused;
    EXPECT_EQ(std::memcmp(&then, &now.stats, sizeof then), 0) << "statistics changed";
    for (size_t row = 0; row < infos.size(); row++)
      EXPECT_EQ(std::memcmp(&infos[row], &now.infos[row], sizeof infos[row]), 0) << "row " << row << " changed";
  }
  cgr_stats stats;
  uint64_t completed;
  std::vector<cgr_request_info> infos;
};

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_TOY_ENGINE_H
