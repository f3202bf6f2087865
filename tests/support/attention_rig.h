// An engine of nothing but cgr_record_attention calls, for tests of those: any layers, calls and KV layout, with q, k and v
// uploaded before each step; and a model of it, which knows every element of the outputs and of the pools.
#ifndef CGR_TESTS_SUPPORT_ATTENTION_RIG_H
#define CGR_TESTS_SUPPORT_ATTENTION_RIG_H

#include <array>

#include "tests/support/toy_engine.h"

namespace cgr_test {

enum { kDim = 64, kPage = 16, kPages = 140, kMaxTokens = 64, kMaxSeq = 96, kRows = 24, kTableStride = 11, kGap = 8, kLseGap = 3 };
enum { kGuard = 65536, kPoison = 0xffff, kNothing = -1 }; // elements around the pools; NaN in every type; upload that is zeros

enum class KvLayout { kNhd, kHnd, kKvPages, kPagesKv, kInterleaved, kInterleavedHnd };

struct LayerSpec {
  int32_t q_heads = 4, kv_heads = 2;
  int32_t source = 0; // cgr_layer.kv_source
  int32_t data = -1;  // layer whose q, k and v it has too; -1: its own
  int32_t cache = -1; // layer whose views it has too; -1: its own
};
struct CallSpec {
  int32_t layer;
  uint32_t flags;
};
struct RigOptions {
  std::vector<LayerSpec> layers = { {} };
  std::vector<CallSpec> calls = { { 0, 0 } };
  KvLayout layout = KvLayout::kNhd;
  bool engine_table = false;
  bool in_graph = false; // host nodes make q, k and v and keep the outputs, so that steps can follow one another unwatched
  int32_t max_requests = 8;
  std::vector<int32_t> buckets = { 1, 2, 4, 8 };
};

struct Item {
  int32_t row, len;
};
struct Entry {
  int32_t upload, token;
};
struct Outputs {
  std::vector<uint16_t> out; // [kMaxTokens][q_heads * kDim + kGap]
  std::vector<float> lse;    // [kMaxTokens][q_heads + kLseGap]
};
// A launched step: what each of its requests has in the cache.
struct Done {
  cgr_step step = CGR_STEP_INIT;
  int32_t upload = 0;
  std::vector<Item> items;
  std::vector<std::vector<Entry>> caches;
};
struct BadPage {
  int32_t row = -1, index = 0, value = 0;
  bool written = true; // the new token's own page is good
};

class Rig {
public:
  Rig(const DeviceParam &device, const RigOptions &options) : o(options) { Make(device); }
  ~Rig() {
    CGR_EXPECT_OK(cgr_runtime_destroy(rt));
    for (void *memory : memory_)
      CGR_EXPECT_OK(cgr_memory_free(dev, memory));
    for (void *memory : pinned_)
      CGR_EXPECT_OK(cgr_memory_free_pinned(dev, memory));
    for (cudaStream_t stream : streams)
      CGR_EXPECT_OK(cgr_stream_destroy(dev, stream));
    CGR_EXPECT_OK(cgr_device_close(dev));
  }
  Rig(const Rig &) = delete;
  Rig &operator=(const Rig &) = delete;

  cgr_status Capture() { return cgr_runtime_capture(rt, Record, this); }
  void Sync() {
    for (cudaStream_t stream : streams)
      CGR_EXPECT_OK(cgr_stream_synchronize(dev, stream));
  }
  void Write(void *to, const void *from, size_t bytes) {
    CGR_EXPECT_OK(cgr_copy(dev, to, from, bytes, streams[0]));
    Sync();
  }
  template <class T> std::vector<T> Read(const void *from, size_t count) {
    std::vector<T> content(count);
    CGR_EXPECT_OK(cgr_copy(dev, content.data(), from, count * sizeof(T), streams[0]));
    Sync();
    return content;
  }

  // ---- requests
  int32_t Open() {
    int32_t row = -1;
    CGR_EXPECT_OK(cgr_request_open(rt, &row));
    caches[row].clear();
    pages[row].clear();
    return row;
  }
  void Reserve(int32_t row, size_t tokens) {
    std::vector<int32_t> &have = pages[row];
    size_t first = have.size();
    while (have.size() * kPage < tokens) {
      have.push_back(free_.back());
      free_.pop_back();
    }
    if (first == have.size())
      return;
    if (!o.engine_table)
      CGR_EXPECT_OK(cgr_request_set_pages(rt, row, 0, static_cast<int32_t>(first), have.data() + first,
                                          static_cast<int32_t>(have.size() - first)));
    for (size_t p = first; p < have.size() && o.engine_table; p++)
      SetTable(row, static_cast<int32_t>(p), have[p]);
  }
  void SetTable(int32_t row, int32_t index, int32_t page) { Write(table + row * kTableStride + index, &page, sizeof page); }
  void Rewind(int32_t row, size_t tokens) {
    CGR_EXPECT_OK(cgr_request_rewind(rt, row, static_cast<int32_t>(tokens)));
    caches[row].resize(tokens);
  }

  // ---- steps
  cgr_status Prepare(const std::vector<Item> &items, const cgr_key *forced, Done *done) {
    std::vector<int32_t> rows, lens, tokens;
    for (const Item &item : items) {
      Reserve(item.row, caches[item.row].size() + static_cast<size_t>(item.len));
      rows.push_back(item.row);
      lens.push_back(item.len);
      tokens.insert(tokens.end(), static_cast<size_t>(item.len), 5);
    }
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = static_cast<int32_t>(items.size());
    batch.rows = rows.data();
    batch.query_lens = lens.data();
    batch.tokens = tokens.data();
    batch.forced_key = forced;
    done->items = items;
    return cgr_step_prepare(rt, &batch, &done->step);
  }
  // The model takes the step's tokens; a row with a bad page reads zeros there.
  void Apply(Done *done, const BadPage &bad = {}) {
    done->upload = ++uploads_;
    int32_t t = 0;
    for (const Item &item : done->items) {
      std::vector<Entry> &cache = caches[item.row];
      for (int32_t j = 0; j < item.len; j++, t++) {
        cache.push_back({ done->upload, t });
        if (item.row != bad.row || bad.written)
          Append(item.row, static_cast<int32_t>(cache.size()) - 1, cache.back());
      }
      done->caches.push_back(cache);
      for (size_t p = 0; p < cache.size() && item.row == bad.row; p++)
        if (static_cast<int32_t>(p) / kPage == bad.index)
          done->caches.back()[p] = { kNothing, 0 };
    }
  }
  // One whole step from upload to outputs.
  Done Step(const std::vector<Item> &items, const cgr_key *forced = nullptr, const BadPage &bad = {}) {
    Done done;
    bool decode = std::all_of(items.begin(), items.end(), [](const Item &item) { return item.len == 1; });
    CGR_EXPECT_OK(Prepare(items, forced, &done));
    EXPECT_EQ(done.step.key.kind, forced != nullptr ? forced->kind : decode ? CGR_KIND_FULL : CGR_KIND_NONE);
    Apply(&done, bad);
    if (!o.in_graph)
      Upload(done);
    cgr_step_result result = CGR_STEP_RESULT_INIT;
    CGR_EXPECT_OK(cgr_step_launch(rt, &done.step, streams[0]));
    CGR_EXPECT(bad.row < 0 ? CGR_OK : CGR_ERROR_STEP, cgr_step_wait(rt, done.step.seq, &result));
    EXPECT_EQ(result.error, bad.row < 0 ? CGR_STEP_OK : CGR_STEP_PAGE);
    EXPECT_EQ(result.error_row, bad.row);
    EXPECT_EQ(result.error_index, bad.index);
    EXPECT_EQ(result.error_value, bad.value);
    Sync();
    outputs.clear();
    for (size_t c = 0; c < o.calls.size(); c++)
      outputs.push_back(o.in_graph ? history[static_cast<size_t>(done.upload)][c]
                                   : Outputs{ Read<uint16_t>(out_[c], OutElements(c)), Read<float>(lse_[c], LseElements(c)) });
    for (size_t c = 0; c < o.calls.size(); c++)
      if (check[c])
        Check(done, c, outputs[c]);
    all.push_back(outputs);
    return done;
  }
  void Check(const Done &done, size_t c, const Outputs &got) const {
    SCOPED_TRACE("step " + std::to_string(done.step.seq) + " call " + std::to_string(c));
    const int32_t layer = o.calls[c].layer;
    const LayerSpec &spec = o.layers[static_cast<size_t>(layer)];
    const size_t width = static_cast<size_t>(spec.q_heads) * kDim, heads = static_cast<size_t>(spec.q_heads);
    const size_t padded = static_cast<size_t>(std::max(done.step.key.num_tokens, done.step.num_tokens));
    size_t t = 0;
    bool computes = !(o.calls[c].flags & CGR_ATTENTION_APPEND_ONLY);
    for (size_t i = 0; i < done.items.size() && computes; i++) {
      size_t queries = static_cast<size_t>(done.items[i].len);
      std::vector<double> out, near, lse;
      Expect(layer, done, i, t, &out, &near, &lse);
      double allowed = 0.0;
      for (size_t e = 0; e < out.size(); e++)
        allowed = std::max(allowed, std::fabs(near[e] - out[e]));
      for (size_t e = 0; e < out.size(); e++)
        ASSERT_NEAR(Load(got.out[(t + e / width) * (width + kGap) + e % width]), out[e], 2 * allowed + 1e-5)
            << "row " << done.items[i].row << " element " << e;
      for (size_t e = 0; e < lse.size(); e++)
        ASSERT_NEAR(got.lse[(t + e / heads) * (heads + kLseGap) + e % heads], lse[e], 1e-3) << "row " << done.items[i].row;
      t += queries;
    }
    for (size_t n = t; n < padded && computes; n++) {
      for (size_t e = 0; e < width; e++)
        ASSERT_EQ(Load(got.out[n * (width + kGap) + e]), 0.0) << "padded token " << n;
      for (size_t e = 0; e < heads; e++)
        ASSERT_EQ(got.lse[n * (heads + kLseGap) + e], -INFINITY) << "padded token " << n;
    }
    for (size_t e = 0; e < got.out.size(); e++)
      if (!computes || e / (width + kGap) >= padded || e % (width + kGap) >= width) {
        ASSERT_EQ(got.out[e], kPoison) << "out of the call's rows was written at " << e;
      }
    for (size_t e = 0; e < got.lse.size(); e++)
      if (!computes || e / (heads + kLseGap) >= padded || e % (heads + kLseGap) >= heads) {
        ASSERT_TRUE(std::isnan(got.lse[e])) << "lse out of the call's rows was written at " << e;
      }
  }
  // Every element of the pools and around them is what the model wrote there; only the write-trash page may hold anything.
  void CheckPool() {
    std::vector<uint16_t> have = Read<uint16_t>(pool_, image_.size());
    for (size_t l = 0; l < o.layers.size(); l++)
      for (int which = kK; which <= kV; which++)
        for (int32_t t = 0; t < kPage; t++)
          for (int32_t h = 0; h < o.layers[l].kv_heads; h++)
            for (size_t d = 0, at = At(l, which, 1, t, h); d < kDim; d++)
              image_[at + d] = have[at + d];
    ASSERT_TRUE(have == image_) << "first at element "
                                << std::mismatch(have.begin(), have.end(), image_.begin()).first - have.begin();
  }

  RigOptions o;
  cgr_device *dev = nullptr;
  cgr_runtime *rt = nullptr;
  cudaStream_t streams[2] = {};
  int32_t *table = nullptr; // the engine's, [kRows][kTableStride]
  std::map<int32_t, std::vector<Entry>> caches;
  std::map<int32_t, std::vector<int32_t>> pages;
  std::vector<Outputs> outputs;              // of the last step, by call
  std::vector<std::vector<Outputs>> history; // in_graph: by upload, by call
  std::vector<std::vector<Outputs>> all;     // of every step, by call
  std::vector<bool> check;                   // calls that Step checks

private:
  struct View {
    size_t base;
    int64_t page, token, head;
  };
  struct NodeArgs {
    Rig *rig;
  };

  static double Load(uint16_t bits) { return cgr__reference_load(CGR_DTYPE_BF16, &bits); }
  size_t Spec(size_t l) const { return o.layers[l].data >= 0 ? static_cast<size_t>(o.layers[l].data) : l; }
  double Value(size_t l, int which, const Entry &entry, int32_t h, int32_t d) const {
    return entry.upload == kNothing ? 0.0 : ToyValue(static_cast<int32_t>(Spec(l)), which, entry.upload, entry.token, h, d);
  }
  int32_t Heads(size_t l, int which) const { return which == kQ ? o.layers[l].q_heads : o.layers[l].kv_heads; }
  size_t Stride(size_t l, int which) const { return static_cast<size_t>(Heads(l, which)) * kDim + kGap; }
  size_t OutElements(size_t c) const { return kMaxTokens * Stride(static_cast<size_t>(o.calls[c].layer), kQ); }
  size_t LseElements(size_t c) const {
    return kMaxTokens * static_cast<size_t>(o.layers[static_cast<size_t>(o.calls[c].layer)].q_heads + kLseGap);
  }
  // Layer whose views layer l uses.
  size_t Cache(size_t l) const {
    return o.layers[l].source > 0   ? static_cast<size_t>(o.layers[l].source) - 1
           : o.layers[l].cache >= 0 ? static_cast<size_t>(o.layers[l].cache)
                                    : l;
  }
  size_t At(size_t l, int which, int32_t page, int32_t t, int32_t h) const {
    const View &view = views_[l][which - kK];
    return view.base + static_cast<size_t>(page * view.page + t * view.token + h * view.head);
  }
  void Append(int32_t row, int32_t position, const Entry &entry) {
    int32_t page = pages[row][static_cast<size_t>(position / kPage)];
    for (const CallSpec &call : o.calls) {
      size_t l = static_cast<size_t>(call.layer);
      for (int which = kK; which <= kV && o.layers[l].source == 0 && !(call.flags & CGR_ATTENTION_NO_APPEND); which++)
        for (int32_t h = 0; h < o.layers[l].kv_heads; h++)
          for (int32_t d = 0; d < kDim; d++)
            cgr__reference_store(CGR_DTYPE_BF16, &image_[At(Cache(l), which, page, position % kPage, h) + static_cast<size_t>(d)],
                                 Value(l, which, entry, h, d));
    }
  }
  void Expect(int32_t layer, const Done &done, size_t i, size_t first, std::vector<double> *out, std::vector<double> *near,
              std::vector<double> *lse) const {
    size_t l = static_cast<size_t>(layer), source = Cache(l), queries = static_cast<size_t>(done.items[i].len);
    const std::vector<Entry> &cache = done.caches[i];
    std::vector<Entry> asked;
    for (size_t j = 0; j < queries; j++)
      asked.push_back({ done.upload, static_cast<int32_t>(first + j) });
    auto fill = [&](size_t of, int which, const std::vector<Entry> &entries) {
      std::vector<double> values;
      for (const Entry &entry : entries)
        for (int32_t h = 0; h < Heads(of, which); h++)
          for (int32_t d = 0; d < kDim; d++)
            values.push_back(Value(of, which, entry, h, d));
      return values;
    };
    std::vector<double> q = fill(l, kQ, asked), k = fill(source, kK, cache), v = fill(source, kV, cache);
    cgr__reference_shape shape = { done.items[i].len,
                                   static_cast<int32_t>(cache.size()),
                                   Heads(l, kQ),
                                   Heads(l, kK),
                                   kDim,
                                   1,
                                   1.0 / std::sqrt(static_cast<double>(kDim)) };
    out->assign(q.size(), 0.0), near->assign(q.size(), 0.0);
    lse->assign(queries * static_cast<size_t>(Heads(l, kQ)), 0.0);
    cgr__reference_attention_in(CGR_DTYPE_BF16, &shape, q.data(), k.data(), v.data(), near->data(), lse->data());
    cgr__reference_attention(&shape, q.data(), k.data(), v.data(), out->data(), lse->data());
  }
  // q, k or v of an upload; tokens from `real` on are NaN.
  void Fill(size_t l, int which, int32_t upload, int32_t real, uint16_t *to) const {
    for (int32_t t = 0; t < kMaxTokens; t++)
      for (int32_t h = 0; h < Heads(l, which); h++)
        for (int32_t d = 0; d < kDim; d++)
          cgr__reference_store(CGR_DTYPE_BF16, to + static_cast<size_t>(t) * Stride(l, which) + h * kDim + d,
                               t < real ? Value(l, which, { upload, t }, h, d) : NAN);
  }
  void Upload(const Done &done) {
    for (size_t l = 0; l < o.layers.size(); l++)
      for (int which = kQ; which <= kV; which++) {
        std::vector<uint16_t> values(kMaxTokens * Stride(l, which), uint16_t{ kPoison });
        Fill(l, which, done.upload, done.step.num_tokens, values.data());
        Write(qkv_[l][which], values.data(), values.size() * 2);
      }
    for (size_t c = 0; c < o.calls.size(); c++) {
      CGR_EXPECT_OK(cgr_fill(dev, out_[c], 0xff, OutElements(c) * 2, streams[0]));
      CGR_EXPECT_OK(cgr_fill(dev, lse_[c], 0xff, LseElements(c) * 4, streams[0]));
    }
  }
  static void NextInputs(const void *raw) {
    Rig &rig = *static_cast<const NodeArgs *>(raw)->rig;
    int32_t upload = static_cast<int32_t>(rig.history.size());
    for (size_t l = 0; l < rig.o.layers.size(); l++)
      for (int which = kQ; which <= kV; which++)
        rig.Fill(l, which, upload, kMaxTokens, rig.qkv_[l][which]);
    for (size_t c = 0; c < rig.o.calls.size(); c++) {
      std::memset(rig.out_[c], 0xff, rig.OutElements(c) * 2);
      std::memset(static_cast<void *>(rig.lse_[c]), 0xff, rig.LseElements(c) * 4);
    }
  }
  static void KeepOutputs(const void *raw) {
    Rig &rig = *static_cast<const NodeArgs *>(raw)->rig;
    std::vector<Outputs> kept;
    for (size_t c = 0; c < rig.o.calls.size(); c++)
      kept.push_back({ { rig.out_[c], rig.out_[c] + rig.OutElements(c) }, { rig.lse_[c], rig.lse_[c] + rig.LseElements(c) } });
    rig.history.push_back(std::move(kept));
  }
  static cgr_status Record(cgr_recorder *recorder, void *context) {
    Rig &rig = *static_cast<Rig *>(context);
    cgr_record_info info = CGR_RECORD_INFO_INIT;
    cgr_status status = cgr_record_get_info(recorder, &info);
    NodeArgs node = { &rig };
    if (status == CGR_OK && rig.o.in_graph)
      status = cgr_launch_host(rig.dev, NextInputs, &node, sizeof node, info.stream);
    for (size_t c = 0; c < rig.o.calls.size() && status == CGR_OK; c++) {
      const CallSpec &call = rig.o.calls[c];
      size_t l = static_cast<size_t>(call.layer);
      auto view = [&](void *data, int which) {
        return cgr_view{ data, CGR_DTYPE_BF16, 0, static_cast<int64_t>(rig.Stride(l, which)), kDim };
      };
      cgr_attention attention = {};
      attention.size = static_cast<uint32_t>(sizeof attention);
      attention.layer = call.layer;
      attention.flags = call.flags;
      attention.q = view(rig.qkv_[l][kQ], kQ);
      if (!(call.flags & CGR_ATTENTION_NO_APPEND)) {
        attention.k = view(rig.qkv_[l][kK], kK);
        attention.v = view(rig.qkv_[l][kV], kV);
      }
      attention.out = view(rig.out_[c], kQ);
      attention.lse = rig.lse_[c];
      attention.lse_stride = rig.o.layers[l].q_heads + kLseGap;
      status = cgr_record_attention(recorder, &attention);
    }
    if (status == CGR_OK && rig.o.in_graph)
      status = cgr_launch_host(rig.dev, KeepOutputs, &node, sizeof node, info.stream);
    return status;
  }

  template <class T> T *Alloc(size_t count, bool pinned) {
    void *memory = nullptr;
    CGR_EXPECT_OK(pinned ? cgr_memory_alloc_pinned(dev, count * sizeof(T), &memory)
                         : cgr_memory_alloc(dev, count * sizeof(T), &memory));
    (pinned ? pinned_ : memory_).push_back(memory);
    return static_cast<T *>(memory);
  }
  // One allocation holds the pools of all layers, whatever the layout, between two guards.
  void PlacePools() {
    size_t whole = 0, before = 0;
    for (const LayerSpec &spec : o.layers)
      whole += 2 * static_cast<size_t>(spec.kv_heads) * kPage * kDim;
    for (const LayerSpec &spec : o.layers) {
      size_t page = static_cast<size_t>(spec.kv_heads) * kPage * kDim;
      bool hnd = o.layout == KvLayout::kHnd || o.layout == KvLayout::kInterleavedHnd;
      View k = { kGuard + before * kPages, static_cast<int64_t>(page), hnd ? kDim : spec.kv_heads * kDim,
                 hnd ? kPage * kDim : kDim };
      View v = k;
      if (o.layout == KvLayout::kPagesKv) { // [layer][pages][2]...
        k.page = v.page = static_cast<int64_t>(2 * page);
        v.base += page;
      } else if (o.layout == KvLayout::kInterleaved || o.layout == KvLayout::kInterleavedHnd) { // [pages][layers][2]...
        k.page = v.page = static_cast<int64_t>(whole);
        k.base = kGuard + before;
        v.base = k.base + page;
      } else if (o.layout == KvLayout::kKvPages) { // [layer][2][pages]...
        v.base += page * kPages;
      } else { // all of K, then all of V
        k.base = kGuard + before / 2 * kPages;
        v.base = k.base + whole / 2 * kPages;
      }
      views_.push_back({ k, v });
      before += 2 * page;
    }
    image_.assign(kGuard + whole * kPages + kGuard, uint16_t{ kPoison });
    for (size_t l = 0; l < views_.size(); l++)
      for (int which = kK; which <= kV; which++)
        for (int32_t t = 0; t < kPage; t++)
          for (int32_t h = 0; h < o.layers[l].kv_heads; h++)
            std::fill_n(image_.begin() + static_cast<int64_t>(At(l, which, 0, t, h)), kDim, uint16_t{ 0 });
    pool_ = Alloc<uint16_t>(image_.size(), false);
    Write(pool_, image_.data(), image_.size() * 2);
  }
  void Make(const DeviceParam &device) {
    CGR_ASSERT_OK(cgr_device_open(device.name.c_str(), &device.config, &dev));
    for (cudaStream_t &stream : streams)
      CGR_ASSERT_OK(cgr_stream_create(dev, &stream));
    PlacePools();
    for (size_t l = 0; l < o.layers.size(); l++)
      qkv_.push_back({ Alloc<uint16_t>(kMaxTokens * Stride(l, kQ), o.in_graph),
                       Alloc<uint16_t>(kMaxTokens * Stride(l, kK), o.in_graph),
                       Alloc<uint16_t>(kMaxTokens * Stride(l, kV), o.in_graph) });
    for (size_t c = 0; c < o.calls.size(); c++) {
      out_.push_back(Alloc<uint16_t>(OutElements(c), o.in_graph));
      lse_.push_back(Alloc<float>(LseElements(c), o.in_graph));
    }
    check.assign(o.calls.size(), true);
    history.resize(1); // uploads count from 1
    for (int32_t page = 2; page < kPages; page++)
      free_.push_back(page);
    std::mt19937 random(3);
    std::shuffle(free_.begin(), free_.end(), random);
    cgr_group group = CGR_GROUP_INIT;
    group.page_size = kPage;
    group.num_pages = kPages;
    if (o.engine_table) {
      std::vector<int32_t> empty(kRows * kTableStride, INT32_MAX);
      table = Alloc<int32_t>(empty.size(), false);
      Write(table, empty.data(), empty.size() * 4);
      group.page_table = table;
      group.page_table_stride = kTableStride;
    }
    std::vector<cgr_layer> layers(o.layers.size(), CGR_LAYER_INIT);
    for (size_t l = 0; l < layers.size(); l++) {
      layers[l].num_q_heads = o.layers[l].q_heads;
      layers[l].num_kv_heads = o.layers[l].kv_heads;
      layers[l].head_dim = kDim;
      layers[l].kv_source = o.layers[l].source;
      const std::array<View, 2> &view = views_[Cache(l)];
      if (o.layers[l].source == 0) {
        layers[l].k = { pool_ + view[0].base, CGR_DTYPE_BF16, 0, view[0].page, view[0].token, view[0].head };
        layers[l].v = { pool_ + view[1].base, CGR_DTYPE_BF16, 0, view[1].page, view[1].token, view[1].head };
      }
    }
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = dev;
    config.groups = &group;
    config.num_groups = 1;
    config.layers = layers.data();
    config.num_layers = static_cast<int32_t>(layers.size());
    config.max_requests = o.max_requests;
    config.max_rows = kRows;
    config.max_tokens = kMaxTokens;
    config.max_seq_len = kMaxSeq;
    config.buckets = o.buckets.data();
    config.num_buckets = static_cast<int32_t>(o.buckets.size());
    config.ring_depth = 8;
    CGR_ASSERT_OK(cgr_runtime_create(&config, &rt));
    CGR_ASSERT_OK(Capture());
  }

  std::vector<void *> memory_, pinned_;
  uint16_t *pool_ = nullptr;
  std::vector<std::array<View, 2>> views_; // by layer: K, V
  std::vector<uint16_t> image_;            // what the pools must hold, guards included
  std::vector<std::array<uint16_t *, 3>> qkv_;
  std::vector<uint16_t *> out_;
  std::vector<float *> lse_;
  std::vector<int32_t> free_;
  int32_t uploads_ = 0;
};

} // namespace cgr_test

#endif // CGR_TESTS_SUPPORT_ATTENTION_RIG_H
