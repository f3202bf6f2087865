// The public functions of a runtime, for tests of what holds for all of them. Whoever reads the headers has them as data.
#pragma once

#include <fstream>
#include <set>

#include "cgr/inspect.h"
#include "cgr/programs.h"
#include "cgr/stops.h"
#include "cgr/tracing.h"
#include "tests/support/engine.h"

namespace cgr_test {

// A function of a runtime, and a call of it with arguments that would be good enough.
struct RuntimeCall {
  const char *name;
  std::function<cgr_status(Engine &)> make;
};

// Every function of a runtime that is for one thread at a time.
inline const std::vector<RuntimeCall> &RuntimeCalls() {
  static const int32_t page = 5, data[64] = {};
  static char text[16];
  static size_t length;
  static int32_t number, count;
  static const int32_t *rows;
  static cgr_step step = CGR_STEP_INIT;
  static cgr_key key = CGR_KEY_INIT;
  static cgr_batch batch = CGR_BATCH_INIT;
  static cgr_mark mark;
  static cgr_request_info info = CGR_REQUEST_INFO_INIT;
  static cgr_stops stops = CGR_STOPS_INIT;
  static cgr_stats stats = CGR_STATS_INIT;
  static cgr_capture_estimate estimate = CGR_CAPTURE_ESTIMATE_INIT;
  static cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
  static cgr_key_stats key_stats = CGR_KEY_STATS_INIT;
  static cgr_key_advice advice = CGR_KEY_ADVICE_INIT;
  static cgr_self_test test = CGR_SELF_TEST_INIT;
#define CALL(name, ...)                                             \
  {                                                                 \
#name, [](Engine &e) { (void)e; return name(e.rt, ##__VA_ARGS__); } \
  }
  static const std::vector<RuntimeCall> calls = {
    CALL(cgr_runtime_destroy),
    CALL(cgr_request_open, 1, &number),
    CALL(cgr_request_close, 0),
    CALL(cgr_request_set_pages, 0, 0, 1, &page, 1),
    CALL(cgr_request_drop_pages, 0, 0, 0, 1),
    CALL(cgr_requests_set_pages, 0, 1, data, data, nullptr, &page),
    CALL(cgr_requests_drop_pages, 0, 1, data, data, nullptr),
    CALL(cgr_request_set_length, 0, 0),
    CALL(cgr_request_set_other_length, 0, 1, 0),
    CALL(cgr_program_set_length, 0, 1, 0),
    CALL(cgr_program_get_length, 0, 0, &number, &count),
    CALL(cgr_request_set_data, 0, 0, data),
    CALL(cgr_request_set_stops, 0, &stops),
    CALL(cgr_request_get_info, 0, &info),
    CALL(cgr_request_get_pages, 0, 0, &number, &count),
    CALL(cgr_standing_add, nullptr, 0, 1, nullptr, 0),
    CALL(cgr_standing_update, nullptr, 0, 1, nullptr, 0),
    CALL(cgr_standing_remove, nullptr, 0),
    CALL(cgr_standing_swap, nullptr, 0, 0),
    CALL(cgr_standing_rows, nullptr, &rows, &count),
    CALL(cgr_step_choose, &batch, &key),
    CALL(cgr_step_prepare, &batch, &step),
    CALL(cgr_step_launch, &step, e.stream),
    CALL(cgr_step_cancel, &step),
    CALL(cgr_step_prepare_wait, &batch, &step, 0, e.stream),
    CALL(cgr_runtime_flush, nullptr, &mark, e.stream),
    CALL(cgr_step_wait, cgr_mark{ 0, 0, 1 }, 0, nullptr),
    CALL(cgr_runtime_stats, &stats),
    { "cgr_runtime_capture",
      [](Engine &e) {
        const cgr_capture capture = e.CaptureStruct();
        return cgr_runtime_capture(e.rt, &capture);
      } },
    { "cgr_runtime_warmup",
      [](Engine &e) {
        const cgr_capture capture = e.CaptureStruct();
        return cgr_runtime_warmup(e.rt, &capture);
      } },
    { "cgr_runtime_estimate_capture",
      [](Engine &e) {
        const cgr_capture capture = e.CaptureStruct();
        return cgr_runtime_estimate_capture(e.rt, &capture, &estimate);
      } },
    CALL(cgr_runtime_release_graphs, 0, nullptr),
    CALL(cgr_runtime_enable_graphs, 1),
    CALL(cgr_region_register, data, sizeof data, &number),
    CALL(cgr_region_move, 0, data, sizeof data),
    CALL(cgr_region_unregister, 0),
    CALL(cgr_runtime_graph_stats, 0, &graph),
    CALL(cgr_runtime_self_test, &test, nullptr, 0, &count),
    CALL(cgr_runtime_audit, nullptr, nullptr, 0, &count),
    CALL(cgr_runtime_key_stats, 0, &key_stats),
    CALL(cgr_runtime_advise_keys, 0.0, nullptr, 0, &advice),
    CALL(cgr_runtime_stats_text, text, sizeof text, &length),
    CALL(cgr_runtime_metrics, nullptr, 0, text, sizeof text, &length),
    CALL(cgr_runtime_flight, nullptr, 0, &count),
    CALL(cgr_runtime_dump, text, sizeof text, &length),
    CALL(cgr_runtime_graph_labels, text, sizeof text, &length),
    CALL(cgr_runtime_timing, cgr_mark{ 0, 0, 1 }, nullptr, 0, &count),
    CALL(cgr_runtime_trace, text, sizeof text, &length),
    CALL(cgr_runtime_trace_head, text, sizeof text, &length),
    CALL(cgr_runtime_trace_step, cgr_mark{ 0, 0, 1 }, text, sizeof text, &length),
  };
#undef CALL
  return calls;
}

// The functions of a header whose line there says so, as "Threads one"; `first` begins their parameters.
inline std::set<std::string> FunctionsOf(const std::string &header, const std::string &property, const std::string &first) {
  std::set<std::string> names;
  std::ifstream in("include/cgr/" + header);
  EXPECT_TRUE(in.good()) << header;
  bool has = false;
  for (std::string line; std::getline(in, line);) {
    const size_t end = line.find("(" + first);
    if (line.find("Threads ") != std::string::npos)
      has = line.find(property + " ") != std::string::npos;
    if (line.rfind("CGR_API", 0) == 0 && end != std::string::npos && has)
      names.insert(line.substr(line.rfind(' ', end) + 1, end - line.rfind(' ', end) - 1));
  }
  return names;
}

// Of all headers those whose first parameter is a runtime.
inline std::set<std::string> RuntimeFunctions(const std::string &property) {
  std::set<std::string> names;
  for (const char *header : { "attention.h", "config.h", "requests.h", "record.h", "step.h", "graphs.h", "inspect.h", "tracing.h",
                              "device.h", "programs.h", "stops.h" })
    names.merge(FunctionsOf(header, property, "cgr_runtime *runtime"));
  EXPECT_FALSE(names.empty()) << property;
  return names;
}

} // namespace cgr_test
