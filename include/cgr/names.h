/* Names of enumerators ("bf16", "full"): static storage, never NULL; "unknown" for what this library does not know. Those of flags
 * name one bit. Not included by cgr.h. cgr_status_name is in base.h, names of other libraries' layouts are in interop/. */
#ifndef CGR_NAMES_H
#define CGR_NAMES_H

#include "cgr/inspect.h"
#include "cgr/ranks.h"
#include "cgr/requests.h"
#include "cgr/tracing.h"

#ifdef __cplusplus
extern "C" {
#endif

/* base.h and device.h
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_log_level_name(cgr_log_level level);
CGR_API const char *cgr_dtype_name(cgr_dtype dtype);
CGR_API const char *cgr_device_kind_name(cgr_device_kind kind);
CGR_API const char *cgr_host_schedule_name(cgr_host_schedule schedule);
CGR_API const char *cgr_ranks_rule_name(cgr_ranks_rule rule);
CGR_API const char *cgr_wait_mode_name(cgr_wait_mode mode);

/* attention.h
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_kv_layout_name(cgr_kv_layout layout);
CGR_API const char *cgr_layer_flag_name(cgr_layer_flag flag);
CGR_API const char *cgr_attention_flag_name(cgr_attention_flag flag);
CGR_API const char *cgr_transform_flag_name(cgr_transform_flag flag);
CGR_API const char *cgr_value_flag_name(cgr_value_flag flag);
CGR_API const char *cgr_graph_support_name(cgr_graph_support support);
CGR_API const char *cgr_backend_flag_name(cgr_backend_flag flag);
CGR_API const char *cgr_planned_name(cgr_planned planned);
CGR_API const char *cgr_plan_flag_name(cgr_plan_flag flag);

/* needs.h
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_ability_name(cgr_ability ability);

/* config.h
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_graph_kind_name(cgr_graph_kind kind);
CGR_API const char *cgr_graph_mode_name(cgr_graph_mode mode);
CGR_API const char *cgr_dimension_name(cgr_dimension dimension);
CGR_API const char *cgr_source_name(cgr_source source);

/* requests.h
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_end_name(cgr_end end);

/* record.h, step.h and graphs.h
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_buffer_name(cgr_buffer buffer);
CGR_API const char *cgr_count_name(cgr_count count);
CGR_API const char *cgr_request_flag_name(cgr_request_flag flag);
CGR_API const char *cgr_step_state_name(cgr_step_state state);
CGR_API const char *cgr_guard_error_name(cgr_guard_error error);
CGR_API const char *cgr_reason_name(cgr_reason reason);
CGR_API const char *cgr_capture_flag_name(cgr_capture_flag flag);

/* inspect.h and tracing.h
 * Threads any · Capture ok · Sync never · Alloc never */
CGR_API const char *cgr_graph_state_name(cgr_graph_state state);
CGR_API const char *cgr_flight_outcome_name(cgr_flight_outcome outcome);
CGR_API const char *cgr_timing_mode_name(cgr_timing_mode mode);
CGR_API const char *cgr_phase_name(cgr_phase phase);

#ifdef __cplusplus
}
#endif
#endif
