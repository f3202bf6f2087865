/* What a mode is lowered to. Cold. */
#include "graphs/graphs.h"

/* The rules are those of vLLM (CompilationConfig, AttentionCGSupport), with a lower mode where it raises an error. Attention that
 * a graph cannot hold is called between pieces. */
static cgr_graph_mode lower_mode(cgr_graph_mode mode, cgr_graph_support support, const char **reason) {
  if (mode == CGR_MODE_NONE || mode == CGR_MODE_PIECEWISE)
    return mode;
  if (support == CGR_SUPPORT_NEVER) {
    *reason = "lowered to PIECEWISE, as no graph can hold the attention (CGR_SUPPORT_NEVER)";
    return CGR_MODE_PIECEWISE;
  }
  if (mode == CGR_MODE_FULL && support != CGR_SUPPORT_ALWAYS) {
    *reason = "FULL is lowered to FULL_AND_PIECEWISE, as no graph can hold the attention of mixed batches (not "
              "CGR_SUPPORT_ALWAYS)";
    return CGR_MODE_FULL_AND_PIECEWISE;
  }
  return mode;
}

cgr_graph_mode cgr__mode_lower(cgr_graph_mode mode, cgr_graph_support support, const char **reason) {
  *reason = "";
  if (support == CGR_SUPPORT_DEFAULT)
    support = CGR_SUPPORT_ALWAYS;
  if (mode == CGR_MODE_DEFAULT)
    mode = support == CGR_SUPPORT_ALWAYS ? CGR_MODE_FULL : CGR_MODE_FULL_AND_PIECEWISE;
  return lower_mode(mode, support, reason);
}

cgr_graph_kind cgr__mode_uniform_kind(cgr_graph_mode mode) {
  return mode == CGR_MODE_NONE ? CGR_KIND_NONE : mode == CGR_MODE_PIECEWISE ? CGR_KIND_PIECEWISE : CGR_KIND_FULL;
}

cgr_graph_kind cgr__mode_mixed_kind(cgr_graph_mode mode) {
  return mode == CGR_MODE_FULL                                               ? CGR_KIND_FULL
         : mode == CGR_MODE_PIECEWISE || mode == CGR_MODE_FULL_AND_PIECEWISE ? CGR_KIND_PIECEWISE
                                                                             : CGR_KIND_NONE;
}
