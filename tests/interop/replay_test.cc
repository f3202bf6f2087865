// Every format in a runtime: a backend enqueues the format's planner and kernels that read its output as the real ones do. One
// FULL graph per key stays right while lengths, splits, pages and requests change: outputs are compared with plain attention in
// fp64 over the engine's own copy of K and V. Between steps everything that no step may read is poisoned.
#include "tests/support/engine.h"
#include "tests/support/format_backend.h"
#include "tests/support/seed.h"

namespace cgr_test {
namespace {

enum { kStatus, kErrors, kMerged, kNumWords };

std::vector<FormatOptions> AllFormats() {
  std::vector<FormatOptions> all;
  auto add = [&all](const char *name, Format format) -> FormatOptions & {
    all.emplace_back();
    all.back().name = name;
    all.back().format = format;
    return all.back();
  };
  FormatOptions *o = &add("fa3_upstream", Format::kFa3);
  o->tile_m = 16, o->tile_n = 32, o->num_splits = 6;
  add("fa3_own_tiles", Format::kFa3).num_splits = 3;
  add("fa3_one_split", Format::kFa3).num_splits = 1;
  o = &add("fa3_vllm", Format::kFa3);
  o->layout = CGR_FA3_VLLM, o->tile_m = 32, o->tile_n = 16, o->num_splits = 8;
  add("flashmla_current", Format::kFlashMla).layout = CGR_FLASHMLA_CURRENT;
  o = &add("flashmla_v1", Format::kFlashMla);
  o->layout = CGR_FLASHMLA_V1, o->num_parts = 13, o->block_size = 16;
  add("flashinfer_decode", Format::kFlashInferDecode);
  add("flashinfer_prefill", Format::kFlashInferPrefill);
  add("flashinfer_fixed_split", Format::kFlashInferPrefill).fixed_split_size = 3;
  o = &add("flashinfer_no_split", Format::kFlashInferPrefill);
  o->disable_split_kv = true, o->num_multiprocessors = 4; // CTAs beyond the plan's repeat its first tile
  add("flashinfer_0_7_1", Format::kFlashInferPrefill).layout = CGR_FLASHINFER_V0_7_1;
  o = &add("flashinfer_0_7_1_no_split", Format::kFlashInferPrefill);
  o->layout = CGR_FLASHINFER_V0_7_1, o->disable_split_kv = true, o->num_multiprocessors = 4;
  return all;
}

struct Case {
  DeviceParam device;
  FormatOptions format;
  int32_t page_size = 16; // of the group; the kernels' is 16
};
void PrintTo(const Case &c, std::ostream *os) { *os << c.format.name << " on " << c.device.Label(); }

class FormatReplay : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam().device); }
  void TearDown() override {
    engine_.reset();
    if (backend_ != nullptr) {
      EXPECT_TRUE(backend_->states.empty()) << "states outlive the runtime";
    }
  }

  // `shrink`: bytes by which the backend shrinks the space for its plans.
  void Make(uint64_t shrink = 0) {
    const DeviceParam &device = GetParam().device;
    EngineOptions options = OptionsFor(device);
    options.feed = Feed::kUploads;
    options.layers = { { 4, 2 }, { 4, 2 } };
    for (LayerOptions &layer : options.layers)
      layer.head_dim = device.IsCuda() ? 64 : 16;
    options.mode = CGR_MODE_DEFAULT;
    options.buckets = { 1, 2, 4, 8 };
    options.mixed = { { 8, 4 }, { 24, 8 }, { 64, 8 } };
    options.max_rows = 10;
    options.max_seq_len = 400;
    options.num_pages = 280;
    options.page_size = GetParam().page_size;
    options.adjust = [this, shrink](cgr_config *config) {
      group_ = config->groups[0];
      group_.kernel_page_size = 16;
      config->groups = &group_;
      layers_.assign(config->layers, config->layers + config->num_layers);
      for (cgr_layer &layer : layers_)
        layer.backend = 1;
      config->layers = layers_.data();
      static const int32_t query_lens[] = { 1, 3 }; // decodes, and decodes of up to three tokens each
      config->query_lens = query_lens;
      config->num_query_lens = 2;
      format_ = std::make_unique<FormatBackend>(GetParam().format, *config, GetParam().device.IsCuda());
      if (shrink > 0)
        format_->plan_room = (format_->most_plan_bytes - shrink) / 16 * 16;
      value_ = format_->backend();
      config->backends = &value_;
      config->num_backends = 1;
    };
    engine_ = std::make_unique<Engine>(options);
    backend_ = format_.get();
    words_ = static_cast<int32_t *>(engine_->Alloc(kNumWords * 4));
    CGR_ASSERT_OK(cgr_fill(engine_->dev, words_, 0, kNumWords * 4, engine_->stream));
    backend_->Bind(layers_.data(), words_);
  }
  // Kernels are loaded by the first steps: no capture may do that.
  void Capture() {
    CGR_ASSERT_OK(engine_->Warmup());
    backend_->num_created = backend_->num_plans = backend_->num_recorded = 0;
    CGR_ASSERT_OK(engine_->Capture());
  }
  std::vector<int32_t> Words() { return engine_->Read<int32_t>(words_, kNumWords); }

  int32_t AnyRow() {
    std::vector<int32_t> rows = engine_->Rows();
    return rows[size_t(random_->Pick(0, int64_t(rows.size()) - 1))];
  }
  // Requests come and go; some are set back and find other pages when they grow again.
  void Change() {
    if (engine_->Rows().size() < 9 && random_->OneIn(2))
      engine_->Open();
    if (engine_->Rows().size() > 1 && random_->OneIn(12))
      engine_->Close(AnyRow());
    if (!engine_->Rows().empty() && random_->OneIn(8)) {
      const int32_t row = AnyRow(), tokens = random_->Pick32(0, engine_->requests[row]->num_tokens);
      engine_->SetLength(row, tokens);
      const int32_t keep = (tokens + 15) / 16, has = int32_t(engine_->requests[row]->pages.size());
      if (has > keep)
        engine_->DropPages(row, keep, has - keep);
    }
  }
  // Decodes, chunks or both; requests without tokens; now and then none at all.
  std::vector<Item> Compose() {
    std::vector<std::pair<int32_t, int32_t>> chunks;
    const bool decodes = random_->OneIn(2), few = random_->OneIn(3), empties = random_->OneIn(3);
    int32_t room = engine_->o.max_tokens;
    if (random_->OneIn(25))
      return {};
    std::vector<int32_t> rows = engine_->Rows();
    for (size_t i = rows.size(); i > 1; i--)
      std::swap(rows[i - 1], rows[size_t(random_->Pick(0, int64_t(i) - 1))]);
    for (int32_t row : rows) {
      const int32_t left = std::min({ engine_->o.max_seq_len - engine_->requests[row]->num_tokens, room,
                                      few                 ? 3
                                      : random_->OneIn(4) ? 60
                                                          : 12 });
      if (chunks.size() == 8 || left == 0 || random_->OneIn(5))
        continue;
      const int32_t length = empties && random_->OneIn(4) ? 0 : decodes || random_->OneIn(3) ? 1 : random_->Pick32(1, left);
      chunks.push_back({ row, length });
      room -= length;
    }
    return engine_->Chunks(chunks);
  }
  // Poisons what no step may read, or what each step writes anew.
  void Poison() {
    cgr_device *dev = engine_->dev;
    cudaStream_t stream = engine_->stream;
    const int byte = random_->OneIn(2) ? 0xff : int(random_->Pick(0, 255));
    if (random_->OneIn(2))
      CGR_EXPECT_OK(cgr_fill(dev, backend_->workspace, byte, backend_->workspace_bytes(), stream));
    for (cgr_buffer buffer : { CGR_BUFFER_KV_INDICES, CGR_BUFFER_BLOCK_TABLE }) {
      cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
      if (random_->OneIn(2) && (value_.on_demand & CGR_ON_DEMAND(buffer)) != 0) {
        CGR_EXPECT_OK(cgr_buffer_get(engine_->rt, nullptr, buffer, 0, &view));
        CGR_EXPECT_OK(cgr_fill(dev, view.data, 0x7f, size_t(view.shape[0] * view.stride) * 4, stream));
      }
    }
    engine_->Sync();
    if (random_->OneIn(4))
      engine_->PoisonUnowned(std::numeric_limits<double>::quiet_NaN());
  }
  void RandomStep() {
    const bool eager = random_->OneIn(20);
    Change();
    const std::vector<Item> items = Compose();
    Poison();
    if (eager)
      CGR_EXPECT_OK(cgr_runtime_enable_graphs(engine_->rt, 0));
    const int32_t recorded = backend_->num_recorded;
    ASSERT_NO_FATAL_FAILURE(engine_->Step(items));
    CGR_EXPECT_OK(cgr_runtime_enable_graphs(engine_->rt, 1));
    const cgr_key &key = engine_->step.key;
    if (key.kind == CGR_KIND_FULL) {
      EXPECT_EQ(backend_->num_recorded, recorded) << "a replay records nothing";
    }
    steps_[key.kind][key.query_len]++;
    const std::vector<int32_t> words = Words();
    ASSERT_EQ(words[kStatus], CGR_OK);
    ASSERT_EQ(words[kErrors], 0) << "the plan leads a kernel out of its arrays";
  }

  std::unique_ptr<Random> random_;
  cgr_group group_;
  std::vector<cgr_layer> layers_;
  std::unique_ptr<FormatBackend> format_; // outlives the engine
  FormatBackend *backend_ = nullptr;
  cgr_backend value_;
  std::unique_ptr<Engine> engine_;
  int32_t *words_ = nullptr;
  int steps_[3][4] = {}; // by kind and query length of the key
};

TEST_P(FormatReplay, OneGraphAKeyServesAnyBatchWhateverIsAround) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(Repeat(seed));
  random_ = std::make_unique<Random>(seed);
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_NO_FATAL_FAILURE(Capture());
  const bool always = backend_->support() == CGR_SUPPORT_ALWAYS;
  const int32_t keys = cgr_test::NumKeys(engine_->rt);
  EXPECT_EQ(keys, always ? 11 : 7);
  EXPECT_EQ(backend_->num_plans, keys);
  EXPECT_EQ(backend_->num_recorded, 2 * (always ? keys : 4)) << "each layer once a FULL graph";
  EXPECT_EQ(cgr_test::ModeOf(engine_->rt), always ? CGR_MODE_FULL : CGR_MODE_FULL_AND_PIECEWISE);
  for (int n = 0; n < 220 && !HasFailure(); n++) {
    SCOPED_TRACE("step " + std::to_string(n));
    RandomStep();
  }
  ASSERT_FALSE(HasFailure());
  EXPECT_GT(steps_[CGR_KIND_FULL][1], 20);
  EXPECT_TRUE(steps_[CGR_KIND_FULL][3] > 10 || !always);
  EXPECT_GT(steps_[always ? CGR_KIND_FULL : CGR_KIND_PIECEWISE][0], 20);
  EXPECT_GT(steps_[CGR_KIND_NONE][0], 0);
  const FormatOptions &o = GetParam().format;
  if (o.num_splits != 1 && !o.disable_split_kv) {
    EXPECT_GT(Words()[kMerged], 100) << "nothing was split";
  } else {
    EXPECT_EQ(Words()[kMerged], 0);
  }
}

// The padded requests and tokens of a larger graph change no bit of the real ones.
TEST_P(FormatReplay, PaddingChangesNoResult) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_NO_FATAL_FAILURE(Capture());
  random_ = std::make_unique<Random>(Seed());
  std::vector<int32_t> rows = { engine_->Start(57), engine_->Start(33), engine_->Start(60) };
  for (int n = 0; n < 4; n++)
    engine_->Step(engine_->Chunks({ { rows[2], 60 } }));
  for (const cgr_bucket &bucket : engine_->o.mixed) {
    Poison();
    cgr_key key = CGR_KEY_INIT;
    key.kind = backend_->support() == CGR_SUPPORT_ALWAYS ? CGR_KIND_FULL : CGR_KIND_PIECEWISE;
    key.num_tokens = bucket.num_tokens;
    key.num_requests = bucket.num_requests;
    engine_->Step(engine_->Chunks({ { rows[0], 1 }, { rows[1], 3 }, { rows[2], 1 } }), &key);
    EXPECT_EQ(engine_->step.key.num_tokens, bucket.num_tokens);
    EXPECT_EQ(Words()[kErrors], 0);
  }
}

// A key whose plan does not fit is refused before anything is launched; the capture says whose, and how many bytes it takes.
TEST_P(FormatReplay, APlanForMoreThanThereIsRoomForFailsItsCaptureByName) {
  ASSERT_NO_FATAL_FAILURE(Make());
  CGR_ASSERT_OK(engine_->Warmup());
  engine_.reset();
  ASSERT_NO_FATAL_FAILURE(Make(16));
  const std::string needed = std::to_string(backend_->most_plan_bytes);
  ExpectMessage(engine_->Capture(), CGR_ERROR_CALLBACK,
                { "backend " + GetParam().format.name + ": plan returned CGR_ERROR_INVALID_ARGUMENT", "bytes", needed });
  int ready = 0, failed = 0;
  for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++) {
    const int32_t state = engine_->GraphStats(i).state;
    ready += state == CGR_GRAPH_READY;
    failed += state == CGR_GRAPH_FAILED;
  }
  EXPECT_GT(failed, 0);
  EXPECT_EQ(size_t(ready) + 1, backend_->states.size()) << "keys that failed keep no state; eager steps have one";
}

// A state for each key and one for eager steps, gone with its graph.
TEST_P(FormatReplay, StatesLiveAsLongAsTheirGraphs) {
  ASSERT_NO_FATAL_FAILURE(Make());
  ASSERT_NO_FATAL_FAILURE(Capture());
  const int32_t keys = cgr_test::NumKeys(engine_->rt);
  EXPECT_EQ(backend_->num_created, keys) << "that of eager steps was there";
  EXPECT_EQ(backend_->states.size(), size_t(keys) + 1);
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  EXPECT_EQ(backend_->states.size(), 1u);
  CGR_ASSERT_OK(engine_->Capture());
  EXPECT_EQ(backend_->states.size(), size_t(keys) + 1);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const DeviceParam &device : { HostParam(CGR_SCHEDULE_ASYNC), HostParam(CGR_SCHEDULE_LATEST), CudaParam() })
    for (const FormatOptions &format : AllFormats())
      cases.push_back({ device, format });
  for (const FormatOptions &format : AllFormats())
    cases.push_back({ HostParam(CGR_SCHEDULE_LATEST), format, 64 });
  return cases;
}
std::string CaseLabel(const ::testing::TestParamInfo<Case> &made) {
  const std::string pages = made.param.page_size == 16 ? "" : "_in_pages_of_" + std::to_string(made.param.page_size);
  return made.param.format.name + "_" + made.param.device.Label() + pages;
}
INSTANTIATE_TEST_SUITE_P(Formats, FormatReplay, ::testing::ValuesIn(Cases()), CaseLabel);

} // namespace
} // namespace cgr_test
