/* Names of the enumerators of the public headers, and sizes of the element types. Values that this library does not know are
 * named "unknown". With those that functions take as arguments: what they may be. */
#include "base/choices.h"
#include "cgr/cgr.h"
#include "cgr/inspect.h"
#include "cgr/interop/fa3.h"
#include "cgr/interop/flashinfer.h"
#include "cgr/interop/flashmla.h"
#include "cgr/interop/nccl.h"
#include "cgr/names.h"
#include "cgr/tracing.h"

/* name(value) for an enum, from pairs of an enumerator and its name. */
#define NAMES(type, function, ...)                              \
  const char *function(type value) {                            \
    static const struct {                                       \
      int value;                                                \
      const char *name;                                         \
    } names[] = { __VA_ARGS__ };                                \
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) \
      if (names[i].value == (int)value)                         \
        return names[i].name;                                   \
    return "unknown";                                           \
  }

NAMES(cgr_dtype, cgr_dtype_name, { CGR_DTYPE_NONE, "none" }, { CGR_DTYPE_FP32, "fp32" }, { CGR_DTYPE_FP16, "fp16" },
      { CGR_DTYPE_BF16, "bf16" }, { CGR_DTYPE_FP8_E4M3, "fp8_e4m3" }, { CGR_DTYPE_I8, "i8" }, { CGR_DTYPE_I32, "i32" },
      { CGR_DTYPE_I64, "i64" }, { CGR_DTYPE_FP8_E5M2, "fp8_e5m2" }, { CGR_DTYPE_U8, "u8" }, { CGR_DTYPE_FP4_E2M1, "fp4_e2m1" },
      { CGR_DTYPE_I4, "i4" })

NAMES(cgr_device_kind, cgr_device_kind_name, { CGR_DEVICE_KIND_HOST, "host" }, { CGR_DEVICE_KIND_CUDA, "cuda" })

NAMES(cgr_host_schedule, cgr_host_schedule_name, { CGR_SCHEDULE_ASYNC, "async" }, { CGR_SCHEDULE_EARLIEST, "earliest" },
      { CGR_SCHEDULE_LATEST, "latest" }, { CGR_SCHEDULE_RANDOM, "random" })

NAMES(cgr_ranks_rule, cgr_ranks_rule_name, { CGR_RANKS_LARGEST, "largest" }, { CGR_RANKS_SAME, "same" })
NAMES(cgr_wait_mode, cgr_wait_mode_name, { CGR_WAIT_DEFAULT, "default" }, { CGR_WAIT_SPIN, "spin" }, { CGR_WAIT_YIELD, "yield" },
      { CGR_WAIT_BLOCK, "block" })

NAMES(cgr_kv_layout, cgr_kv_layout_name, { CGR_LAYOUT_NHD, "nhd" }, { CGR_LAYOUT_HND, "hnd" })

NAMES(cgr_layer_flag, cgr_layer_flag_name, { CGR_LAYER_BIDIRECTIONAL, "bidirectional" }, { CGR_LAYER_NO_CACHE, "no cache" },
      { CGR_LAYER_ALIBI_SQRT, "alibi sqrt" })

NAMES(cgr_attention_flag, cgr_attention_flag_name, { CGR_ATTENTION_NO_APPEND, "no append" },
      { CGR_ATTENTION_APPEND_ONLY, "append only" }, { CGR_ATTENTION_NON_CAUSAL, "non causal" },
      { CGR_ATTENTION_TILED_SCALES, "tiled scales" })

NAMES(cgr_transform_flag, cgr_transform_flag_name, { CGR_TRANSFORM_NORM_PLUS_ONE, "norm plus one" },
      { CGR_TRANSFORM_INTERLEAVED, "interleaved" })

NAMES(cgr_backend_flag, cgr_backend_flag_name, { CGR_BACKEND_APPENDS, "appends" }, { CGR_BACKEND_PLANS_FIRST, "plans first" },
      { CGR_BACKEND_UNIFORM_SPLIT, "uniform split" }, { CGR_BACKEND_BOUNDS, "bounds" },
      { CGR_BACKEND_PLANS_BOUNDS, "plans bounds" }, { CGR_BACKEND_DECODES_DRAFTS, "decodes drafts" })

NAMES(cgr_ability, cgr_ability_name, { CGR_ABILITY_WINDOW, "window" }, { CGR_ABILITY_CHUNK, "chunk" },
      { CGR_ABILITY_SOFTCAP, "softcap" }, { CGR_ABILITY_ALIBI, "alibi" }, { CGR_ABILITY_SINKS, "sinks" },
      { CGR_ABILITY_BIDIRECTIONAL, "bidirectional" }, { CGR_ABILITY_NO_CACHE, "no cache" },
      { CGR_ABILITY_HEAD_DIM_V, "head dim v" }, { CGR_ABILITY_CROSS, "cross" }, { CGR_ABILITY_MLA, "mla" },
      { CGR_ABILITY_HEAD_SCALES, "head scales" }, { CGR_ABILITY_LSE, "lse" }, { CGR_ABILITY_SPANS, "spans" },
      { CGR_ABILITY_SPARSE, "sparse" })

NAMES(cgr_planned, cgr_planned_name, { CGR_PLANNED_GROUP, "group" }, { CGR_PLANNED_HEADS, "heads" },
      { CGR_PLANNED_HEAD_DIM, "head dim" }, { CGR_PLANNED_DTYPE, "dtype" }, { CGR_PLANNED_WINDOW, "window" },
      { CGR_PLANNED_SCALE, "scale" }, { CGR_PLANNED_SOFTCAP, "softcap" })

NAMES(cgr_plan_flag, cgr_plan_flag_name, { CGR_PLAN_CAPTURE, "capture" }, { CGR_PLAN_FAST, "fast" },
      { CGR_PLAN_BOUNDS, "bounds" })

NAMES(cgr_graph_support, cgr_graph_support_name, { CGR_SUPPORT_DEFAULT, "default" }, { CGR_SUPPORT_NEVER, "never" },
      { CGR_SUPPORT_UNIFORM_SINGLE_TOKEN_DECODE, "uniform single token decode" }, { CGR_SUPPORT_UNIFORM_BATCH, "uniform batch" },
      { CGR_SUPPORT_ALWAYS, "always" })

NAMES(cgr_fingerprint_part, cgr_fingerprint_part_name, { CGR_FINGERPRINT_KEY, "key" },
      { CGR_FINGERPRINT_CONFIG, "configuration" }, { CGR_FINGERPRINT_SEQUENCE, "number" }, { CGR_FINGERPRINT_INPUTS, "inputs" })

NAMES(cgr_nccl_kind, cgr_nccl_kind_name, { CGR_NCCL_ALL_REDUCE, "all-reduce" }, { CGR_NCCL_ALL_GATHER, "all-gather" },
      { CGR_NCCL_REDUCE_SCATTER, "reduce-scatter" }, { CGR_NCCL_BROADCAST, "broadcast" }, { CGR_NCCL_SEND, "send" },
      { CGR_NCCL_RECV, "recv" }, { CGR_NCCL_ALL_TO_ALL, "all-to-all" })
NAMES(cgr_nccl_op, cgr_nccl_op_name, { CGR_NCCL_SUM, "sum" }, { CGR_NCCL_PRODUCT, "product" }, { CGR_NCCL_MAX, "max" },
      { CGR_NCCL_MIN, "min" }, { CGR_NCCL_AVERAGE, "average" })
NAMES(cgr_nccl_flag, cgr_nccl_flag_name, { CGR_NCCL_KEEP, "keep" }, { CGR_NCCL_MARKS, "marks" })

NAMES(cgr_flashinfer_layout, cgr_flashinfer_layout_name, { CGR_FLASHINFER_V0_6_18, "v0.6.18" },
      { CGR_FLASHINFER_V0_7_1, "v0.7.1" })

NAMES(cgr_flashmla_layout, cgr_flashmla_layout_name, { CGR_FLASHMLA_CURRENT, "current" }, { CGR_FLASHMLA_V1, "v1" })

NAMES(cgr_guard_error, cgr_guard_error_name, { CGR_GUARD_NONE, "none" }, { CGR_GUARD_SEQUENCE, "sequence" },
      { CGR_GUARD_PAGE, "page" }, { CGR_GUARD_ROW, "row" }, { CGR_GUARD_COUNT, "count" }, { CGR_GUARD_LENGTH, "length" },
      { CGR_GUARD_CHANGE, "change" }, { CGR_GUARD_ACCEPTED, "accepted count" }, { CGR_GUARD_TOKEN, "token" },
      { CGR_GUARD_RANK, "rank" })

NAMES(cgr_fa3_layout, cgr_fa3_layout_name, { CGR_FA3_UPSTREAM, "upstream" }, { CGR_FA3_VLLM, "vllm" })

NAMES(cgr_graph_kind, cgr_graph_kind_name, { CGR_KIND_NONE, "none" }, { CGR_KIND_PIECEWISE, "piecewise" },
      { CGR_KIND_FULL, "full" })

NAMES(cgr_graph_mode, cgr_graph_mode_name, { CGR_MODE_DEFAULT, "default" }, { CGR_MODE_NONE, "none" },
      { CGR_MODE_PIECEWISE, "piecewise" }, { CGR_MODE_FULL, "full" }, { CGR_MODE_FULL_DECODE_ONLY, "full decode only" },
      { CGR_MODE_FULL_AND_PIECEWISE, "full and piecewise" })

NAMES(cgr_dimension, cgr_dimension_name, { CGR_DIMENSION_TOKENS, "tokens" }, { CGR_DIMENSION_REQUESTS, "requests" },
      { CGR_DIMENSION_ROWS, "rows" })

NAMES(cgr_source, cgr_source_name, { CGR_SOURCE_DEVICE, "device" }, { CGR_SOURCE_STAGED, "staged" })

NAMES(cgr_log_level, cgr_log_level_name, { CGR_LOG_ERROR, "error" }, { CGR_LOG_WARNING, "warning" }, { CGR_LOG_INFO, "info" })

NAMES(cgr_count, cgr_count_name, { CGR_COUNT_REQUESTS, "requests" }, { CGR_COUNT_TOKENS, "tokens" },
      { CGR_COUNT_PADDED_REQUESTS, "padded requests" }, { CGR_COUNT_PADDED_TOKENS, "padded tokens" },
      { CGR_COUNT_DECODES, "decodes" }, { CGR_COUNT_DECODE_TOKENS, "decode tokens" }, { CGR_COUNT_APPEND_FIRST, "append first" })

NAMES(cgr_value_flag, cgr_value_flag_name, { CGR_VALUES_MASKED, "masked" })

NAMES(cgr_request_flag, cgr_request_flag_name, { CGR_REQUEST_PARTIAL, "partial" })

NAMES(cgr_end, cgr_end_name, { CGR_END_NONE, "none" }, { CGR_END_STOP_TOKEN, "stop token" }, { CGR_END_LENGTH, "length" },
      { CGR_END_BEFORE, "before" })

NAMES(cgr_reason, cgr_reason_name, { CGR_REASON_EXACT, "exact" }, { CGR_REASON_PADDED, "padded" },
      { CGR_REASON_MODE_NONE, "mode none" }, { CGR_REASON_NOT_UNIFORM, "not uniform" },
      { CGR_REASON_ABOVE_REQUESTS, "above requests" }, { CGR_REASON_ABOVE_TOKENS, "above tokens" },
      { CGR_REASON_SUPERSET, "superset" }, { CGR_REASON_NOT_CAPTURED, "not captured" },
      { CGR_REASON_CAPTURE_FAILED, "capture failed" }, { CGR_REASON_STALE, "stale" }, { CGR_REASON_FORCED, "forced" },
      { CGR_REASON_INTERNAL, "internal" }, { CGR_REASON_DISABLED, "disabled" }, { CGR_REASON_BUDGET, "budget" },
      { CGR_REASON_TOO_PADDED, "too padded" })

NAMES(cgr_step_state, cgr_step_state_name, { CGR_STEP_NONE, "none" }, { CGR_STEP_PREPARED, "prepared" },
      { CGR_STEP_LAUNCHED, "launched" }, { CGR_STEP_CANCELLED, "cancelled" }, { CGR_STEP_ABANDONED, "abandoned" })

NAMES(cgr_graph_state, cgr_graph_state_name, { CGR_GRAPH_EMPTY, "empty" }, { CGR_GRAPH_READY, "ready" },
      { CGR_GRAPH_FAILED, "failed" }, { CGR_GRAPH_STALE, "stale" }, { CGR_GRAPH_OVER_BUDGET, "over budget" })

NAMES(cgr_capture_flag, cgr_capture_flag_name, { CGR_CAPTURE_MISSED, "missed" })

NAMES(cgr_flight_outcome, cgr_flight_outcome_name, { CGR_FLIGHT_PREPARED, "prepared" }, { CGR_FLIGHT_LAUNCHED, "launched" },
      { CGR_FLIGHT_CANCELLED, "cancelled" }, { CGR_FLIGHT_ABANDONED, "abandoned" }, { CGR_FLIGHT_REFUSED, "refused" },
      { CGR_FLIGHT_INTERNAL, "internal" })

NAMES(cgr_timing_mode, cgr_timing_mode_name, { CGR_TIMING_OFF, "off" }, { CGR_TIMING_PHASES, "phases" },
      { CGR_TIMING_LAYERS, "layers" })

NAMES(cgr_phase, cgr_phase_name, { CGR_PHASE_STEP, "step" }, { CGR_PHASE_PROLOGUE, "prologue" }, { CGR_PHASE_STAGED, "staged" },
      { CGR_PHASE_PLAN_FIRST, "plan first" }, { CGR_PHASE_ON_DEMAND, "on demand" }, { CGR_PHASE_PLAN, "plan" },
      { CGR_PHASE_RECORD, "record" }, { CGR_PHASE_FETCH, "fetch" }, { CGR_PHASE_EPILOGUE, "epilogue" },
      { CGR_PHASE_LAYER, "layer" }, { CGR_PHASE_APPEND, "append" }, { CGR_PHASE_ATTENTION, "attention" })

size_t cgr_dtype_size(cgr_dtype dtype) { return cgr_dtype_bits(dtype) / 8; }

size_t cgr_dtype_bits(cgr_dtype dtype) {
  switch (dtype) {
  case CGR_DTYPE_FP4_E2M1:
  case CGR_DTYPE_I4:
    return 4;
  case CGR_DTYPE_FP8_E4M3:
  case CGR_DTYPE_FP8_E5M2:
  case CGR_DTYPE_I8:
  case CGR_DTYPE_U8:
    return 8;
  case CGR_DTYPE_FP16:
  case CGR_DTYPE_BF16:
    return 16;
  case CGR_DTYPE_FP32:
  case CGR_DTYPE_I32:
    return 32;
  case CGR_DTYPE_I64:
    return 64;
  default:
    return 0;
  }
}

/* ------------------------------------------------------------------------------------------------------------- arguments */

/* `choices`, of an enum by its first and last value; of flags by the first and the last bit. */
#define CHOICES(choices, type, is_flags, said, first, last)                             \
  static const char *choices##_name(int64_t value) { return type##_name((type)value); } \
  const cgr__choices choices = { said, is_flags, (int64_t)(first), (int64_t)(last), choices##_name };
#define ENUM(choices, type, first, last) CHOICES(choices, type, false, #type, first, last)
#define FLAGS(choices, type, prefix, first, last) CHOICES(choices, type, true, prefix "*", first, last)

ENUM(cgr__dtypes, cgr_dtype, CGR_DTYPE_FP32, CGR_DTYPE_I4)
ENUM(cgr__kv_layouts, cgr_kv_layout, CGR_LAYOUT_NHD, CGR_LAYOUT_HND)
ENUM(cgr__graph_kinds, cgr_graph_kind, CGR_KIND_NONE, CGR_KIND_FULL)
ENUM(cgr__graph_modes, cgr_graph_mode, CGR_MODE_DEFAULT, CGR_MODE_FULL_AND_PIECEWISE)
ENUM(cgr__graph_supports, cgr_graph_support, CGR_SUPPORT_DEFAULT, CGR_SUPPORT_ALWAYS)
ENUM(cgr__ranks_rules, cgr_ranks_rule, CGR_RANKS_LARGEST, CGR_RANKS_SAME)
ENUM(cgr__wait_modes, cgr_wait_mode, CGR_WAIT_DEFAULT, CGR_WAIT_BLOCK)
ENUM(cgr__timing_modes, cgr_timing_mode, CGR_TIMING_OFF, CGR_TIMING_LAYERS)
ENUM(cgr__host_schedules, cgr_host_schedule, CGR_SCHEDULE_ASYNC, CGR_SCHEDULE_RANDOM)
ENUM(cgr__dimensions, cgr_dimension, CGR_DIMENSION_TOKENS, CGR_DIMENSION_ROWS)
ENUM(cgr__dimensions_of_steps, cgr_dimension, CGR_DIMENSION_TOKENS, CGR_DIMENSION_REQUESTS)
ENUM(cgr__sources, cgr_source, CGR_SOURCE_DEVICE, CGR_SOURCE_STAGED)
ENUM(cgr__fa3_layouts, cgr_fa3_layout, CGR_FA3_UPSTREAM, CGR_FA3_VLLM)
ENUM(cgr__flashmla_layouts, cgr_flashmla_layout, CGR_FLASHMLA_CURRENT, CGR_FLASHMLA_V1)
ENUM(cgr__flashinfer_layouts, cgr_flashinfer_layout, CGR_FLASHINFER_V0_6_18, CGR_FLASHINFER_V0_7_1)

FLAGS(cgr__attention_flags, cgr_attention_flag, "CGR_ATTENTION_", CGR_ATTENTION_NO_APPEND, CGR_ATTENTION_TILED_SCALES)
FLAGS(cgr__transform_flags, cgr_transform_flag, "CGR_TRANSFORM_", CGR_TRANSFORM_NORM_PLUS_ONE, CGR_TRANSFORM_INTERLEAVED)
FLAGS(cgr__layer_flags, cgr_layer_flag, "CGR_LAYER_", CGR_LAYER_BIDIRECTIONAL, CGR_LAYER_ALIBI_SQRT)
FLAGS(cgr__value_flags, cgr_value_flag, "CGR_VALUES_", CGR_VALUES_MASKED, CGR_VALUES_MASKED)
FLAGS(cgr__backend_flags, cgr_backend_flag, "CGR_BACKEND_", CGR_BACKEND_APPENDS, CGR_BACKEND_DECODES_DRAFTS)
FLAGS(cgr__abilities, cgr_ability, "CGR_ABILITY_", CGR_ABILITY_WINDOW, CGR_ABILITY_SPARSE)
FLAGS(cgr__planned_bits, cgr_planned, "CGR_PLANNED_", CGR_PLANNED_GROUP, CGR_PLANNED_SOFTCAP)
FLAGS(cgr__request_flags, cgr_request_flag, "CGR_REQUEST_", CGR_REQUEST_PARTIAL, CGR_REQUEST_PARTIAL)
FLAGS(cgr__capture_flags, cgr_capture_flag, "CGR_CAPTURE_", CGR_CAPTURE_MISSED, CGR_CAPTURE_MISSED)
