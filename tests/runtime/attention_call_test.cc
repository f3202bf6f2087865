// cgr_record_attention through whole steps, replayed and eager, at padded counts: an engine's own page table, layers that read
// another layer's cache, append and attention apart, lse, head counts side by side, KV layouts, and two streams.
#include "tests/support/attention_rig.h"

namespace cgr_test {
namespace {

cgr_key Eager(int32_t requests, int32_t tokens) { return { CGR_KIND_NONE, 0, 0, tokens, requests, 0, 0 }; }
cgr_key Full(int32_t requests) { return { CGR_KIND_FULL, 0, 0, requests, requests, 1, 0 }; }

std::vector<Item> Decode(const std::vector<int32_t> &rows) {
  std::vector<Item> items;
  for (int32_t row : rows)
    items.push_back({ row, 1 });
  return items;
}

// Prompts, chunks and decode steps of five requests, eager and replayed, padded and not. Rows hold 24, 51, 76, 7 and 26 tokens
// then.
std::vector<int32_t> Scenario(Rig &rig) {
  std::vector<int32_t> r;
  for (int i = 0; i < 5; i++)
    r.push_back(rig.Open());
  const cgr_key wide = Eager(8, 64), narrow = Eager(8, 8), full = Full(8);
  rig.Step({ { r[0], 15 }, { r[1], 40 } });
  rig.Step({ { r[2], 50 }, { r[3], 1 } }, &wide);
  rig.Step({ { r[0], 1 }, { r[4], 20 }, { r[2], 17 }, { r[1], 3 } });
  for (int i = 0; i < 2; i++) {
    rig.Step(Decode({ r[0], r[1], r[2] })); // 3 of 4
    rig.Step(Decode(r));                    // 5 of 8
    rig.Step(Decode(r), &narrow);           // eager, 5 of 8
    rig.Step(Decode({ r[4], r[3] }), &full);
    rig.Step(Decode({ r[2] }));
  }
  rig.Step({ { r[0], 2 }, { r[1], 2 }, { r[2], 1 } }, &wide);
  rig.CheckPool();
  return r;
}

class AttentionCall : public ::testing::TestWithParam<DeviceParam> {
protected:
  void SetUp() override { CGR_SKIP_WITHOUT_DEVICE(GetParam()); }
};

TEST_P(AttentionCall, ReadsThePageTableThatTheEngineKeeps) {
  RigOptions options;
  options.layers = { {}, {} };
  options.calls = { { 0, 0 }, { 1, 0 } };
  options.engine_table = true;
  Rig rig(GetParam(), options);
  std::vector<int32_t> r = Scenario(rig);
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  CGR_ASSERT_OK(cgr_buffer_get(rig.rt, CGR_BUFFER_PAGE_TABLE, 0, &view));
  EXPECT_EQ(view.data, rig.table);
  EXPECT_EQ(view.stride, kTableStride);
  int32_t page = 2;
  CGR_EXPECT(CGR_ERROR_STATE, cgr_request_set_pages(rig.rt, r[0], 0, 0, &page, 1));
  std::vector<int32_t> kept = rig.Read<int32_t>(rig.table, kRows * kTableStride);
  for (int32_t row = 0; row < kRows; row++)
    for (int32_t p = 0; p < kTableStride; p++) {
      bool set = rig.pages.count(row) != 0 && static_cast<size_t>(p) < rig.pages[row].size();
      ASSERT_EQ(kept[static_cast<size_t>(row * kTableStride + p)], set ? rig.pages[row][static_cast<size_t>(p)] : INT32_MAX);
    }
}

TEST_P(AttentionCall, ReportsABadPageOfTheEnginesTableAndTouchesNothingElse) {
  RigOptions options;
  options.layers = { {}, {} };
  options.calls = { { 0, 0 }, { 1, 0 } };
  options.engine_table = true;
  Rig rig(GetParam(), options);
  std::vector<int32_t> r = Scenario(rig);
  const int32_t row = r[1];
  const cgr_key narrow = Eager(8, 8);
  for (const cgr_key *key : { static_cast<const cgr_key *>(nullptr), &narrow })
    for (int32_t value : { -5, int32_t{ kPages }, INT32_MAX, 1 }) {
      SCOPED_TRACE((key == nullptr ? "replay, page " : "eager, page ") + std::to_string(value));
      const std::vector<Item> items = Decode({ r[0], row, r[3] });
      // A page that is only read: the step's new token is in the cache all the same.
      rig.SetTable(row, 1, value);
      rig.Step(items, key, { row, 1, value, true });
      rig.CheckPool();
      rig.SetTable(row, 1, rig.pages[row][1]);
      rig.Step(items, key);
      // The page of the new token, which is written nowhere.
      size_t length = rig.caches[row].size();
      int32_t index = static_cast<int32_t>(length) / kPage;
      rig.Reserve(row, length + 1);
      rig.SetTable(row, index, value);
      rig.Step(items, key, { row, index, value, false });
      rig.CheckPool();
      rig.SetTable(row, index, rig.pages[row][static_cast<size_t>(index)]);
      rig.Rewind(row, length);
      rig.Step(items, key);
      rig.CheckPool();
      if (HasFailure())
        return;
    }
}

TEST_P(AttentionCall, ALayerReadsTheCacheOfItsSourceAndAppendsNothing) {
  RigOptions options;
  options.layers = { { 4, 2 }, { 8, 2, 1 }, { 4, 2 }, { 2, 2, 3 } };
  options.calls = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, CGR_ATTENTION_NO_APPEND } };
  Rig rig(GetParam(), options);
  Scenario(rig); // checks the pools: those of layers 1 and 3 stay as they were
}

TEST_P(AttentionCall, AppendAndAttentionApartEqualOneCall) {
  RigOptions options;
  options.layers = { { 8, 2 }, { 8, 2, 0, 0 } }; // the same q, k and v, each with a cache of its own
  options.calls = { { 0, 0 }, { 1, CGR_ATTENTION_APPEND_ONLY }, { 1, CGR_ATTENTION_NO_APPEND } };
  Rig rig(GetParam(), options);
  Scenario(rig);
  ASSERT_EQ(rig.all.size(), 14u);
  for (const std::vector<Outputs> &step : rig.all) {
    ASSERT_TRUE(step[0].out == step[2].out);
    ASSERT_EQ(std::memcmp(step[0].lse.data(), step[2].lse.data(), step[0].lse.size() * 4), 0);
  }
}

TEST_P(AttentionCall, NoAppendReadsWhatEarlierStepsWrote) {
  RigOptions options;
  options.layers = { { 4, 2 }, { 8, 2, 0, -1, 0 } }; // layer 1 has queries of its own and the views of layer 0
  options.calls = { { 1, CGR_ATTENTION_NO_APPEND }, { 0, 0 } };
  Rig rig(GetParam(), options);
  rig.check[0] = false; // before the append its new tokens are not in the cache
  std::vector<int32_t> r = Scenario(rig);
  const cgr_key wide = Eager(4, 32), narrow = Eager(8, 8);
  struct Case {
    std::vector<Item> items;
    const cgr_key *key;
  };
  for (const Case &c : { Case{ Decode({ r[0], r[1], r[2] }), nullptr }, Case{ Decode(r), &narrow },
                         Case{ { { r[0], 3 }, { r[1], 5 } }, &wide } }) {
    Done before = rig.Step(c.items, c.key);
    for (size_t i = 0; i < c.items.size(); i++)
      rig.Rewind(c.items[i].row, before.caches[i].size() - static_cast<size_t>(c.items[i].len));
    Done after = rig.Step(c.items, c.key); // checks the call that appends
    after.caches = before.caches;          // and this one read the cache as the step before had left it
    rig.Check(after, 0, rig.outputs[0]);
  }
  rig.CheckPool();
  // And with no append in the step at all.
  std::vector<Item> items = { { r[0], 4 }, { r[3], 1 } };
  Done before = rig.Step(items, &wide);
  for (size_t i = 0; i < items.size(); i++)
    rig.Rewind(items[i].row, before.caches[i].size() - static_cast<size_t>(items[i].len));
  rig.o.calls = { { 1, CGR_ATTENTION_NO_APPEND }, { 0, CGR_ATTENTION_NO_APPEND } };
  rig.check[1] = false;
  Done after = rig.Step(items, &wide);
  after.caches = before.caches;
  rig.Check(after, 0, rig.outputs[0]);
  rig.Check(after, 1, rig.outputs[1]);
  rig.CheckPool();
}

TEST_P(AttentionCall, LseAndPaddingAtEveryRealCount) {
  Rig rig(GetParam(), RigOptions());
  std::vector<int32_t> r;
  for (int32_t i = 0; i < 8; i++) {
    r.push_back(rig.Open());
    rig.Step({ { r.back(), 1 + 5 * i } });
  }
  for (int32_t bucket : { 8, 4, 2, 1 })
    for (int32_t real = 0; real <= bucket; real++)
      for (const cgr_key &key : { Full(bucket), Eager(bucket, bucket), Eager(bucket, bucket + 9) }) {
        SCOPED_TRACE(std::to_string(real) + " of " + std::to_string(bucket) + ", kind " + std::to_string(key.kind));
        rig.Step(Decode({ r.begin(), r.begin() + real }), &key);
        if (HasFailure())
          return;
      }
  rig.CheckPool();
}

TEST_P(AttentionCall, OnePlanServesLayersOfDifferentHeadCounts) {
  RigOptions options;
  options.layers = { { 2, 2 }, { 8, 2 }, { 8, 1 }, { 71, 1 }, { 16, 16 } }; // groups of 1, 4, 8, 71 and 1
  options.calls = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 3, 0 }, { 4, 0 } };
  Rig rig(GetParam(), options);
  Scenario(rig);
}

TEST_P(AttentionCall, EveryKvLayoutGivesTheSameBits) {
  std::vector<uint16_t> first;
  for (KvLayout layout : { KvLayout::kNhd, KvLayout::kHnd, KvLayout::kKvPages, KvLayout::kPagesKv, KvLayout::kInterleaved,
                           KvLayout::kInterleavedHnd }) {
    SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)));
    RigOptions options;
    options.layers = { { 8, 2 }, { 4, 4 } };
    options.calls = { { 0, 0 }, { 1, 0 } };
    options.layout = layout;
    Rig rig(GetParam(), options);
    Scenario(rig);
    std::vector<uint16_t> bits;
    for (const std::vector<Outputs> &step : rig.all)
      for (const Outputs &call : step) {
        bits.insert(bits.end(), call.out.begin(), call.out.end());
        for (float x : call.lse) {
          uint32_t word;
          std::memcpy(&word, &x, sizeof word);
          bits.push_back(static_cast<uint16_t>(word)), bits.push_back(static_cast<uint16_t>(word >> 16));
        }
      }
    if (first.empty())
      first = bits;
    ASSERT_TRUE(bits == first);
  }
}

TEST_P(AttentionCall, LaunchesAlternateBetweenTwoStreams) {
  RigOptions options;
  options.in_graph = true; // a step that overtakes another, or runs beside it, mixes up their q, k, v and outputs
  Rig rig(GetParam(), options);
  std::vector<int32_t> r;
  for (int32_t len : { 15, 33, 1 }) {
    r.push_back(rig.Open());
    rig.Step({ { r.back(), len } });
    rig.Reserve(r.back(), kMaxSeq);
  }
  const cgr_key narrow = Eager(8, 8), wide = Eager(4, 32);
  std::vector<Done> steps;
  for (size_t i = 0; i < 24; i++) {
    if (i >= 6)
      CGR_ASSERT_OK(cgr_step_wait(rig.rt, steps[i - 6].step.seq, nullptr));
    std::vector<Item> items = Decode(i % 3 == 1 ? std::vector<int32_t>{ r[1] } : r);
    if (i % 7 == 6)
      items[0].len = 4;
    Done done;
    CGR_ASSERT_OK(rig.Prepare(items, i % 7 == 6 ? &wide : i % 5 == 4 ? &narrow : nullptr, &done));
    rig.Apply(&done);
    CGR_ASSERT_OK(cgr_step_launch(rig.rt, &done.step, rig.streams[i % 2]));
    steps.push_back(done);
  }
  CGR_ASSERT_OK(cgr_step_wait(rig.rt, steps.back().step.seq, nullptr));
  rig.Sync();
  ASSERT_EQ(rig.history.size(), static_cast<size_t>(steps.back().upload) + 1);
  for (const Done &done : steps)
    rig.Check(done, 0, rig.history[static_cast<size_t>(done.upload)][0]);
  rig.CheckPool();
}

TEST_P(AttentionCall, TheDefaultLadderAscendsToTheMaximum) {
  struct Case {
    int32_t max_requests, max_bucket, last;
  };
  for (const Case &c : { Case{ 1, 0, 1 }, Case{ 20, 0, 20 }, Case{ 300, 0, 300 }, Case{ 600, 0, 512 }, Case{ 300, 29, 29 } }) {
    SCOPED_TRACE(std::to_string(c.max_requests) + " requests, max_bucket " + std::to_string(c.max_bucket));
    ToyOptions options = ToyOptionsFor(GetParam());
    options.max_requests = options.max_rows = options.max_tokens = c.max_requests;
    options.adjust = [&](cgr_config *config) {
      config->num_buckets = 0;
      config->buckets = nullptr;
      config->max_bucket = c.max_bucket;
    };
    Toy toy(options);
    int32_t keys = cgr_runtime_num_keys(toy.rt), before = 0;
    ASSERT_GT(keys, 0);
    for (int32_t i = 0; i < keys; i++) {
      cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
      CGR_ASSERT_OK(cgr_runtime_graph_stats(toy.rt, i, &stats));
      EXPECT_EQ(stats.key.kind, CGR_KIND_FULL);
      EXPECT_EQ(stats.key.num_tokens, stats.key.num_requests);
      EXPECT_GT(stats.key.num_requests, before);
      before = stats.key.num_requests;
    }
    EXPECT_EQ(before, c.last);
  }
  // And it is what steps run in.
  RigOptions options;
  options.max_requests = 20;
  options.buckets = {};
  Rig rig(GetParam(), options);
  std::vector<Item> prompts;
  for (int32_t i = 0; i < 20; i++)
    prompts.push_back({ rig.Open(), 3 });
  rig.Step(prompts);
  for (int32_t real = 1; real <= 20; real++) {
    std::vector<int32_t> rows;
    for (int32_t i = 0; i < real; i++)
      rows.push_back(prompts[static_cast<size_t>(i)].row);
    Done done = rig.Step(Decode(rows));
    EXPECT_GE(done.step.key.num_requests, real);
  }
  rig.CheckPool();
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionCall, ::testing::Values(HostParam(CGR_HOST_ASYNC), CudaParam()), DeviceLabel);

} // namespace
} // namespace cgr_test
