// The counts of a batch choose the key that the batch itself does; hashes tell when what can be replayed changes.
#include <set>

#include "cgr/ranks.h"
#include "tests/support/seed.h"
#include "tests/support/standing_case.h"
#include "tests/support/tiny_engine.h"

namespace cgr_test {
namespace {

struct Hashes {
  uint64_t keys = 0, usable = 0;
};
Hashes HashesOf(cgr_runtime *rt) {
  Hashes h;
  CGR_EXPECT_OK(cgr_runtime_hash_keys(rt, &h.keys, &h.usable));
  return h;
}

// Both ways to the key, of a batch that a runtime accepts; its kind.
int32_t CompareChoices(cgr_runtime *rt, const cgr_batch &batch) {
  cgr_key direct = CGR_KEY_INIT, by_counts = CGR_KEY_INIT;
  cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
  int32_t reason = -1;
  CGR_EXPECT_OK(cgr_step_choose(rt, &batch, &direct));
  CGR_EXPECT_OK(cgr_step_count(rt, &batch, &counts));
  CGR_EXPECT_OK(cgr_step_choose_counts(rt, &counts, &by_counts, &reason));
  EXPECT_EQ(std::memcmp(&direct, &by_counts, sizeof direct), 0);
  EXPECT_EQ(reason == CGR_REASON_EXACT || reason == CGR_REASON_PADDED, direct.kind != CGR_KIND_NONE);
  return direct.kind;
}

TEST(Counts, ChooseTheKeyOfRandomBatches) {
  HostDevice device;
  TinyEngine engine(device, CGR_MODE_FULL);
  std::vector<int32_t> rows(3);
  for (int32_t &row : rows) {
    CGR_ASSERT_OK(cgr_request_open(engine.rt, 1 + uint64_t(&row - rows.data()), &row));
    const int32_t page = 2 + int32_t(&row - rows.data());
    CGR_ASSERT_OK(cgr_request_set_pages(engine.rt, row, 0, 0, &page, 1));
  }
  std::set<int32_t> kinds;
  ForSeeds(600, [&](Random &random) {
    if (random.OneIn(50))
      CGR_ASSERT_OK(random.OneIn(2) ? engine.Capture() : cgr_runtime_release_graphs(engine.rt, 0, nullptr));
    cgr_batch batch = CGR_BATCH_INIT;
    batch.num_requests = random.Pick32(0, 3);
    std::vector<int32_t> lens, tokens(8, 1);
    int32_t left = TinyEngine::kTokens;
    for (int32_t i = 0; i < batch.num_requests; i++) {
      lens.push_back(random.OneIn(2) ? 1 : random.Pick32(1, left - (batch.num_requests - 1 - i)));
      left -= lens.back();
    }
    batch.rows = rows.data(), batch.query_lens = lens.data(), batch.tokens = tokens.data();
    kinds.insert(CompareChoices(engine.rt, batch));
    cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
    CGR_ASSERT_OK(cgr_step_count(engine.rt, &batch, &counts));
    ASSERT_EQ(counts.num_requests, batch.num_requests);
    ASSERT_EQ(counts.num_tokens, TinyEngine::kTokens - left);
    ASSERT_EQ(counts.max_query_len, lens.empty() ? 0 : *std::max_element(lens.begin(), lens.end()));
  });
  EXPECT_EQ(kinds.size(), 2u) << "the batches are too much alike";
}

TEST_P(Standing, CountsChooseTheKeyOfIt) {
  PutAll();
  const auto compare = [&] {
    const cgr_batch standing = StandingBatch();
    EXPECT_EQ(CompareChoices(rt(), standing), CGR_KIND_FULL);
    cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
    CGR_ASSERT_OK(cgr_step_count(rt(), &standing, &counts));
    EXPECT_EQ(counts.num_requests, int32_t(engine_->StandingRows().size()));
  };
  compare();
  CGR_ASSERT_OK(Take(rows_[1]));
  compare();
}

CGR_INSTANTIATE_OVER_FEW_DEVICES(Standing);

TEST(Hashes, ChangeWithWhatCanBeReplayed) {
  HostDevice device;
  TinyEngine engine(device, CGR_MODE_FULL), other(device, CGR_MODE_FULL);
  const std::vector<int32_t> regions = engine.RegisterAll();
  other.RegisterAll();
  const Hashes empty = HashesOf(engine.rt);
  CGR_ASSERT_OK(engine.Capture());
  const Hashes captured = HashesOf(engine.rt);
  EXPECT_NE(captured.usable, empty.usable);
  CGR_ASSERT_OK(other.Capture());
  EXPECT_EQ(HashesOf(other.rt).usable, captured.usable) << "equal runtimes have equal hashes";
  EXPECT_EQ(HashesOf(other.rt).keys, captured.keys);
  CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine.rt, 0));
  EXPECT_NE(HashesOf(engine.rt).usable, captured.usable);
  CGR_ASSERT_OK(cgr_runtime_enable_graphs(engine.rt, 1));
  EXPECT_EQ(HashesOf(engine.rt).usable, captured.usable);
  std::set<uint64_t> one_captured; // which of the keys it is matters
  for (int32_t i = 0; i < 3; i++) {
    cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
    CGR_ASSERT_OK(cgr_runtime_graph_stats(engine.rt, i, &graph));
    CGR_ASSERT_OK(cgr_runtime_release_graphs(engine.rt, 0, nullptr));
    EXPECT_EQ(HashesOf(engine.rt).usable, empty.usable);
    cgr_capture capture = engine.CaptureStruct();
    capture.keys = &graph.key, capture.num_keys = 1;
    CGR_ASSERT_OK(cgr_runtime_capture(engine.rt, &capture));
    one_captured.insert(HashesOf(engine.rt).usable);
  }
  EXPECT_EQ(one_captured.size(), 3u);
  CGR_ASSERT_OK(engine.Capture());
  EXPECT_EQ(HashesOf(engine.rt).usable, captured.usable);
  CGR_ASSERT_OK(cgr_region_move(engine.rt, regions[0], engine.memory[0], TinyEngine::kMemory));
  EXPECT_NE(HashesOf(engine.rt).usable, captured.usable);
  CGR_ASSERT_OK(engine.Capture());
  EXPECT_EQ(HashesOf(engine.rt).usable, captured.usable);
  EXPECT_EQ(HashesOf(engine.rt).keys, empty.keys) << "the keys stay what they are";
}

TEST(Hashes, TellConfigurationsApart) {
  HostDevice device;
  using Adjust = std::function<void(cgr_config *)>;
  static const int32_t buckets[] = { 2, 3 };
  const Adjust adjusts[] = { [](cgr_config *) {}, [](cgr_config *c) { c->max_padding = 3.0f; },
                             [](cgr_config *c) { c->max_tokens = 9; }, [](cgr_config *c) { c->decode_buckets = buckets; },
                             [](cgr_config *c) { c->strict = 1; } };
  std::set<uint64_t> hashes;
  for (const Adjust &adjust : adjusts) {
    TinyEngine engine(device, TinyOptions{ CGR_MODE_FULL, 0, 0, { {} }, {}, 0, false, adjust, nullptr });
    hashes.insert(HashesOf(engine.rt).keys);
  }
  EXPECT_EQ(hashes.size(), 5u);
}

TEST(Counts, Refuse) {
  HostDevice device;
  TinyEngine engine(device, CGR_MODE_FULL);
  cgr_batch_counts good = CGR_BATCH_COUNTS_INIT;
  good.num_requests = 2, good.num_tokens = 4, good.query_len = good.max_query_len = 2;
  cgr_key key = CGR_KEY_INIT;
  const auto refused = [&](int32_t cgr_batch_counts::*field, int32_t value, const std::string &says) {
    cgr_batch_counts c = good;
    c.*field = value;
    ExpectMessage(cgr_step_choose_counts(engine.rt, &c, &key, nullptr), CGR_ERROR_INVALID_ARGUMENT,
                  { "cgr_step_choose_counts: counts." + says });
  };
  CGR_EXPECT_OK(cgr_step_choose_counts(engine.rt, &good, &key, nullptr));
  refused(&cgr_batch_counts::num_requests, 4, "num_requests is 4, expected 0 .. 3");
  refused(&cgr_batch_counts::num_requests, -1, "num_requests is -1, expected 0 .. 3");
  refused(&cgr_batch_counts::num_requests, 0, "num_tokens is 4, expected 0 .. 0");
  refused(&cgr_batch_counts::num_requests, 1, "num_tokens is 4, expected at most 2, query_len (2) of each request");
  refused(&cgr_batch_counts::num_tokens, 9, "num_tokens is 9, expected 0 .. 8");
  refused(&cgr_batch_counts::max_query_len, 5, "max_query_len is 5, expected 1 .. 4");
  refused(&cgr_batch_counts::max_query_len, 0, "max_query_len is 0, expected 1 .. 4");
  refused(&cgr_batch_counts::query_len, 3, "query_len is 3, expected 0 .. 2");
  refused(&cgr_batch_counts::query_len, -1, "query_len is -1, expected 0 .. 2");
  cgr_batch_counts c = good;
  c.reserved = 1;
  ExpectMessage(cgr_step_choose_counts(engine.rt, &c, &key, nullptr), CGR_ERROR_NEWER_STRUCT,
                { "cgr_step_choose_counts: counts.reserved is 1, expected 0" });
  const auto null = [](cgr_status status, const std::string &says) { ExpectMessage(status, CGR_ERROR_NULL_POINTER, { says }); };
  const cgr_batch batch = CGR_BATCH_INIT;
  null(cgr_step_choose_counts(engine.rt, nullptr, &key, nullptr), "cgr_step_choose_counts: counts");
  null(cgr_step_choose_counts(engine.rt, &good, nullptr, nullptr), "cgr_step_choose_counts: key");
  null(cgr_step_choose_counts(nullptr, &good, &key, nullptr), "cgr_step_choose_counts: runtime");
  null(cgr_step_count(engine.rt, &batch, nullptr), "cgr_step_count: counts");
  null(cgr_step_count(engine.rt, nullptr, &c), "cgr_step_count: batch");
  null(cgr_step_count(nullptr, &batch, &c), "cgr_step_count: runtime");
  uint64_t hash = 0;
  null(cgr_runtime_hash_keys(engine.rt, &hash, nullptr), "cgr_runtime_hash_keys: usable");
  null(cgr_runtime_hash_keys(nullptr, nullptr, &hash), "cgr_runtime_hash_keys: runtime");
  CGR_EXPECT_OK(cgr_runtime_hash_keys(engine.rt, nullptr, &hash));
  const int32_t row = 2, len = 1, token = 3;
  cgr_batch closed = BatchOf(1, &row, &token);
  closed.query_lens = &len;
  ExpectMessage(cgr_step_count(engine.rt, &closed, &c), CGR_ERROR_ROW_CLOSED, { "cgr_step_count: " });
}

} // namespace
} // namespace cgr_test
