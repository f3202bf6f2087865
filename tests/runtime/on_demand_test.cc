// On-demand buffers in a runtime: what kernels of a backend and of the engine find when they run, in graphs of every kind and in
// eager steps, matches what the engine knows of its batch; and a runtime that was asked for none has neither memory nor node for
// them.
#include "cgr/names.h"
#include "tests/support/refused.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

constexpr int kNumOnDemand = CGR_BUFFER_PREFILL_BLOCK_TABLE + 1 - CGR_BUFFER_KV_INDICES;
constexpr uint64_t kAll = 2 * CGR_ON_DEMAND(CGR_BUFFER_PREFILL_BLOCK_TABLE) - 1;
constexpr uint64_t kPrefills = kAll & ~(CGR_ON_DEMAND(CGR_BUFFER_PREFILL_QUERY_START_LOC) - 1);

cgr_buffer BufferAt(int i) { return cgr_buffer(CGR_BUFFER_KV_INDICES + i); }
bool IsTable(cgr_buffer buffer) { return buffer == CGR_BUFFER_BLOCK_TABLE || buffer == CGR_BUFFER_PREFILL_BLOCK_TABLE; }

class OnDemand : public EngineTest {
protected:
  enum { kLayer = 1, kPoison = 0x5a }; // the backend's layer
  // Saves what the buffers hold when attention runs, and copies q to out.
  static cgr_status Record(void *context, cgr_recorder *recorder, const cgr_attention *a) {
    auto *self = static_cast<OnDemand *>(context);
    const cgr_record_info info = InfoOf(recorder);
    size_t bytes = size_t(info.num_tokens) * size_t(a->q.stride_token) * cgr_dtype_size(cgr_dtype(a->q.dtype));
    CGR_EXPECT_OK(self->Keep(info.stream));
    return cgr_copy(self->engine_->dev, a->out.data, a->q.data, bytes, info.stream);
  }
  cgr_status Keep(cudaStream_t stream) {
    cgr_status status = CGR_OK;
    for (int i = 0; i < kNumOnDemand && status == CGR_OK; i++)
      if (kept_[i] != nullptr)
        status = cgr_copy(engine_->dev, kept_[i], view_[i].data, Bytes(i), stream);
    return status;
  }
  size_t Bytes(int i) const { return size_t(view_[i].shape[0] * view_[i].shape[1]) * 4; }

  void Make(cgr_graph_mode mode, uint64_t by_config, uint64_t by_backend, bool engine_table = false) {
    backend_ = CGR_BACKEND_INIT;
    backend_.name = "keeps", backend_.context = this;
    backend_.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend_.record = Record, backend_.reorder_threshold = 1, backend_.on_demand = by_backend;
    EngineOptions options = OptionsFor(GetParam(), mode, { { 8, 4 }, { 24, 8 }, { 64, 8 } });
    options.feed = Feed::kUploads, options.engine_table = engine_table;
    options.page_size = page_size_, options.num_pages = 128 * 16 / page_size_ + 20;
    options.adjust = [this, by_config](cgr_config *config) {
      group_ = config->groups[0];
      group_.kernel_page_size = kernel_page_size_;
      config->groups = &group_;
      layers_.assign(config->layers, config->layers + config->num_layers);
      layers_[kLayer].backend = 1;
      config->layers = layers_.data(), config->backends = &backend_, config->num_backends = 1;
      config->on_demand = by_config;
    };
    engine_ = std::make_unique<Engine>(options);
    engine_->check_call = { true, false };
    for (int i = 0; i < kNumOnDemand; i++) {
      kept_[i] = nullptr;
      if (!((by_config | by_backend) & CGR_ON_DEMAND(BufferAt(i))))
        continue;
      view_[i] = engine_->View(BufferAt(i));
      kept_[i] = engine_->Alloc(Bytes(i));
    }
    CGR_ASSERT_OK(engine_->Capture());
  }
  std::vector<int32_t> Kept(cgr_buffer buffer) {
    const int i = buffer - CGR_BUFFER_KV_INDICES;
    return engine_->Read<int32_t>(kept_[i], Bytes(i) / 4);
  }
  // Fills what a step must write completely with something else; pages stay, because they are always the pool's.
  void Poison() {
    for (int i = 0; i < kNumOnDemand; i++)
      if (kept_[i] != nullptr && view_[i].shape[0] <= engine_->o.max_requests + 1 && !IsTable(BufferAt(i)))
        CGR_EXPECT_OK(cgr_fill(engine_->dev, view_[i].data, kPoison, Bytes(i), engine_->stream));
    engine_->Sync();
  }

  // What the engine knows of a step's requests before it runs.
  struct Known {
    int32_t query, before;
    std::vector<int32_t> pages;
  };
  std::vector<Known> Know(const std::vector<Item> &items) {
    std::vector<Known> known;
    for (const Item &item : items) {
      const Request &r = *engine_->requests.at(item.row);
      const int32_t query = int32_t(item.tokens.size()), size = KernelPageSize();
      std::vector<int32_t> pages; // as kernels count them, by the first token of each
      for (int32_t token = 0; token < r.num_tokens + query; token += size)
        pages.push_back((r.pages[size_t(token / page_size_)] * page_size_ + token % page_size_) / size);
      known.push_back({ query, r.num_tokens, pages });
    }
    return known;
  }
  void Expect(cgr_buffer buffer, const std::vector<int32_t> &want) {
    if (kept_[buffer - CGR_BUFFER_KV_INDICES] == nullptr)
      return;
    std::vector<int32_t> got = Kept(buffer);
    got.resize(std::min(got.size(), want.size())); // beyond the padded count nothing is defined
    EXPECT_EQ(got, want) << cgr_buffer_name(buffer);
  }
  void Check(const std::vector<Known> &known, int32_t padded) {
    const size_t n = known.size(), b = size_t(padded), each = size_t(page_size_ / KernelPageSize());
    const size_t width = size_t((engine_->o.max_seq_len + page_size_ - 1) / page_size_) * each;
    size_t first = 0;
    while (first < n && known[first].query <= 1)
      first++;
    std::vector<int32_t> indices, table(b * width, 0), context(b, 0), query_starts = { 0 }, pages = { 0 }, last(b, 1);
    std::vector<int32_t> kv_starts = { 0 }, context_starts = { 0 };
    for (size_t i = 0; i < b; i++) {
      const Known k = i < n ? known[i] : Known{ 0, 0, {} };
      indices.insert(indices.end(), k.pages.begin(), k.pages.end());
      std::copy(k.pages.begin(), k.pages.end(), table.begin() + ptrdiff_t(i * width));
      context[i] = k.before;
      const int32_t length = k.before + k.query;
      last[i] = length == 0 ? 1 : (length - 1) % KernelPageSize() + 1;
      query_starts.push_back(query_starts.back() + k.query);
      pages.push_back(pages.back() + int32_t(k.pages.size()));
      kv_starts.push_back(kv_starts.back() + length);
      context_starts.push_back(context_starts.back() + k.before);
    }
    std::vector<int32_t> prefill_starts, prefill_pages, prefill_last, prefill_lens, prefill_kv_starts;
    std::vector<int32_t> prefill_table(table.begin() + ptrdiff_t(first * width), table.end());
    prefill_table.resize(b * width, 0);
    for (size_t j = 0; j <= b; j++) {
      const size_t at = std::min(first + j, b);
      prefill_kv_starts.push_back(kv_starts[at] - kv_starts[first]);
      if (j < b)
        prefill_lens.push_back(at < b ? kv_starts[at + 1] - kv_starts[at] : 0);
      prefill_starts.push_back(query_starts[at] - query_starts[first]);
      prefill_pages.push_back(pages[at]);
      if (j < b)
        prefill_last.push_back(at < b ? last[at] : 1);
    }
    Expect(CGR_BUFFER_KV_INDICES, indices);
    Expect(CGR_BUFFER_BLOCK_TABLE, table);
    Expect(CGR_BUFFER_KV_START_LOC, kv_starts);
    Expect(CGR_BUFFER_CONTEXT_LENS, context);
    Expect(CGR_BUFFER_CONTEXT_START_LOC, context_starts);
    Expect(CGR_BUFFER_PREFILL_QUERY_START_LOC, prefill_starts);
    Expect(CGR_BUFFER_PREFILL_KV_INDPTR, prefill_pages);
    Expect(CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN, prefill_last);
    Expect(CGR_BUFFER_PREFILL_SEQ_LENS, prefill_lens);
    Expect(CGR_BUFFER_PREFILL_KV_START_LOC, prefill_kv_starts);
    Expect(CGR_BUFFER_PREFILL_BLOCK_TABLE, prefill_table);
  }
  // Every word that kernels could read is a page of the pool, even where no step has written.
  void CheckPagesAreValid() {
    for (cgr_buffer buffer : { CGR_BUFFER_KV_INDICES, CGR_BUFFER_BLOCK_TABLE, CGR_BUFFER_PREFILL_BLOCK_TABLE }) {
      if (kept_[buffer - CGR_BUFFER_KV_INDICES] == nullptr)
        continue;
      for (int32_t entry : Kept(buffer)) {
        const int32_t page = entry / (page_size_ / KernelPageSize());
        ASSERT_TRUE(entry >= 0 && page < engine_->o.num_pages && page != 1) << cgr_buffer_name(buffer) << " has page " << entry;
      }
    }
  }
  // Decodes first, then chunks; requests of no tokens among them.
  std::vector<Item> RandomItems(Random &random) {
    std::vector<int32_t> rows = engine_->Rows(), decodes;
    std::vector<std::pair<int32_t, int32_t>> chunks;
    for (size_t i = rows.size(); i > 1; i--)
      std::swap(rows[i - 1], rows[size_t(random.Pick(0, int64_t(i) - 1))]);
    rows.resize(size_t(random.Pick(1, std::min<int64_t>(int64_t(rows.size()), 8))));
    for (int32_t row : rows) {
      const int32_t room = engine_->o.max_seq_len - engine_->requests.at(row)->num_tokens;
      if (engine_->requests.at(row)->has_token && room > 0 && !random.OneIn(4))
        decodes.push_back(row);
      else
        chunks.push_back({ row, std::min(room, random.OneIn(6) ? 0 : random.Pick32(1, 7)) });
    }
    std::stable_sort(chunks.begin(), chunks.end(), [](const auto &a, const auto &b) { return (a.second > 1) < (b.second > 1); });
    std::vector<Item> items = engine_->Decode(decodes);
    for (const Item &item : engine_->Chunks(chunks))
      items.push_back(item);
    return items;
  }
  // Steps of requests that come and go.
  void RunRandomSteps(Random &random, int steps) {
    for (int n = 0; n < steps && !HasFailure(); n++) {
      SCOPED_TRACE("step " + std::to_string(n));
      std::vector<int32_t> rows = engine_->Rows();
      for (int32_t row : rows)
        if (engine_->requests.at(row)->num_tokens >= engine_->o.max_seq_len - 8 || random.OneIn(12))
          engine_->Close(row);
      while (engine_->Rows().size() < 6 || (engine_->Rows().size() < 10 && random.OneIn(3))) {
        const int32_t row = engine_->Open();
        if (random.OneIn(3)) {
          engine_->Reserve(row, 60);
          const std::vector<Item> prompt = { Engine::Chunk(row, random.Pick32(16, 60)) };
          const std::vector<Known> known = Know(prompt);
          Poison();
          engine_->Step(prompt);
          Check(known, engine_->step.key.num_requests);
        }
      }
      const std::vector<Item> items = RandomItems(random);
      const std::vector<Known> known = Know(items);
      Poison();
      ASSERT_NO_FATAL_FAILURE(engine_->Step(items));
      Check(known, engine_->step.key.num_requests);
      CheckPagesAreValid();
    }
  }

  int32_t KernelPageSize() const { return kernel_page_size_ > 0 ? kernel_page_size_ : page_size_; }

  int32_t page_size_ = 16, kernel_page_size_ = 0;
  cgr_group group_;
  cgr_backend backend_;
  std::vector<cgr_layer> layers_;
  cgr_buffer_view view_[kNumOnDemand] = {};
  void *kept_[kNumOnDemand] = {};
};

TEST_P(OnDemand, AreThereBeforeAttentionInStepsOfEveryKind) {
  SeededRandom random;
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE, CGR_MODE_FULL_AND_PIECEWISE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(mode, 0, kAll));
    RunRandomSteps(random, 40);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(engine_->step.key.kind == CGR_KIND_NONE, mode == CGR_MODE_NONE);
  }
}

TEST_P(OnDemand, AreWhatConfigurationAndBackendAskForTogether) {
  SeededRandom random;
  for (int round = 0; round < 6; round++) {
    const uint64_t by_config = random.Bits() & kAll, by_backend = random.Bits() & kAll;
    ASSERT_NO_FATAL_FAILURE(Make(round % 2 ? CGR_MODE_FULL : CGR_MODE_NONE, by_config, by_backend, round % 3 == 0));
    for (int i = 0; i < kNumOnDemand; i++) {
      cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
      const cgr_status status = cgr_buffer_get(engine_->rt, nullptr, BufferAt(i), 0, &view);
      if ((by_config | by_backend) & CGR_ON_DEMAND(BufferAt(i)))
        CGR_EXPECT_OK(status);
      else
        ExpectMessage(status, CGR_ERROR_STATE, { cgr_buffer_name(BufferAt(i)), "CGR_ON_DEMAND", "cgr_config.on_demand" });
    }
    RunRandomSteps(random, 10);
  }
}

// Pages of a backend inside of larger ones, also of an engine's own table. The other layers, which are the library's, and the
// append have the group's pages.
TEST_P(OnDemand, CountPagesOfTheKernelsSize) {
  SeededRandom random;
  const std::pair<int32_t, int32_t> sizes[] = { { 32, 16 }, { 48, 16 }, { 64, 64 }, { 128, 32 }, { 64, 1 }, { 256, 128 } };
  for (const auto &[page, of_kernel] : sizes)
    for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE }) {
      SCOPED_TRACE("pages of " + std::to_string(page) + ", of which the backend has " + std::to_string(of_kernel));
      page_size_ = page, kernel_page_size_ = of_kernel;
      ASSERT_NO_FATAL_FAILURE(Make(mode, 0, kAll, page == 48 || mode == CGR_MODE_PIECEWISE));
      for (cgr_buffer buffer : { CGR_BUFFER_KV_INDICES, CGR_BUFFER_BLOCK_TABLE, CGR_BUFFER_PREFILL_BLOCK_TABLE }) {
        const cgr_buffer_view view = engine_->View(buffer), table = engine_->View(CGR_BUFFER_PAGE_TABLE);
        const int64_t pages = (engine_->o.max_seq_len + page - 1) / page * (page / of_kernel);
        EXPECT_EQ(view.shape[0] * view.shape[1], engine_->o.max_requests * pages) << cgr_buffer_name(buffer);
        EXPECT_GE(table.shape[1] * (page / of_kernel), pages);
      }
      RunRandomSteps(random, 25);
      ASSERT_FALSE(HasFailure());
    }
}

// The engine's own kernels in the same step: cgr_record_buffer orders what comes after it.
TEST_P(OnDemand, CanBeReadInRecordOnceTheyWereAskedForThere) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_NONE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    ASSERT_NO_FATAL_FAILURE(Make(mode, kAll & ~kPrefills, 0));
    void *early = engine_->Alloc(Bytes(0));
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &info, int32_t at) {
      cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
      if (at != 0)
        return CGR_OK;
      CGR_EXPECT_OK(cgr_record_buffer(recorder, CGR_BUFFER_KV_INDICES, 0, &view));
      return cgr_copy(engine_->dev, early, view.data, Bytes(0), info.stream);
    };
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    CGR_ASSERT_OK(engine_->Capture());
    const int32_t a = engine_->Start(20), b = engine_->Start(33);
    engine_->Step(engine_->Decode({ b, a }));
    std::vector<int32_t> want = engine_->requests[b]->pages, got = engine_->Read<int32_t>(early, 5);
    want.insert(want.end(), engine_->requests[a]->pages.begin(), engine_->requests[a]->pages.end());
    EXPECT_EQ(got, want);
    engine_->hook = nullptr;
  }
}

// One kernel more in each graph, for those who ask.
TEST_P(OnDemand, CostOneNodeForThoseWhoAskAndNothingForOthers) {
  int64_t nodes[2];
  for (int asks = 0; asks < 2; asks++) {
    ASSERT_NO_FATAL_FAILURE(Make(CGR_MODE_FULL, 0, asks ? kAll & ~CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES) : 0));
    std::fill_n(kept_, kNumOnDemand, nullptr); // the test's own copies are nodes, too
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    CGR_ASSERT_OK(engine_->Capture());
    nodes[asks] = engine_->GraphStats(0).num_nodes;
    cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
    for (int i = 0; i < (asks ? 1 : kNumOnDemand); i++)
      ExpectMessage(cgr_buffer_get(engine_->rt, nullptr, BufferAt(i), 0, &view), CGR_ERROR_STATE,
                    { cgr_buffer_name(BufferAt(i)), "CGR_ON_DEMAND" });
  }
  EXPECT_EQ(nodes[1], nodes[0] + 1);
}

// An engine without layers attends whenever it likes: the buffers are ready when `record` begins.
struct Layerless {
  cgr_device *dev;
  cgr_runtime *rt;
  void *kept;
};
cgr_status RecordLayerless(cgr_recorder *recorder, void *context) {
  const Layerless &e = *static_cast<Layerless *>(context);
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_status status = cgr_record_get_info(recorder, &info);
  if (status == CGR_OK)
    status = cgr_buffer_get(e.rt, nullptr, CGR_BUFFER_KV_START_LOC, 0, &view);
  return status == CGR_OK ? cgr_copy(e.dev, e.kept, view.data, 5 * 4, info.stream) : status;
}

TEST_P(OnDemand, AreThereFromTheBeginningOfRecordWithoutLayers) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_NONE }) {
    SCOPED_TRACE(cgr_graph_mode_name(mode));
    Layerless e = {};
    cudaStream_t stream = nullptr;
    CGR_ASSERT_OK(cgr_device_open(GetParam().name.c_str(), &GetParam().config, &e.dev));
    CGR_ASSERT_OK(cgr_stream_create(e.dev, &stream));
    CGR_ASSERT_OK(cgr_memory_alloc(e.dev, 64, &e.kept));
    cgr_group group = CGR_GROUP_INIT;
    group.num_pages = 40;
    cgr_config config = CGR_CONFIG_INIT;
    config.device_handle = e.dev, config.groups = &group, config.num_groups = 1;
    config.max_requests = config.max_tokens = 4, config.max_seq_len = 64, config.graph_mode = mode;
    config.on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_START_LOC);
    CGR_ASSERT_OK(cgr_runtime_create(&config, &e.rt));
    cgr_capture capture = CaptureOf(RecordLayerless, &e);
    CGR_ASSERT_OK(cgr_runtime_capture(e.rt, &capture));
    int32_t rows[2], tokens[2] = { 1, 2 };
    for (int32_t i = 0; i < 2; i++) {
      const int32_t pages[4] = { 2 + 4 * i, 3 + 4 * i, 4 + 4 * i, 5 + 4 * i };
      CGR_ASSERT_OK(cgr_request_open(e.rt, 0, &rows[i]));
      CGR_ASSERT_OK(cgr_request_set_pages(e.rt, rows[i], 0, 0, pages, 4));
      CGR_ASSERT_OK(cgr_request_set_length(e.rt, rows[i], 10 + 20 * i));
    }
    for (int32_t n = 1; n <= 5; n++) {
      cgr_batch batch = BatchOf(2, rows, tokens);
      cgr_step step = CGR_STEP_INIT;
      CGR_ASSERT_OK(cgr_step_prepare(e.rt, &batch, &step));
      CGR_ASSERT_OK(cgr_step_launch(e.rt, &step, stream));
      CGR_ASSERT_OK(cgr_step_wait(e.rt, step.mark, -1, nullptr));
      int32_t got[3] = {};
      CGR_ASSERT_OK(cgr_copy(e.dev, got, e.kept, sizeof got, stream));
      CGR_ASSERT_OK(cgr_stream_synchronize(e.dev, stream));
      EXPECT_EQ(got[0], 0);
      EXPECT_EQ(got[1], 10 + n);
      EXPECT_EQ(got[2], 40 + 2 * n);
    }
    CGR_EXPECT_OK(cgr_runtime_destroy(e.rt));
    CGR_EXPECT_OK(cgr_memory_free(e.dev, e.kept));
    CGR_EXPECT_OK(cgr_stream_destroy(e.dev, stream));
    CGR_EXPECT_OK(cgr_device_close(e.dev));
  }
}

CGR_INSTANTIATE_OVER_DEVICES(OnDemand);

} // namespace
} // namespace cgr_test
