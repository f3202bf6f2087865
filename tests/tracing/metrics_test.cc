// Statistics for Prometheus and for people.
#include "cgr/names.h"
#include "tests/tracing/metrics_reader.h"
#include "tests/tracing/plain_engine.h"

namespace cgr_test {
namespace {

using Labels = MetricsReader::Labels;

class Metrics : public ::testing::Test {
protected:
  std::string Text(const std::vector<cgr_label> &labels = {}) {
    return engine_.Text([&](char *out, size_t capacity, size_t *length) {
      return cgr_runtime_metrics(engine_.rt, labels.data(), int32_t(labels.size()), out, capacity, length);
    });
  }
  void RunSteps() {
    CGR_ASSERT_OK(engine_.Capture());
    for (int i = 0; i < 70; i++)
      engine_.Step({ 1, 1, 1 });
    for (int i = 0; i < 10; i++)
      engine_.Step({ 5, 2 });
    engine_.Step({ 20, 20 });
    CGR_ASSERT_OK(engine_.Prepare({ 1 }));
    CGR_ASSERT_OK(cgr_step_cancel(engine_.rt, &engine_.step));
    CGR_EXPECT(CGR_ERROR_INVALID_ARGUMENT, engine_.Prepare({ -1 }));
  }
  static MetricsReader::Labels Full4() { return { { "key", "full 4r 4t q1 v0" }, { "kind", "full" } }; }
  PlainEngine engine_;
};

TEST_F(Metrics, EveryLineIsValidAndSaysWhatTheStatisticsDo) {
  RunSteps();
  const MetricsReader m(Text());
  const cgr_stats stats = engine_.Stats();
  EXPECT_EQ(m.Sum("cgr_steps_total"), double(stats.steps));
  EXPECT_EQ(m.Get("cgr_steps_total", { { "kind", "full" }, { "reason", "padded" } }), 70);
  EXPECT_EQ(m.Get("cgr_steps_total", { { "kind", "none" }, { "reason", "above tokens" } }), 1);
  EXPECT_EQ(m.Get("cgr_key_steps_total", Full4()), 70);
  EXPECT_EQ(m.Get("cgr_key_real_tokens_total", Full4()), 210);
  EXPECT_EQ(m.Get("cgr_key_padded_tokens_total", Full4()), 280);
  EXPECT_EQ(m.Get("cgr_key_real_requests_total", Full4()), 210);
  EXPECT_EQ(m.Get("cgr_key_padded_requests_total", Full4()), 280);
  EXPECT_EQ(m.Get("cgr_key_staged_bytes_total", Full4()), double(engine_.KeyStats(2).bytes_staged));
  EXPECT_GT(engine_.KeyStats(2).bytes_staged, 0u);
  EXPECT_EQ(m.Get("cgr_key_nodes", Full4()), double(engine_.KeyStats(2).num_nodes));
  EXPECT_GT(engine_.KeyStats(2).num_nodes, 0);
  EXPECT_EQ(m.Get("cgr_key_graph_memory_bytes", Full4()), double(engine_.KeyStats(2).device_bytes));
  EXPECT_NEAR(m.Get("cgr_key_capture_seconds", Full4()), engine_.KeyStats(2).capture_ms * 1e-3, 1e-6);
  EXPECT_EQ(m.Get("cgr_key_steps_total", { { "key", "eager" }, { "kind", "none" } }), double(engine_.KeyStats(-1).steps));
  EXPECT_EQ(m.Get("cgr_key_steps_total", { { "key", "full 1r 1t q1 v0" }, { "kind", "full" } }), 0) << "it was not used yet";
  EXPECT_EQ(m.Get("cgr_steps_total", { { "kind", "full" }, { "reason", "exact" } }), 0);
  EXPECT_EQ(m.Sum("cgr_key_steps_total"), double(stats.steps));
  EXPECT_EQ(m.Get("cgr_real_requests_total"), 70 * 3 + 10 * 2 + 2);
  EXPECT_EQ(m.Get("cgr_padded_requests_total"), 70 * 4 + 10 * 8 + 2);
  EXPECT_EQ(m.Get("cgr_refused_launches_total"), 0);
  EXPECT_EQ(m.Get("cgr_real_tokens_total"), double(stats.real_tokens));
  EXPECT_EQ(m.Get("cgr_padded_tokens_total"), double(stats.padded_tokens));
  EXPECT_EQ(m.Get("cgr_staged_bytes_total"), double(stats.bytes_staged));
  EXPECT_EQ(m.Get("cgr_cancelled_steps_total"), 1);
  EXPECT_EQ(m.Get("cgr_abandoned_steps_total"), 0);
  EXPECT_EQ(m.Get("cgr_refused_steps_total"), 1);
  EXPECT_EQ(m.Get("cgr_graphs"), 7);
  EXPECT_EQ(m.Get("cgr_dead"), 0);
  EXPECT_EQ(m.Get("cgr_prepare_seconds_count", { { "kind", "full" } }), 70);
  EXPECT_EQ(m.Get("cgr_launch_seconds_count", { { "kind", "piecewise" } }), 10);
  EXPECT_EQ(m.Get("cgr_launch_seconds_count", { { "kind", "none" } }), 1);
  EXPECT_NEAR(m.Get("cgr_launch_seconds_sum", { { "kind", "full" } }), double(engine_.KeyStats(2).launch.sum_ns) * 1e-9, 1e-9);
  EXPECT_TRUE(m.Has("cgr_launch_seconds_bucket", { { "kind", "full" }, { "le", "0.000000128" } }));
  EXPECT_TRUE(m.Has("cgr_launch_seconds_bucket", { { "kind", "full" }, { "le", "1.073741824" } }));
  EXPECT_EQ(m.TypeOf("cgr_key_misses"), "gauge");
}

// Each border has the statistics' count up to it.
TEST_F(Metrics, HistogramsAreThoseOfTheStatistics) {
  RunSteps();
  const MetricsReader m(Text());
  for (const auto &[kind, keys] : { std::pair<std::string, std::vector<int32_t>>{ "none", { -1 } },
                                    { "piecewise", { 4, 5, 6 } },
                                    { "full", { 0, 1, 2, 3 } } })
    for (const bool launch : { false, true }) {
      cgr_histogram sum = {};
      for (const int32_t key : keys) {
        const cgr_key_stats stats = engine_.KeyStats(key);
        EXPECT_EQ(cgr_graph_kind_name(cgr_graph_kind(stats.key.kind)), kind);
        for (int32_t i = 0; i < CGR_HISTOGRAM_BUCKETS; i++)
          sum.bucket[i] += (launch ? stats.launch : stats.prepare).bucket[i];
      }
      const auto buckets = m.Buckets(launch ? "cgr_launch_seconds" : "cgr_prepare_seconds", { { "kind", kind } });
      EXPECT_EQ(buckets.size(), 25u) << "every doubling up to 1.07 s, and the last";
      for (const auto &[border, count] : buckets) {
        uint64_t up_to = 0;
        for (int32_t i = 0; i < CGR_HISTOGRAM_BUCKETS; i++)
          up_to += double(cgr_histogram_border(i)) <= border * 1e9 * (1.0 + 1e-9) || std::isinf(border) ? sum.bucket[i] : 0;
        EXPECT_EQ(count, double(up_to)) << kind << " up to " << border;
      }
    }
}

// A series that was reported once does not end: a scraper would take its counter for one that was reset.
TEST_F(Metrics, SeriesGoOnWhateverBecomesOfTheirKey) {
  const MetricsReader::Labels full2 = { { "key", "full 2r 2t q1 v0" }, { "kind", "full" } };
  CGR_ASSERT_OK(engine_.Warmup());
  EXPECT_FALSE(MetricsReader(Text()).Has("cgr_key_misses", full2)) << "neither captured, missed nor used";
  engine_.Step({ 1, 1 });
  EXPECT_EQ(MetricsReader(Text()).Get("cgr_key_misses", full2), 1);
  CGR_ASSERT_OK(engine_.Capture());
  EXPECT_EQ(MetricsReader(Text()).Get("cgr_key_misses", full2), 0);
  EXPECT_EQ(MetricsReader(Text()).Get("cgr_key_steps_total", full2), 0);
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_.rt, 0, nullptr));
  EXPECT_EQ(engine_.KeyStats(1).state, CGR_GRAPH_EMPTY);
  EXPECT_EQ(MetricsReader(Text()).Get("cgr_key_misses", full2), 0);
  EXPECT_EQ(MetricsReader(Text()).Get("cgr_key_nodes", full2), 0);
}

TEST_F(Metrics, AreValidBeforeAnyStepAndAfterDeath) {
  EXPECT_EQ(MetricsReader(Text()).Sum("cgr_steps_total"), 0);
  RunSteps();
  engine_.Fault(CGR__OP_EXEC_LAUNCH, CGR__DEVICE_DEAD);
  CGR_ASSERT_OK(engine_.Prepare({ 1 }));
  CGR_EXPECT(CGR_ERROR_DEAD, engine_.Launch());
  const MetricsReader m(Text());
  EXPECT_EQ(m.Get("cgr_dead"), 1);
  EXPECT_EQ(m.Get("cgr_abandoned_steps_total"), 1);
  EXPECT_EQ(m.Sum("cgr_steps_total"), 81);
}

TEST_F(Metrics, EverySampleBearsTheCallersLabels) {
  RunSteps();
  const std::string value = "a \"quoted\" \\ back\nslash\t";
  const MetricsReader m(Text({ { "engine", value.c_str() }, { "rank_0", "" } }));
  EXPECT_GT(m.samples().size(), 100u);
  for (const auto &[sample, number] : m.samples()) {
    EXPECT_EQ(sample.second.at("engine"), value);
    EXPECT_EQ(sample.second.at("rank_0"), "");
  }
  EXPECT_EQ(m.Get("cgr_graphs", { { "engine", value }, { "rank_0", "" } }), 7);
}

TEST_F(Metrics, BadLabelsAreRefusedByName) {
  size_t length = 0;
  const auto refused = [&](cgr_status status, const std::vector<cgr_label> &labels, const Words &words) {
    ExpectMessage(cgr_runtime_metrics(engine_.rt, labels.data(), int32_t(labels.size()), nullptr, 0, &length), status, words);
  };
  for (const char *bad : { "", "1a", "a-b", "__a", "a b", "\xc3\xa9", "key", "kind", "reason", "le", "version", "device" })
    refused(CGR_ERROR_INVALID_ARGUMENT, { { "fine", "x" }, { bad, "x" } }, { "labels[1].name is \"" + std::string(bad) + "\"" });
  refused(CGR_ERROR_INVALID_ARGUMENT, { { "a", "x" }, { "b", "x" }, { "a", "y" } }, { "labels[2].name is \"a\"", "labels[0]" });
  refused(CGR_ERROR_NULL_POINTER, { { nullptr, "x" } }, { "labels[0].name is NULL" });
  refused(CGR_ERROR_NULL_POINTER, { { "a", nullptr } }, { "labels[0].value is NULL" });
  refused(CGR_ERROR_INVALID_ARGUMENT, std::vector<cgr_label>(17, { "a", "x" }), { "num_labels is 17", "0 .. 16" });
  ExpectMessage(cgr_runtime_metrics(engine_.rt, nullptr, -1, nullptr, 0, &length), CGR_ERROR_INVALID_ARGUMENT,
                { "num_labels is -1" });
  ExpectMessage(cgr_runtime_metrics(engine_.rt, nullptr, 1, nullptr, 0, &length), CGR_ERROR_NULL_POINTER, { "labels is NULL" });
}

TEST_F(Metrics, TheTableNamesWhatWasUsed) {
  RunSteps();
  const auto table = [this] {
    return engine_.Text(
        [this](char *out, size_t capacity, size_t *length) { return cgr_runtime_stats_text(engine_.rt, out, capacity, length); });
  };
  const std::string text = table();
  for (const std::string word : { "full 4r 4t q1 v0", "piecewise 8r 8t q0 v0", "eager", "ready", "75%", "above tokens",
                                  "steps 81", "cancelled 1, abandoned 0, refused 1", "full and piecewise", cgr_build_info() })
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in\n" << text;
  EXPECT_EQ(text.find("full 1r"), std::string::npos) << text;
  EXPECT_EQ(text.find("dead"), std::string::npos);
  engine_.Fault(CGR__OP_EXEC_LAUNCH, CGR__DEVICE_DEAD);
  CGR_ASSERT_OK(engine_.Prepare({ 1 }));
  CGR_EXPECT(CGR_ERROR_DEAD, engine_.Launch());
  EXPECT_NE(table().find("dead: "), std::string::npos);
}

// What is reported for a key that steps have missed, and for one that was captured.
TEST_F(Metrics, KeysTellMissesAndCaptures) {
  CGR_ASSERT_OK(engine_.Capture());
  const cgr_graph_stats graph = GraphStatsOf(engine_.rt, 1);
  cgr_key_stats key = engine_.KeyStats(1);
  EXPECT_EQ(key.state, CGR_GRAPH_READY);
  EXPECT_EQ(memcmp(&key.key, &graph.key, sizeof key.key), 0);
  EXPECT_EQ(key.num_nodes, graph.num_nodes);
  EXPECT_EQ(key.device_bytes, graph.device_bytes);
  EXPECT_EQ(key.capture_ms, graph.capture_ms);
  EXPECT_GT(key.num_nodes, 0);
  CGR_ASSERT_OK(cgr_runtime_release_graphs(engine_.rt, 0, nullptr));
  engine_.Step({ 1, 1 });
  key = engine_.KeyStats(1);
  EXPECT_EQ(key.misses, 1u);
  EXPECT_EQ(key.steps, 0u);
  EXPECT_EQ(engine_.KeyStats(-1).reasons[CGR_REASON_NOT_CAPTURED], 1u);
  EXPECT_EQ(engine_.KeyStats(-1).state, CGR_GRAPH_EMPTY);
  EXPECT_EQ(MetricsReader(Text()).Get("cgr_key_misses", { { "key", "full 2r 2t q1 v0" }, { "kind", "full" } }), 1);
}

TEST_F(Metrics, IndexesAndCapacitiesAreChecked) {
  cgr_key_stats stats = CGR_KEY_STATS_INIT;
  cgr_flight_record record = CGR_FLIGHT_RECORD_INIT;
  int32_t count = 0;
  size_t length = 0;
  for (int32_t bad : { -2, 7, INT32_MAX, INT32_MIN })
    ExpectMessage(cgr_runtime_key_stats(engine_.rt, bad, &stats), CGR_ERROR_INVALID_ARGUMENT,
                  { "index is " + std::to_string(bad), "7 keys", "-1" });
  ExpectMessage(cgr_runtime_flight(engine_.rt, &record, -1, &count), CGR_ERROR_INVALID_ARGUMENT, { "capacity is -1" });
  ExpectMessage(cgr_runtime_flight(engine_.rt, nullptr, 1, &count), CGR_ERROR_NULL_POINTER, { "records" });
  ExpectMessage(cgr_runtime_dump(engine_.rt, nullptr, 1, &length), CGR_ERROR_NULL_POINTER, { "cgr_runtime_dump: out" });
  ExpectMessage(cgr_runtime_metrics(engine_.rt, nullptr, 0, nullptr, 1, &length), CGR_ERROR_NULL_POINTER, { "out is NULL" });
  ExpectMessage(cgr_runtime_graph_labels(engine_.rt, nullptr, 1, &length), CGR_ERROR_NULL_POINTER,
                { "cgr_runtime_graph_labels: out" });
  ExpectMessage(cgr_runtime_stats_text(engine_.rt, nullptr, 1, &length), CGR_ERROR_NULL_POINTER, { "out is NULL" });
  stats.size = 2;
  ExpectMessage(cgr_runtime_key_stats(engine_.rt, 0, &stats), CGR_ERROR_INVALID_STRUCT, { "size is 2" });
}

} // namespace
} // namespace cgr_test
