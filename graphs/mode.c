#include "graphs/graphs.h"

cgr_graph_mode cgr__mode_lower(cgr_graph_mode mode, cgr_graph_support support, const char **reason) {
  *reason = "";
  if (mode == CGR_MODE_DEFAULT)
    mode = CGR_MODE_FULL_AND_PIECEWISE;
  if (mode == CGR_MODE_NONE)
    return CGR_MODE_NONE;
  if (mode == CGR_MODE_PIECEWISE) {
    *reason = "PIECEWISE is lowered to NONE: this version captures no pieces";
    return CGR_MODE_NONE;
  }
  if (support == CGR_SUPPORT_NEVER) {
    *reason = "lowered to NONE: the engine's attention cannot be captured (CGR_SUPPORT_NEVER)";
    return CGR_MODE_NONE;
  }
  if (mode == CGR_MODE_FULL)
    *reason = "FULL is lowered to FULL_DECODE_ONLY: this version captures decode steps of query length 1 alone";
  if (mode == CGR_MODE_FULL_AND_PIECEWISE)
    *reason = "FULL_AND_PIECEWISE is lowered to FULL_DECODE_ONLY: this version captures no pieces";
  return CGR_MODE_FULL_DECODE_ONLY;
}
