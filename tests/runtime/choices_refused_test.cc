// An unknown enumerator or flag is refused with the names of all that the call takes, wherever the interface takes one.
#include "cgr/names.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

const Words kDtypes = { "cgr_dtype", "1 fp32", "2 fp16", "3 bf16", "4 fp8_e4m3", "5 i8", "6 i32", "7 i64", "8 fp8_e5m2", "9 u8" };
const Words kSomeDtypes = { "fp16", "bf16" }; // what merges, checks and FlashAttention take at least
const Words kModes = { "cgr_graph_mode",     "0 default",           "1 none", "2 piecewise", "3 full",
                       "4 full decode only", "5 full and piecewise" };
const Words kSupports = { "cgr_graph_support", "0 default", "1 never", "2 uniform single token decode",
                          "3 uniform batch",   "4 always" };
const Words kWaits = { "cgr_wait_mode", "0 default", "1 spin", "2 yield", "3 block" };
const Words kTimings = { "cgr_timing_mode", "0 off", "1 phases", "2 layers" };
const Words kKinds = { "cgr_graph_kind", "0 none", "1 piecewise", "2 full" };
const Words kPlanned = { "CGR_PLANNED_*", "group", "heads", "head dim", "dtype", "window", "scale", "softcap" };
const Words kTwoDimensions = { "cgr_dimension", "1 tokens", "2 requests)" };

class ChoicesRefused : public ThreeRequests {
protected:
  static Words With(const std::string &first, const Words &names) {
    Words words = { first };
    words.insert(words.end(), names.begin(), names.end());
    return words;
  }
  // A configuration is refused, whoever reads it.
  void ConfigRefused(cgr_status status, const Words &words, const std::function<void(cgr_config *)> &change) {
    SCOPED_TRACE(words[0]);
    cgr_config config = engine_->Config();
    cgr_finding findings[8];
    int32_t count = 0;
    change(&config);
    Refused(status, words, [&] { return cgr_validate(&config, nullptr, findings, 8, &count); });
    ASSERT_GT(count, 0);
    EXPECT_EQ(std::string(findings[0].text).back(), ')') << "cut off";
    EXPECT_NE(std::string(findings[0].text).find(words.back()), std::string::npos) << findings[0].text;
  }
  // A call inside `record` is refused; the step is given up.
  void RecordRefused(const Words &words, const std::function<cgr_status(cgr_recorder *)> &call) {
    SCOPED_TRACE(words[0]);
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      if (at == 0)
        ExpectMessage(call(recorder), CGR_ERROR_INVALID_ENUM, words);
      return CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
    (void)engine_->Launch();
    engine_->hook = nullptr;
    engine_->CheckAll();
    engine_->WaitForAll();
  }
};

TEST_P(ChoicesRefused, OfAConfiguration) {
  const cgr_status bad = CGR_ERROR_INVALID_ENUM;
  for (int32_t value : { -1, 99 }) {
    ConfigRefused(bad, With("graph_mode is", kModes), [&](cgr_config *c) { c->graph_mode = value; });
    ConfigRefused(bad, With("attention_support is", kSupports), [&](cgr_config *c) { c->attention_support = value; });
    ConfigRefused(bad, With("wait_mode is", kWaits), [&](cgr_config *c) { c->wait_mode = value; });
    ConfigRefused(CGR_ERROR_INVALID_ARGUMENT, With("timing is", kTimings), [&](cgr_config *c) { c->timing = value; });
  }
  for (uint64_t value : { uint64_t{ 1 } << 8, UINT64_MAX })
    ConfigRefused(bad,
                  { "on_demand is", "CGR_ON_DEMAND", "kv_indices", "block_table", "kv_start_loc", "context_lens",
                    "context_start_loc", "prefill_query_start_loc", "prefill_kv_indptr", "prefill_kv_last_page_len" },
                  [&](cgr_config *c) { c->on_demand = value; });
}

TEST_P(ChoicesRefused, OfWhatAConfigurationLists) {
  const cgr_status bad = CGR_ERROR_INVALID_ENUM;
  cgr_buffer_decl buffer = CGR_BUFFER_DECL_INIT;
  cgr_backend backend = CGR_BACKEND_INIT;
  auto declared = [&](const Words &words, const std::function<void()> &change) {
    buffer = CGR_BUFFER_DECL_INIT;
    buffer.dimension = CGR_DIMENSION_TOKENS;
    buffer.source = CGR_SOURCE_DEVICE;
    buffer.dtype = CGR_DTYPE_FP32;
    buffer.width = 4;
    buffer.name = "mine";
    change();
    ConfigRefused(bad, words, [&](cgr_config *c) { c->buffers = &buffer, c->num_buffers = 1; });
  };
  declared(With("buffers[0].dimension is 4", { "cgr_dimension", "1 tokens", "2 requests", "3 rows" }),
           [&] { buffer.dimension = 4; });
  declared(With("buffers[0].source is 3", { "cgr_source", "1 device", "2 staged" }), [&] { buffer.source = 3; });
  declared(With("buffers[0].dtype is 99", kDtypes), [&] { buffer.dtype = 99; });
  auto planned = [&](const Words &words, const std::function<void()> &change) {
    backend = CGR_BACKEND_INIT;
    backend.name = "mine";
    backend.record = [](void *, cgr_recorder *, const cgr_attention *) { return CGR_OK; };
    change();
    ConfigRefused(bad, words, [&](cgr_config *c) { c->backends = &backend, c->num_backends = 1; });
  };
  planned({ "backends[0].flags is 0x4", "CGR_BACKEND_*", "appends", "plans first" }, [&] { backend.flags = 4; });
  planned(With("backends[0].planned is 0x80000000", kPlanned), [&] { backend.planned = 0x80000000u; });
  auto layered = [&](const Words &words, const std::function<void(cgr_layer *)> &change) {
    ConfigRefused(bad, words, [&](cgr_config *c) { change(const_cast<cgr_layer *>(c->layers)); });
  };
  layered({ "layers[0].flags is 0x8", "CGR_LAYER_*", "bidirectional", "no cache", "alibi sqrt" },
          [](cgr_layer *l) { l->flags |= 8; });
}

TEST_P(ChoicesRefused, OfAStep) {
  static const uint32_t flags[] = { 0, 8, 0 };
  cgr_batch batch = GoodBatch();
  batch.flags = flags;
  BatchRefused(CGR_ERROR_INVALID_ENUM, { "flags[1] is 0x8", "CGR_REQUEST_*", "partial" }, batch);
  for (int32_t value : { -1, 3 }) {
    cgr_key key = FullKey(4);
    key.kind = value;
    batch = GoodBatch();
    batch.forced_key = &key;
    BatchRefused(CGR_ERROR_INVALID_ENUM, With("forced_key.kind is", kKinds), batch);
    cgr_capture capture = engine_->CaptureStruct();
    capture.keys = &key;
    capture.num_keys = 1;
    Refused(CGR_ERROR_INVALID_ENUM, With("capture.keys[0].kind is", kKinds),
            [&] { return cgr_runtime_capture(engine_->rt, &capture); });
  }
  cgr_capture capture = engine_->CaptureStruct();
  capture.flags = 2;
  Refused(CGR_ERROR_INVALID_ENUM, { "capture.flags is 0x2", "CGR_CAPTURE_*", "missed" },
          [&] { return cgr_runtime_capture(engine_->rt, &capture); });
  Refused(CGR_ERROR_INVALID_ENUM, { "flags is 0x2", "CGR_REQUEST_*", "partial" },
          [&] { return cgr_standing_add(engine_->rt, nullptr, rows_[0], 1, nullptr, 2); });
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  Words buffers = { "cgr_buffer_get: buffer is 99", "a cgr_buffer (" };
  for (int32_t i = 0; i < CGR_BUFFER_COUNT_; i++)
    buffers.push_back(cgr_buffer_name(cgr_buffer(i)));
  Refused(CGR_ERROR_INVALID_ENUM, buffers, [&] { return cgr_buffer_get(engine_->rt, nullptr, cgr_buffer(99), 0, &view); });
}

TEST_P(ChoicesRefused, InsideRecord) {
  cgr_value_check check = CGR_VALUE_CHECK_INIT;
  cgr_merge merge = CGR_MERGE_INIT;
  auto checked = [&](const Words &words, const std::function<void()> &change) {
    check = CGR_VALUE_CHECK_INIT;
    check.data = engine_->state.layer[0].in[kQ].data;
    check.width = 1;
    check.dtype = CGR_DTYPE_FP32;
    check.dimension = CGR_DIMENSION_TOKENS;
    change();
    RecordRefused(words, [&](cgr_recorder *rec) { return cgr_record_check_values(rec, &check); });
  };
  checked({ "flags is 0x2", "CGR_VALUES_*", "masked" }, [&] { check.flags = 2; });
  checked(With("dimension is 3", kTwoDimensions), [&] { check.dimension = CGR_DIMENSION_ROWS; });
  checked(With("dtype is unknown (99)", kSomeDtypes), [&] { check.dtype = 99; });
  RecordRefused({ "flags is 0x4", "CGR_ATTENTION_*", "no append", "append only" }, [](cgr_recorder *rec) {
    cgr_attention attention = CGR_ATTENTION_INIT;
    attention.flags = 4;
    return cgr_record_attention(rec, &attention);
  });
  merge.num_heads = 1;
  merge.head_dim = 8;
  merge.a.data = merge.b.data = merge.out.data = engine_->state.layer[0].in[kQ].data;
  merge.a.dtype = 99;
  RecordRefused(With("a.dtype is unknown (99)", kSomeDtypes), [&](cgr_recorder *rec) { return cgr_record_merge(rec, &merge); });
  engine_->Step(EagerItems());
}

TEST(ChoicesRefusedAnywhere, OfViewsAndDevices) {
  static char memory[64];
  cgr_kv_view kv;
  cgr_view view;
  ExpectMessage(cgr_kv_view_make(cgr_kv_layout(3), memory, CGR_DTYPE_BF16, 16, 1, 64, &kv), CGR_ERROR_INVALID_ENUM,
                { "layout is 3", "cgr_kv_layout", "1 nhd", "2 hnd" });
  Words dtypes = kDtypes;
  dtypes.push_back("dtype is 99");
  ExpectMessage(cgr_kv_view_make(CGR_LAYOUT_NHD, memory, cgr_dtype(99), 16, 1, 64, &kv), CGR_ERROR_INVALID_ENUM, dtypes);
  ExpectMessage(cgr_view_make(memory, cgr_dtype(99), 1, 64, &view), CGR_ERROR_INVALID_ENUM, dtypes);
  cgr_device_config config = CGR_DEVICE_CONFIG_INIT;
  cgr_device *device = nullptr;
  config.host_schedule = 9;
  ExpectMessage(cgr_device_open("host", &config, &device), CGR_ERROR_INVALID_ENUM,
                { "host_schedule is 9", "cgr_host_schedule", "0 async", "1 earliest", "2 latest", "3 random" });
}

CGR_INSTANTIATE_OVER_DEVICES(ChoicesRefused);

} // namespace
} // namespace cgr_test
