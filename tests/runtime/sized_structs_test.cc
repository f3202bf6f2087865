// A struct of a size that it cannot have is refused with the name of its INIT macro, wherever the interface takes one.
#include <set>

#include "cgr/bindings.h"
#include "cgr/interop/nccl.h"
#include "cgr/ranks.h"
#include "cgr/stops.h"
#include "tests/support/refused.h"

namespace cgr_test {
namespace {

// Memory in the place of any struct. `recorder` is NULL outside of `record`.
struct Given {
  void *memory;
  cgr_recorder *recorder;
  template <class T> operator T *() const { return static_cast<T *>(memory); }
};

struct Taker {
  const char *init;
  bool is_input; // it is read: what is past the known part must be 0
  std::function<cgr_status(Given given)> call;
};

class SizedStructs : public ThreeRequests {
protected:
  enum { kRoom = 4096 };

  // Each size that the struct cannot have, then one that it may have with something in it that no version knows.
  void Try(const Taker &taker, cgr_recorder *recorder = nullptr) {
    SCOPED_TRACE(taker.init);
    tried_.insert(taker.init);
    const std::string use = std::string("use ") + taker.init;
    for (uint32_t size : { 0u, 3u, 4104u, 0xffffffffu }) {
      std::vector<uint64_t> given(kRoom / 8, 0);
      memcpy(given.data(), &size, sizeof size);
      ExpectMessage(taker.call({ given.data(), recorder }), CGR_ERROR_INVALID_STRUCT, { "size is " + std::to_string(size), use });
    }
    if (!taker.is_input)
      return;
    const uint32_t size = kRoom;
    std::vector<uint64_t> given(kRoom / 8, 0);
    memcpy(given.data(), &size, sizeof size);
    given.back() = 1;
    ExpectMessage(taker.call({ given.data(), recorder }), CGR_ERROR_NEWER_STRUCT, { "size is 4096", use });
  }
  void TryAll(const std::vector<Taker> &takers) {
    for (const Taker &taker : takers)
      Try(taker);
  }
  // The array is in a configuration that is good otherwise.
  Taker InConfig(const char *init, std::function<void(cgr_config *, Given)> put) {
    return { init, true, [this, put](Given given) {
              cgr_config config = engine_->Config();
              cgr_finding findings[8];
              int32_t count = 0;
              put(&config, given);
              return cgr_validate(&config, nullptr, findings, 8, &count);
            } };
  }
  void TryConfig();
  void TrySteps();
  void TryRanks();
  void TryNccl();
  void TryReports();
  void TryPlanners();
  void TryRecord();

  std::set<std::string> tried_;
};

void SizedStructs::TryConfig() {
  const cgr_config good = engine_->Config();
  cgr_device *device;
  cgr_runtime *runtime;
  TryAll({
      { "CGR_DEVICE_CONFIG_INIT", true, [&](Given given) { return cgr_device_open("host", given, &device); } },
      { "CGR_DEVICE_INFO_INIT", false, [&](Given given) { return cgr_device_get_info(engine_->dev, given); } },
      { "CGR_CONFIG_INIT", true, [&](Given given) { return cgr_runtime_create(given, &runtime); } },
      { "CGR_MEMORY_SIZES_INIT", false, [&](Given given) { return cgr_runtime_memory(&good, given); } },
      InConfig("CGR_GROUP_INIT", [](cgr_config *c, Given given) { c->groups = given; }),
      InConfig("CGR_LAYER_INIT", [](cgr_config *c, Given given) { c->layers = given; }),
      InConfig("CGR_BUFFER_DECL_INIT", [](cgr_config *c, Given given) { c->buffers = given, c->num_buffers = 1; }),
      InConfig("CGR_BACKEND_INIT", [](cgr_config *c, Given given) { c->backends = given, c->num_backends = 1; }),
  });
}

void SizedStructs::TrySteps() {
  cgr_runtime *rt = engine_->rt;
  const cgr_batch batch = GoodBatch();
  const cgr_mark mark = { 0, 0, 1 };
  cgr_step good = CGR_STEP_INIT;
  cgr_key key;
  TryAll({
      { "CGR_BATCH_INIT", true, [&](Given given) { return cgr_step_prepare(rt, given, &good); } },
      { "CGR_BATCH_INIT", true, [&](Given given) { return cgr_step_choose(rt, given, &key); } },
      { "CGR_STEP_RESULT_INIT", false, [&](Given given) { return cgr_step_wait(rt, mark, -1, given); } },
      { "CGR_REQUEST_INFO_INIT", false, [&](Given given) { return cgr_request_get_info(rt, rows_[0], given); } },
      { "CGR_STOPS_INIT", true, [&](Given given) { return cgr_request_set_stops(rt, rows_[0], given); } },
      { "CGR_BUFFER_VIEW_INIT", false, [&](Given given) { return cgr_buffer_get(rt, nullptr, CGR_BUFFER_SEQ_LENS, 0, given); } },
  });
  // A step may be longer and have anything there; a shorter one has no room for the ticket.
  tried_.insert("CGR_STEP_INIT");
  for (uint32_t size : { 0u, 3u, 8u, 4104u, 0xffffffffu }) {
    cgr_step step = CGR_STEP_INIT;
    step.size = size;
    ExpectMessage(cgr_step_prepare(rt, &batch, &step), CGR_ERROR_INVALID_STRUCT,
                  { "size is " + std::to_string(size), "use CGR_STEP_INIT" });
  }
}

// Of a communicator that is never used.
void SizedStructs::TryNccl() {
  cgr_runtime *rt = engine_->rt;
  cgr_nccl_functions functions = CGR_NCCL_FUNCTIONS_INIT;
  const auto find = [](void *, const char *name) -> void * {
    const std::string asked = name;
    int (*one)(const ncclComm_t, int *) = [](const ncclComm_t, int *value) { return *value = 1, 0; };
    int (*zero)(const ncclComm_t, int *) = [](const ncclComm_t, int *value) { return *value = 0, 0; };
    int (*version)(int *) = [](int *value) { return *value = 1, 0; };
    if (asked == "ncclGetVersion")
      return reinterpret_cast<void *>(version);
    return reinterpret_cast<void *>(asked == "ncclCommCount" ? one : zero);
  };
  CGR_ASSERT_OK(cgr_nccl_find(find, nullptr, &functions));
  cgr_nccl_config config = CGR_NCCL_CONFIG_INIT;
  config.functions = &functions;
  config.comm = reinterpret_cast<ncclComm_t>(&functions);
  config.flags = CGR_NCCL_KEEP;
  cgr_nccl *nccl = nullptr, *other = nullptr;
  CGR_ASSERT_OK(cgr_nccl_create(rt, &config, &nccl));
  TryAll({
      { "CGR_NCCL_CONFIG_INIT", true, [&](Given given) { return cgr_nccl_create(rt, given, &other); } },
      { "CGR_NCCL_FUNCTIONS_INIT", true,
        [&](Given given) {
          cgr_nccl_config c = config;
          c.functions = given;
          return cgr_nccl_create(rt, &c, &other);
        } },
      { "CGR_NCCL_FUNCTIONS_INIT", false, [&](Given given) { return cgr_nccl_find(find, nullptr, given); } },
      { "CGR_NCCL_INFO_INIT", false, [&](Given given) { return cgr_nccl_get_info(nccl, given); } },
  });
  CGR_EXPECT_OK(cgr_nccl_destroy(nccl));
}

// Of one rank, whose own block is all that it gets.
void SizedStructs::TryRanks() {
  cgr_runtime *rt = engine_->rt;
  const cgr_batch batch = GoodBatch();
  cgr_exchange exchange = CGR_EXCHANGE_INIT;
  exchange.gather = [](void *, const void *mine, size_t bytes, void *all, int32_t, uint64_t *) {
    std::memcpy(all, mine, bytes);
    return CGR_OK;
  };
  cgr_ranks_config config = CGR_RANKS_CONFIG_INIT;
  config.exchange = &exchange;
  cgr_batch_counts counts = CGR_BATCH_COUNTS_INIT;
  cgr_ranks *ranks = nullptr, *others = nullptr;
  cgr_key key;
  CGR_ASSERT_OK(cgr_ranks_create(rt, &config, &ranks));
  TryAll({
      { "CGR_RANKS_CONFIG_INIT", true, [&](Given given) { return cgr_ranks_create(rt, given, &others); } },
      { "CGR_EXCHANGE_INIT", true,
        [&](Given given) {
          cgr_ranks_config other = CGR_RANKS_CONFIG_INIT;
          other.exchange = given;
          return cgr_ranks_create(rt, &other, &others);
        } },
      { "CGR_BATCH_COUNTS_INIT", true, [&](Given given) { return cgr_step_choose_counts(rt, given, &key, nullptr); } },
      { "CGR_BATCH_COUNTS_INIT", false, [&](Given given) { return cgr_step_count(rt, &batch, given); } },
      { "CGR_RANK_PROPOSAL_INIT", true, [&](Given given) { return cgr_ranks_decide(given, 1, CGR_RANKS_LARGEST, &counts); } },
      { "CGR_RANK_PROPOSAL_INIT", false, [&](Given given) { return cgr_ranks_proposal(ranks, 0, given); } },
      { "CGR_AGREEMENT_INIT", false, [&](Given given) { return cgr_ranks_agree(ranks, &batch, given); } },
      { "CGR_RANK_WATCH_INIT", true,
        [&](Given given) {
          size_t length = 0;
          return cgr_ranks_look(ranks, given, nullptr, 0, &length);
        } },
      { "CGR_PROGRESS_INIT", false, [&](Given given) { return cgr_runtime_progress(rt, given); } },
      { "CGR_RESOURCE_INIT", true,
        [&](Given given) {
          uint64_t number = 0;
          return cgr_resource_register(rt, given, &number);
        } },
  });
  TryNccl();
  CGR_EXPECT_OK(cgr_ranks_destroy(ranks));
}

void SizedStructs::TryReports() {
  cgr_runtime *rt = engine_->rt;
  const cgr_capture capture = engine_->CaptureStruct();
  const cgr_mark mark = { 0, 0, 1 };
  cgr_finding findings[2];
  int32_t count = 0;
  TryAll({
      { "CGR_CAPTURE_INIT", true, [&](Given given) { return cgr_runtime_capture(rt, given); } },
      { "CGR_CAPTURE_INIT", true, [&](Given given) { return cgr_runtime_warmup(rt, given); } },
      { "CGR_CAPTURE_ESTIMATE_INIT", false, [&](Given given) { return cgr_runtime_estimate_capture(rt, &capture, given); } },
      { "CGR_SELF_TEST_INIT", true, [&](Given given) { return cgr_runtime_self_test(rt, given, findings, 2, &count); } },
      { "CGR_AUDIT_INIT", false, [&](Given given) { return cgr_runtime_audit(rt, given, findings, 2, &count); } },
      { "CGR_STATS_INIT", false, [&](Given given) { return cgr_runtime_stats(rt, given); } },
      { "CGR_GRAPH_STATS_INIT", false, [&](Given given) { return cgr_runtime_graph_stats(rt, 0, given); } },
      { "CGR_KEY_ADVICE_INIT", false, [&](Given given) { return cgr_runtime_advise_keys(rt, 0.0, nullptr, 0, given); } },
      { "CGR_KEY_STATS_INIT", false, [&](Given given) { return cgr_runtime_key_stats(rt, 0, given); } },
      { "CGR_FLIGHT_RECORD_INIT", false, [&](Given given) { return cgr_runtime_flight(rt, given, 1, &count); } },
      { "CGR_SPAN_INIT", false, [&](Given given) { return cgr_runtime_timing(rt, mark, given, 1, &count); } },
  });
}

void SizedStructs::TryPlanners() {
  static const cgr_fa3_input fa3 = CGR_FA3_INPUT_INIT;
  static const cgr_block_table_input table = CGR_BLOCK_TABLE_INPUT_INIT;
  static const cgr_layer layer = CGR_LAYER_INIT;
  static cgr_backend_needs needs = CGR_BACKEND_NEEDS_INIT;
  static cgr_device_info info = CGR_DEVICE_INFO_INIT;
  info.kind = CGR_DEVICE_KIND_HOST;
  static const cgr_flashinfer_decode_input decode = CGR_FLASHINFER_DECODE_INPUT_INIT;
  static const cgr_flashinfer_prefill_input prefill = CGR_FLASHINFER_PREFILL_INPUT_INIT;
  TryAll({
      { "CGR_PLAN_INPUT_INIT", true, [](Given given) { return cgr_plan_build(given, nullptr, 0); } },
      { "CGR_METADATA_INIT", true, [](Given given) { return cgr_metadata_build(given); } },
      { "CGR_FA3_INPUT_INIT", true, [](Given given) { return cgr_fa3_build(given, nullptr, 0); } },
      { "CGR_FA3_SIZES_INIT", false, [](Given given) { return cgr_fa3_size(&fa3, given); } },
      { "CGR_GATHER_INIT", true, [](Given given) { return cgr_gather_build(given); } },
      { "CGR_BACKEND_INIT", true, [](Given given) { return cgr_backend_ask(given, &info, &layer, &needs); } },
      { "CGR_DEVICE_INFO_INIT", true, [](Given given) { return cgr_backend_ask(nullptr, given, &layer, &needs); } },
      { "CGR_LAYER_INIT", true, [](Given given) { return cgr_backend_ask(nullptr, &info, given, &needs); } },
      { "CGR_BACKEND_NEEDS_INIT", false, [](Given given) { return cgr_backend_ask(nullptr, &info, &layer, given); } },
      { "CGR_FLASHMLA_INPUT_INIT", true, [](Given given) { return cgr_flashmla_build(given, nullptr, 0); } },
      { "CGR_BLOCK_TABLE_INPUT_INIT", true, [](Given given) { return cgr_block_table_build(given, nullptr, 0); } },
      { "CGR_BLOCK_TABLE_LAYOUT_INIT", false, [](Given given) { return cgr_block_table_get_layout(&table, given); } },
      { "CGR_FLASHINFER_DECODE_INPUT_INIT", true,
        [](Given given) { return cgr_flashinfer_decode_build(given, nullptr, 0, nullptr); } },
      { "CGR_FLASHINFER_PREFILL_INPUT_INIT", true,
        [](Given given) { return cgr_flashinfer_prefill_build(given, nullptr, 0, nullptr); } },
      { "CGR_FLASHINFER_PLAN_INIT", false, [](Given given) { return cgr_flashinfer_decode_size(&decode, given); } },
      { "CGR_FLASHINFER_PLAN_INIT", false, [](Given given) { return cgr_flashinfer_prefill_size(&prefill, given); } },
      { "CGR_FLASHINFER_CASCADE_INIT", true,
        [](Given given) { return cgr_flashinfer_cascade_build(given, nullptr, nullptr, nullptr, nullptr); } },
  });
}

// Each call inside an eager step of its own, since what `record` does wrong gives the step up.
void SizedStructs::TryRecord() {
  const cgr_attention attention = engine_->state.call[0].attention;
  const Taker takers[] = {
    { "CGR_QKV_TRANSFORM_INIT", true,
      [&](Given given) {
        cgr_attention call = attention;
        call.transform = given;
        return cgr_record_attention(given.recorder, &call);
      } },
    { "CGR_ATTENTION_INIT", true, [](Given given) { return cgr_record_attention(given.recorder, given); } },
    { "CGR_MERGE_INIT", true, [](Given given) { return cgr_record_merge(given.recorder, given); } },
    { "CGR_MEASURE_INIT", true, [](Given given) { return cgr_record_measure(given.recorder, given); } },
    { "CGR_FINGERPRINT_INIT", true, [](Given given) { return cgr_record_fingerprint(given.recorder, given); } },
    { "CGR_VALUE_CHECK_INIT", true, [](Given given) { return cgr_record_check_values(given.recorder, given); } },
    { "CGR_RECORD_INFO_INIT", false, [](Given given) { return cgr_record_get_info(given.recorder, given); } },
    { "CGR_BUFFER_VIEW_INIT", false,
      [](Given given) { return cgr_record_buffer(given.recorder, CGR_BUFFER_SEQ_LENS, 0, given); } },
  };
  for (const Taker &taker : takers) {
    engine_->hook = [&](cgr_recorder *recorder, const cgr_record_info &, int32_t at) {
      if (at == 0)
        Try(taker, recorder);
      return CGR_OK;
    };
    CGR_ASSERT_OK(engine_->Prepare(EagerItems()));
    (void)engine_->Launch();
    engine_->hook = nullptr;
    engine_->CheckAll();
    engine_->WaitForAll();
  }
  engine_->Step(EagerItems());
}

TEST_P(SizedStructs, OfAWrongSizeAreRefusedWithTheirMacro) {
  TryConfig();
  TrySteps();
  TryRanks();
  TryReports();
  TryPlanners();
  TryRecord();
  std::set<std::string> all;
#define ADD(kind, number, type, init) all.insert(#init);
  CGR_STRUCT_LIST(ADD)
#undef ADD
  all.erase("CGR_PLAN_KEY_INIT"); // a backend's functions get these; no call takes one
  all.erase("CGR_PLAN_STEP_INIT");
  all.erase("CGR_NCCL_CALL_INIT"); // tests/ranks/nccl_test.cc
  EXPECT_EQ(tried_, all);
}

CGR_INSTANTIATE_OVER_DEVICES(SizedStructs);

} // namespace
} // namespace cgr_test
