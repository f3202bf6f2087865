// What calls around steps refuse: captures, buffers and graphs that do not exist, and unknown enumerators and flags, with the
// names of all that the call takes.
#include "cgr/names.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

const std::string kDtypes =
    "cgr_dtype (1 fp32, 2 fp16, 3 bf16, 4 fp8_e4m3, 5 i8, 6 i32, 7 i64, 8 fp8_e5m2, 9 u8, 10 fp4_e2m1, 11 i4)";

class CallsRefused : public ThreeRequests {};

TEST_P(CallsRefused, OfACapture) {
  static cgr_key unknown = FullKey(4), negative = FullKey(4);
  unknown.kind = 3, negative.kind = -1;
  const std::string kinds = ", expected ... cgr_graph_kind ... 0 none ... 1 piecewise ... 2 full";
  const std::vector<Mistake<cgr_capture>> rows = {
    { kArgument, "capture.program is 1", [](cgr_capture &c) { c.program = 1; } },
    { kArgument, "max_ms is -1", [](cgr_capture &c) { c.max_ms = -1.0; } },
    { kNull, "capture.record is NULL", [](cgr_capture &c) { c.record = nullptr; } },
    { kEnum, "capture.flags is 0x2 ... CGR_CAPTURE_* ... missed", [](cgr_capture &c) { c.flags = 2; } },
    { kEnum, "capture.keys[0].kind is 3" + kinds, [](cgr_capture &c) { c.keys = &unknown, c.num_keys = 1; } },
    { kEnum, "capture.keys[0].kind is -1" + kinds, [](cgr_capture &c) { c.keys = &negative, c.num_keys = 1; } },
  };
  engine_->records.clear();
  EachMistake(
      rows, [&] { return engine_->CaptureStruct(); },
      [&](cgr_capture &capture, const Mistake<cgr_capture> &row) {
        capture.engine = nullptr; // must not replace the one that eager steps use
        EachRefused(
            { { row.status, "cgr_runtime_capture: ... " + row.says, [&] { return cgr_runtime_capture(engine_->rt, &capture); } },
              { row.status, "cgr_runtime_warmup: ... " + row.says, [&] { return cgr_runtime_warmup(engine_->rt, &capture); } } });
      });
  EXPECT_TRUE(engine_->records.empty());
  engine_->Step(EagerItems());
}

TEST_P(CallsRefused, OfABufferAGraphOrAPlace) {
  cgr_runtime *rt = engine_->rt;
  cudaStream_t stream = engine_->stream;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_graph_stats stats = CGR_GRAPH_STATS_INIT;
  const auto refused = [&](cgr_status status, const std::string &says, int32_t value, const auto &call) {
    EachRefused({ BadCall{ status, WithValue(says, value), [&] { return call(value); } } });
  };
  const std::string last = cgr_buffer_name(cgr_buffer(CGR_BUFFER_COUNT_ - 1));
  const std::string buffers = "cgr_buffer_get: buffer is # ... a cgr_buffer (input_ids .. " + last + ")";
  const auto get = [&](int32_t buffer) { return cgr_buffer_get(rt, nullptr, cgr_buffer(buffer), 0, &view); };
  for (int32_t bad : { -1, int32_t(CGR_BUFFER_COUNT_), 99, 1000 })
    refused(kEnum, buffers, bad, get);
  for (cgr_buffer buffer : { CGR_BUFFER_PAGE_TABLE, CGR_BUFFER_SEQ_LENS, CGR_BUFFER_COUNTS })
    for (int32_t bad : { -1, 1, 4 })
      refused(kArgument, "index of " + std::string(cgr_buffer_name(buffer)) + " is #", bad,
              [&](int32_t index) { return cgr_buffer_get(rt, nullptr, buffer, index, &view); });
  for (int32_t bad : { -1, 0, 64 })
    refused(kArgument, "index of declared is # ... num_buffers is 0", bad,
            [&](int32_t index) { return cgr_buffer_get(rt, nullptr, CGR_BUFFER_DECLARED, index, &view); });
  for (int32_t bad : { -1, 4 })
    refused(kArgument, "index is #", bad, [&](int32_t index) { return cgr_runtime_graph_stats(rt, index, &stats); });
  for (int32_t bad : { -1, 1 }) {
    const cgr_where lane = { bad, 0 }, program = { 0, bad };
    const cgr_mark of_lane = { bad, 0, engine_->launched }, reserved = { 0, bad, engine_->launched };
    const std::string lane_is = "lane is " + std::to_string(bad), program_is = "program is " + std::to_string(bad);
    uint64_t seq = 77;
    EachRefused({
        { kArgument, lane_is, [&] { return cgr_buffer_get(rt, &lane, CGR_BUFFER_COUNTS, 0, &view); } },
        { kArgument, program_is, [&] { return cgr_buffer_get(rt, &program, CGR_BUFFER_COUNTS, 0, &view); } },
        { kNewer, "cgr_step_wait ... mark.reserved", [&] { return cgr_step_wait(rt, reserved, -1, nullptr); } },
        { kArgument, lane_is, [&] { return cgr_step_wait(rt, of_lane, -1, nullptr); } },
        { kArgument, lane_is, [&] { return cgr_runtime_flush(rt, &lane, nullptr, stream); } },
        { kArgument, program_is, [&] { return cgr_runtime_flush(rt, &program, nullptr, stream); } },
        { kArgument, lane_is, [&] { return cgr_runtime_completed(rt, &lane, &seq); } },
        { kArgument, program_is, [&] { return cgr_runtime_completed(rt, &program, &seq); } },
    });
    EXPECT_EQ(seq, 77u);
  }
  EachRefused({ BadCall{ kEnum, "flags is 0x2 ... CGR_REQUEST_* ... partial",
                         [&] { return cgr_standing_add(rt, nullptr, rows_[0], 1, nullptr, 2); } } });
}

TEST_P(CallsRefused, OfACheckOfValues) {
  cgr_value_check good = CGR_VALUE_CHECK_INIT;
  good.data = engine_->state.layer[0].in[kQ].data, good.width = 1, good.dtype = CGR_DTYPE_FP32;
  good.dimension = CGR_DIMENSION_TOKENS;
  const std::vector<Mistake<cgr_value_check>> rows = {
    { kEnum, "flags is 0x2 ... CGR_VALUES_* ... masked", [](cgr_value_check &c) { c.flags = 2; } },
    { kEnum, "dimension is 3 ... cgr_dimension ... 1 tokens ... 2 requests)", [](cgr_value_check &c) { c.dimension = 3; } },
    { kEnum, "dtype is unknown (99) ... fp16 ... bf16", [](cgr_value_check &c) { c.dtype = 99; } },
  };
  EachRefusedInRecord(
      "cgr_record_check_values", rows, [&] { return good; }, cgr_record_check_values);
}

TEST(CallsRefusedAnywhere, OfViewsAndDevices) {
  static char memory[64];
  cgr_kv_view kv;
  cgr_view view;
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  cgr_device *device = nullptr;
  config.host_schedule = 9;
  ExpectMessage(cgr_kv_view_make(cgr_kv_layout(3), memory, CGR_DTYPE_BF16, 16, 1, 64, &kv), kEnum,
                PartsOf("layout is 3 ... cgr_kv_layout ... 1 nhd ... 2 hnd"));
  ExpectMessage(cgr_kv_view_make(CGR_LAYOUT_NHD, memory, cgr_dtype(99), 16, 1, 64, &kv), kEnum, { "dtype is 99", kDtypes });
  ExpectMessage(cgr_view_make(memory, cgr_dtype(99), 1, 64, &view), kEnum, { "dtype is 99", kDtypes });
  ExpectMessage(cgr_device_open("host", &config, &device), kEnum,
                PartsOf("host_schedule is 9 ... cgr_host_schedule ... 0 async ... 1 earliest ... 2 latest ... 3 random"));
}

CGR_INSTANTIATE_OVER_DEVICES(CallsRefused);

} // namespace
} // namespace cgr_test
