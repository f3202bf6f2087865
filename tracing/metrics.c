#include "tracing/metrics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/key.h"
#include "cgr/names.h"
#include "tracing/histogram.h"

/* ---------------------------------------------------------------------------------------------------------------- labels */

static bool is_name(const char *name) {
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
  return length > 0 && name[length] == 0 && !(name[0] >= '0' && name[0] <= '9') && strncmp(name, "__", 2) != 0;
}

static bool is_own(const char *name) {
  const char *own[] = { "key", "kind", "reason", "le", "version", "device" };
  for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
    if (strcmp(name, own[i]) == 0)
      return true;
  return false;
}

static cgr_status check_label(const char *function, const cgr_label *labels, int32_t i) {
  const cgr_label *l = &labels[i];
  if (!l->name || !l->value)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: labels[%d].%s is NULL, expected a text", function, i,
                     l->name ? "value" : "name");
  if (!is_name(l->name) || is_own(l->name))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: labels[%d].name is \"%.40s\", expected letters, digits and _, no digit first, no __ first, and "
                     "none of cgr's own",
                     function, i, l->name);
  for (int32_t k = 0; k < i; k++)
    if (strcmp(labels[k].name, l->name) == 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: labels[%d].name is \"%.40s\", as that of labels[%d], expected another",
                       function, i, l->name, k);
  return CGR_OK;
}

cgr_status cgr__metrics_check_labels(const char *function, const cgr_label *labels, int32_t num_labels) {
  if (num_labels < 0 || num_labels > CGR__MAX_LABELS)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: num_labels is %d, expected 0 .. %d", function, num_labels, CGR__MAX_LABELS);
  if (num_labels > 0 && !labels)
    return cgr__fail(CGR_ERROR_NULL_POINTER, "%s: labels is NULL, expected %d of them", function, num_labels);
  for (int32_t i = 0; i < num_labels; i++)
    CGR__TRY(check_label(function, labels, i));
  return CGR_OK;
}

/* --------------------------------------------------------------------------------------------------------------- samples */

typedef struct page {
  cgr__text *text;
  const cgr__report *report;
  const cgr_label *labels;
  int32_t num_labels;
} page;

static void begin_family(const page *p, const char *name, const char *type, const char *help) {
  cgr__text_add(p->text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_label(const page *p, const char *name, const char *value, bool *first) {
  cgr__text_add_bytes(p->text, *first ? "{" : ",", 1);
  cgr__text_add_bytes(p->text, name, strlen(name));
  cgr__text_add_bytes(p->text, "=", 1);
  cgr__text_add_label(p->text, value);
  *first = false;
}

/* A sample's name and labels: the caller's, then up to two of cgr's own; the value follows. */
static void begin_sample(const page *p, const char *name, const char *key, const char *value, const char *key2,
                         const char *value2) {
  bool first = true;
  cgr__text_add_bytes(p->text, name, strlen(name));
  for (int32_t i = 0; i < p->num_labels; i++)
    add_label(p, p->labels[i].name, p->labels[i].value, &first);
  if (key)
    add_label(p, key, value, &first);
  if (key2)
    add_label(p, key2, value2, &first);
  cgr__text_add(p->text, first ? " " : "} ");
}

static void add_count(const page *p, const char *name, const char *type, const char *help, uint64_t value) {
  begin_family(p, name, type, help);
  begin_sample(p, name, NULL, NULL, NULL, NULL);
  cgr__text_add(p->text, "%" PRIu64 "\n", value);
}

/* What is summed over all keys, in one pass. */
typedef struct totals {
  uint64_t real_requests, padded_requests;
  cgr_histogram prepare[CGR_KIND_FULL + 1], launch[CGR_KIND_FULL + 1];
} totals;

static void add_up(const page *p, totals *t) {
  memset(t, 0, sizeof *t);
  for (int32_t i = -1; i < p->report->num_keys; i++) {
    cgr_key_stats k;
    (void)p->report->get_key(p->report->context, i, true, &k);
    t->real_requests += k.real_requests;
    t->padded_requests += k.padded_requests;
    cgr__histogram_join(&t->prepare[k.key.kind], &k.prepare);
    cgr__histogram_join(&t->launch[k.key.kind], &k.launch);
  }
}

/* ---------------------------------------------------------------------------------------------------------------- whole */

/* Zeros too: a counter that first appears with its first step loses that step in rates. */
static void add_steps(const page *p) {
  begin_family(p, "cgr_steps_total", "counter", "Launched steps, by kind of graph and the reason for it.");
  for (int kind = CGR_KIND_NONE; kind <= CGR_KIND_FULL; kind++)
    for (int reason = 0; reason < CGR_REASON_COUNT_; reason++) {
      begin_sample(p, "cgr_steps_total", "kind", cgr_graph_kind_name((cgr_graph_kind)kind), "reason",
                   cgr_reason_name((cgr_reason)reason));
      cgr__text_add(p->text, "%" PRIu64 "\n", p->report->stats.by_reason[kind][reason]);
    }
}

static void add_whole(const page *p, const totals *t) {
  const cgr_stats *s = &p->report->stats;
  begin_family(p, "cgr_info", "gauge", "What runs, always 1.");
  begin_sample(p, "cgr_info", "version", cgr_build_info(), "device", p->report->device);
  cgr__text_add(p->text, "1\n");
  add_count(p, "cgr_dead", "gauge", "1 once the runtime is dead.", p->report->dead != NULL);
  add_steps(p);
  add_count(p, "cgr_real_requests_total", "counter", "Requests of launched steps.", t->real_requests);
  add_count(p, "cgr_padded_requests_total", "counter", "The same with the padding that they were launched with.",
            t->padded_requests);
  add_count(p, "cgr_real_tokens_total", "counter", "Tokens of launched steps.", s->real_tokens);
  add_count(p, "cgr_padded_tokens_total", "counter", "The same with the padding that they were launched with.", s->padded_tokens);
  add_count(p, "cgr_staged_bytes_total", "counter", "Bytes that the device read for launched steps.", s->bytes_staged);
  add_count(p, "cgr_cancelled_steps_total", "counter", "Prepared steps that were cancelled.", s->cancelled);
  add_count(p, "cgr_abandoned_steps_total", "counter", "Prepared steps that a failed launch has ended.", s->abandoned);
  add_count(p, "cgr_refused_launches_total", "counter", "Launches that were refused and left their step prepared.",
            s->refused_launches);
  add_count(p, "cgr_refused_steps_total", "counter", "Prepare calls that failed on a live runtime, outside of a record function.",
            s->refused);
  add_count(p, "cgr_failed_captures_total", "counter", "Captures that failed.", s->captures_failed);
  add_count(p, "cgr_guard_errors_total", "counter", "Completed steps of which a guard refused a part.", s->guard_errors);
  add_count(p, "cgr_drafts_total", "counter", "Guesses of completed steps.", s->drafts);
  add_count(p, "cgr_accepted_drafts_total", "counter", "Guesses of completed steps that were accepted.", s->drafts_accepted);
  add_count(p, "cgr_graphs", "gauge", "Graphs that can be replayed.", (uint64_t)s->num_graphs);
  add_count(p, "cgr_graph_memory_bytes", "gauge", "Device memory of the graphs.", s->graph_bytes);
  begin_family(p, "cgr_capture_seconds", "gauge", "Time that capturing the graphs took.");
  begin_sample(p, "cgr_capture_seconds", NULL, NULL, NULL, NULL);
  cgr__text_add_decimal(p->text, (uint64_t)(s->capture_ms * 1e3), 6);
  cgr__text_add(p->text, "\n");
}

/* -------------------------------------------------------------------------------------------------------------- per key */

static uint64_t steps_of(const cgr_key_stats *k) { return k->steps; }
static uint64_t real_requests_of(const cgr_key_stats *k) { return k->real_requests; }
static uint64_t padded_requests_of(const cgr_key_stats *k) { return k->padded_requests; }
static uint64_t real_tokens_of(const cgr_key_stats *k) { return k->real_tokens; }
static uint64_t padded_tokens_of(const cgr_key_stats *k) { return k->padded_tokens; }
static uint64_t graph_bytes_of(const cgr_key_stats *k) { return k->bytes_staged; }
static uint64_t misses_of(const cgr_key_stats *k) { return k->misses; }
static uint64_t turned_down_of(const cgr_key_stats *k) { return k->turned_down; }
static uint64_t nodes_of(const cgr_key_stats *k) { return (uint64_t)k->num_nodes; }
static uint64_t graph_memory_of(const cgr_key_stats *k) { return (uint64_t)k->device_bytes; }
static uint64_t capture_us_of(const cgr_key_stats *k) { return (uint64_t)(k->capture_ms * 1e3); }

static const struct family {
  const char *name, *type, *help;
  uint64_t (*value)(const cgr_key_stats *stats);
  int digits; /* after the point */
} families[] = {
  { "cgr_key_steps_total", "counter", "Launched steps of each key, and eager ones.", steps_of, 0 },
  { "cgr_key_real_requests_total", "counter", "Requests of these steps.", real_requests_of, 0 },
  { "cgr_key_padded_requests_total", "counter", "The same with their padding.", padded_requests_of, 0 },
  { "cgr_key_real_tokens_total", "counter", "Tokens of these steps.", real_tokens_of, 0 },
  { "cgr_key_padded_tokens_total", "counter", "The same with their padding.", padded_tokens_of, 0 },
  { "cgr_key_staged_bytes_total", "counter", "Bytes that the device read for these steps.", graph_bytes_of, 0 },
  { "cgr_key_misses", "gauge", "Steps that found no graph for the key, since it was last captured.", misses_of, 0 },
  { "cgr_key_turned_down_total", "counter", "Steps that the key's graph would have padded beyond max_padding.", turned_down_of,
    0 },
  { "cgr_key_nodes", "gauge", "Nodes of the key's graph.", nodes_of, 0 },
  { "cgr_key_graph_memory_bytes", "gauge", "Device memory of the key's graph.", graph_memory_of, 0 },
  { "cgr_key_capture_seconds", "gauge", "Time that capturing the key's graph took.", capture_us_of, 6 },
};

static void add_family(const page *p, const struct family *f) {
  begin_family(p, f->name, f->type, f->help);
  for (int32_t i = -1; i < p->report->num_keys; i++) {
    cgr_key_stats k;
    if (!p->report->get_key(p->report->context, i, false, &k))
      continue;
    begin_sample(p, f->name, "key", i < 0 ? "eager" : cgr__key_name(&k.key).text, "kind",
                 cgr_graph_kind_name((cgr_graph_kind)k.key.kind));
    if (f->digits > 0)
      cgr__text_add_decimal(p->text, f->value(&k), f->digits);
    else
      cgr__text_add(p->text, "%" PRIu64, f->value(&k));
    cgr__text_add_bytes(p->text, "\n", 1);
  }
}

/* ----------------------------------------------------------------------------------------------------------- histograms */

static void add_bucket(const page *p, const char *name, const char *kind, const char *border, uint64_t count) {
  char bucket[64];
  snprintf(bucket, sizeof bucket, "%s_bucket", name);
  begin_sample(p, bucket, "kind", kind, "le", border);
  cgr__text_add(p->text, "%" PRIu64 "\n", count);
}

/* Every second border: the doublings. */
static void add_histogram(const page *p, const char *name, const char *kind, const cgr_histogram *h) {
  char text[64];
  uint64_t count = 0;
  for (int32_t i = 0; i < CGR_HISTOGRAM_BUCKETS - 1; i++) {
    uint64_t border = cgr_histogram_border(i);
    count += h->bucket[i];
    if (i % 2 != 0)
      continue;
    snprintf(text, sizeof text, "%" PRIu64 ".%09" PRIu64, border / 1000000000u, border % 1000000000u);
    add_bucket(p, name, kind, text, count);
  }
  add_bucket(p, name, kind, "+Inf", h->count);
  snprintf(text, sizeof text, "%s_sum", name);
  begin_sample(p, text, "kind", kind, NULL, NULL);
  cgr__text_add_decimal(p->text, h->sum_ns, 9);
  snprintf(text, sizeof text, "%s_count", name);
  cgr__text_add(p->text, "\n");
  begin_sample(p, text, "kind", kind, NULL, NULL);
  cgr__text_add(p->text, "%" PRIu64 "\n", h->count);
}

static void add_time_metrics(const page *p, const char *name, const char *help, const cgr_histogram *of_kind) {
  begin_family(p, name, "histogram", help);
  for (int32_t kind = CGR_KIND_NONE; kind <= CGR_KIND_FULL; kind++)
    add_histogram(p, name, cgr_graph_kind_name((cgr_graph_kind)kind), &of_kind[kind]);
}

void cgr__metrics_write(cgr__text *text, const cgr__report *report, const cgr_label *labels, int32_t num_labels) {
  const page p = { text, report, labels, num_labels };
  totals t;
  add_up(&p, &t);
  add_whole(&p, &t);
  for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
    add_family(&p, &families[f]);
  add_time_metrics(&p, "cgr_prepare_seconds", "Host time in cgr_step_prepare, of the steps that were timed.", t.prepare);
  add_time_metrics(&p, "cgr_launch_seconds", "Host time in cgr_step_launch, of the steps that were timed.", t.launch);
}
