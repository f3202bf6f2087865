#include "examples/llama/report.h"

#include <cgr/inspect.h>
#include <cgr/names.h>
#include <stdlib.h>

static const char *const phase_names[] = { "decode", "prefill", "mixed" };

/* How a step ran, for people: "none" names no graph. */
static const char *kind_name(int kind) { return kind == CGR_KIND_NONE ? "eager" : cgr_graph_kind_name((cgr_graph_kind)kind); }

static void print_steps(FILE *out, llama_meter *meter) {
  fprintf(out, "\n%-8s %-10s %7s %8s %8s %10s %8s %9s %8s %7s\n", "step", "graph", "steps", "tokens", "padded", "prepare us",
          "p99", "launch us", "p99", "staged");
  for (int phase = 0; phase < LLAMA_NUM_PHASES; phase++)
    for (int kind = 2; kind >= 0; kind--) {
      llama_kind *k = &meter->kinds[phase][kind];
      if (k->steps == 0)
        continue;
      fprintf(out, "%-8s %-10s %7llu %8llu %8llu %10.2f %8.2f %9.2f %8.2f %7llu\n", phase_names[phase], kind_name(kind),
              (unsigned long long)k->steps, (unsigned long long)k->real_tokens, (unsigned long long)k->padded_tokens,
              (double)llama_quantile(&k->prepare, 0.5), (double)llama_quantile(&k->prepare, 0.99),
              (double)llama_quantile(&k->launch, 0.5), (double)llama_quantile(&k->launch, 0.99),
              (unsigned long long)(k->bytes_staged / k->steps));
    }
  fprintf(out, "host times are medians; staged: bytes that a step sends, on average\n");
  if (meter->agreements.count)
    fprintf(out, "ranks agree in %.2f us (p99 %.2f us) before each step, waits for others included\n",
            (double)llama_quantile(&meter->agreements, 0.5), (double)llama_quantile(&meter->agreements, 0.99));
}

static void print_reasons(FILE *out, const cgr_stats *stats) {
  fprintf(out, "\nreasons, of %llu step%s:", (unsigned long long)stats->steps, llama_plural((long long)stats->steps));
  for (int kind = 2; kind >= 0; kind--) {
    const char *separator = "\n";
    for (int reason = 0; reason < CGR_REASON_COUNT_; reason++) {
      if (stats->by_reason[kind][reason] == 0)
        continue;
      if (*separator == '\n')
        fprintf(out, "\n  %-10s", kind_name(kind));
      fprintf(out, "%s%s %llu", *separator == '\n' ? "" : separator, cgr_reason_name((cgr_reason)reason),
              (unsigned long long)stats->by_reason[kind][reason]);
      separator = ", ";
    }
  }
  fprintf(out, "\n");
}

/* One query length is "1"; a graph for any is "mixed". */
static int print_graphs(FILE *out, cgr_runtime *runtime) {
  int32_t num_keys = 0;
  fprintf(out, "\n%-10s %8s %7s %8s %6s %10s %8s %13s  %s\n", "graph", "requests", "tokens", "queries", "nodes", "capture ms",
          "replays", "mean requests", "state");
  TRY_CGR(cgr_runtime_num_keys(runtime, &num_keys));
  for (int32_t i = 0; i < num_keys; i++) {
    cgr_graph_stats g = CGR_GRAPH_STATS_INIT;
    char query_len[16] = "mixed";
    TRY_CGR(cgr_runtime_graph_stats(runtime, i, &g));
    if (g.key.query_len)
      snprintf(query_len, sizeof(query_len), "%d", g.key.query_len);
    fprintf(out, "%-10s %8d %7d %8s %6lld %10.2f %8llu %13.1f  %s\n", kind_name(g.key.kind), g.key.num_requests, g.key.num_tokens,
            query_len, (long long)g.num_nodes, g.capture_ms, (unsigned long long)g.replays,
            g.replays ? (double)g.real_requests / (double)g.replays : 0.0, cgr_graph_state_name((cgr_graph_state)g.state));
  }
  return 0;
}

int llama_report_tables(FILE *out, llama_meter *meter, cgr_runtime *runtime) {
  cgr_stats stats = CGR_STATS_INIT;
  TRY_CGR(cgr_runtime_stats(runtime, &stats));
  print_steps(out, meter);
  print_reasons(out, &stats);
  return print_graphs(out, runtime);
}

/* A multiprocessor of compute capability 9.0, in bf16: 650 TFLOP/s over 132 of them, which the best kernels reach on an H100 SXM.
 */
#define OPERATIONS_PER_SECOND_90 (650e12 / 132)

int llama_report_overlap(FILE *out, const llama_meter *meter, cgr_runtime *runtime, const llama_model *model, llama_sizes sizes) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cgr_device *device;
  TRY_CGR(cgr_runtime_device(runtime, &device));
  TRY_CGR(cgr_device_get_info(device, &info));
  if (info.memory_bandwidth == 0 || meter->mixed.steps == 0)
    return 0;
  double bytes = (double)info.memory_bandwidth, operations = 0.0;
  if (info.compute_capability == 90)
    operations = OPERATIONS_PER_SECOND_90 * info.num_multiprocessors;
  llama_overlap o = llama_overlap_of(&meter->mixed, model, sizes, bytes, operations);
  fprintf(out, "\nmixed steps: the memory was busy for %.0f%% of their time", 100.0 * o.memory);
  if (operations > 0.0)
    fprintf(out, ", tensor cores for %.0f%%, both for at least %.0f%%", 100.0 * o.tensor_cores, 100.0 * o.both);
  fprintf(out, "\n  (not measured: bytes over %.2f TB/s", 1e-12 * bytes);
  if (operations > 0.0)
    fprintf(out, ", operations over %.0f TFLOP/s", 1e-12 * operations);
  fprintf(out, ")\n");
  return 0;
}

static void json_kinds(FILE *out, llama_meter *meter) {
  const char *separator = "";
  fprintf(out, "\"kinds\": [");
  for (int phase = 0; phase < LLAMA_NUM_PHASES; phase++)
    for (int kind = 0; kind < 3; kind++) {
      llama_kind *k = &meter->kinds[phase][kind];
      if (k->steps == 0)
        continue;
      fprintf(out,
              "%s\n  {\"phase\": \"%s\", \"graph\": \"%s\", \"steps\": %llu, \"requests\": %llu, \"real_tokens\": %llu, "
              "\"padded_tokens\": %llu, \"bytes_staged\": %llu, ",
              separator, phase_names[phase], kind_name(kind), (unsigned long long)k->steps, (unsigned long long)k->requests,
              (unsigned long long)k->real_tokens, (unsigned long long)k->padded_tokens, (unsigned long long)k->bytes_staged);
      fprintf(out, "\"prepare_us\": {\"median\": %.3f, \"p99\": %.3f}, \"launch_us\": {\"median\": %.3f, \"p99\": %.3f}}",
              (double)llama_quantile(&k->prepare, 0.5), (double)llama_quantile(&k->prepare, 0.99),
              (double)llama_quantile(&k->launch, 0.5), (double)llama_quantile(&k->launch, 0.99));
      separator = ",";
    }
  fprintf(out, "],\n");
}

static void json_times(FILE *out, llama_meter *meter, const llama_host_time *t) {
  fprintf(out, "\"generated\": %llu,\n\"prompt\": %llu,\n\"seconds\": %.6f,\n", (unsigned long long)meter->generated,
          (unsigned long long)meter->prompt, meter->seconds);
  fprintf(out, "\"prompt_seconds\": %.6f,\n\"generation_seconds\": %.6f,\n", meter->prompt_seconds, meter->generation_seconds);
  fprintf(out, "\"first_token_us\": {\"median\": %.3f, \"p99\": %.3f},\n", (double)llama_quantile(&meter->first_token, 0.5),
          (double)llama_quantile(&meter->first_token, 0.99));
  fprintf(out, "\"between_tokens_us\": {\"median\": %.3f, \"p99\": %.3f},\n", (double)llama_quantile(&meter->between_tokens, 0.5),
          (double)llama_quantile(&meter->between_tokens, 0.99));
  fprintf(out, "\"host_us\": {\"requests\": %d, \"replayed\": %.3f, \"eager\": %.3f, \"bare_launch\": %.3f, \"nodes\": %lld},\n",
          t->requests, (double)t->replayed, (double)t->eager, (double)t->bare, (long long)t->nodes);
}

int llama_report_json(FILE *out, llama_meter *meter, cgr_runtime *runtime, const cgr_stats *stats, const llama_host_time *time) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cgr_device *device;
  cgr_graph_mode mode;
  const char *why;
  TRY_CGR(cgr_runtime_device(runtime, &device));
  TRY_CGR(cgr_device_get_info(device, &info));
  TRY_CGR(cgr_runtime_graph_mode(runtime, &mode, &why));
  fprintf(out, "\"device\": \"%s\",\n\"driver\": %d,\n\"build\": \"%s\",\n", info.name, info.driver_version, cgr_build_info());
  fprintf(out, "\"graph_mode\": \"%s\",\n\"graph_mode_reason\": \"%s\",\n", cgr_graph_mode_name(mode), why);
  json_times(out, meter, time);
  fprintf(out, "\"steps\": %llu,\n", (unsigned long long)stats->steps);
  json_kinds(out, meter);
  fprintf(out, "\"mixed\": {\"steps\": %lld, \"tokens\": %lld, \"keys\": %lld, \"pairs\": %lld, \"seconds\": %.6f},\n",
          (long long)meter->mixed.steps, (long long)meter->mixed.tokens, (long long)meter->mixed.keys,
          (long long)meter->mixed.pairs, meter->mixed.seconds);
  fprintf(out, "\"reasons\": {");
  const char *separator = "";
  for (int kind = 0; kind < 3; kind++)
    for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
      if (stats->by_reason[kind][reason]) {
        fprintf(out, "%s\"%s %s\": %llu", separator, kind_name(kind), cgr_reason_name((cgr_reason)reason),
                (unsigned long long)stats->by_reason[kind][reason]);
        separator = ", ";
      }
  fprintf(out, "}");
  return ferror(out) ? llama_fail("cannot be written") : 0;
}

/* Asks how long the text is, then for the text: no step runs in between. */
int llama_report_metrics(FILE *out, cgr_runtime *runtime) {
  const cgr_label label = { "engine", "llama" };
  size_t length = 0;
  TRY_CGR(cgr_runtime_metrics(runtime, &label, 1, NULL, 0, &length));
  char *text = malloc(length + 1);
  if (!text)
    return llama_fail("no memory");
  int result = llama_cgr(cgr_runtime_metrics(runtime, &label, 1, text, length + 1, &length), "cgr_runtime_metrics");
  if (result == 0)
    fputs(text, out);
  free(text);
  return result;
}
