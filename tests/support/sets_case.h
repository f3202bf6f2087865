// A small engine whose layers belong to several length sets: with a cache of the sequences, with one that the steps of another
// set fill, or without any. It keeps a model of what the caches hold and compares every step's outputs with attention in fp64.
#ifndef CGR_TESTS_SUPPORT_SETS_CASE_H
#define CGR_TESTS_SUPPORT_SETS_CASE_H

#include <array>
#include <cstring>
#include <functional>
#include <map>

#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/oracle.h"
#include "tests/support/seed.h"

namespace cgr_test {

namespace sets {

using Bytes = std::vector<unsigned char>;

enum { kMaxRequests = 6, kMaxRows = 8, kMaxTokens = 96, kMaxSeqLen = 128, kMaxSets = 4 };

struct GroupSpec {
  int32_t page_size, num_pages, set;
};

// A layer of a set after 0 that keeps a cache is called with APPEND_ONLY in the steps of its set, unless `attends`.
struct LayerSpec {
  int32_t group, set, source;
  uint32_t flags;
  int32_t q_heads, kv_heads, dim, window_left;
  bool attends;
  bool HasCache() const { return !(flags & CGR_LAYER_NO_CACHE); }
};

struct Options {
  std::vector<GroupSpec> groups;
  std::vector<LayerSpec> layers;
  int32_t num_sets = 2; // steps of set s after 0 are those of variant s
  std::function<void(cgr_config *)> adjust;
  bool samples = true; // steps write next tokens
  std::function<cgr_device *(cgr_device *)> wrap = nullptr;
};

// An encoder of one layer, and a decoder of two, each of which attends to its own sequence and to the encoder's output. The last
// layer reads the encoder's tokens from the cache of another.
inline Options EncoderAndDecoder() {
  const uint32_t bi = CGR_LAYER_BIDIRECTIONAL;
  return { { { 16, 40, 0 }, { 32, 24, 1 } },
           { { 0, 1, 0, bi | CGR_LAYER_NO_CACHE, 4, 2, 32, 0, false },
             { 0, 0, 0, 0, 4, 2, 32, 0, false },
             { 1, 1, 0, bi, 4, 4, 64, 0, false },
             { 0, 0, 0, 0, 4, 1, 32, 9, false },
             { 1, 1, 3, bi, 8, 4, 64, 0, false } },
           2,
           nullptr };
}

struct Item {
  int32_t row, count;
};

class SetsEngine {
public:
  // `pinned_bytes`: of memory for the rings, which a test can look into; 0: the runtime's own.
  SetsEngine(const DeviceParam &device, cgr_graph_mode graph_mode, const Options &options, uint64_t seed, size_t ring_bytes = 0)
      : pinned_bytes(ring_bytes), o(options), mode(graph_mode), dtype(device.HasCudaKernels() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32),
        random_(seed) {
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev));
    if (o.wrap)
      dev = o.wrap(dev);
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
    free_.resize(o.groups.size());
    for (size_t g = 0; g < o.groups.size(); g++)
      for (int32_t p = 2; p < o.groups[g].num_pages; p++)
        free_[g].push_back(p);
    layers_.resize(o.layers.size());
    for (size_t l = 0; l < layers_.size(); l++)
      MakeLayer(l);
    CGR_EXPECT_OK(cgr_stream_synchronize(dev, stream)); // the runtime has streams of its own
    cgr_config config = Config();
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
    int32_t region;
    for (size_t i = 0; rt != nullptr && i < memory_.size(); i++)
      CGR_EXPECT_OK(cgr_region_register(rt, memory_[i], bytes_[i], &region));
  }
  ~SetsEngine() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev, memory));
    if (pinned != nullptr)
      CGR_EXPECT_OK(cgr_memory_free_pinned(dev, pinned));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }
  SetsEngine(const SetsEngine &) = delete;
  SetsEngine &operator=(const SetsEngine &) = delete;

  cgr_config Config() {
    groups_.assign(o.groups.size(), CGR_GROUP_INIT);
    for (size_t g = 0; g < groups_.size(); g++) {
      groups_[g].page_size = o.groups[g].page_size;
      groups_[g].num_pages = o.groups[g].num_pages;
      groups_[g].length_set = o.groups[g].set;
    }
    config_layers_.assign(o.layers.size(), CGR_LAYER_INIT);
    for (size_t l = 0; l < config_layers_.size(); l++)
      config_layers_[l] = ConfigLayer(l);
    variants_.clear();
    for (int32_t s = 1; s < o.num_sets; s++)
      variants_.push_back({ uint32_t(s), 0, 1, s });
    static const int32_t decode[] = { 1, 4 };
    static const cgr_bucket mixed[] = { { 16, 4 }, { 96, 6 } };
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev;
    config.groups = groups_.data();
    config.num_groups = int32_t(groups_.size());
    config.layers = config_layers_.data();
    config.num_layers = int32_t(config_layers_.size());
    config.max_requests = kMaxRequests;
    config.max_rows = kMaxRows;
    config.max_tokens = kMaxTokens;
    config.max_seq_len = kMaxSeqLen;
    config.graph_mode = mode;
    config.max_padding = kMaxTokens; // no step is turned down
    config.decode_buckets = decode;
    config.num_decode_buckets = 2;
    config.mixed_buckets = mixed;
    config.num_mixed_buckets = 2;
    config.variants = variants_.data();
    config.num_variants = int32_t(variants_.size());
    config.num_length_sets = o.num_sets;
    if (pinned_bytes > 0 && pinned == nullptr)
      CGR_EXPECT_OK(cgr_memory_alloc_pinned(dev, pinned_bytes, &pinned));
    config.pinned_memory = pinned;
    config.pinned_memory_size = pinned_bytes;
    if (o.adjust)
      o.adjust(&config);
    return config;
  }
  cgr_capture CaptureStruct() {
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = Record;
    capture.engine = this;
    return capture;
  }
  cgr_status Capture() {
    const cgr_capture capture = CaptureStruct();
    return cgr_runtime_capture(rt, &capture);
  }

  // ---- requests
  int32_t Open() {
    int32_t row = -1;
    CGR_EXPECT_OK(cgr_request_open(rt, 7, &row));
    length[row] = {};
    for (Layer &layer : layers_)
      layer.cache.erase(row);
    return row;
  }
  // Every step has completed: the pages may go to others at once.
  void Close(int32_t row) {
    CGR_EXPECT_OK(cgr_request_close(rt, row));
    for (size_t g = 0; g < o.groups.size(); g++) {
      std::vector<int32_t> &has = pages[{ int32_t(g), row }];
      free_[g].insert(free_[g].end(), has.begin(), has.end());
      has.clear();
    }
    length.erase(row);
  }
  // Pages of the groups of a set for `tokens` tokens, taken at random.
  void Reserve(int32_t row, int32_t set, int32_t tokens) {
    for (size_t g = 0; g < o.groups.size(); g++) {
      std::vector<int32_t> &has = pages[{ int32_t(g), row }];
      while (o.groups[g].set == set && int32_t(has.size()) * o.groups[g].page_size < tokens) {
        auto at = free_[g].begin() + random_.Pick(0, int64_t(free_[g].size()) - 1);
        CGR_EXPECT_OK(cgr_request_set_pages(rt, row, int32_t(g), int32_t(has.size()), &*at, 1));
        has.push_back(*at);
        free_[g].erase(at);
      }
    }
  }
  void SetOther(int32_t row, int32_t set, int32_t tokens) {
    Reserve(row, set, tokens);
    CGR_EXPECT_OK(cgr_request_set_other_length(rt, row, set, tokens));
    length[row][size_t(set)] = tokens;
  }

  // ---- steps
  cgr_status Prepare(const std::vector<Item> &items, int32_t set, const cgr_key *forced = nullptr) {
    std::vector<int32_t> rows, lens, tokens;
    for (const Item &item : items) {
      rows.push_back(item.row);
      lens.push_back(item.count);
      tokens.insert(tokens.end(), size_t(item.count), 3);
    }
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = int32_t(items.size());
    batch.rows = rows.data();
    batch.query_lens = lens.data();
    batch.tokens = tokens.data();
    batch.variant = uint32_t(set);
    batch.forced_key = forced;
    step = CGR_STEP_INIT;
    return cgr_step_prepare(rt, &batch, &step);
  }
  // Tokens of the sequences: a step of set 0. The bytes that its layers wrote for real tokens.
  Bytes Decode(const std::vector<Item> &items, const cgr_key *forced = nullptr) {
    for (const Item &item : items) {
      Reserve(item.row, 0, length[item.row][0] + item.count);
      length[item.row][0] += item.count;
    }
    return Run(items, 0, forced);
  }
  // The same for tokens of another set, which the rows get now.
  Bytes Encode(const std::vector<Item> &items, int32_t set = 1, const cgr_key *forced = nullptr) {
    for (const Item &item : items)
      SetOther(item.row, set, length[item.row][size_t(set)] + item.count);
    return Run(items, set, forced);
  }
  Bytes Run(const std::vector<Item> &items, int32_t set, const cgr_key *forced) {
    Bytes wrote;
    cgr_status status = Prepare(items, set, forced);
    CGR_EXPECT_OK(status);
    if (status != CGR_OK)
      return wrote;
    int32_t tokens = 0;
    for (const Item &item : items)
      tokens += item.count;
    GiveInputs(tokens);
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT_OK(cgr_step_launch(rt, &step, stream));
    CGR_EXPECT_OK(cgr_step_wait(rt, step.mark, -1, &result));
    EXPECT_EQ(result.guard.error, int32_t(CGR_GUARD_NONE)) << "row " << result.guard.row << " value " << result.guard.value;
    EXPECT_EQ(result.num_requests, int32_t(items.size()));
    for (size_t i = 0; i < items.size() && result.num_requests == int32_t(items.size()); i++)
      EXPECT_EQ(result.num_tokens[i], set == 0 && items[i].count > 0 ? 1 : 0) << "request " << i;
    KeepTokens(items, set);
    for (size_t l = 0; l < layers_.size(); l++)
      if (AttendsIn(l, set))
        CheckLayer(l, items, tokens, set, &wrote);
    return wrote;
  }

  // ---- memory
  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(dev, bytes, &memory));
    memory_.push_back(memory);
    bytes_.push_back(bytes);
    return memory;
  }
  void Copy(void *to, const void *from, size_t bytes) {
    CGR_EXPECT_OK(cgr_copy(dev, to, from, bytes, stream));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev, stream));
  }
  template <class T> std::vector<T> Buffer(cgr_buffer buffer, int32_t index) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CGR_EXPECT_OK(cgr_buffer_get(rt, NULL, buffer, index, &view));
    std::vector<T> content(size_t((view.shape[0] - 1) * view.stride + view.shape[1]));
    Copy(content.data(), view.data, content.size() * sizeof(T));
    return content;
  }

  const size_t pinned_bytes;
  void *pinned = nullptr;
  const Options o;
  const cgr_graph_mode mode;
  const cgr_dtype dtype;
  cgr_device *dev = nullptr;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;
  cgr_step step = CGR_STEP_INIT;
  std::map<int32_t, std::array<int32_t, kMaxSets>> length;           // by row
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> pages; // by group and row
  std::function<void(const cgr_record_info &)> on_record;            // at each `record`
  std::function<void(size_t, cgr_attention *)> adjust_call;          // before a layer is called; a layer of -1 is left out

private:
  struct Layer {
    cgr_kv_view kv[2];
    cgr_view q, k, v, out, lse;
    Bytes given[3];
    std::map<int32_t, std::array<Values, 2>> cache; // by row
  };

  size_t BytesOf(int32_t heads, int32_t dim) const { return size_t(heads * dim) * cgr_dtype_size(dtype); }
  cgr_layer ConfigLayer(size_t l) {
    const LayerSpec &s = o.layers[l];
    cgr_layer layer = CGR_LAYER_INIT;
    layer.group = s.group;
    layer.length_set = s.set;
    layer.kv_source = s.source;
    layer.flags = s.flags;
    layer.num_q_heads = s.q_heads;
    layer.num_kv_heads = s.kv_heads;
    layer.head_dim = s.dim;
    layer.window_left = s.window_left;
    layer.dtype = s.HasCache() ? 0 : int32_t(dtype);
    if (s.HasCache() && s.source == 0) {
      layer.k = layers_[l].kv[0];
      layer.v = layers_[l].kv[1];
    }
    return layer;
  }
  // Pages are NaN, except the read-trash page.
  void MakeLayer(size_t l) {
    const LayerSpec &s = o.layers[l];
    Layer &layer = layers_[l];
    for (int which = 0; which < 2 && s.HasCache() && s.source == 0; which++) {
      const GroupSpec &g = o.groups[size_t(s.group)];
      size_t page = BytesOf(s.kv_heads * g.page_size, s.dim);
      void *base = Alloc(page * size_t(g.num_pages));
      CGR_EXPECT_OK(cgr_fill(dev, base, 0xff, page * size_t(g.num_pages), stream));
      CGR_EXPECT_OK(cgr_fill(dev, base, 0, page, stream));
      CGR_EXPECT_OK(cgr_kv_view_make(l % 2 ? CGR_LAYOUT_HND : CGR_LAYOUT_NHD, base, dtype, g.page_size, s.kv_heads, s.dim,
                                     &layer.kv[which]));
    }
    cgr_view *const views[] = { &layer.q, &layer.k, &layer.v, &layer.out };
    for (int i = 0; i < 4; i++) {
      int32_t heads = i == 0 || i == 3 ? s.q_heads : s.kv_heads;
      CGR_EXPECT_OK(cgr_view_make(Alloc(BytesOf(heads, s.dim) * kMaxTokens), dtype, heads, s.dim, views[i]));
    }
    layer.lse = { Alloc(size_t(s.q_heads) * kMaxTokens * 4), CGR_DTYPE_FP32, 0, s.q_heads, 1 };
  }
  // The layer whose cache it reads.
  size_t SourceOf(size_t l) const { return o.layers[l].source == 0 ? l : SourceOf(size_t(o.layers[l].source - 1)); }
  bool AttendsIn(size_t l, int32_t set) const {
    const LayerSpec &s = o.layers[l];
    return s.set == set ? set == 0 || !s.HasCache() || s.attends : set == 0 && s.HasCache();
  }

  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    SetsEngine &self = *static_cast<SetsEngine *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_buffer_view next = CGR_BUFFER_VIEW_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    const int32_t set = int32_t(info.key.variant);
    if (self.on_record)
      self.on_record(info);
    for (size_t l = 0; l < self.layers_.size() && status == CGR_OK; l++) {
      const LayerSpec &s = self.o.layers[l];
      const Layer &layer = self.layers_[l];
      bool fills = s.HasCache() && s.set == set && set > 0 && s.source == 0;
      if (!self.AttendsIn(l, set) && !fills)
        continue;
      cgr_attention a = CGR_ATTENTION_INIT;
      a.layer = int32_t(l);
      a.flags = fills && !s.attends ? CGR_ATTENTION_APPEND_ONLY : 0;
      a.q = layer.q;
      a.out = layer.out;
      a.lse = layer.lse;
      if (s.set == set && s.source == 0) { // an encoder's keys are not this step's
        a.k = layer.k;
        a.v = layer.v;
      }
      if (self.adjust_call)
        self.adjust_call(l, &a);
      if (a.layer >= 0)
        status = cgr_record_attention(recorder, &a);
    }
    if (status == CGR_OK && !self.o.samples)
      return status;
    if (status == CGR_OK)
      status = cgr_record_buffer(recorder, CGR_BUFFER_NEXT_TOKENS, 0, &next);
    return status == CGR_OK ? cgr_fill(self.dev, next.data, 1 + set, size_t(info.num_requests) * 4, info.stream) : status;
  }

  // Everything but the step's tokens is NaN.
  void GiveInputs(int32_t tokens) {
    for (size_t l = 0; l < layers_.size(); l++) {
      Layer &layer = layers_[l];
      const LayerSpec &s = o.layers[l];
      const cgr_view *const views[] = { &layer.q, &layer.k, &layer.v };
      for (int i = 0; i < 3; i++) {
        int32_t heads = i == 0 ? s.q_heads : s.kv_heads;
        size_t element = cgr_dtype_size(dtype), count = size_t(tokens * heads * s.dim);
        layer.given[i].resize(count * element);
        for (size_t e = 0; e < count; e++) {
          double value = double(random_.Pick(-1000, 1000)) / 500.0;
          StoreElements(dtype, &value, 1, layer.given[i].data() + e * element);
        }
        CGR_EXPECT_OK(cgr_fill(dev, views[i]->data, 0xff, BytesOf(heads, s.dim) * kMaxTokens, stream));
        if (tokens > 0)
          Copy(views[i]->data, layer.given[i].data(), layer.given[i].size());
      }
      CGR_EXPECT_OK(cgr_fill(dev, layer.out.data, 0xff, BytesOf(s.q_heads, s.dim) * kMaxTokens, stream));
      CGR_EXPECT_OK(cgr_fill(dev, layer.lse.data, 0xff, size_t(s.q_heads) * kMaxTokens * 4, stream));
    }
  }
  Values Given(size_t l, int which, int32_t first, int32_t count) const {
    int32_t heads = which == 0 ? o.layers[l].q_heads : o.layers[l].kv_heads, width = heads * o.layers[l].dim;
    return LoadElements(dtype, layers_[l].given[which].data() + size_t(first * width) * cgr_dtype_size(dtype),
                        int64_t(count) * width);
  }
  // The model of the caches: a token is where its place in the set says.
  void KeepTokens(const std::vector<Item> &items, int32_t set) {
    for (size_t l = 0; l < layers_.size(); l++) {
      const LayerSpec &s = o.layers[l];
      int32_t at = 0, width = s.kv_heads * s.dim;
      for (const Item &item : items) {
        for (int which = 0; which < 2 && s.HasCache() && s.source == 0 && s.set == set; which++) {
          Values given = Given(l, 1 + which, at, item.count), &cache = layers_[l].cache[item.row][size_t(which)];
          size_t end = size_t(length[item.row][size_t(set)] * width);
          cache.resize(std::max(cache.size(), end));
          std::copy(given.begin(), given.end(), cache.begin() + int64_t(end - given.size()));
        }
        at += item.count;
      }
    }
  }
  void CheckLayer(size_t l, const std::vector<Item> &items, int32_t tokens, int32_t set, Bytes *wrote) {
    SCOPED_TRACE("layer " + std::to_string(l));
    const LayerSpec &s = o.layers[l];
    Bytes out(BytesOf(s.q_heads, s.dim) * kMaxTokens), lse(size_t(s.q_heads) * kMaxTokens * 4);
    Copy(out.data(), layers_[l].out.data, out.size());
    Copy(lse.data(), layers_[l].lse.data, lse.size());
    wrote->insert(wrote->end(), out.begin(), out.begin() + int64_t(BytesOf(s.q_heads, s.dim)) * tokens);
    wrote->insert(wrote->end(), lse.begin(), lse.begin() + int64_t(s.q_heads) * 4 * tokens);
    cgr_view out_view = layers_[l].out, lse_view = layers_[l].lse;
    out_view.data = out.data();
    lse_view.data = lse.data();
    int32_t at = 0;
    for (const Item &item : items) {
      SCOPED_TRACE("row " + std::to_string(item.row));
      CheckRequest(l, item, at, set, ReadView(out_view, at, item.count, s.q_heads, s.dim),
                   ReadView(lse_view, at, item.count, s.q_heads, 1));
      at += item.count;
    }
    ExpectNothing(ReadView(out_view, at, step.key.num_tokens - at, s.q_heads, s.dim),
                  ReadView(lse_view, at, step.key.num_tokens - at, s.q_heads, 1));
  }
  void CheckRequest(size_t l, const Item &item, int32_t at, int32_t set, const Values &out, const Values &lse) {
    const LayerSpec &s = o.layers[l];
    cgr__reference_shape shape = {};
    shape.query_len = item.count;
    shape.seq_len = s.HasCache() ? length[item.row][size_t(s.set)] : item.count;
    shape.num_q_heads = s.q_heads;
    shape.num_kv_heads = s.kv_heads;
    shape.head_dim = shape.head_dim_v = s.dim;
    shape.causal = !(s.flags & CGR_LAYER_BIDIRECTIONAL);
    shape.apart = s.HasCache() && s.set > 0;
    shape.window_left = s.window_left;
    shape.scale = 1.0 / std::sqrt(double(s.dim));
    if (shape.seq_len == 0) { // not encoded yet
      ExpectNothing(out, lse);
      return;
    }
    if (item.count == 0)
      return;
    Values k = Given(l, 1, at, item.count), v = Given(l, 2, at, item.count), q = Given(l, 0, at, item.count);
    if (s.HasCache()) {
      const std::array<Values, 2> &cache = layers_[SourceOf(l)].cache[item.row];
      const int64_t count = int64_t(shape.seq_len) * s.kv_heads * s.dim;
      ASSERT_LE(count, int64_t(cache[0].size())) << "the test asks for tokens that no step of set " << set << " gave";
      k.assign(cache[0].begin(), cache[0].begin() + count);
      v.assign(cache[1].begin(), cache[1].begin() + count);
    }
    Values near(out.size()), near_lse(lse.size());
    AttentionAnswer answer;
    answer.out.resize(out.size());
    answer.lse.resize(lse.size());
    cgr__reference_attention(&shape, q.data(), k.data(), v.data(), answer.out.data(), answer.lse.data());
    cgr__reference_attention_in(dtype, &shape, q.data(), k.data(), v.data(), near.data(), near_lse.data());
    const double unit = dtype == CGR_DTYPE_BF16 ? 1.0 / 256 : 0.0; // as in SolveAttention
    double largest = 0.0;
    for (double value : answer.out)
      largest = std::max(largest, std::fabs(value));
    answer.out_bound = 2.0 * LargestError(near, answer.out) + unit * largest + 1e-5;
    answer.lse_bound = 2.0 * LargestError(near_lse, answer.lse) + 1e-5;
    ExpectAnswer(out, lse, answer);
  }

  Random random_;
  std::vector<Layer> layers_;
  std::vector<void *> memory_;
  std::vector<size_t> bytes_;
  std::vector<std::vector<int32_t>> free_; // by group
  std::vector<cgr_group> groups_;
  std::vector<cgr_layer> config_layers_;
  std::vector<cgr_variant> variants_;
};

} // namespace sets
} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_SETS_CASE_H
