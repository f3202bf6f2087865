// The public header alone, in C++ with -pedantic; what is here is called by header_cpp_test.cc.
#pragma GCC diagnostic error "-Wpedantic"
#include "cgr/cgr.h"

int HeaderInCpp();

int HeaderInCpp() {
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
  cgr_attention attention = {};
  attention.size = static_cast<uint32_t>(sizeof attention);
  cgr_batch batch = CGR_BATCH_INIT;
  cgr_step step = CGR_STEP_INIT;
  cgr_step_result result = CGR_STEP_RESULT_INIT;
  cgr_stats stats = CGR_STATS_INIT;
  cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
  cgr_plan_input plan = CGR_PLAN_INPUT_INIT;
  bool sized = device_config.size == sizeof device_config && device_info.size == sizeof device_info &&
               group.size == sizeof group && layer.size == sizeof layer && decl.size == sizeof decl &&
               config.size == sizeof config && sizes.size == sizeof sizes && view.size == sizeof view &&
               request.size == sizeof request && info.size == sizeof info && batch.size == sizeof batch &&
               step.size == sizeof step && result.size == sizeof result && stats.size == sizeof stats &&
               graph.size == sizeof graph && plan.size == sizeof plan;
  return sized && config.magic == CGR_CONFIG_MAGIC && config.version == CGR_VERSION && cgr_version() == CGR_VERSION ? 0 : 1;
}
