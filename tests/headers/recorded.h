/* Structs of other sizes in calls made inside record. */
#ifndef CGR_TESTS_HEADERS_RECORDED_H
#define CGR_TESTS_HEADERS_RECORDED_H

#include "tests/headers/sized.h"
#include "tests/headers/world.h"

static cgr_status attend(world *w, cgr_recorder *recorder, void *given) {
  (void)w;
  return cgr_record_attention(recorder, (const cgr_attention *)given);
}

/* The other calls leave it to attend the layer. */
static cgr_status attend_and_merge(world *w, cgr_recorder *recorder, void *given) {
  const cgr_status status = cgr_record_attention(recorder, &w->attention);
  return status == CGR_OK ? cgr_record_merge(recorder, (const cgr_merge *)given) : status;
}

static cgr_status attend_and_measure(world *w, cgr_recorder *recorder, void *given) {
  const cgr_status status = cgr_record_attention(recorder, &w->attention);
  return status == CGR_OK ? cgr_record_measure(recorder, (const cgr_measure *)given) : status;
}

static cgr_status attend_and_check(world *w, cgr_recorder *recorder, void *given) {
  const cgr_status status = cgr_record_attention(recorder, &w->attention);
  return status == CGR_OK ? cgr_record_check_values(recorder, (const cgr_value_check *)given) : status;
}

static cgr_status get_record_info(world *w, cgr_recorder *recorder, void *given) {
  const cgr_status status = cgr_record_get_info(recorder, (cgr_record_info *)given);
  return status == CGR_OK ? cgr_record_attention(recorder, &w->attention) : status;
}

static cgr_status get_record_buffer(world *w, cgr_recorder *recorder, void *given) {
  const cgr_status status = cgr_record_buffer(recorder, CGR_BUFFER_POSITIONS, 0, (cgr_buffer_view *)given);
  return status == CGR_OK ? cgr_record_attention(recorder, &w->attention) : status;
}

static cgr_status attend_transformed(world *w, cgr_recorder *recorder, void *given) {
  cgr_attention attention = w->attention;
  attention.transform = (const cgr_qkv_transform *)given;
  return cgr_record_attention(recorder, &attention);
}

/* One eager step whose record makes the call. Returns what record returned, which is the cause in the message. */
static cgr_status recorded(void *context, void *given) {
  world *w = (world *)context;
  const cgr_capture how = world_capture(w);
  w->given = given;
  w->came = CGR_ERROR_STATE;
  const cgr_status status = cgr_runtime_warmup(w->runtime, &how);
  CHECK(status == (w->came == CGR_OK ? CGR_OK : CGR_ERROR_CALLBACK));
  return w->came;
}

/* Of the layer's out with itself. */
static cgr_merge world_merge(const world *w) {
  cgr_merge merge = CGR_MERGE_INIT;
  unsigned char *at = w->memory + 12 * WORLD_STRETCH;
  merge.num_heads = 1;
  merge.head_dim = WORLD_DIM;
  merge.a = merge.b = w->attention.out;
  CHECK_OK(cgr_view_make(at, CGR_DTYPE_FP32, 1, 1, &merge.a_lse));
  CHECK_OK(cgr_view_make(at + WORLD_STRETCH, CGR_DTYPE_FP32, 1, WORLD_DIM, &merge.out));
  merge.b_lse = merge.a_lse;
  return merge;
}

/* Of the layer's q, k and v, with zeros. */
static cgr_qkv_transform world_transform(const world *w) {
  cgr_qkv_transform transform = CGR_QKV_TRANSFORM_INIT;
  const unsigned char *at = w->memory + 12 * WORLD_STRETCH;
  transform.q_bias = transform.k_bias = transform.v_bias = at;
  transform.q_norm = transform.k_norm = at;
  transform.norm_epsilon = 1e-5f;
  return transform;
}

/* Of the layer's out. */
static cgr_measure world_measure(const world *w) {
  cgr_measure measure = CGR_MEASURE_INIT;
  measure.num_heads = 1;
  measure.head_dim = WORLD_DIM;
  measure.view = w->attention.out;
  measure.maxima = (float *)(void *)(w->memory + 12 * WORLD_STRETCH);
  return measure;
}

/* Of the layer's out. */
static cgr_value_check world_value_check(const world *w) {
  cgr_value_check check = CGR_VALUE_CHECK_INIT;
  check.data = w->attention.out.data;
  check.dtype = w->attention.out.dtype;
  check.width = WORLD_DIM;
  check.dimension = CGR_DIMENSION_TOKENS;
  return check;
}

static int test_recorded(void) {
  const int before = check_failures;
  world w;
  world_run(&w);
  const cgr_merge good = world_merge(&w);
  const sized_input attention = { "attention", &w.attention, sizeof w.attention, offsetof(cgr_attention, lse), recorded };
  const cgr_qkv_transform transformed = world_transform(&w);
  const sized_input transform = { "transform", &transformed, sizeof transformed, 8, recorded };
  const sized_input merge = { "merge", &good, sizeof good, offsetof(cgr_merge, lse), recorded };
  const cgr_measure measured = world_measure(&w);
  const sized_input measure = { "measure", &measured, sizeof measured, sizeof measured, recorded };
  const cgr_value_check search = world_value_check(&w);
  const sized_input values = { "check", &search, sizeof search, offsetof(cgr_value_check, bit), recorded };
  const sized_output info = { "cgr_record_get_info: info", sizeof(cgr_record_info), 0, 0, recorded };
  const sized_output view = { "view", sizeof(cgr_buffer_view), 0, 0, recorded };
  w.inside = attend;
  check_input(&attention, &w);
  w.inside = attend_transformed;
  check_input(&transform, &w);
  w.inside = attend_and_merge;
  check_input(&merge, &w);
  w.inside = attend_and_measure;
  check_input(&measure, &w);
  w.inside = attend_and_check;
  check_input(&values, &w);
  w.inside = get_record_info;
  check_output(&info, &w);
  w.inside = get_record_buffer;
  check_output(&view, &w);
  w.inside = NULL;
  world_close(&w);
  return check_failures - before;
}

#endif
