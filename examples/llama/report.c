/* The table at the end: what each kind of step cost, why steps ran as they did, and what the graphs took. */
#include <cgr/cgr.h>
#include <cgr/inspect.h>
#include <cgr/names.h>
#include <cgr/tracing.h>
#include <stdio.h>
#include <stdlib.h>

#include "examples/llama/engine.h"
#include "examples/llama/meter.h"

static const char *const phase_names[] = { "decode", "prefill", "mixed" };

/* How a step ran, for people: "none" names no graph. */
static const char *kind_name(int kind) { return kind == CGR_KIND_NONE ? "eager" : cgr_graph_kind_name((cgr_graph_kind)kind); }

static void print_kinds(FILE *out, llama_meter *meter) {
  fprintf(out, "                                   tokens         prepare us          launch us   staged\n");
  fprintf(out, "kind of step        steps      real    padded    median     p99     median     p99   bytes\n");
  for (int phase = 0; phase < LLAMA_NUM_PHASES; phase++)
    for (int kind = 2; kind >= 0; kind--) {
      llama_kind *k = &meter->kinds[phase][kind];
      if (k->steps == 0)
        continue;
      fprintf(out, "%-8s%-10s%7llu %9llu %9llu %9.2f %7.1f %10.2f %7.1f %7llu\n", phase_names[phase], kind_name(kind),
              (unsigned long long)k->steps, (unsigned long long)k->real_tokens, (unsigned long long)k->padded_tokens,
              (double)llama_quantile(&k->prepare, 0.5), (double)llama_quantile(&k->prepare, 0.99),
              (double)llama_quantile(&k->launch, 0.5), (double)llama_quantile(&k->launch, 0.99),
              (unsigned long long)(k->bytes_staged / k->steps));
    }
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

static int print_graphs(FILE *out, cgr_runtime *runtime) {
  fprintf(out, "\ngraph          requests   tokens   nodes  capture ms   replays  mean requests  state\n");
  int32_t num_keys = 0;
  TRY_CGR(cgr_runtime_num_keys(runtime, &num_keys));
  for (int32_t i = 0; i < num_keys; i++) {
    cgr_graph_stats g = CGR_GRAPH_STATS_INIT;
    TRY_CGR(cgr_runtime_graph_stats(runtime, i, &g));
    fprintf(out, "%-14s %8d %8d %7lld %11.2f %9llu %14.1f  %s\n", kind_name(g.key.kind), g.key.num_requests, g.key.num_tokens,
            (long long)g.num_nodes, g.capture_ms, (unsigned long long)g.replays,
            g.replays ? (double)g.real_requests / (double)g.replays : 0.0, cgr_graph_state_name((cgr_graph_state)g.state));
  }
  return 0;
}

/* Names of the phases that ran so, "decode, mixed". */
static void print_phases(FILE *out, const llama_meter *meter, int replayed) {
  const char *separator = "";
  for (int phase = 0; phase < LLAMA_NUM_PHASES; phase++) {
    const llama_kind *kinds = meter->kinds[phase];
    if (replayed ? kinds[CGR_KIND_PIECEWISE].steps + kinds[CGR_KIND_FULL].steps == 0 : kinds[CGR_KIND_NONE].steps == 0)
      continue;
    fprintf(out, "%s%s", separator, phase_names[phase]);
    separator = ", ";
  }
}

/* Replayed steps next to eager ones, in one sentence. */
static int print_host_time(FILE *out, const llama_meter *meter) {
  uint64_t replays, eager;
  float replay_us, eager_us;
  TRY(llama_meter_median(meter, 1, &replays, &replay_us));
  TRY(llama_meter_median(meter, 0, &eager, &eager_us));
  fprintf(out, "A step cost the host ");
  if (replays) {
    fprintf(out, "%.1f us when it replayed a graph (%llu step%s: ", (double)replay_us, (unsigned long long)replays,
            llama_plural((long long)replays));
    print_phases(out, meter, 1);
    fprintf(out, ")");
  }
  if (eager) {
    fprintf(out, "%s%.1f us when it ran eagerly (%llu step%s: ", replays ? " and " : "", (double)eager_us,
            (unsigned long long)eager, llama_plural((long long)eager));
    print_phases(out, meter, 0);
    fprintf(out, ")");
  }
  if (replays && eager && replay_us > 0)
    fprintf(out, ", %.0f times as much", (double)(eager_us / replay_us));
  fprintf(out, "; medians of prepare + launch.\n");
  return 0;
}

static int print_summary(FILE *out, const llama_meter *meter, cgr_runtime *runtime) {
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cgr_device *device;
  cgr_graph_mode mode;
  const char *why;
  TRY_CGR(cgr_runtime_device(runtime, &device));
  TRY_CGR(cgr_device_get_info(device, &info));
  TRY_CGR(cgr_runtime_graph_mode(runtime, &mode, &why));
  fprintf(out, "Generated %llu token%s for %llu request%s in %.2f s: %.0f tokens per second on %s.\n",
          (unsigned long long)meter->generated, llama_plural((long long)meter->generated), (unsigned long long)meter->finished,
          llama_plural((long long)meter->finished), meter->seconds,
          meter->seconds > 0 ? (double)meter->generated / meter->seconds : 0.0, info.name);
  TRY(print_host_time(out, meter));
  fprintf(out, "Graph mode: %s%s%s%s.\n\n", cgr_graph_mode_name(mode), *why ? " (" : "", why, *why ? ")" : "");
  return 0;
}

int llama_report_print(FILE *out, llama_meter *meter, cgr_runtime *runtime) {
  cgr_stats stats = CGR_STATS_INIT;
  TRY_CGR(cgr_runtime_stats(runtime, &stats));
  TRY(print_summary(out, meter, runtime));
  print_kinds(out, meter);
  print_reasons(out, &stats);
  return print_graphs(out, runtime);
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

int llama_report_json(FILE *out, llama_meter *meter, cgr_runtime *runtime) {
  cgr_stats stats = CGR_STATS_INIT;
  cgr_device_info info = CGR_DEVICE_INFO_INIT;
  cgr_device *device;
  cgr_graph_mode mode;
  const char *why;
  TRY_CGR(cgr_runtime_stats(runtime, &stats));
  TRY_CGR(cgr_runtime_device(runtime, &device));
  TRY_CGR(cgr_device_get_info(device, &info));
  TRY_CGR(cgr_runtime_graph_mode(runtime, &mode, &why));
  fprintf(out, "\"device\": \"%s\",\n\"driver\": %d,\n\"build\": \"%s\",\n", info.name, info.driver_version, cgr_build_info());
  fprintf(out, "\"graph_mode\": \"%s\",\n\"graph_mode_reason\": \"%s\",\n", cgr_graph_mode_name(mode), why);
  fprintf(out, "\"generated\": %llu,\n\"seconds\": %.6f,\n\"steps\": %llu,\n", (unsigned long long)meter->generated,
          meter->seconds, (unsigned long long)stats.steps);
  json_kinds(out, meter);
  fprintf(out, "\"reasons\": {");
  const char *separator = "";
  for (int kind = 0; kind < 3; kind++)
    for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
      if (stats.by_reason[kind][reason]) {
        fprintf(out, "%s\"%s %s\": %llu", separator, kind_name(kind), cgr_reason_name((cgr_reason)reason),
                (unsigned long long)stats.by_reason[kind][reason]);
        separator = ", ";
      }
  fprintf(out, "}");
  return ferror(out) ? llama_fail("cannot be written") : 0;
}

/* ---------------------------------------------------------------------------------------------------- the runtime's own */

typedef cgr_status (*text_function)(cgr_runtime *runtime, char *out, size_t capacity, size_t *length);

/* Asks how long the text is, then for the text: no step runs in between. */
static int print_text(FILE *out, cgr_runtime *runtime, text_function function) {
  size_t length = 0;
  TRY_CGR(function(runtime, NULL, 0, &length));
  char *text = malloc(length + 1);
  if (!text)
    return llama_fail("no memory");
  int result = llama_cgr(function(runtime, text, length + 1, &length), "the runtime's statistics");
  if (result == 0)
    fputs(text, out);
  free(text);
  return result;
}

static cgr_status metrics(cgr_runtime *runtime, char *out, size_t capacity, size_t *length) {
  const cgr_label label = { "engine", "llama" };
  return cgr_runtime_metrics(runtime, &label, 1, out, capacity, length);
}

int llama_report_stats(FILE *out, cgr_runtime *runtime) { return print_text(out, runtime, cgr_runtime_stats_text); }

int llama_report_metrics(FILE *out, cgr_runtime *runtime) { return print_text(out, runtime, metrics); }
