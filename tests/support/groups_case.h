// A small engine with two groups of layers, each with its own page table, page size, pool and trash pages; and a model of what
// its caches hold, against which its outputs are compared.
#ifndef CGR_TESTS_SUPPORT_GROUPS_CASE_H
#define CGR_TESTS_SUPPORT_GROUPS_CASE_H

#include <array>
#include <cstring>
#include <map>
#include <memory>

#include "tests/support/devices.h"
#include "tests/support/expect.h"
#include "tests/support/oracle.h"
#include "tests/support/seed.h"

namespace cgr_test {

namespace groups {

using Bytes = std::vector<unsigned char>;
using Chunk = std::pair<int32_t, int32_t>; // row, new tokens

enum { kMaxRequests = 8, kMaxRows = 10, kMaxTokens = 224, kMaxSeqLen = 160, kStride = 5, kNumGroups = 2 };

struct GroupSpec {
  int32_t page_size, num_pages, read_trash, write_trash;
};
const GroupSpec kGroups[kNumGroups] = { { 16, 96, 0, 1 }, { 64, 37, 5, 2 } };

struct LayerSpec {
  int32_t group, q_heads, kv_heads, dim, dtype;
  int32_t window = 0, chunk = 0;
};

inline std::vector<LayerSpec> LayersFor(const DeviceParam &device) {
  int32_t wide = device.HasCudaKernels() ? CGR_DTYPE_BF16 : CGR_DTYPE_FP32;
  return { { 0, 2, 2, 64, CGR_DTYPE_BF16 },
           { 1, 8, 2, 128, CGR_DTYPE_BF16 },
           { 1, 5, 1, 64, wide },
           { 0, 16, 1, 128, CGR_DTYPE_BF16 },
           { 0, 8, 2, 64, CGR_DTYPE_FP16 },
           { 1, 2, 2, 128, CGR_DTYPE_FP16 },
           { 1, 16, 1, 64, CGR_DTYPE_BF16 },
           { 0, 5, 1, 128, wide } };
}

// q, k and v of a step's tokens, by layer.
using Inputs = std::vector<std::array<Bytes, 3>>;

// What a step wrote for its padded tokens, by layer.
struct Outputs {
  Bytes out, lse;
};

inline int64_t TokensOf(const std::vector<Chunk> &chunks) {
  int64_t total = 0;
  for (const Chunk &chunk : chunks)
    total += chunk.second;
  return total;
}

inline Inputs RandomInputs(const std::vector<LayerSpec> &layers, int64_t tokens, Random &random) {
  Inputs inputs;
  for (const LayerSpec &layer : layers) {
    inputs.emplace_back();
    for (int which = 0; which < 3; which++) {
      Values values(size_t(tokens * (which == 0 ? layer.q_heads : layer.kv_heads) * layer.dim));
      for (double &value : values)
        value = double(random.Pick(-2000, 2000)) / 1000.0;
      inputs.back()[size_t(which)].resize(values.size() * cgr_dtype_size(cgr_dtype(layer.dtype)));
      StoreElements(layer.dtype, values.data(), int64_t(values.size()), inputs.back()[size_t(which)].data());
    }
  }
  return inputs;
}

// At the real tokens: the padded counts may differ.
inline void ExpectSameBits(const std::vector<LayerSpec> &layers, const std::vector<Outputs> &got,
                           const std::vector<Outputs> &expected, int64_t tokens) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t l = 0; l < got.size(); l++) {
    size_t heads = size_t(tokens * layers[l].q_heads);
    size_t bytes = heads * size_t(layers[l].dim) * cgr_dtype_size(cgr_dtype(layers[l].dtype));
    ASSERT_EQ(std::memcmp(got[l].out.data(), expected[l].out.data(), bytes), 0) << "out of layer " << l;
    ASSERT_EQ(std::memcmp(got[l].lse.data(), expected[l].lse.data(), heads * 4), 0) << "lse of layer " << l;
  }
}

struct Options {
  cgr_graph_mode mode = CGR_MODE_FULL_DECODE_ONLY;
  bool engine_table = false;     // of group 1
  std::vector<LayerSpec> layers; // empty: those of LayersFor
  bool strict = false;
  bool gives_back = false; // before every step, gives back the pages that no layer of their group will see
};

// An engine with two groups. Every step is waited for.
class TwoGroups {
public:
  TwoGroups(const DeviceParam &device, uint64_t seed, Options options)
      : specs(options.layers.empty() ? LayersFor(device) : options.layers), o(options) {
    MakeDevice(device);
    Random random(seed);
    for (int g = 0; g < kNumGroups; g++) {
      for (int32_t page = 0; page < kGroups[g].num_pages; page++)
        if (page != kGroups[g].read_trash && page != kGroups[g].write_trash)
          free_[g].push_back(page);
      for (size_t i = free_[g].size(); i > 1; i--)
        std::swap(free_[g][i - 1], free_[g][size_t(random.Pick(0, int64_t(i) - 1))]);
    }
    if (o.engine_table)
      MakeTable();
    layers_.resize(specs.size());
    for (size_t l = 0; l < specs.size(); l++)
      MakeLayer(l);
    cgr_config config = Config();
    CGR_EXPECT_OK(cgr_runtime_create(&config, &rt));
    cgr_capture capture = CGR_CAPTURE_INIT;
    capture.record = Record;
    capture.engine = this;
    CGR_EXPECT_OK(cgr_runtime_capture(rt, &capture));
  }
  ~TwoGroups() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev, memory));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }
  TwoGroups(const TwoGroups &) = delete;
  TwoGroups &operator=(const TwoGroups &) = delete;

  cgr_config Config() {
    for (int g = 0; g < kNumGroups; g++) {
      group_[g] = CGR_GROUP_INIT;
      group_[g].page_size = kGroups[g].page_size;
      group_[g].num_pages = kGroups[g].num_pages;
      group_[g].read_trash_page = kGroups[g].read_trash;
      group_[g].write_trash_page = kGroups[g].write_trash;
    }
    group_[1].page_table = table;
    group_[1].page_table_stride = table != nullptr ? kStride : 0;
    layer_.assign(specs.size(), CGR_LAYER_INIT);
    for (size_t l = 0; l < specs.size(); l++) {
      layer_[l].group = specs[l].group;
      layer_[l].num_q_heads = specs[l].q_heads;
      layer_[l].num_kv_heads = specs[l].kv_heads;
      layer_[l].head_dim = specs[l].dim;
      layer_[l].window_left = specs[l].window;
      layer_[l].chunk = specs[l].chunk;
      layer_[l].k = layers_[l].kv[0];
      layer_[l].v = layers_[l].kv[1];
    }
    static const int32_t buckets[] = { 1, 2, 4, 8 };
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev;
    config.groups = group_;
    config.num_groups = kNumGroups;
    config.layers = layer_.data();
    config.num_layers = int32_t(layer_.size());
    config.max_requests = kMaxRequests;
    config.max_rows = kMaxRows;
    config.max_tokens = kMaxTokens;
    config.max_seq_len = kMaxSeqLen;
    config.graph_mode = o.mode;
    config.decode_buckets = buckets;
    config.num_decode_buckets = 4;
    config.strict = o.strict;
    return config;
  }

  // ---- memory
  void *Alloc(size_t bytes) {
    void *memory = nullptr;
    CGR_EXPECT_OK(cgr_memory_alloc(dev, bytes, &memory));
    memory_.push_back(memory);
    return memory;
  }
  void Write(void *to, const void *from, size_t bytes) {
    CGR_EXPECT_OK(cgr_copy(dev, to, from, bytes, stream));
    CGR_EXPECT_OK(cgr_stream_synchronize(dev, stream));
  }
  template <class T> std::vector<T> Read(const void *from, size_t count) {
    std::vector<T> content(count);
    Write(content.data(), from, count * sizeof(T));
    return content;
  }
  template <class T> std::vector<T> Buffer(cgr_buffer buffer, int32_t group) {
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    CGR_EXPECT_OK(cgr_buffer_get(rt, NULL, buffer, group, &view));
    return Read<T>(view.data, size_t((view.shape[0] - 1) * view.stride + view.shape[1]));
  }

  // ---- requests
  int32_t Open() {
    int32_t row = -1;
    CGR_EXPECT_OK(cgr_request_open(rt, 1, &row));
    length[row] = 0;
    pages[0][row] = pages[1][row] = {};
    return row;
  }
  // Every step has completed: the pages may go to others at once.
  void Close(int32_t row) {
    CGR_EXPECT_OK(cgr_request_close(rt, row));
    for (int g = 0; g < kNumGroups; g++) {
      free_[g].insert(free_[g].end(), pages[g][row].begin() + given_[g][row], pages[g][row].end());
      pages[g].erase(row);
      given_[g].erase(row);
    }
    length.erase(row);
  }
  // Forgets the tokens from `tokens` on; their pages stay.
  void Rewind(int32_t row, int32_t tokens) {
    CGR_EXPECT_OK(cgr_request_set_length(rt, row, tokens));
    length[row] = tokens;
  }
  // Pages of every group for `tokens` tokens.
  void Reserve(int32_t row, int32_t tokens) {
    for (int g = 0; g < kNumGroups; g++) {
      std::vector<int32_t> &has = pages[g][row];
      int32_t first = int32_t(has.size());
      while (int32_t(has.size()) * kGroups[g].page_size < tokens) {
        has.push_back(free_[g].front());
        free_[g].erase(free_[g].begin());
      }
      int32_t count = int32_t(has.size()) - first;
      if (count > 0 && g == 1 && table != nullptr)
        Write(table + row * kStride + first, has.data() + first, size_t(count) * 4);
      else if (count > 0)
        CGR_EXPECT_OK(cgr_request_set_pages(rt, row, g, first, has.data() + first, count));
    }
  }
  // (first, end) as the runtime reports them.
  std::pair<int32_t, int32_t> Has(int32_t row, int32_t group) {
    std::pair<int32_t, int32_t> has = { -1, -1 };
    CGR_EXPECT_OK(cgr_request_get_pages(rt, row, group, &has.first, &has.second));
    return has;
  }

  // ---- steps
  cgr_status Prepare(const std::vector<Chunk> &chunks, const cgr_key *forced = nullptr) {
    std::vector<int32_t> rows, lens, tokens(size_t(TokensOf(chunks)), 3);
    for (const Chunk &chunk : chunks) {
      rows.push_back(chunk.first);
      lens.push_back(chunk.second);
    }
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = int32_t(chunks.size());
    batch.rows = rows.data();
    batch.query_lens = lens.data();
    batch.tokens = tokens.data();
    batch.forced_key = forced;
    step = CGR_STEP_INIT;
    return cgr_step_prepare(rt, &batch, &step);
  }
  // Runs a step and returns what every layer wrote.
  std::vector<Outputs> Run(const std::vector<Chunk> &chunks, const Inputs &inputs, const cgr_key *forced = nullptr) {
    std::vector<Outputs> outputs;
    for (int g = 0; g < kNumGroups && o.gives_back; g++)
      for (const Chunk &chunk : chunks)
        GiveBack(g, chunk.first);
    for (const Chunk &chunk : chunks)
      Reserve(chunk.first, length[chunk.first] + chunk.second);
    cgr_status status = Prepare(chunks, forced);
    CGR_EXPECT_OK(status);
    if (status != CGR_OK)
      return outputs;
    // Everything but the step's tokens is NaN, and so are q, k and v until the step itself has copied them.
    for (size_t l = 0; l < layers_.size(); l++) {
      for (size_t which = 0; which < 3; which++) {
        CGR_EXPECT_OK(cgr_fill(dev, layers_[l].in[which], 0xff, layers_[l].in_bytes[which], stream));
        CGR_EXPECT_OK(cgr_fill(dev, layers_[l].given[which], 0xff, layers_[l].in_bytes[which], stream));
        if (!inputs[l][which].empty())
          CGR_EXPECT_OK(cgr_copy(dev, layers_[l].given[which], inputs[l][which].data(), inputs[l][which].size(), stream));
      }
      CGR_EXPECT_OK(cgr_fill(dev, layers_[l].call.out.data, 0xff, layers_[l].in_bytes[0], stream));
      CGR_EXPECT_OK(cgr_fill(dev, layers_[l].call.lse.data, 0xff, size_t(kMaxTokens * specs[l].q_heads) * 4, stream));
    }
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT_OK(cgr_step_launch(rt, &step, stream));
    CGR_EXPECT_OK(cgr_step_wait(rt, step.mark, -1, &result));
    EXPECT_EQ(result.num_requests, int32_t(chunks.size()));
    EXPECT_EQ(result.guard.error, int32_t(CGR_GUARD_NONE));
    size_t padded = size_t(step.key.num_tokens);
    for (size_t l = 0; l < layers_.size(); l++)
      outputs.push_back({ Read<unsigned char>(layers_[l].call.out.data, padded * layers_[l].in_bytes[0] / kMaxTokens),
                          Read<unsigned char>(layers_[l].call.lse.data, padded * size_t(specs[l].q_heads) * 4) });
    Append(chunks, inputs);
    return outputs;
  }
  // The first token that any layer of the group sees in a step after `computed` tokens.
  int32_t FirstSeen(int g, int32_t computed) const {
    int32_t first = computed;
    for (const LayerSpec &s : specs)
      if (s.group == g)
        first = std::min(first, s.chunk > 0    ? computed / s.chunk * s.chunk
                                : s.window > 0 ? std::max(computed + 1 - s.window, 0)
                                               : 0);
    return first;
  }
  int32_t Given(int g, int32_t row) { return given_[g][row]; }
  int32_t Free(int g, size_t index) { return free_[g].at(index); }
  // The layers' outputs against the oracle, which reads the model of the caches.
  void CheckOutputs(const std::vector<Chunk> &chunks, const Inputs &inputs, const std::vector<Outputs> &outputs) {
    ASSERT_EQ(outputs.size(), layers_.size());
    for (size_t l = 0; l < layers_.size(); l++) {
      SCOPED_TRACE("layer " + std::to_string(l));
      const LayerSpec &s = specs[l];
      cgr_view q, out, lse = { const_cast<unsigned char *>(outputs[l].lse.data()), CGR_DTYPE_FP32, 0, s.q_heads, 1 };
      CGR_ASSERT_OK(cgr_view_make(const_cast<unsigned char *>(inputs[l][0].data()), cgr_dtype(s.dtype), s.q_heads, s.dim, &q));
      CGR_ASSERT_OK(
          cgr_view_make(const_cast<unsigned char *>(outputs[l].out.data()), cgr_dtype(s.dtype), s.q_heads, s.dim, &out));
      int64_t at = 0;
      for (const auto &[row, count] : chunks) {
        SCOPED_TRACE("row " + std::to_string(row));
        AttentionProblem p;
        p.dtype = cgr_dtype(s.dtype);
        p.query_len = count;
        p.seq_len = length[row];
        p.num_q_heads = s.q_heads;
        p.num_kv_heads = s.kv_heads;
        p.head_dim = s.dim;
        p.kind.window_left = s.window;
        p.kind.chunk = s.chunk;
        p.q = ReadView(q, at, count, s.q_heads, s.dim);
        p.k = Cached(l, 0, row);
        p.v = Cached(l, 1, row);
        ASSERT_NO_FATAL_FAILURE(
            ExpectAnswer(ReadView(out, at, count, s.q_heads, s.dim), ReadView(lse, at, count, s.q_heads, 1), SolveAttention(p)));
        at += count;
      }
      int64_t padding = step.key.num_tokens - at;
      ASSERT_NO_FATAL_FAILURE(
          ExpectNothing(ReadView(out, at, padding, s.q_heads, s.dim), ReadView(lse, at, padding, s.q_heads, 1)));
    }
  }
  // The planned buffers of each group in the last step.
  void CheckBuffers(const std::vector<Chunk> &chunks) {
    for (int g = 0; g < kNumGroups; g++) {
      SCOPED_TRACE("group " + std::to_string(g));
      std::vector<int64_t> slots = Buffer<int64_t>(CGR_BUFFER_SLOT_MAPPING, g);
      std::vector<int32_t> indptr = Buffer<int32_t>(CGR_BUFFER_KV_INDPTR, g);
      std::vector<int32_t> last = Buffer<int32_t>(CGR_BUFFER_KV_LAST_PAGE_LEN, g);
      const int32_t size = kGroups[g].page_size;
      size_t at = 0, num_pages = 0;
      for (size_t i = 0; i < chunks.size(); i++) {
        const auto &[row, count] = chunks[i];
        for (int32_t t = length[row] - count; t < length[row]; t++, at++)
          ASSERT_EQ(slots[at], int64_t(pages[g][row][size_t(t / size)]) * size + t % size) << "token " << at;
        num_pages += size_t((length[row] + size - 1) / size);
        ASSERT_EQ(indptr[i + 1], int32_t(num_pages)) << "request " << i;
        ASSERT_EQ(last[i], length[row] > 0 ? (length[row] - 1) % size + 1 : 1) << "request " << i;
      }
    }
  }
  // Every byte of the caches outside the write-trash pages must be what the model has.
  void CheckCaches() {
    for (size_t l = 0; l < layers_.size(); l++)
      for (size_t which = 0; which < 2; which++) {
        Bytes &image = layers_[l].image[which];
        const GroupSpec &g = kGroups[specs[l].group];
        Bytes got = Read<unsigned char>(layers_[l].kv[which].base, image.size());
        size_t page = image.size() / size_t(g.num_pages), trash = size_t(g.write_trash) * page;
        std::memcpy(got.data() + trash, image.data() + trash, page);
        EXPECT_TRUE(got == image) << "layer " << l << (which == 0 ? ", K" : ", V");
      }
  }

  std::vector<LayerSpec> specs;
  Options o;
  cgr_device *dev = nullptr;
  cudaStream_t stream = nullptr;
  cgr_runtime *rt = nullptr;
  int32_t *table = nullptr; // of group 1, [kMaxRows + 1][kStride]
  cgr_step step = CGR_STEP_INIT;
  std::map<int32_t, int32_t> length;                         // by row
  std::map<int32_t, std::vector<int32_t>> pages[kNumGroups]; // by row

private:
  // A page that was given back holds NaN until another request writes it; the engine's own table then names no page.
  void GiveBack(int g, int32_t row) {
    const int32_t first = given_[g][row], end = FirstSeen(g, length[row]) / kGroups[g].page_size, none = INT32_MAX;
    for (int32_t i = first; i < end; i++) {
      for (size_t l = 0; l < layers_.size(); l++)
        for (size_t which = 0; which < 2 && specs[l].group == g; which++) {
          Bytes &image = layers_[l].image[which];
          const size_t page = image.size() / size_t(kGroups[g].num_pages), at = page * size_t(pages[g][row][size_t(i)]);
          std::memset(image.data() + at, 0xff, page);
          Write(static_cast<unsigned char *>(layers_[l].kv[which].base) + at, image.data() + at, page);
        }
      if (g == 1 && table != nullptr)
        Write(table + row * kStride + i, &none, sizeof none);
      free_[g].push_back(pages[g][row][size_t(i)]);
      pages[g][row][size_t(i)] = kGroups[g].read_trash;
    }
    if (end > first && !(g == 1 && table != nullptr))
      CGR_EXPECT_OK(cgr_request_drop_pages(rt, row, g, first, end - first));
    given_[g][row] = std::max(first, end);
  }

  struct Layer {
    cgr_kv_view kv[2];
    Bytes image[2]; // what the caches must hold
    cgr_attention call;
    void *in[3], *given[3];
    size_t in_bytes[3];
  };

  static void OnViolation(void *, const char *message) { ADD_FAILURE() << "violation: " << message; }
  static cgr_status Record(cgr_recorder *recorder, void *engine) {
    auto *self = static_cast<TwoGroups *>(engine);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    for (const Layer &layer : self->layers_) {
      for (size_t which = 0; which < 3 && status == CGR_OK; which++)
        status = cgr_copy(self->dev, layer.in[which], layer.given[which],
                          layer.in_bytes[which] * size_t(info.num_tokens) / kMaxTokens, info.stream);
      if (status == CGR_OK)
        status = cgr_record_attention(recorder, &layer.call);
    }
    return status;
  }
  void MakeDevice(const DeviceParam &device) {
    cgr_device_config config = device.config;
    if (!device.HasCudaKernels()) {
      config.layer = cgr_validation_layer();
      config.on_violation = OnViolation;
    }
    CGR_EXPECT_OK(cgr_device_open(device.name.c_str(), &config, &dev));
    CGR_EXPECT_OK(cgr_stream_create(dev, &stream));
  }
  // Unset entries are no page at all.
  void MakeTable() {
    std::vector<int32_t> empty((kMaxRows + 1) * kStride, INT32_MAX);
    std::fill(empty.end() - kStride, empty.end(), kGroups[1].read_trash);
    table = static_cast<int32_t *>(Alloc(empty.size() * 4));
    Write(table, empty.data(), empty.size() * 4);
  }
  // Pages are NaN, except the read-trash page.
  void MakeLayer(size_t l) {
    const LayerSpec &s = specs[l];
    const GroupSpec &g = kGroups[s.group];
    const cgr_dtype dtype = cgr_dtype(s.dtype);
    Layer &layer = layers_[l];
    size_t page = size_t(g.page_size * s.kv_heads * s.dim) * cgr_dtype_size(dtype);
    for (int which = 0; which < 2; which++) {
      layer.image[which].assign(page * size_t(g.num_pages), 0xff);
      std::memset(layer.image[which].data() + size_t(g.read_trash) * page, 0, page);
      void *base = Alloc(layer.image[which].size());
      Write(base, layer.image[which].data(), layer.image[which].size());
      CGR_EXPECT_OK(cgr_kv_view_make(l % 3 == 1 ? CGR_LAYOUT_HND : CGR_LAYOUT_NHD, base, dtype, g.page_size, s.kv_heads, s.dim,
                                     &layer.kv[which]));
    }
    for (int which = 0; which < 3; which++) {
      layer.in_bytes[which] = size_t(kMaxTokens * (which == 0 ? s.q_heads : s.kv_heads) * s.dim) * cgr_dtype_size(dtype);
      layer.in[which] = Alloc(layer.in_bytes[which]);
      layer.given[which] = Alloc(layer.in_bytes[which]);
    }
    layer.call = CGR_ATTENTION_INIT;
    layer.call.layer = int32_t(l);
    CGR_EXPECT_OK(cgr_view_make(layer.in[0], dtype, s.q_heads, s.dim, &layer.call.q));
    CGR_EXPECT_OK(cgr_view_make(layer.in[1], dtype, s.kv_heads, s.dim, &layer.call.k));
    CGR_EXPECT_OK(cgr_view_make(layer.in[2], dtype, s.kv_heads, s.dim, &layer.call.v));
    CGR_EXPECT_OK(cgr_view_make(Alloc(layer.in_bytes[0]), dtype, s.q_heads, s.dim, &layer.call.out));
    layer.call.lse = { Alloc(size_t(kMaxTokens * s.q_heads) * 4), CGR_DTYPE_FP32, 0, s.q_heads, 1 };
  }
  cgr_kv_view ImageView(size_t l, int which) {
    cgr_kv_view view = layers_[l].kv[which];
    view.base = layers_[l].image[which].data();
    return view;
  }
  Values Cached(size_t l, int which, int32_t row) {
    const LayerSpec &s = specs[l];
    return GatherKv(ImageView(l, which), pages[s.group][row].data(), kGroups[s.group].page_size, length[row], s.kv_heads, s.dim);
  }
  // Adds the step's tokens to the model of the caches.
  void Append(const std::vector<Chunk> &chunks, const Inputs &inputs) {
    for (size_t l = 0; l < layers_.size(); l++)
      for (int which = 0; which < 2; which++) {
        const LayerSpec &s = specs[l];
        const cgr_kv_view view = ImageView(l, which);
        const unsigned char *from = inputs[l][size_t(which) + 1].data();
        const size_t head = size_t(s.dim) * cgr_dtype_size(cgr_dtype(s.dtype));
        const int32_t size = kGroups[s.group].page_size;
        for (const auto &[row, count] : chunks)
          for (int32_t t = length[row]; t < length[row] + count; t++)
            for (int32_t h = 0; h < s.kv_heads; h++, from += head)
              std::memcpy(cgr__reference_kv_element(&view, pages[s.group][row][size_t(t / size)], t % size, h), from, head);
      }
    for (const auto &[row, count] : chunks)
      length[row] += count;
  }

  std::vector<Layer> layers_;
  std::vector<void *> memory_;
  std::vector<int32_t> free_[kNumGroups];
  std::map<int32_t, int32_t> given_[kNumGroups]; // pages that a row has given back
  cgr_group group_[kNumGroups];
  std::vector<cgr_layer> layer_;
};

} // namespace groups
} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_GROUPS_CASE_H
