/* Ranges around what a runtime does, for a tool (tracing/nvtx.h), if its configuration asks for them and a tool listens, and for
 * the labels of a graph that is being captured (graphs/labels.h). Otherwise each of these only tests a byte of the runtime's
 * first line. */
#ifndef CGR_RUNTIME_REPORT_RANGES_H
#define CGR_RUNTIME_REPORT_RANGES_H

#include "graphs/labels.h"
#include "runtime/runtime.h"
#include "tracing/nvtx.h"

/* Whether a tool listens. */
static inline bool cgr__has_ranges(const cgr_runtime *rt) {
  return CGR__NVTX_BUILT && __builtin_expect((rt->flags & CGR__RUNTIME_RANGES) != 0, 0);
}
/* Whether a tool listens, or a graph is being captured with labels. */
static inline bool cgr__is_watched(const cgr_runtime *rt) {
  return __builtin_expect((rt->flags & (CGR__RUNTIME_RANGES | CGR__RUNTIME_LABELS)) != 0, 0);
}

/* ranges.c, for a watched runtime. `layer`: -1: of none. */
void cgr__ranges_begin(const cgr_runtime *rt, cgr__nvtx_range range, int32_t layer);
void cgr__ranges_end(const cgr_runtime *rt);

static inline void cgr__range_begin(const cgr_runtime *rt, cgr__nvtx_range range) {
  if (cgr__is_watched(rt))
    cgr__ranges_begin(rt, range, -1);
}
static inline void cgr__range_begin_layer(const cgr_runtime *rt, cgr__nvtx_range range, int32_t layer) {
  if (cgr__is_watched(rt))
    cgr__ranges_begin(rt, range, layer);
}
static inline void cgr__range_end(const cgr_runtime *rt) {
  if (cgr__is_watched(rt))
    cgr__ranges_end(rt);
}
/* Of a call outside of captures. */
static inline void cgr__range_begin_number(const cgr_runtime *rt, cgr__nvtx_range range, uint64_t number) {
  if (cgr__has_ranges(rt))
    cgr__nvtx_begin_number(range, number);
}

/* A backend plans. To tools this is part of one range of all backends, but its nodes are its own. */
void cgr__ranges_label_plan(const cgr_runtime *rt);
static inline void cgr__label_begin_plan(const cgr_runtime *rt) {
  if (__builtin_expect((rt->flags & CGR__RUNTIME_LABELS) != 0, 0))
    cgr__ranges_label_plan(rt);
}
static inline void cgr__label_end_plan(const cgr_runtime *rt) {
  if (__builtin_expect((rt->flags & CGR__RUNTIME_LABELS) != 0, 0))
    cgr__label_end(rt->graphs.labelling);
}

/* ranges.c. _open looks for a tool; _name names streams and events for it. Ranges begin and end only if a tool listens. */
void cgr__ranges_open(cgr_runtime *rt);
void cgr__ranges_name(const cgr_runtime *rt);
void cgr__ranges_begin_key(cgr_runtime *rt, const cgr_key *key);
/* The range carries the prepared step. */
void cgr__ranges_begin_prepared(const cgr_runtime *rt, cgr__nvtx_range range);
void cgr__ranges_end_prepared(const cgr_runtime *rt);

/* One key's capture. */
static inline void cgr__range_begin_key(cgr_runtime *rt, const cgr_key *key) {
  if (cgr__has_ranges(rt))
    cgr__ranges_begin_key(rt, key);
}
static inline void cgr__range_begin_prepared(const cgr_runtime *rt, cgr__nvtx_range range) {
  if (cgr__has_ranges(rt))
    cgr__ranges_begin_prepared(rt, range);
}
/* Ends the range of a prepare, which knows the step by then, unless it has failed. */
static inline void cgr__range_end_prepare(const cgr_runtime *rt, cgr_status status) {
  if (cgr__has_ranges(rt))
    status == CGR_OK ? cgr__ranges_end_prepared(rt) : cgr__nvtx_end();
}

/* `record` has come to a layer, maybe again: the layer lasts until `record` comes to another or returns. */
static inline void cgr__range_enter_layer(cgr__step_recorder *recorder, int32_t layer) {
  if (!cgr__is_watched(recorder->runtime))
    return;
  if (recorder->layer_open == layer + 1)
    return;
  if (recorder->layer_open > 0)
    cgr__ranges_end(recorder->runtime);
  recorder->layer_open = layer + 1;
  cgr__ranges_begin(recorder->runtime, CGR__RANGE_LAYER, layer);
}
static inline void cgr__range_leave_layer(cgr__step_recorder *recorder) {
  if (recorder->layer_open == 0)
    return;
  recorder->layer_open = 0;
  cgr__ranges_end(recorder->runtime);
}

#endif
