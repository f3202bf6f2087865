#include "examples/llama/intro.h"

#include <cgr/inspect.h>
#include <cgr/names.h>
#include <cgr/tracing.h>

#include "examples/llama/units.h"

int llama_intro_device(FILE *out, cgr_device *device) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  TRY_CGR(cgr_device_get_info(device, &info));
  fprintf(out, "cgr %d.%d.%d on ", CGR_VERSION_MAJOR, CGR_VERSION_MINOR, CGR_VERSION_PATCH);
  if (info.kind == CGR_DEVICE_KIND_CUDA)
    fprintf(out, "%s, driver for CUDA %d.%d\n", info.name, info.driver_version / 1000, info.driver_version % 1000 / 10);
  else
    fprintf(out, "the host device, %d processor%s\n", info.num_multiprocessors, llama_plural(info.num_multiprocessors));
  fflush(out);
  return 0;
}

void llama_intro_model(FILE *out, const char *name, const llama_model *model, int32_t dtype) {
  const llama_config *c = &model->config;
  fprintf(out, "model      %s: %s parameters, %d layer%s, %d query and %d KV head%s of %d, %s\n", name,
          llama_scale((double)llama_parameters(model)).text, c->num_layers, llama_plural(c->num_layers), c->num_q_heads,
          c->num_kv_heads, llama_plural(c->num_kv_heads), c->head_dim, cgr_dtype_name((cgr_dtype)dtype));
  fflush(out);
}

/* "5 full, 8 piecewise": graphs that can be replayed. */
static int print_kinds(FILE *out, cgr_runtime *runtime) {
  int32_t num_keys = 0, counts[3] = { 0 };
  TRY_CGR(cgr_runtime_num_keys(runtime, &num_keys));
  for (int32_t i = 0; i < num_keys; i++) {
    cgr_graph_stats graph = CGR_GRAPH_STATS_INIT;
    TRY_CGR(cgr_runtime_graph_stats(runtime, i, &graph));
    counts[graph.key.kind] += graph.state == CGR_GRAPH_READY;
  }
  const char *separator = "";
  for (int kind = CGR_KIND_FULL; kind >= CGR_KIND_PIECEWISE; kind--)
    if (counts[kind]) {
      fprintf(out, "%s%d %s", separator, counts[kind], cgr_graph_kind_name((cgr_graph_kind)kind));
      separator = ", ";
    }
  if (!*separator)
    fputs("none", out);
  return 0;
}

int llama_intro_engine(FILE *out, const llama_engine *e, double seconds) {
  cgr_stats stats = CGR_STATS_INIT;
  cgr_graph_mode mode;
  const char *why;
  TRY_CGR(cgr_runtime_stats(e->runtime, &stats));
  TRY_CGR(cgr_runtime_graph_mode(e->runtime, &mode, &why));
  fprintf(out, "KV cache   %s pages of %d tokens, %s%s%s\n", llama_count((uint64_t)e->limits.num_pages).text, e->limits.page_size,
          llama_bytes((double)e->cache.used).text, e->limits.kv_dtype == CGR_DTYPE_NONE ? "" : ", ",
          e->limits.kv_dtype == CGR_DTYPE_NONE ? "" : cgr_dtype_name((cgr_dtype)e->limits.kv_dtype));
  fputs("graphs     ", out);
  TRY(print_kinds(out, e->runtime));
  fprintf(out, " (mode %s%s%s)", cgr_graph_mode_name(mode), *why ? ": " : "", why);
  if (stats.num_graphs)
    fprintf(out, ", captured in %.1f ms", stats.capture_ms);
  if (stats.graph_bytes)
    fprintf(out, ", %s", llama_bytes((double)stats.graph_bytes).text);
  fprintf(out, "; ready after %.2f s\n", seconds);
  fflush(out);
  return 0;
}
