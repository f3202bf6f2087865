/* Timestamps: enqueues them, and reads those of steps that have completed. Only enqueuing is on the hot path. */
#include "runtime/report/timing.h"

#include <stdio.h>

#include "base/clock.h"

#define TRIES 5                   /* of a comparison of the clocks */
#define COMPARE_EVERY 1000000000u /* ns */

/* ---------------------------------------------------------------------------------------------------------------- stamps */

cgr__stamp_args cgr__timing_args(const cgr_runtime *rt, cgr__stamp_words words, bool first) {
  const cgr__step_args *step = &rt->lane.args;
  cgr__stamp_args args = { .stamps = step->buffers.stamps,
                           .state = step->state,
                           .ring_depth = step->ring_depth,
                           .stride = step->stamp_stride,
                           .first = first };
  for (int i = 0; i < CGR__STAMP_WORDS; i++)
    args.word[i] = words.word[i];
  return args;
}

int cgr__timing_enqueue(cgr_runtime *rt, cudaStream_t stream, const cgr__stamp_args *args) {
  return rt->dev->ops->launch(rt->dev, &cgr__kernel_stamp, args, stream);
}

/* -------------------------------------------------------------------------------------------------------------- creation */

void cgr__timing_init(cgr_runtime *rt, unsigned char *memory) {
  cgr__timing *t = &rt->timing;
  const cgr__setup *setup = &rt->setup;
  if (setup->limits.stamp_stride == 0)
    return;
  rt->flags |= CGR__RUNTIME_TIMED;
  if (setup->config.timing == CGR_TIMING_LAYERS)
    rt->flags |= CGR__RUNTIME_TIMED_LAYERS;
  t->words = (int64_t *)(void *)memory;
  t->launched_at = (uint64_t *)(void *)(t->words + setup->limits.stamp_stride);
  t->spans = (cgr_span *)(void *)(t->launched_at + setup->config.flight_depth);
}

cgr_status cgr__timing_start(cgr_runtime *rt) {
  if (!cgr__is_timed(rt))
    return CGR_OK;
  int error = rt->dev->ops->preload(rt->dev, &cgr__kernel_stamp);
  CGR__TRY(cgr__device_fail(rt->dev, error, "cgr_runtime_create: loading the kernel of timestamps"));
  return cgr__timing_compare(rt, "cgr_runtime_create", true);
}

/* --------------------------------------------------------------------------------------------------------------- reading */

static int read_words(cgr_runtime *rt, const int64_t *from, int32_t count) {
  const cgr__device_ops *ops = rt->dev->ops;
  int error = ops->copy(rt->dev, rt->timing.words, from, (size_t)count * sizeof *from, rt->own_stream);
  return error ? error : ops->stream_sync(rt->dev, rt->own_stream);
}

/* The row after those of the steps is for this alone: steps may be under way, and nothing of theirs is touched. */
static int read_clocks(cgr_runtime *rt, cgr__clock_pair *pair) {
  const cgr__device_ops *ops = rt->dev->ops;
  cgr__stamp_args args = cgr__timing_args(rt, (cgr__stamp_words){ { 1 } }, false);
  args.stamps += (int64_t)args.ring_depth * args.stride;
  args.state = NULL;
  uint64_t before = cgr__now_ns();
  int error = ops->launch(rt->dev, &cgr__kernel_stamp, &args, rt->own_stream);
  if (!error)
    error = ops->stream_sync(rt->dev, rt->own_stream);
  uint64_t after = cgr__now_ns();
  if (!error)
    error = read_words(rt, args.stamps, 2);
  if (error) /* the device may still be writing the words */
    return error;
  *pair = (cgr__clock_pair){ before + (after - before) / 2, (uint64_t)rt->timing.words[1], (after - before + 1) / 2 };
  return 0;
}

cgr_status cgr__timing_compare(cgr_runtime *rt, const char *function, bool now) {
  cgr__clock_pair best = { 0, 0, UINT64_MAX }, pair;
  char text[96];
  if (!now && cgr__now_ns() - rt->timing.clock.last.host_ns < COMPARE_EVERY)
    return CGR_OK;
  for (int i = 0; i < TRIES; i++) {
    int error = read_clocks(rt, &pair);
    if (error) {
      snprintf(text, sizeof text, "%s: comparing the device's clock with the host's", function);
      return cgr__runtime_device_error(rt, error, text);
    }
    if (pair.error_ns < best.error_ns)
      best = pair;
  }
  cgr__device_clock_add(&rt->timing.clock, &best);
  return CGR_OK;
}

bool cgr__timing_is_kept(const cgr_runtime *rt, uint64_t seq) {
  uint64_t launched = rt->lane.launched;
  return cgr__is_timed(rt) && seq != 0 && seq <= launched && launched - seq < rt->lane.ring.depth &&
         cgr__ring_completed(&rt->lane.ring) >= seq;
}

/* Why the step's timestamps are not kept. */
static cgr_status refuse_seq(const cgr_runtime *rt, const char *function, uint64_t seq) {
  if (!cgr__is_timed(rt))
    return cgr__fail(CGR_ERROR_STATE, "%s: config.timing is 0, expected a runtime created with 1 or 2", function);
  CGR__TRY(cgr__check_seq(rt, function, seq));
  return cgr__fail(CGR_NOT_READY, "%s: step %llu has not completed, expected one that has (cgr_step_wait)", function,
                   (unsigned long long)seq);
}

/* Both words, or there is no such span. */
static void add_span(cgr__timing *t, int32_t phase, int32_t layer, int32_t word, int32_t *count) {
  uint64_t begin = (uint64_t)t->words[word], end = (uint64_t)t->words[word + 1];
  cgr_span span = CGR_SPAN_INIT;
  if (begin == 0 || end == 0)
    return;
  span.phase = phase;
  span.layer = layer;
  span.begin_ns = begin;
  span.end_ns = end > begin ? end : begin;
  span.host_ns = cgr__device_clock_at(&t->clock, begin);
  int32_t at = (*count)++;
  for (; at > 0 && t->spans[at - 1].begin_ns > begin; at--) /* layers may come in any order, and branches at any time */
    t->spans[at] = t->spans[at - 1];
  t->spans[at] = span;
}

/* Orders the spans so that one that contains others comes before them. */
static int32_t make_spans(cgr_runtime *rt) {
  cgr__timing *t = &rt->timing;
  int32_t count = 0, layers = cgr__times_layers(rt) ? rt->setup.config.num_layers : 0;
  for (int32_t phase = CGR_PHASE_STEP; phase < CGR_PHASE_EPILOGUE; phase++)
    add_span(t, phase, -1, cgr__stamp_word(phase, 0), &count);
  for (int32_t layer = 0; layer < layers; layer++)
    for (int32_t phase = CGR_PHASE_LAYER; phase <= CGR_PHASE_ATTENTION; phase++)
      add_span(t, phase, layer, cgr__stamp_layer_word(phase, layer, 0), &count);
  add_span(t, CGR_PHASE_EPILOGUE, -1, cgr__stamp_word(CGR_PHASE_EPILOGUE, 0), &count);
  return count;
}

cgr_status cgr__timing_read(cgr_runtime *rt, const char *function, uint64_t seq, int32_t *count) {
  const cgr__step_args *step = &rt->lane.args;
  char text[96];
  if (!cgr__timing_is_kept(rt, seq))
    return refuse_seq(rt, function, seq);
  CGR__TRY(cgr__timing_compare(rt, function, false));
  int64_t row = (int64_t)cgr__ring_index(&rt->lane.ring, seq) * step->stamp_stride;
  int error = read_words(rt, step->buffers.stamps + row, step->stamp_stride);
  if (error) {
    snprintf(text, sizeof text, "%s: copying the timestamps of step %llu", function, (unsigned long long)seq);
    return cgr__runtime_device_error(rt, error, text);
  }
  *count = make_spans(rt);
  return CGR_OK;
}

cgr_status cgr_runtime_timing(cgr_runtime *runtime, cgr_mark mark, cgr_span *spans, int32_t capacity, int32_t *count) {
  CGR__ONE_THREAD(runtime, "cgr_runtime_timing");
  static const char function[] = "cgr_runtime_timing";
  CGR__TRY(cgr__runtime_check_outside(runtime, function));
  CGR__TRY(cgr__runtime_check_mark(runtime, function, mark));
  CGR__REQUIRE(count, function);
  if (capacity < 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_runtime_timing: capacity is %d, expected 0 or more", capacity);
  void *at = NULL;
  int32_t all = 0;
  if (capacity > 0)
    CGR__TRY(cgr__sized_check_at("cgr_runtime_timing: spans", "CGR_SPAN_INIT", spans, 0, &at));
  CGR__TRY(cgr__timing_read(runtime, function, mark.seq, &all));
  int32_t written = all < capacity ? all : capacity;
  for (int32_t i = 1; i < written; i++)
    CGR__TRY(cgr__sized_check_at("cgr_runtime_timing: spans", "CGR_SPAN_INIT", spans, i, &at));
  for (int32_t i = 0; i < written; i++) {
    CGR__TRY(cgr__sized_check_at("cgr_runtime_timing: spans", "CGR_SPAN_INIT", spans, i, &at));
    cgr__sized_write(at, &runtime->timing.spans[i], sizeof(cgr_span));
  }
  *count = all;
  return CGR_OK;
}
