// Every enumerator of the public headers has a name, and no other value has one.
//
// The list of an enum is tied to it by a switch: an enumerator that is missing here does not compile (-Wswitch). That no enum is
// missing is read from the headers.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cgr/bindings.h"
#include "tests/base/headers.h"

namespace {

// clang-format off
#define DTYPES(X)                                                                                                             \
  X(CGR_DTYPE_NONE) X(CGR_DTYPE_FP32) X(CGR_DTYPE_FP16) X(CGR_DTYPE_BF16) X(CGR_DTYPE_FP8_E4M3) X(CGR_DTYPE_I8)               \
  X(CGR_DTYPE_I32) X(CGR_DTYPE_I64) X(CGR_DTYPE_FP8_E5M2) X(CGR_DTYPE_U8) X(CGR_DTYPE_FP4_E2M1) X(CGR_DTYPE_I4)
#define DEVICE_KINDS(X) X(CGR_DEVICE_KIND_HOST) X(CGR_DEVICE_KIND_CUDA)
#define SCHEDULES(X) X(CGR_SCHEDULE_ASYNC) X(CGR_SCHEDULE_EARLIEST) X(CGR_SCHEDULE_LATEST) X(CGR_SCHEDULE_RANDOM)
#define WAIT_MODES(X) X(CGR_WAIT_DEFAULT) X(CGR_WAIT_SPIN) X(CGR_WAIT_YIELD) X(CGR_WAIT_BLOCK)
#define RANKS_RULES(X) X(CGR_RANKS_LARGEST) X(CGR_RANKS_SAME)
#define LAYOUTS(X) X(CGR_LAYOUT_NHD) X(CGR_LAYOUT_HND)
#define LAYER_FLAGS(X) X(CGR_LAYER_BIDIRECTIONAL) X(CGR_LAYER_NO_CACHE) X(CGR_LAYER_ALIBI_SQRT)
#define ATTENTION_FLAGS(X)                                                                                    \
  X(CGR_ATTENTION_NO_APPEND) X(CGR_ATTENTION_APPEND_ONLY) X(CGR_ATTENTION_NON_CAUSAL) X(CGR_ATTENTION_TILED_SCALES)
#define BACKEND_FLAGS(X) X(CGR_BACKEND_APPENDS) X(CGR_BACKEND_PLANS_FIRST) X(CGR_BACKEND_UNIFORM_SPLIT) X(CGR_BACKEND_BOUNDS)              \
  X(CGR_BACKEND_PLANS_BOUNDS) X(CGR_BACKEND_DECODES_DRAFTS)
#define TRANSFORM_FLAGS(X) X(CGR_TRANSFORM_NORM_PLUS_ONE) X(CGR_TRANSFORM_INTERLEAVED)
#define PLANNED(X)                                                                                                            \
  X(CGR_PLANNED_GROUP) X(CGR_PLANNED_HEADS) X(CGR_PLANNED_HEAD_DIM) X(CGR_PLANNED_DTYPE) X(CGR_PLANNED_WINDOW)               \
  X(CGR_PLANNED_SCALE) X(CGR_PLANNED_SOFTCAP)
#define ABILITIES(X)                                                                                                          \
  X(CGR_ABILITY_WINDOW) X(CGR_ABILITY_CHUNK) X(CGR_ABILITY_SOFTCAP) X(CGR_ABILITY_ALIBI) X(CGR_ABILITY_SINKS)                 \
  X(CGR_ABILITY_BIDIRECTIONAL) X(CGR_ABILITY_NO_CACHE) X(CGR_ABILITY_HEAD_DIM_V) X(CGR_ABILITY_CROSS) X(CGR_ABILITY_MLA)      \
  X(CGR_ABILITY_HEAD_SCALES) X(CGR_ABILITY_LSE) X(CGR_ABILITY_SPANS) X(CGR_ABILITY_SPARSE)
#define SUPPORTS(X)                                                                                                           \
  X(CGR_SUPPORT_DEFAULT) X(CGR_SUPPORT_NEVER) X(CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE) X(CGR_SUPPORT_UNIFORM_BATCH)         \
  X(CGR_SUPPORT_ALWAYS)
#define GUARD_ERRORS(X)                                                                                                       \
  X(CGR_GUARD_NONE) X(CGR_GUARD_SEQUENCE) X(CGR_GUARD_PAGE) X(CGR_GUARD_ROW) X(CGR_GUARD_COUNT) X(CGR_GUARD_LENGTH)           \
  X(CGR_GUARD_CHANGE) X(CGR_GUARD_ACCEPTED) X(CGR_GUARD_TOKEN) X(CGR_GUARD_RANK)
#define PLAN_FLAGS(X) X(CGR_PLAN_CAPTURE) X(CGR_PLAN_FAST) X(CGR_PLAN_BOUNDS)
#define FA3_LAYOUTS(X) X(CGR_FA3_UPSTREAM) X(CGR_FA3_VLLM)
#define FLASHINFER_LAYOUTS(X) X(CGR_FLASHINFER_V0_6_18) X(CGR_FLASHINFER_V0_7_1)
#define FLASHMLA_LAYOUTS(X) X(CGR_FLASHMLA_CURRENT) X(CGR_FLASHMLA_V1)
#define KINDS(X) X(CGR_KIND_NONE) X(CGR_KIND_PIECEWISE) X(CGR_KIND_FULL)
#define MODES(X)                                                                                                              \
  X(CGR_MODE_DEFAULT) X(CGR_MODE_NONE) X(CGR_MODE_PIECEWISE) X(CGR_MODE_FULL) X(CGR_MODE_FULL_DECODE_ONLY)                    \
  X(CGR_MODE_FULL_AND_PIECEWISE)
#define DIMENSIONS(X) X(CGR_DIMENSION_TOKENS) X(CGR_DIMENSION_REQUESTS) X(CGR_DIMENSION_ROWS)
#define SOURCES(X) X(CGR_SOURCE_DEVICE) X(CGR_SOURCE_STAGED)
#define LOG_LEVELS(X) X(CGR_LOG_ERROR) X(CGR_LOG_WARNING) X(CGR_LOG_INFO)
#define STRUCTS(X)                                                                                                            \
  X(CGR_STRUCT_KEY) X(CGR_STRUCT_DEVICE_CONFIG) X(CGR_STRUCT_DEVICE_INFO) X(CGR_STRUCT_GROUP) X(CGR_STRUCT_LAYER)             \
  X(CGR_STRUCT_ATTENTION) X(CGR_STRUCT_MERGE) X(CGR_STRUCT_VALUE_CHECK) X(CGR_STRUCT_PLAN_KEY) X(CGR_STRUCT_PLAN_STEP)        \
  X(CGR_STRUCT_BACKEND) X(CGR_STRUCT_BUFFER_DECL) X(CGR_STRUCT_CONFIG) X(CGR_STRUCT_MEMORY_SIZES) X(CGR_STRUCT_REQUEST_INFO)  \
  X(CGR_STRUCT_BUFFER_VIEW) X(CGR_STRUCT_RECORD_INFO) X(CGR_STRUCT_BATCH) X(CGR_STRUCT_STEP) X(CGR_STRUCT_STEP_RESULT)        \
  X(CGR_STRUCT_CAPTURE) X(CGR_STRUCT_GRAPH_STATS) X(CGR_STRUCT_CAPTURE_ESTIMATE) X(CGR_STRUCT_SELF_TEST) X(CGR_STRUCT_AUDIT)  \
  X(CGR_STRUCT_STATS) X(CGR_STRUCT_KEY_STATS) X(CGR_STRUCT_FLIGHT_RECORD) X(CGR_STRUCT_SPAN) X(CGR_STRUCT_PLAN_INPUT)         \
  X(CGR_STRUCT_METADATA) X(CGR_STRUCT_FA3_INPUT) X(CGR_STRUCT_FA3_SIZES) X(CGR_STRUCT_FLASHINFER_DECODE_INPUT)                \
  X(CGR_STRUCT_FLASHINFER_PREFILL_INPUT) X(CGR_STRUCT_FLASHINFER_PLAN) X(CGR_STRUCT_FLASHINFER_CASCADE)                       \
  X(CGR_STRUCT_FLASHMLA_INPUT) X(CGR_STRUCT_BLOCK_TABLE_INPUT) X(CGR_STRUCT_BLOCK_TABLE_LAYOUT) X(CGR_STRUCT_KEY_ADVICE)       \
  X(CGR_STRUCT_MEASURE) X(CGR_STRUCT_GATHER) X(CGR_STRUCT_BACKEND_NEEDS) X(CGR_STRUCT_QKV_TRANSFORM)                          \
  X(CGR_STRUCT_EXCHANGE) X(CGR_STRUCT_BATCH_COUNTS) X(CGR_STRUCT_RANKS_CONFIG) X(CGR_STRUCT_RANK_PROPOSAL)                    \
  X(CGR_STRUCT_AGREEMENT) X(CGR_STRUCT_STOPS)                                                                                 \
  X(CGR_STRUCT_RESOURCE) X(CGR_STRUCT_FINGERPRINT) X(CGR_STRUCT_PROGRESS) X(CGR_STRUCT_NCCL_FUNCTIONS)                        \
  X(CGR_STRUCT_NCCL_CONFIG) X(CGR_STRUCT_NCCL_INFO) X(CGR_STRUCT_NCCL_CALL) X(CGR_STRUCT_RANK_WATCH)
#define BUFFERS(X)                                                                                                            \
  X(CGR_BUFFER_INPUT_IDS) X(CGR_BUFFER_POSITIONS) X(CGR_BUFFER_SLOT_MAPPING) X(CGR_BUFFER_QUERY_START_LOC)                    \
  X(CGR_BUFFER_SEQ_LENS) X(CGR_BUFFER_REQUEST_ROWS) X(CGR_BUFFER_PAGE_TABLE) X(CGR_BUFFER_KV_INDPTR)                          \
  X(CGR_BUFFER_KV_LAST_PAGE_LEN) X(CGR_BUFFER_ROW_COMPUTED) X(CGR_BUFFER_ROW_LAST_TOKENS) X(CGR_BUFFER_ROW_NUM_ACCEPTED)      \
  X(CGR_BUFFER_LOGITS_INDICES) X(CGR_BUFFER_NEXT_TOKENS) X(CGR_BUFFER_COUNTS) X(CGR_BUFFER_PLAN)                              \
  X(CGR_BUFFER_KV_INDICES) X(CGR_BUFFER_BLOCK_TABLE) X(CGR_BUFFER_KV_START_LOC) X(CGR_BUFFER_CONTEXT_LENS)                    \
  X(CGR_BUFFER_CONTEXT_START_LOC) X(CGR_BUFFER_PREFILL_QUERY_START_LOC)                                                       \
  X(CGR_BUFFER_PREFILL_KV_INDPTR) X(CGR_BUFFER_PREFILL_KV_LAST_PAGE_LEN)                                                     \
  X(CGR_BUFFER_PREFILL_SEQ_LENS) X(CGR_BUFFER_PREFILL_KV_START_LOC) X(CGR_BUFFER_PREFILL_BLOCK_TABLE)     \
  X(CGR_BUFFER_NUM_DRAFTS) X(CGR_BUFFER_NUM_ACCEPTED) X(CGR_BUFFER_DRAFT_TOKENS) X(CGR_BUFFER_ROW_DRAFT_TOKENS)               \
  X(CGR_BUFFER_DECLARED)
#define COUNTS(X)                                                                                                             \
  X(CGR_COUNT_REQUESTS) X(CGR_COUNT_TOKENS) X(CGR_COUNT_PADDED_REQUESTS) X(CGR_COUNT_PADDED_TOKENS) X(CGR_COUNT_DECODES)      \
  X(CGR_COUNT_DECODE_TOKENS) X(CGR_COUNT_APPEND_FIRST)
#define REQUEST_FLAGS(X) X(CGR_REQUEST_PARTIAL)
#define VALUE_FLAGS(X) X(CGR_VALUES_MASKED)
#define ENDS(X) X(CGR_END_NONE) X(CGR_END_STOP_TOKEN) X(CGR_END_LENGTH) X(CGR_END_BEFORE)
#define REASONS(X)                                                                                                            \
  X(CGR_REASON_EXACT) X(CGR_REASON_PADDED) X(CGR_REASON_MODE_NONE) X(CGR_REASON_NOT_UNIFORM)                             \
  X(CGR_REASON_ABOVE_REQUESTS) X(CGR_REASON_ABOVE_TOKENS) X(CGR_REASON_SUPERSET) X(CGR_REASON_DISABLED)                       \
  X(CGR_REASON_BUDGET) X(CGR_REASON_TOO_PADDED)                                                                               \
  X(CGR_REASON_NOT_CAPTURED) X(CGR_REASON_CAPTURE_FAILED) X(CGR_REASON_STALE) X(CGR_REASON_FORCED) X(CGR_REASON_INTERNAL)
#define STEP_STATES(X) X(CGR_STEP_NONE) X(CGR_STEP_PREPARED) X(CGR_STEP_LAUNCHED) X(CGR_STEP_CANCELLED) X(CGR_STEP_ABANDONED)
#define GRAPH_STATES(X) X(CGR_GRAPH_EMPTY) X(CGR_GRAPH_READY) X(CGR_GRAPH_FAILED) X(CGR_GRAPH_STALE) X(CGR_GRAPH_OVER_BUDGET)
#define CAPTURE_FLAGS(X) X(CGR_CAPTURE_MISSED)
#define FLIGHT_OUTCOMES(X)                                                                                                    \
  X(CGR_FLIGHT_PREPARED) X(CGR_FLIGHT_LAUNCHED) X(CGR_FLIGHT_CANCELLED) X(CGR_FLIGHT_ABANDONED) X(CGR_FLIGHT_REFUSED)         \
  X(CGR_FLIGHT_INTERNAL)
#define FINGERPRINT_PARTS(X)                                                                                                  \
  X(CGR_FINGERPRINT_KEY) X(CGR_FINGERPRINT_CONFIG) X(CGR_FINGERPRINT_SEQUENCE) X(CGR_FINGERPRINT_INPUTS)
#define NCCL_KINDS(X)                                                                                                         \
  X(CGR_NCCL_ALL_REDUCE) X(CGR_NCCL_ALL_GATHER) X(CGR_NCCL_REDUCE_SCATTER) X(CGR_NCCL_BROADCAST) X(CGR_NCCL_SEND)             \
  X(CGR_NCCL_RECV) X(CGR_NCCL_ALL_TO_ALL)
#define NCCL_OPS(X) X(CGR_NCCL_SUM) X(CGR_NCCL_PRODUCT) X(CGR_NCCL_MAX) X(CGR_NCCL_MIN) X(CGR_NCCL_AVERAGE)
#define NCCL_FLAGS(X) X(CGR_NCCL_KEEP) X(CGR_NCCL_MARKS)
#define TIMING_MODES(X) X(CGR_TIMING_OFF) X(CGR_TIMING_PHASES) X(CGR_TIMING_LAYERS)
#define PHASES(X)                                                                                                             \
  X(CGR_PHASE_STEP) X(CGR_PHASE_PROLOGUE) X(CGR_PHASE_STAGED) X(CGR_PHASE_PLAN_FIRST) X(CGR_PHASE_ON_DEMAND)                  \
  X(CGR_PHASE_PLAN) X(CGR_PHASE_RECORD) X(CGR_PHASE_FETCH) X(CGR_PHASE_EPILOGUE) X(CGR_PHASE_LAYER) X(CGR_PHASE_APPEND)       \
  X(CGR_PHASE_ATTENTION)
// clang-format on

// LIST(type, its name function, cases that are not values, X of every enumerator)
#define ENUMS(LIST)                                                             \
  LIST(cgr_dtype, cgr_dtype_name, , DTYPES)                                     \
  LIST(cgr_device_kind, cgr_device_kind_name, , DEVICE_KINDS)                   \
  LIST(cgr_host_schedule, cgr_host_schedule_name, , SCHEDULES)                  \
  LIST(cgr_wait_mode, cgr_wait_mode_name, , WAIT_MODES)                         \
  LIST(cgr_ranks_rule, cgr_ranks_rule_name, , RANKS_RULES)                      \
  LIST(cgr_kv_layout, cgr_kv_layout_name, , LAYOUTS)                            \
  LIST(cgr_layer_flag, cgr_layer_flag_name, , LAYER_FLAGS)                      \
  LIST(cgr_attention_flag, cgr_attention_flag_name, , ATTENTION_FLAGS)          \
  LIST(cgr_transform_flag, cgr_transform_flag_name, , TRANSFORM_FLAGS)          \
  LIST(cgr_backend_flag, cgr_backend_flag_name, , BACKEND_FLAGS)                \
  LIST(cgr_ability, cgr_ability_name, , ABILITIES)                              \
  LIST(cgr_planned, cgr_planned_name, , PLANNED)                                \
  LIST(cgr_plan_flag, cgr_plan_flag_name, , PLAN_FLAGS)                         \
  LIST(cgr_graph_support, cgr_graph_support_name, , SUPPORTS)                   \
  LIST(cgr_guard_error, cgr_guard_error_name, , GUARD_ERRORS)                   \
  LIST(cgr_fingerprint_part, cgr_fingerprint_part_name, , FINGERPRINT_PARTS)    \
  LIST(cgr_nccl_kind, cgr_nccl_kind_name, , NCCL_KINDS)                         \
  LIST(cgr_nccl_op, cgr_nccl_op_name, , NCCL_OPS)                               \
  LIST(cgr_nccl_flag, cgr_nccl_flag_name, , NCCL_FLAGS)                         \
  LIST(cgr_fa3_layout, cgr_fa3_layout_name, , FA3_LAYOUTS)                      \
  LIST(cgr_flashinfer_layout, cgr_flashinfer_layout_name, , FLASHINFER_LAYOUTS) \
  LIST(cgr_flashmla_layout, cgr_flashmla_layout_name, , FLASHMLA_LAYOUTS)       \
  LIST(cgr_graph_kind, cgr_graph_kind_name, , KINDS)                            \
  LIST(cgr_graph_mode, cgr_graph_mode_name, , MODES)                            \
  LIST(cgr_dimension, cgr_dimension_name, , DIMENSIONS)                         \
  LIST(cgr_source, cgr_source_name, , SOURCES)                                  \
  LIST(cgr_log_level, cgr_log_level_name, , LOG_LEVELS)                         \
  LIST(cgr_buffer, cgr_buffer_name, case CGR_BUFFER_COUNT_:, BUFFERS)           \
  LIST(cgr_count, cgr_count_name, , COUNTS)                                     \
  LIST(cgr_request_flag, cgr_request_flag_name, , REQUEST_FLAGS)                \
  LIST(cgr_value_flag, cgr_value_flag_name, , VALUE_FLAGS)                      \
  LIST(cgr_end, cgr_end_name, , ENDS)                                           \
  LIST(cgr_reason, cgr_reason_name, case CGR_REASON_COUNT_:, REASONS)           \
  LIST(cgr_step_state, cgr_step_state_name, , STEP_STATES)                      \
  LIST(cgr_graph_state, cgr_graph_state_name, , GRAPH_STATES)                   \
  LIST(cgr_capture_flag, cgr_capture_flag_name, , CAPTURE_FLAGS)                \
  LIST(cgr_flight_outcome, cgr_flight_outcome_name, , FLIGHT_OUTCOMES)          \
  LIST(cgr_timing_mode, cgr_timing_mode_name, , TIMING_MODES)                   \
  LIST(cgr_phase, cgr_phase_name, case CGR_PHASE_COUNT_:, PHASES)               \
  LIST(cgr_struct, cgr_struct_name, , STRUCTS)

// Fails to compile when an enumerator is not listed.
#define CASE(value) case value:
#define TIE(type, function, others, values)    \
  [[maybe_unused]] bool IsListed(type value) { \
    switch (value) {                           \
      values(CASE) return true;                \
      others return false;                     \
    }                                          \
    return false;                              \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
ENUMS(TIE)
#pragma GCC diagnostic pop

struct Enum {
  std::string type;
  std::map<int, std::string> enumerators; // by value
  const char *(*name)(int value);
};

std::vector<Enum> Enums() {
#define PAIR(value) { static_cast<int>(value), #value },
#define ENTRY(type, function, others, values) \
  { #type, { values(PAIR) }, [](int value) { return function(static_cast<type>(value)); } },
  return { ENUMS(ENTRY) };
#undef ENTRY
#undef PAIR
}

TEST(Names, EveryEnumeratorHasOneOfItsOwn) {
  for (const Enum &e : Enums()) {
    std::set<std::string> names;
    for (const auto &[value, enumerator] : e.enumerators) {
      const char *name = e.name(value);
      ASSERT_NE(name, nullptr) << enumerator;
      EXPECT_STRNE(name, "") << enumerator;
      EXPECT_STRNE(name, "unknown") << enumerator;
      EXPECT_TRUE(names.insert(name).second) << enumerator << " has the name of another: " << name;
    }
  }
}

TEST(Names, AllOtherValuesAreUnknown) {
  for (const Enum &e : Enums())
    for (int value :
         { -2147483647, -1000, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 31, 255, 1 << 20, 0x7fffffff })
      if (e.enumerators.count(value) == 0) {
        EXPECT_STREQ(e.name(value), "unknown") << e.type << " " << value;
      }
}

TEST(Names, FlagsAreSingleBits) {
  for (const Enum &e : Enums()) {
    if (e.type.find("_flag") == std::string::npos)
      continue;
    for (const auto &[value, enumerator] : e.enumerators)
      EXPECT_TRUE(value > 0 && (value & (value - 1)) == 0) << enumerator;
  }
}

TEST(Names, CountsCountTheEnumerators) {
  std::map<std::string, size_t> counts;
  for (const Enum &e : Enums())
    counts[e.type] = e.enumerators.size();
  EXPECT_EQ(counts["cgr_buffer"], static_cast<size_t>(CGR_BUFFER_COUNT_) + 1) << "and the declared ones";
  EXPECT_EQ(counts["cgr_reason"], static_cast<size_t>(CGR_REASON_COUNT_));
  cgr_stats stats;
  EXPECT_LE(static_cast<size_t>(CGR_REASON_COUNT_), sizeof stats.by_reason[0] / sizeof stats.by_reason[0][0]);
  EXPECT_LT(static_cast<size_t>(CGR_KIND_FULL), sizeof stats.by_reason / sizeof stats.by_reason[0]);
}

TEST(Names, OfBuffersAreTheirEnumeratorsInSmallLetters) {
  for (const Enum &e : Enums()) {
    if (e.type != "cgr_buffer")
      continue;
    for (const auto &[value, enumerator] : e.enumerators) {
      std::string small = enumerator.substr(std::string("CGR_BUFFER_").size());
      std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
      EXPECT_EQ(e.name(value), small);
    }
  }
}

TEST(Names, NoEnumOfTheHeadersIsLeftOut) {
  std::set<std::string> listed = { "cgr_status" }; // status_test.cc
  for (const Enum &e : Enums())
    listed.insert(e.type);
  EXPECT_EQ(cgr_test::Declared(cgr_test::HeaderText(), "typedef enum ", ""), listed);
}

TEST(Dtype, SizesAreThoseOfTheElements) {
  const std::map<int, size_t> bits = {
    { CGR_DTYPE_NONE, 0 },
    { CGR_DTYPE_FP32, 8 * sizeof(float) },
    { CGR_DTYPE_FP16, 16 },
    { CGR_DTYPE_BF16, 16 },
    { CGR_DTYPE_FP8_E4M3, 8 },
    { CGR_DTYPE_FP8_E5M2, 8 },
    { CGR_DTYPE_I8, 8 },
    { CGR_DTYPE_I32, 8 * sizeof(int32_t) },
    { CGR_DTYPE_I64, 8 * sizeof(int64_t) },
    { CGR_DTYPE_U8, 8 },
    { CGR_DTYPE_FP4_E2M1, 4 },
    { CGR_DTYPE_I4, 4 },
  };
#define COUNT(value) +1
  EXPECT_EQ(bits.size(), static_cast<size_t>(0 DTYPES(COUNT)));
#undef COUNT
  for (const auto &[dtype, want] : bits) {
    EXPECT_EQ(cgr_dtype_bits(static_cast<cgr_dtype>(dtype)), want) << dtype;
    EXPECT_EQ(cgr_dtype_size(static_cast<cgr_dtype>(dtype)), want / 8) << dtype;
  }
  for (int dtype : { -1, 12, 1000 }) {
    EXPECT_EQ(cgr_dtype_bits(static_cast<cgr_dtype>(dtype)), 0u) << dtype;
    EXPECT_EQ(cgr_dtype_size(static_cast<cgr_dtype>(dtype)), 0u) << dtype;
  }
}

} // namespace
