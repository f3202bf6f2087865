/* The public header alone, in C11 with -pedantic. */
#include "cgr/cgr.h"

#ifdef __GNUC__
#pragma GCC diagnostic error "-Wpedantic"
#endif

static cgr_status record(cgr_recorder *recorder, void *engine) {
  (void)engine;
  return cgr_record_attention(recorder, &(cgr_attention){ CGR_ATTENTION_INIT, .layer = 1 });
}

int main(void) {
  cgr_device_config device_config = CGR_DEVICE_CONFIG_INIT;
  cgr_device_info device_info = CGR_DEVICE_INFO_INIT;
  cgr_group group = CGR_GROUP_INIT;
  cgr_layer layer = CGR_LAYER_INIT;
  cgr_buffer_decl decl = CGR_BUFFER_DECL_INIT;
  cgr_config config = CGR_CONFIG_INIT;
  cgr_memory_sizes sizes = CGR_MEMORY_SIZES_INIT;
  cgr_buffer_view view = CGR_BUFFER_VIEW_INIT;
  cgr_request_info request = CGR_REQUEST_INFO_INIT;
  cgr_record_info info = CGR_RECORD_INFO_INIT;
  cgr_attention attention = { CGR_ATTENTION_INIT };
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  cgr_stats stats = CGR_STATS_INIT;
  cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
  cgr_plan_input plan = CGR_PLAN_INPUT_INIT;
  if (device_config.size != sizeof device_config || device_info.size != sizeof device_info || group.size != sizeof group ||
      layer.size != sizeof layer || decl.size != sizeof decl || config.size != sizeof config || sizes.size != sizeof sizes)
    return 1;
  if (view.size != sizeof view || request.size != sizeof request || info.size != sizeof info ||
      attention.size != sizeof attention || batch.size != sizeof batch || step.size != sizeof step ||
      result.size != sizeof result || stats.size != sizeof stats || graph.size != sizeof graph || plan.size != sizeof plan)
    return 2;
  if (config.magic != CGR_CONFIG_MAGIC || config.version != CGR_VERSION || cgr_version() != CGR_VERSION)
    return 3;
  cgr_record_function function = record;
  if (cgr_runtime_capture(NULL, function, NULL) != CGR_ERROR_NULL_POINTER || cgr_last_message()[0] == '\0')
    return 4;
  if (cgr_status_name(CGR_ERROR_BUSY)[0] != 'C' || cgr_build_info()[0] != 'c' || cgr_dtype_size(CGR_DTYPE_BF16) != 2)
    return 5;
  return 0;
}
