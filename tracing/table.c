#include "tracing/table.h"

#include <inttypes.h>

#include "base/key.h"
#include "cgr/inspect.h"
#include "cgr/names.h"

/* How much of the padded count was real, in percent. */
static void add_share(cgr__text *text, uint64_t real, uint64_t padded) {
  if (padded == 0)
    cgr__text_add(text, "%8s", "-");
  else
    cgr__text_add(text, "%7u%%", (unsigned)((double)real / (double)padded * 100.0 + 0.5));
}

/* p50 and p99 in microseconds. */
static void add_time_columns(cgr__text *text, const cgr_histogram *h) {
  const double percents[] = { 50.0, 99.0 };
  for (int i = 0; i < 2; i++) {
    char number[32];
    cgr__text us = cgr__text_begin(number, sizeof number);
    cgr__text_add_decimal(&us, cgr_histogram_percentile(h, percents[i]) / 10, 2);
    cgr__text_add(text, "%10s", h->count > 0 ? number : "-");
  }
}

static void add_row(cgr__text *text, const char *name, const cgr_key_stats *k) {
  char number[32];
  cgr__text ms = cgr__text_begin(number, sizeof number);
  cgr__text_add_decimal(&ms, (uint64_t)(k->capture_ms * 10.0), 1);
  cgr__text_add(text, "%-34s %-11s%11" PRIu64 "%9" PRIu64 "%13" PRIu64 "%13" PRIu64, name,
                k->key.kind == CGR_KIND_NONE ? "-" : cgr_graph_state_name((cgr_graph_state)k->state), k->steps, k->misses,
                k->turned_down, k->real_tokens);
  add_share(text, k->real_tokens, k->padded_tokens);
  add_share(text, k->real_requests, k->padded_requests);
  add_time_columns(text, &k->prepare);
  add_time_columns(text, &k->launch);
  cgr__text_add(text, "%8" PRId64 "%12" PRId64 "%s%*s\n", k->num_nodes, k->device_bytes, k->bytes_estimated > 0 ? "~" : "",
                k->bytes_estimated > 0 ? 8 : 9, number);
}

static void add_keys(cgr__text *text, const cgr__report *report) {
  cgr__text_add(text, "%-34s %-11s%11s%9s%13s%13s%8s%8s%20s%20s%8s%12s%9s\n", "key", "graph", "steps", "misses", "turned down",
                "tokens", "% real", "% real", "prepare p50 p99 us", "launch p50 p99 us", "nodes", "bytes", "ms");
  cgr__text_add(text, "%-34s %-11s%11s%9s%13s%13s%8s%8s%20s%20s%8s%12s%9s\n", "", "", "", "", "", "", "tokens", "reqs", "", "",
                "", "", "capture");
  for (int32_t i = -1; i < report->num_keys; i++) {
    cgr_key_stats stats;
    (void)report->get_key(report->context, i, true, &stats);
    if (stats.steps > 0 || stats.misses > 0 || stats.turned_down > 0) /* there may be hundreds that say nothing */
      add_row(text, i < 0 ? "eager, and cgr's own" : cgr__key_name(&stats.key).text, &stats);
  }
}

static void add_reasons(cgr__text *text, const cgr_stats *stats) {
  for (int kind = CGR_KIND_FULL; kind >= CGR_KIND_NONE; kind--)
    for (int reason = 0; reason < CGR_REASON_COUNT_; reason++)
      if (stats->by_reason[kind][reason] > 0)
        cgr__text_add(text, "  %-10s %-16s%12" PRIu64 "\n", cgr_graph_kind_name((cgr_graph_kind)kind),
                      cgr_reason_name((cgr_reason)reason), stats->by_reason[kind][reason]);
}

void cgr__table_write(cgr__text *text, const cgr__report *report) {
  const cgr_stats *s = &report->stats;
  cgr__text_add(text, "%s on %s, graph mode %s\n", cgr_build_info(), report->device, report->mode);
  if (report->dead)
    cgr__text_add(text, "dead: %s\n", report->dead);
  cgr__text_add(text, "\n");
  add_keys(text, report);
  cgr__text_add(text, "\nsteps %" PRIu64 "\n", s->steps);
  add_reasons(text, s);
  cgr__text_add(text,
                "cancelled %" PRIu64 ", abandoned %" PRIu64 ", refused %" PRIu64 ", launches refused %" PRIu64
                ", guard errors %" PRIu64 "\n",
                s->cancelled, s->abandoned, s->refused, s->refused_launches, s->guard_errors);
  cgr__text_add(text, "tokens %" PRIu64 ", padded %" PRIu64 ", bytes staged %" PRIu64 "\n", s->real_tokens, s->padded_tokens,
                s->bytes_staged);
  if (s->drafts > 0)
    cgr__text_add(text, "drafts %" PRIu64 ", accepted %" PRIu64 "\n", s->drafts, s->drafts_accepted);
  cgr__text_add(text, "graphs %d, %" PRIu64 " bytes, captured in ", s->num_graphs, s->graph_bytes);
  cgr__text_add_decimal(text, (uint64_t)(s->capture_ms * 10.0), 1);
  cgr__text_add(text, " ms, captures failed %" PRIu64 "\n", s->captures_failed);
}
