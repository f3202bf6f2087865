// Reporting never allocates; allocations are counted in malloc itself. And no step touches memory for the first time.
#include <sys/resource.h>

#include <numeric>

#include "tests/support/count_allocations.h"
#include "tests/tracing/plain_engine.h"

namespace cgr_test {
namespace {

uint64_t allocations_of_dump = 0, dumps = 0;

// The number of allocations when the dump was handed over.
void CountDump(void *, const char *, size_t) {
  allocations_of_dump = num_allocations;
  dumps++;
}

TEST(Alloc, NothingIsAllocatedToTell) {
#if !CGR_COUNT_MALLOC
  GTEST_SKIP() << "malloc belongs to a sanitizer";
#endif
  static char out[1 << 20];
  static cgr_flight_record records[64];
  static cgr_span spans[16];
  PlainEngine engine([](cgr_config *config) {
    config->dump = CountDump;
    config->timing = 1;
  });
  cgr_key_stats key = CGR_KEY_STATS_INIT;
  cgr_stats stats = CGR_STATS_INIT;
  const cgr_label label = { "engine", "a" };
  CGR_ASSERT_OK(engine.Capture());
  for (int i = 0; i < 200; i++)
    engine.Step({ 1, 1 });
  size_t length = 0;
  int32_t count = 0;
  for (cgr_flight_record &record : records)
    record.size = sizeof record;
  for (cgr_span &span : spans)
    span.size = sizeof span;
  const uint64_t before = num_allocations;
  bool well = cgr_runtime_stats(engine.rt, &stats) == CGR_OK;
  well = well && cgr_runtime_key_stats(engine.rt, 0, &key) == CGR_OK;
  well = well && cgr_runtime_stats_text(engine.rt, out, sizeof out, &length) == CGR_OK;
  well = well && cgr_runtime_metrics(engine.rt, &label, 1, out, sizeof out, &length) == CGR_OK;
  well = well && cgr_runtime_flight(engine.rt, records, 64, &count) == CGR_OK;
  well = well && cgr_runtime_dump(engine.rt, out, sizeof out, &length) == CGR_OK;
  well = well && cgr_runtime_graph_labels(engine.rt, out, sizeof out, &length) == CGR_OK;
  well = well && cgr_runtime_timing(engine.rt, engine.step.mark, spans, 16, &count) == CGR_OK;
  well = well && cgr_runtime_trace(engine.rt, out, sizeof out, &length) == CGR_OK;
  well = well && cgr_runtime_trace_step(engine.rt, engine.step.mark, out, sizeof out, &length) == CGR_OK;
  const uint64_t after = num_allocations;
  EXPECT_TRUE(well) << cgr_last_message();
  EXPECT_EQ(after, before);

  CGR_ASSERT_OK(engine.Prepare({ 5, 2 }));
  engine.fails = true;
  const uint64_t begun = num_allocations;
  const cgr_status status = cgr_step_launch(engine.rt, &engine.step, engine.stream);
  EXPECT_EQ(status, CGR_ERROR_CALLBACK);
  EXPECT_EQ(dumps, 1u);
  EXPECT_EQ(allocations_of_dump, begun) << "neither the failed launch nor its dump";
}

// 10,000 steps: their records and what is folded from them.
TEST(Alloc, NothingIsAllocatedToRecord) {
#if !CGR_COUNT_MALLOC
  GTEST_SKIP() << "malloc belongs to a sanitizer";
#endif
  Captured<PlainEngine> engine;
  CGR_ASSERT_OK(engine.Prepare({}));
  CGR_ASSERT_OK(engine.Launch());
  cgr_batch batch = CGR_BATCH_INIT; // without requests: the test only counts
  uint64_t failed = 0;
  const uint64_t before = num_allocations;
  for (int i = 0; i < 10000; i++) {
    cgr_step step = CGR_STEP_INIT;
    failed += cgr_step_prepare(engine.rt, &batch, &step) != CGR_OK;
    failed += cgr_step_launch(engine.rt, &step, engine.stream) != CGR_OK;
    failed += cgr_step_wait(engine.rt, step.mark, -1, nullptr) != CGR_OK;
  }
  const uint64_t after = num_allocations;
  EXPECT_EQ(failed, 0u);
  EXPECT_EQ(after, before);
  EXPECT_EQ(engine.Stats().steps, 10001u);
}

uint64_t Faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_minflt);
}

// The memory of the sums has been touched before any step: for 300 keys it is some 75 pages.
TEST(Alloc, NoPageIsTouchedForTheFirstTimeLater) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers touch pages of their own";
#endif
  static volatile char pages_of_the_test[1 << 20];
  const uint64_t none = Faults();
  for (size_t at = 0; at < sizeof pages_of_the_test; at += 4096)
    pages_of_the_test[at] = 1;
  if (Faults() - none < sizeof pages_of_the_test / 4096 / 2)
    GTEST_SKIP() << "page faults are not counted here";
  std::vector<int32_t> buckets(300);
  std::iota(buckets.begin(), buckets.end(), 1);
  PlainEngine engine([&](cgr_config *config) {
    config->max_requests = config->max_rows = config->max_tokens = 300;
    config->decode_buckets = buckets.data();
    config->num_decode_buckets = 300;
  });
  size_t length = 0;
  const uint64_t before = Faults();
  CGR_ASSERT_OK(cgr_runtime_metrics(engine.rt, nullptr, 0, nullptr, 0, &length));
  EXPECT_LT(Faults() - before, 16u);
}

} // namespace
} // namespace cgr_test
