// The self-test finds nothing in a correct engine, whatever its graphs are, and finds each planted fault by name.
#include <cstring>

#include "cgr/names.h"
#include "tests/support/checker.h"
#include "tests/support/engine_case.h"
#include "tests/support/found.h"
#include "tests/support/row_engine.h"

namespace cgr_test {
namespace {

using rows::RowEngine;

class SelfTest : public OverDevices {
protected:
  void SetUpOnDevice() override { Make(CGR_MODE_FULL); }
  void Make(cgr_graph_mode mode, std::function<void(cgr_config *)> adjust = nullptr) {
    rows::Options options;
    options.model = rows::SmallModelFor(GetParam()), options.mode = mode, options.adjust = std::move(adjust);
    options.batch_invariant = false;
    options.mixed = { { 8, 3 }, { 40, 12 } };
    if (one_kv_head_)
      options.model = { { { 0, 4, 1, 64, CGR_DTYPE_BF16 }, { 1, 4, 1, 64, CGR_DTYPE_BF16 } }, 512, 1344 };
    else if (!GetParam().IsCuda()) // whose attention takes its time
      options.model = { { { 0, 2, 2, 16, CGR_DTYPE_BF16 }, { 1, 4, 1, 16, CGR_DTYPE_FP32 } }, 512, 1344 };
    engine_.reset();
    engine_ = std::make_unique<RowEngine>(GetParam(), Seed(), options);
  }
  cgr_self_test Test(int32_t num_pages) {
    cgr_self_test test = CGR_SELF_TEST_INIT;
    pages_ = engine_->FreePages(num_pages);
    test.num_pages = num_pages, test.pages = pages_.data(), test.max_token = 200;
    test.seed = uint32_t(Seed());
    return test;
  }
  // The same test, which also compares what the sampler sees.
  cgr_self_test TestWatching(int32_t num_pages) {
    const RowTensor &out = engine_->LastOut();
    const int64_t row = out.width * int64_t(cgr_dtype_size(cgr_dtype(out.dtype)));
    watch_ = { "out of the last layer", out.data, row, row, CGR_DIMENSION_TOKENS, 0 };
    cgr_self_test test = Test(num_pages);
    test.watched = &watch_, test.num_watched = 1;
    return test;
  }
  Found Run(const cgr_self_test &test) {
    return Collect(64, [&](cgr_finding *findings, int32_t room, int32_t *count) {
      return cgr_runtime_self_test(engine_->rt, &test, findings, room, count);
    });
  }
  // Three runs of a step of another size, a decoy, the case and the next step; the second has another decoy, the third one has
  // another decoy of other rows. A single request is tried twice.
  uint64_t StepsOfATest() {
    uint64_t steps = 0;
    for (int32_t i = 0; i < cgr_test::NumKeys(engine_->rt); i++) {
      const cgr_graph_stats stats = GraphStatsOf(engine_->rt, i);
      if (stats.state == CGR_GRAPH_READY)
        steps += 28;
    }
    return steps;
  }
  void ExpectDifferences(const Found &found, const Words &words) { ExpectFound(found, CGR_ERROR_SELF_TEST, words); }
  // Captures everything again, with the hook.
  void Plant(std::function<cgr_status(cgr_recorder *, const cgr_record_info &)> hook) {
    engine_->hook = std::move(hook);
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
    CGR_ASSERT_OK(engine_->Capture());
  }
  // The engine's steps after a test are right: alone as in a batch of one.
  void ExpectGoodSteps() {
    const int32_t a = engine_->Open(), b = engine_->Open();
    engine_->Reserve(a, 40);
    engine_->Reserve(b, 40);
    const std::vector<rows::Answer> first = engine_->Run({ { a, { 1, 2, 3, 4, 5 }, false } });
    const std::vector<rows::Answer> same = engine_->Run({ { b, { 1, 2, 3, 4, 5 }, false } });
    ASSERT_EQ(first.size(), 1u);
    ASSERT_EQ(same.size(), 1u);
    EXPECT_EQ(rows::DifferenceOf(first[0], same[0]), "");
    engine_->Close(a);
    engine_->Close(b);
  }
  std::unique_ptr<RowEngine> engine_;
  std::vector<int32_t> pages_;
  cgr_watch watch_;
  bool one_kv_head_ = false;
};

TEST_P(SelfTest, FindsNothingInAnEngineThatIsRight) {
  for (cgr_graph_mode mode : { CGR_MODE_FULL, CGR_MODE_PIECEWISE, CGR_MODE_FULL_AND_PIECEWISE, CGR_MODE_FULL_DECODE_ONLY })
    for (int32_t num_pages : { 5, 40 }) {
      SCOPED_TRACE(cgr_graph_mode_name(mode) + std::string(", ") + std::to_string(num_pages) + " pages");
      Make(mode);
      const cgr_stats before = StatsOf(engine_->rt);
      ExpectNothing(Run(TestWatching(num_pages)));
      const cgr_stats after = StatsOf(engine_->rt);
      uint64_t forced = 0;
      for (int kind = 0; kind < 3; kind++)
        forced += after.by_reason[kind][CGR_REASON_FORCED];
      EXPECT_EQ(forced, StepsOfATest());
      EXPECT_EQ(after.guard_errors, 0u);
      EXPECT_EQ(after.num_graphs, before.num_graphs);
      ExpectGoodSteps();
      ExpectNothing(Run(Test(num_pages)));
    }
}

// Longer uniform queries, exactly and up to their length; variants; strict steps; more seeds.
TEST_P(SelfTest, TriesEveryKindOfKey) {
  static const int32_t lens[] = { 1, 4, 7 };
  static const cgr_variant variants[] = { { 0, 0, 1, 0 }, { 5, 0, 1, 0 }, { 6, 5, 0, 0 } };
  const bool few = UnderChecker(); // which takes minutes, and memory for each launch
  std::vector<int32_t> supports{ CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE };
  if (!few)
    supports.insert(supports.begin(), { CGR_SUPPORT_UNIFORM_BATCH, CGR_SUPPORT_ALWAYS });
  const uint32_t runs = few ? 1 : 2;
  for (int32_t support : supports) {
    SCOPED_TRACE(cgr_graph_support_name(cgr_graph_support(support)));
    Make(CGR_MODE_DEFAULT, [=](cgr_config *config) {
      config->attention_support = support, config->query_lens = lens, config->num_query_lens = 3;
      config->variants = variants, config->num_variants = 3, config->strict = 1;
    });
    cgr_stats stats = StatsOf(engine_->rt);
    const int32_t lengths = support == CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE ? 1 : 3;
    EXPECT_EQ(stats.num_graphs, 2 * (4 * lengths + 2));
    cgr_self_test test = TestWatching(40);
    for (uint32_t n = 0; n < runs; n++) {
      test.seed = uint32_t(Seed()) + n;
      ExpectNothing(Run(test));
    }
    stats = StatsOf(engine_->rt);
    EXPECT_EQ(stats.by_reason[CGR_KIND_NONE][CGR_REASON_FORCED], runs * StepsOfATest() / 14 * 10);
    ExpectGoodSteps();
  }
}

cgr_status CopyQueries(void *device, cgr_recorder *recorder, const cgr_attention *a) {
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  const cgr_status status = cgr_record_get_info(recorder, &info);
  const size_t row = size_t(a->q.stride_token) * cgr_dtype_size(cgr_dtype(a->q.dtype));
  return status == CGR_OK
             ? cgr_copy(static_cast<cgr_device *>(device), a->out.data, a->q.data, size_t(info.num_tokens) * row, info.stream)
             : status;
}

// If a backend wants decodes first, the batches of a self-test put them first.
TEST_P(SelfTest, KeepsToTheOrderThatABackendWants) {
  static const int32_t lens[] = { 1, 4, 7 };
  for (int32_t threshold : { 1, 3 }) {
    std::vector<cgr_layer> layers;
    Make(CGR_MODE_FULL, [&](cgr_config *config) {
      static cgr_backend backend;
      backend = CGR_BACKEND_INIT;
      backend.name = "copies q", backend.context = config->device_handle;
      backend.reorder_threshold = threshold;
      backend.on_demand = threshold == 1 ? 2 * CGR_ON_DEMAND(CGR_BUFFER_PREFILL_BLOCK_TABLE) - 1 : 0; // all on demand, too
      backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
      backend.record = CopyQueries;
      layers.assign(config->layers, config->layers + config->num_layers);
      layers[1].backend = 1;
      config->layers = layers.data(), config->backends = &backend, config->num_backends = 1;
      config->query_lens = lens, config->num_query_lens = 3;
    });
    for (uint32_t n = 0; n < 2; n++) {
      cgr_self_test test = Test(40);
      test.seed = uint32_t(Seed()) + n;
      ExpectNothing(Run(test));
    }
  }
}

// Where no step has written any, a test puts pages that kernels could read: in lists of a backend's smaller pages some of those.
TEST_P(SelfTest, PutsPagesOfTheKernelsSizeWherePagesOfKernelsAreListed) {
  std::vector<cgr_group> groups;
  std::vector<cgr_layer> layers;
  cgr_backend backend = CGR_BACKEND_INIT;
  one_kv_head_ = true; // so that a kernel's pages follow each other where heads come before tokens, too
  Make(CGR_MODE_FULL, [&](cgr_config *config) {
    groups.assign(config->groups, config->groups + config->num_groups);
    for (cgr_group &group : groups)
      group.kernel_page_size = 4;
    config->groups = groups.data();
    backend.name = "copies q", backend.context = config->device_handle, backend.record = CopyQueries;
    backend.reorder_threshold = 1; // there are prefills
    backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
    backend.on_demand = CGR_ON_DEMAND(CGR_BUFFER_KV_INDICES) | CGR_ON_DEMAND(CGR_BUFFER_BLOCK_TABLE) |
                        CGR_ON_DEMAND(CGR_BUFFER_PREFILL_BLOCK_TABLE);
    layers.assign(config->layers, config->layers + config->num_layers);
    layers[1].backend = 1;
    config->layers = layers.data(), config->backends = &backend, config->num_backends = 1;
  });
  ExpectNothing(Run(Test(20)));
  for (size_t g = 0; g < groups.size(); g++)
    for (cgr_buffer buffer : { CGR_BUFFER_KV_INDICES, CGR_BUFFER_BLOCK_TABLE, CGR_BUFFER_PREFILL_BLOCK_TABLE }) {
      cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
      CGR_ASSERT_OK(cgr_buffer_get(engine_->rt, nullptr, buffer, int32_t(g), &view));
      const int32_t each = groups[g].page_size / 4;
      int given = 0;
      for (int32_t entry : engine_->Read<int32_t>(view.data, size_t(view.shape[0] * view.shape[1]))) {
        const int32_t page = entry / each;
        ASSERT_TRUE(page == 0 || std::count(pages_.begin(), pages_.end(), page) > 0) << "page " << page;
        given += page != 0;
      }
      EXPECT_GT(given, 0) << cgr_buffer_name(buffer);
    }
}

// A backend whose plan may be left out of captured graphs; its output shows what it planned.
struct Plans {
  cgr_device *device;
  bool in_captures;
};
cgr_status PlanLengths(void *context, void *, cgr_recorder *recorder, uint32_t flags, int32_t) {
  const Plans *plans = static_cast<Plans *>(context);
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_buffer_view lens = CGR_BUFFER_VIEW_INIT;
  if ((flags & CGR_PLAN_CAPTURE) && !plans->in_captures)
    return CGR_OK;
  CGR_EXPECT_OK(cgr_record_get_info(recorder, &info));
  CGR_EXPECT_OK(cgr_record_buffer(recorder, CGR_BUFFER_SEQ_LENS, 0, &lens));
  return cgr_copy(plans->device, info.plan_key->workspace, lens.data, 4, info.stream);
}
cgr_status RecordPlanned(void *context, cgr_recorder *recorder, const cgr_attention *a) {
  const Plans *plans = static_cast<Plans *>(context);
  CGR_EXPECT_OK(CopyQueries(plans->device, recorder, a));
  const cgr_record_info info = InfoOf(recorder);
  return cgr_copy(plans->device, a->out.data, info.plan_key->workspace, 4, info.stream);
}

// The eager step runs first; its plan must not still be there for the replay.
TEST_P(SelfTest, FindsGraphsThatLackAPlan) {
  for (bool in_captures : { true, false }) {
    Plans plans = { nullptr, in_captures };
    cgr_backend backend = CGR_BACKEND_INIT;
    std::vector<cgr_layer> layers;
    Make(CGR_MODE_FULL, [&](cgr_config *config) {
      plans.device = config->device_handle;
      backend.name = "plans", backend.context = &plans;
      backend.support = [](void *, const cgr_device_info *, const cgr_group *) { return CGR_SUPPORT_ALWAYS; };
      backend.record = RecordPlanned, backend.plan = PlanLengths, backend.workspace_bytes = 64;
      layers.assign(config->layers, config->layers + config->num_layers);
      layers.back().backend = 1;
      config->layers = layers.data(), config->backends = &backend, config->num_backends = 1;
    });
    const Found found = Run(TestWatching(24));
    if (in_captures)
      ExpectNothing(found);
    else
      ExpectDifferences(found, { "out of the last layer" });
    engine_.reset();
  }
}

// A length that no sequence reaches, and pages that hold only short requests: nothing is found.
TEST_P(SelfTest, KeepsToTheLimits) {
  static const int32_t lens[] = { 1, 4, 100 };
  for (int32_t max_seq_len : { 7, 64 })
    for (int32_t support : { CGR_SUPPORT_UNIFORM_BATCH, CGR_SUPPORT_ALWAYS })
      for (int32_t num_pages : { 4, 40 }) {
        if (support == CGR_SUPPORT_UNIFORM_BATCH && max_seq_len == 64 && num_pages == 4)
          continue;
        SCOPED_TRACE(std::to_string(max_seq_len) + ", " + std::to_string(num_pages));
        Make(CGR_MODE_DEFAULT, [=](cgr_config *config) {
          config->attention_support = support, config->query_lens = lens, config->num_query_lens = 3;
          config->max_seq_len = max_seq_len;
        });
        ExpectNothing(Run(Test(num_pages)));
      }
}

// k of the last padded token becomes what the sampler sees of the first token.
TEST_P(SelfTest, FindsAKernelThatReadsAPaddedRow) {
  const RowTensor out = engine_->LastOut(), keys = engine_->LastKeys();
  Plant([=](cgr_recorder *, const cgr_record_info &info) {
    const size_t row = size_t(keys.width) * cgr_dtype_size(cgr_dtype(keys.dtype));
    return cgr_copy(engine_->dev, out.data, static_cast<char *>(keys.data) + size_t(info.num_tokens - 1) * row, row, info.stream);
  });
  ExpectDifferences(Run(TestWatching(24)), { "after one decoy, padding and stale memory" });
  Plant(nullptr);
  ExpectNothing(Run(Test(24)));
}

// The memory after the padded rows of a buffer is left over from the step before, or from any earlier one.
TEST_P(SelfTest, FindsAKernelThatReadsStaleMemory) {
  const RowTensor out = engine_->LastOut();
  Plant([=](cgr_recorder *recorder, const cgr_record_info &info) {
    cgr_buffer_view positions = CGR_BUFFER_VIEW_INIT;
    cgr_status status = cgr_record_buffer(recorder, CGR_BUFFER_POSITIONS, 0, &positions);
    if (status != CGR_OK || info.num_tokens >= engine_->model.max_tokens)
      return status;
    return cgr_copy(engine_->dev, out.data, static_cast<int32_t *>(positions.data) + info.num_tokens, 4, info.stream);
  });
  ExpectDifferences(Run(TestWatching(24)), { "after one decoy, padding and stale memory" });
}

TEST_P(SelfTest, FindsAKernelThatWritesAPageThatNoRequestOwns) {
  Plant([this](cgr_recorder *, const cgr_record_info &info) {
    return cgr_fill(engine_->dev, engine_->ConfigLayer(1).v.base, 0x11, 16, info.stream);
  });
  const Found found = Run(Test(24));
  ExpectDifferences(found, { "page 0 (layer 1, values), the read-trash page, was written in the replay" });
  for (const cgr_finding &finding : found.findings) {
    EXPECT_EQ(finding.layer, 1);
    EXPECT_EQ(finding.group, 1);
  }
  const int32_t canary = Test(24).pages[24 + 23]; // the last one given, of group 1
  const cgr_kv_view &k = engine_->ConfigLayer(1).k;
  void *at = static_cast<char *>(k.base) + canary * k.stride_page * int64_t(cgr_dtype_size(cgr_dtype(k.dtype)));
  Plant([=](cgr_recorder *, const cgr_record_info &info) { return cgr_fill(engine_->dev, at, 0x11, 16, info.stream); });
  // fill_pages comes between the runs, so that each shows what it wrote itself. Page 0 still holds what was written before.
  const Found canaries = Run(Test(24)); // page `canary` is a request's in some graphs
  ExpectDifferences(canaries, { "page " + std::to_string(canary) + " (layer 1, keys), which " });
  EXPECT_GT(canaries.count, 0);
}

// Pages and ends of pages that no row owns differ from run to run.
TEST_P(SelfTest, FindsAKernelThatReadsWhatNoRequestOwns) {
  const int32_t canary = Test(24).pages[23], owned = Test(24).pages[0];
  const cgr_kv_view k = engine_->ConfigLayer(0).k;
  const int64_t element = int64_t(cgr_dtype_size(cgr_dtype(k.dtype)));
  const auto token = [=](int32_t page, int32_t at) {
    return static_cast<char *>(k.base) + (page * k.stride_page + at * k.stride_token) * element;
  };
  for (const char *read : { token(canary, 0), token(owned, 15) }) {
    Plant([=](cgr_recorder *, const cgr_record_info &info) {
      return cgr_copy(engine_->dev, engine_->LastOut().data, read, 16, info.stream);
    });
    cgr_self_test test = TestWatching(24);
    Found found;
    for (int n = 0; n < 8 && found.count == 0; n++, test.seed++) // with one seed it may be a request's, and full, in every graph
      found = Run(test);
    ExpectDifferences(found, { "after one decoy, padding and stale memory" });
  }
}

// A host value that differs from step to step and that a graph cannot know.
TEST_P(SelfTest, FindsALengthOfTheHostThatWasCaptured) {
  Plant([this](cgr_recorder *recorder, const cgr_record_info &info) {
    cgr_buffer_view next = CGR_BUFFER_VIEW_INIT;
    cgr_status status = cgr_record_buffer(recorder, CGR_BUFFER_NEXT_TOKENS, 0, &next);
    (void)next;
    const size_t rows = info.real_tokens < 0 ? 1 : size_t(info.real_tokens);
    return status == CGR_OK ? cgr_fill(engine_->dev, engine_->LastOut().data, int(rows % 100), 32, info.stream) : status;
  });
  ExpectDifferences(Run(TestWatching(24)), { "in the replay", "in the eager step" });
}

// Findings name the key, and only keys that are wrong.
TEST_P(SelfTest, NamesTheGraphThatIsWrong) {
  Plant([this](cgr_recorder *, const cgr_record_info &info) {
    return info.capturing && info.key.query_len == 1 && info.num_requests == 4
               ? cgr_fill(engine_->dev, engine_->LastOut().data, 0x3f, 512, info.stream)
               : CGR_OK;
  });
  const Found found = Run(TestWatching(24));
  ExpectDifferences(
      found, { "out of the last layer[0][", "next_tokens", "tokens of the result" }); // its first byte may be right by chance
  for (const cgr_finding &finding : found.findings)
    EXPECT_STREQ(finding.field, "full 4r 4t q1 v0");
}

// The page is found wherever it is in the list, because the pages of a graph's requests are drawn from all of it.
TEST_P(SelfTest, FindsAPageThatIsWrittenWhicheverItIs) {
  const int32_t num_pages = 24;
  const cgr_kv_view &k = engine_->ConfigLayer(0).k;
  for (int32_t p : { 0, 1, 11, num_pages - 1 }) {
    SCOPED_TRACE(p);
    const int32_t page = Test(num_pages).pages[p];
    void *at = static_cast<char *>(k.base) + page * k.stride_page * int64_t(cgr_dtype_size(cgr_dtype(k.dtype)));
    Plant([=](cgr_recorder *, const cgr_record_info &info) { return cgr_fill(engine_->dev, at, 0x11, 16, info.stream); });
    ExpectDifferences(Run(Test(num_pages)),
                      { "page " + std::to_string(page) + " (layer 0, keys), which no request owns, was written" });
  }
}

struct CorruptArgs {
  const int64_t *slots;
  char *base;
  int64_t page_size, page_bytes, token_bytes;
};

// Corrupts one element of the first token's k or v, only in a graph: a request's keys and values are compared in every cache.
TEST_P(SelfTest, FindsARequestsPageThatDiffers) {
  if (GetParam().IsCuda())
    GTEST_SKIP() << "the planted kernel is a function of the host's";
  for (size_t layer : { size_t(0), engine_->model.layers.size() - 1 })
    for (bool values : { false, true }) {
      const cgr_layer &l = engine_->ConfigLayer(layer);
      const cgr_kv_view &view = values ? l.v : l.k;
      const int64_t element = int64_t(cgr_dtype_size(cgr_dtype(view.dtype)));
      Plant([=](cgr_recorder *recorder, const cgr_record_info &info) {
        cgr_buffer_view slots = CGR_BUFFER_VIEW_INIT;
        if (!info.capturing)
          return CGR_OK;
        const cgr_status status = cgr_record_buffer(recorder, CGR_BUFFER_SLOT_MAPPING, l.group, &slots);
        const CorruptArgs args = { static_cast<int64_t *>(slots.data), static_cast<char *>(view.base), rows::kPageSizes[l.group],
                                   view.stride_page * element, view.stride_token * element };
        auto corrupt = [](const void *raw) {
          const CorruptArgs &a = *static_cast<const CorruptArgs *>(raw);
          if (a.slots[0] >= 0)
            a.base[a.slots[0] / a.page_size * a.page_bytes + a.slots[0] % a.page_size * a.token_bytes] ^= 1;
        };
        return status == CGR_OK ? cgr_launch_host(engine_->dev, corrupt, &args, sizeof args, info.stream) : status;
      });
      const std::string where = "(layer " + std::to_string(layer) + (values ? ", values)" : ", keys)");
      ExpectDifferences(Run(Test(24)), { where + ", which a request owns, differs in the replay" });
    }
}

// The table entries after a row's pages are left over from the row's previous request.
TEST_P(SelfTest, FindsAKernelThatReadsThePageTableTooFar) {
  Plant([this](cgr_recorder *recorder, const cgr_record_info &info) {
    cgr_buffer_view table = CGR_BUFFER_VIEW_INIT;
    const cgr_status status = cgr_record_buffer(recorder, CGR_BUFFER_PAGE_TABLE, 1, &table); // groups of 64 tokens: short rows
    return status == CGR_OK ? cgr_copy(engine_->dev, engine_->LastOut().data, static_cast<int32_t *>(table.data) + table.stride,
                                       size_t(table.shape[1]) * 4, info.stream)
                            : status;
  });
  // In some graphs the row is not even the test's.
  ExpectDifferences(Run(TestWatching(24)), { "out of the last layer", "next_tokens", "tokens of the result" });
}

// The same inputs give different results, so no graph is to blame.
TEST_P(SelfTest, TellsARecordThatDoesNotRepeat) {
  void *pinned = nullptr;
  CGR_ASSERT_OK(cgr_memory_alloc_pinned(engine_->dev, 16, &pinned));
  std::memset(pinned, 0, 16);
  Plant([=](cgr_recorder *, const cgr_record_info &info) {
    auto count = [](const void *raw) { ++**static_cast<int32_t *const *>(raw); };
    const cgr_status status = cgr_launch_host(engine_->dev, count, &pinned, sizeof pinned, info.stream);
    return status == CGR_OK ? cgr_copy(engine_->dev, engine_->LastOut().data, pinned, 4, info.stream) : status;
  });
  ExpectDifferences(Run(TestWatching(24)), { "`record` does not repeat" });
  Plant(nullptr);
  CGR_ASSERT_OK(cgr_memory_free_pinned(engine_->dev, pinned));
}

// A request of an exact length that the pages cannot hold, next to graphs that can be tried.
TEST_P(SelfTest, TellsWhichGraphsHaveTooFewPages) {
  static const int32_t lens[] = { 1, 60 };
  Make(CGR_MODE_DEFAULT, [](cgr_config *config) {
    config->attention_support = CGR_SUPPORT_UNIFORM_BATCH, config->query_lens = lens;
    config->num_query_lens = 2, config->max_seq_len = 64;
  });
  const Found found = Run(Test(4));
  EXPECT_EQ(found.status, CGR_ERROR_PAGES_MISSING);
  EXPECT_GT(found.count, 0);
  for (const cgr_finding &finding : found.findings) {
    EXPECT_NE(std::string(finding.field).find(" q60 "), std::string::npos) << finding.field;
    EXPECT_NE(std::string(finding.text).find("was not tried: 4 pages"), std::string::npos) << finding.text;
  }
  ExpectNothing(Run(Test(40)));
}

// A step that fails ends the test with its status and the graph's name.
TEST_P(SelfTest, NamesTheGraphWhoseStepFails) {
  engine_->hook = [](cgr_recorder *, const cgr_record_info &info) {
    return info.key.num_requests == 4 ? CGR_ERROR_BUSY : CGR_OK; // eager steps alone: all is captured
  };
  const Found found = Run(Test(24));
  ExpectMessage(found.status, CGR_ERROR_CALLBACK, { "cgr_runtime_self_test: full 4r 4t q1 v0: ", "CGR_ERROR_BUSY" });
  EXPECT_EQ(found.count, 0);
  engine_->hook = nullptr;
  ExpectNothing(Run(Test(24)));
  ExpectGoodSteps();
}

TEST_P(SelfTest, RefusesBadArguments) {
  auto refused = [&](cgr_status status, const std::vector<std::string> &words, const cgr_self_test &test) {
    const Found found = Run(test);
    ExpectMessage(found.status, status, words);
    EXPECT_EQ(found.count, 0);
  };
  cgr_self_test test = Test(8);
  int32_t count = 7;
  ExpectMessage(cgr_runtime_self_test(nullptr, &test, nullptr, 0, &count), CGR_ERROR_NULL_POINTER, { "runtime" });
  ExpectMessage(cgr_runtime_self_test(engine_->rt, nullptr, nullptr, 0, &count), CGR_ERROR_NULL_POINTER,
                { "cgr_runtime_self_test: test" });
  EXPECT_EQ(count, 0);
  ExpectMessage(cgr_runtime_self_test(engine_->rt, &test, nullptr, 0, nullptr), CGR_ERROR_NULL_POINTER, { "count" });
  ExpectMessage(cgr_runtime_self_test(engine_->rt, &test, nullptr, 3, &count), CGR_ERROR_NULL_POINTER,
                { "findings is NULL, expected room for 3" });
  ExpectMessage(cgr_runtime_self_test(engine_->rt, &test, nullptr, -1, &count), CGR_ERROR_INVALID_ARGUMENT, { "capacity is -1" });
  test.num_pages = 3;
  refused(CGR_ERROR_INVALID_ARGUMENT, { "num_pages is 3" }, test);
  test = Test(8);
  test.pages = nullptr;
  refused(CGR_ERROR_NULL_POINTER, { "pages is NULL" }, test);
  test = Test(8);
  for (int32_t bad : { -1, 0 }) {
    test.max_token = bad;
    refused(CGR_ERROR_INVALID_ARGUMENT, { "max_token is " + std::to_string(bad) }, test);
  }
  test = Test(8);
  test.reserved = 1;
  refused(CGR_ERROR_NEWER_STRUCT, { "reserved" }, test);
  for (int32_t bad : { -1, 0, 1, 1 << 20 }) {
    test = Test(8);
    pages_[11] = bad;
    refused(CGR_ERROR_PAGE_OUT_OF_RANGE, { "pages[1][3] is " + std::to_string(bad) }, test);
  }
  test = Test(8);
  pages_[5] = pages_[2];
  refused(CGR_ERROR_INVALID_ARGUMENT, { "pages[0][5]", "twice" }, test);
  cgr_watch watch = { "w", engine_->LastOut().data, 8, 8, CGR_DIMENSION_TOKENS, 0 };
  auto watched = [&](cgr_status status, const std::vector<std::string> &words) {
    test = Test(8);
    test.watched = &watch, test.num_watched = 1;
    refused(status, words, test);
    watch = { "w", engine_->LastOut().data, 8, 8, CGR_DIMENSION_TOKENS, 0 };
  };
  watch.dimension = CGR_DIMENSION_ROWS;
  watched(CGR_ERROR_INVALID_ENUM, { "watched[0].dimension is 3" });
  watch.reserved = 7;
  watched(CGR_ERROR_NEWER_STRUCT, { "watched.reserved is 7" });
  watch.name = nullptr;
  watched(CGR_ERROR_NULL_POINTER, { "watched[0].name" });
  watch.data = nullptr;
  watched(CGR_ERROR_NULL_POINTER, { "watched[0].data" });
  watch.row_bytes = 0;
  watched(CGR_ERROR_INVALID_ARGUMENT, { "watched[0].row_bytes is 0" });
  watch.stride_bytes = 7;
  watched(CGR_ERROR_INVALID_ARGUMENT, { "watched[0].stride_bytes is 7", "(8)" });
  watch.row_bytes = watch.stride_bytes = 1 << 20;
  watched(CGR_ERROR_INVALID_ARGUMENT, { "watched[0] takes", "where its allocation" });
  test = Test(8);
  test.num_watched = 33;
  refused(CGR_ERROR_INVALID_ARGUMENT, { "num_watched is 33" }, test);
  test.num_watched = 2;
  refused(CGR_ERROR_NULL_POINTER, { "watched is NULL" }, test);
  test = Test(8);
  const int32_t row = engine_->Open();
  refused(CGR_ERROR_STATE, { "1 row is open" }, test);
  engine_->Reserve(row, 8);
  const int32_t token = 3;
  cgr_batch batch = BatchOf(1, &row, &token);
  cgr_step step = CGR_STEP_INIT;
  CGR_ASSERT_OK(cgr_step_prepare(engine_->rt, &batch, &step));
  refused(CGR_ERROR_STATE, { "a step is prepared" }, test);
  CGR_ASSERT_OK(cgr_step_cancel(engine_->rt, &step));
  engine_->Close(row);
  ExpectNothing(Run(test));
}

TEST_P(SelfTest, WantsAGraphThatCanBeReplayed) {
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_->rt, 0, nullptr));
  ExpectMessage(Run(Test(8)).status, CGR_ERROR_STATE, { "cgr_runtime_self_test: no graph of ", "cgr_runtime_capture" });
  CGR_ASSERT_OK(engine_->Capture());
  ExpectNothing(Run(Test(8)));
}

TEST_P(SelfTest, WantsThePageTablesOfTheLibrary) {
  EngineOptions options = OptionsFor(GetParam());
  options.engine_table = true;
  Captured<Engine> engine(options);
  const int32_t pages[] = { 2, 3, 4, 5 };
  cgr_self_test test = CGR_SELF_TEST_INIT;
  int32_t count = 0;
  test.num_pages = 4, test.pages = pages, test.max_token = 10;
  ExpectMessage(cgr_runtime_self_test(engine.rt, &test, nullptr, 0, &count), CGR_ERROR_UNSUPPORTED,
                { "group 0 has a page table" });
}

// A `record` that fails in an eager step ends the test; rows are given back and the padding is as before.
TEST_P(SelfTest, AFailingRecordEndsIt) {
  engine_->hook = [](cgr_recorder *, const cgr_record_info &) { return CGR_ERROR_BUSY; };
  ExpectMessage(Run(Test(16)).status, CGR_ERROR_CALLBACK, { "CGR_ERROR_BUSY" });
  engine_->hook = nullptr;
  ExpectGoodSteps();
  ExpectNothing(Run(Test(16)));
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(SelfTest);

} // namespace
} // namespace cgr_test
