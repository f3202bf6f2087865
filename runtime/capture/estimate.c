/* Estimates what captures will take from a few of them. */
#include "runtime/capture/capture.h"
#include "runtime/report/ranges.h"

#define SAMPLES 8 /* of each kind: a device reports its memory in steps of 2 MB, about two graphs */

/* Keys that cost alike: uniform or mixed ones of one kind. */
typedef struct sample {
  cgr_graph_kind kind;
  bool mixed;
  int32_t wanted; /* to be captured, when the estimate began */
  int32_t measured, estimated;
  double ms, bytes;
} sample;

static bool is_of(const sample *s, const cgr__graph_entry *entry) {
  return entry->key.kind == (int32_t)s->kind && (entry->key.query_len == 0) == s->mixed;
}

/* Whether an entry of the list comes earlier in it, too. */
static bool is_repeated_key(cgr_runtime *rt, const cgr_capture *c, int32_t i) {
  const cgr__graph_entry *entry = cgr__capture_entry(rt, c, i);
  for (int32_t k = 0; c->num_keys > 0 && k < i; k++)
    if (cgr__capture_entry(rt, c, k) == entry)
      return true;
  return false;
}

static cgr_status measure_samples(cgr_runtime *rt, const cgr_capture *c, sample *s) {
  for (int32_t i = 0; i < cgr__capture_count(rt, c); i++) {
    cgr__graph_entry *entry = cgr__capture_entry(rt, c, i);
    s->wanted += is_of(s, entry) && cgr__capture_wants(rt, c, entry) && !is_repeated_key(rt, c, i);
  }
  int32_t samples = s->wanted < SAMPLES ? s->wanted : SAMPLES, visited = 0;
  for (int32_t i = 0; i < cgr__capture_count(rt, c) && s->measured < samples; i++) {
    cgr__graph_entry *entry = cgr__capture_entry(rt, c, i);
    if (!is_of(s, entry) || !cgr__capture_wants(rt, c, entry) || is_repeated_key(rt, c, i))
      continue;
    /* The middle of the next of `samples` equal stretches. */
    if (visited++ < (int32_t)((2 * (int64_t)s->measured + 1) * s->wanted / (2 * samples)))
      continue;
    CGR__TRY(cgr__capture_entry_now(rt, "cgr_runtime_estimate_capture", entry));
    s->measured++;
    s->ms += entry->capture_ms;
    s->bytes += (double)entry->device_bytes;
    s->estimated += entry->estimated > 0;
  }
  return CGR_OK;
}

static cgr_status estimate_capture(cgr_runtime *rt, const cgr_capture *c, cgr_capture_estimate *out) {
  double bytes = 0.0, left = 0.0;
  for (int kind = CGR_KIND_PIECEWISE; kind <= CGR_KIND_FULL; kind++)
    for (int mixed = 0; mixed < 2; mixed++) {
      sample s = { .kind = (cgr_graph_kind)kind, .mixed = mixed };
      CGR__TRY(measure_samples(rt, c, &s));
      out->num_keys += s.wanted;
      out->num_measured += s.measured;
      out->num_estimated += s.estimated;
      out->ms += s.measured > 0 ? s.ms / s.measured * s.wanted : 0.0;
      bytes += s.measured > 0 ? s.bytes / s.measured * s.wanted : 0.0;
      left += s.measured > 0 ? s.bytes / s.measured * (s.wanted - s.measured) : 0.0;
    }
  out->bytes = (uint64_t)bytes;
  out->bytes_left = (uint64_t)left;
  return CGR_OK;
}

static cgr_status estimate_list(cgr_runtime *runtime, const cgr_capture *capture, cgr_capture_estimate *out) {
  cgr_capture c;
  cgr_capture_estimate full = CGR_CAPTURE_ESTIMATE_INIT;
  CGR__TRY(cgr__sized_check("cgr_runtime_estimate_capture: estimate", "CGR_CAPTURE_ESTIMATE_INIT", out));
  CGR__TRY(cgr__capture_start(runtime, "cgr_runtime_estimate_capture", capture, &c));
  cgr_status status = estimate_capture(runtime, &c, &full);
  cgr__capture_tell_lost(runtime);
  CGR__TRY(status);
  cgr__sized_write(out, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_runtime_estimate_capture(cgr_runtime *runtime, const cgr_capture *capture, cgr_capture_estimate *out) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_estimate_capture");
  CGR__TRY(cgr__runtime_check_outside(runtime, "cgr_runtime_estimate_capture"));
  cgr__range_begin(runtime, CGR__RANGE_ESTIMATE);
  cgr_status status = estimate_list(runtime, capture, out);
  cgr__range_end(runtime);
  return cgr__fail_in("cgr_runtime_estimate_capture", status);
}
