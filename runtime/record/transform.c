/* cgr_attention.transform: checks the engine's struct, and says what the library's kernel does of it. */
#include <math.h>

#include "cgr/names.h"
#include "runtime/record/record.h"
#include "runtime/record/view_check.h"

#define FUNCTION "cgr_record_attention"

/* A dense array that the kernel reads. */
typedef struct parameter {
  const char *name;
  const void *data;
  int32_t dtype;
  int32_t outer, inner; /* [outer][inner] elements */
} parameter;

enum { NUM_PARAMETERS = 6 };

typedef struct parameter_list {
  parameter of[NUM_PARAMETERS];
} parameter_list;

static parameter_list parameters_of(const cgr_layer *l, const cgr_qkv_transform *t) {
  return (parameter_list){ {
      { "transform.q_bias", t->q_bias, l->dtype, l->num_q_heads, l->head_dim },
      { "transform.k_bias", t->k_bias, l->dtype, l->num_kv_heads, l->head_dim },
      { "transform.v_bias", t->v_bias, l->dtype, l->num_kv_heads, l->head_dim_v },
      { "transform.q_norm", t->q_norm, l->dtype, 1, l->head_dim },
      { "transform.k_norm", t->k_norm, l->dtype, 1, l->head_dim },
      { "transform.cos_sin", t->cos_sin, CGR_DTYPE_FP32, t->num_positions, t->rotary_dim },
  } };
}

/* ---------------------------------------------------------------------------------------------------------------- checks */

static cgr_status check_head_dim(int32_t layer, const char *name, int32_t dim) {
  if (dim % CGR__TRANSFORM_UNIT == 0 && dim <= CGR__TRANSFORM_MAX_HEAD_DIM)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_UNSUPPORTED,
                   FUNCTION ": transform is given for layer %d, whose %s is %d, expected a multiple of %d up to %d", layer, name,
                   dim, CGR__TRANSFORM_UNIT, CGR__TRANSFORM_MAX_HEAD_DIM);
}

/* What the kernel can do for the layer. */
static cgr_status check_transformed_layer(int32_t layer, const cgr_layer *l, bool attends) {
  if (l->dtype != CGR_DTYPE_FP32 && l->dtype != CGR_DTYPE_FP16 && l->dtype != CGR_DTYPE_BF16)
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     FUNCTION ": transform is given for layer %d, whose dtype is %s, expected fp32, fp16 or bf16", layer,
                     cgr_dtype_name((cgr_dtype)l->dtype));
  if (attends && l->q_dtype != l->dtype)
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     FUNCTION ": transform is given for layer %d, whose q_dtype is %s, expected %s as in dtype", layer,
                     cgr_dtype_name((cgr_dtype)l->q_dtype), cgr_dtype_name((cgr_dtype)l->dtype));
  CGR__TRY(check_head_dim(layer, "head_dim", l->head_dim));
  return check_head_dim(layer, "head_dim_v", l->head_dim_v);
}

static cgr_status check_rope(const cgr__step_recorder *rec, const cgr_layer *l, const cgr_qkv_transform *t) {
  const int32_t longest = rec->runtime->setup.limits.max_lens[rec->set];
  if (!t->cos_sin && (t->num_positions != 0 || t->rotary_dim != 0))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": transform.cos_sin is NULL with num_positions %d and rotary_dim %d, expected angles, or 0 and 0",
                     t->num_positions, t->rotary_dim);
  if (!t->cos_sin)
    return CGR_OK;
  const int32_t rotary_dim = t->rotary_dim == 0 ? l->head_dim : t->rotary_dim;
  if (rotary_dim < 0 || rotary_dim > l->head_dim || rotary_dim % CGR__TRANSFORM_ROTARY_UNIT != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": transform.rotary_dim is %d, expected a multiple of %d up to head_dim (%d)%s", t->rotary_dim,
                     CGR__TRANSFORM_ROTARY_UNIT, l->head_dim,
                     t->rotary_dim == 0 ? "; 0 takes all of it" : ", or 0 for all of it");
  if (t->num_positions < longest)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     FUNCTION ": transform.num_positions is %d, expected at least %d, the longest sequence of length set %d",
                     t->num_positions, longest, rec->set);
  return CGR_OK;
}

static cgr_status check_parameters(const cgr__step_recorder *rec, const cgr_layer *l, const cgr_qkv_transform *t) {
  const parameter_list list = parameters_of(l, t);
  for (int i = 0; i < NUM_PARAMETERS; i++) {
    const parameter *p = &list.of[i];
    const uint64_t bytes = (uint64_t)p->outer * (uint64_t)p->inner * cgr_dtype_size((cgr_dtype)p->dtype);
    if (!p->data)
      continue;
    if ((uintptr_t)p->data % 16 != 0)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": %s is %p, expected a multiple of 16 bytes", p->name, p->data);
    if ((uint64_t)(uintptr_t)p->data > (uint64_t)INT64_MAX - bytes)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": %s is %p, expected %llu bytes from there on to be within memory",
                       p->name, p->data, (unsigned long long)bytes);
    CGR__TRY(cgr__memory_end_check(rec, FUNCTION, p->name, p->data, bytes));
  }
  return CGR_OK;
}

static cgr_status check_struct(const cgr_qkv_transform *t) {
  CGR__TRY(cgr__check_choice(FUNCTION, "transform.flags", &cgr__transform_flags, t->flags));
  if (!(t->norm_epsilon >= 0.0f) || isinf(t->norm_epsilon))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, FUNCTION ": transform.norm_epsilon is %g, expected 0 or more, and finite",
                     (double)t->norm_epsilon);
  return cgr__check_unused(FUNCTION ": transform.reserved", t->reserved);
}

/* ------------------------------------------------------------------------------------------------------------------ call */

static bool needs_transform(const void *bias, const void *norm, const void *cos_sin) { return bias || norm || cos_sin; }

cgr_status cgr__transform_read(const cgr__step_recorder *rec, const cgr_attention *a, const cgr__transform_scope *scope,
                               cgr__transform_call *call) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  cgr_qkv_transform *t = &call->given;
  CGR__TRY(cgr__sized_read(FUNCTION ": transform", "CGR_QKV_TRANSFORM_INIT", a->transform, t, sizeof *t));
  CGR__TRY(check_struct(t));
  call->by_backend = scope->by_backend;
  if (scope->by_backend)
    return CGR_OK; /* the backend checks the rest */
  CGR__TRY(check_transformed_layer(a->layer, l, scope->attends));
  CGR__TRY(check_rope(rec, l, t));
  t->rotary_dim = t->cos_sin && t->rotary_dim == 0 ? l->head_dim : t->rotary_dim;
  CGR__TRY(check_parameters(rec, l, t));
  const bool in_place = scope->attends && l->flags & CGR_LAYER_NO_CACHE;
  call->to_cache = scope->appends;
  call->changes[CGR__TRANSFORM_Q] = scope->attends && needs_transform(t->q_bias, t->q_norm, t->cos_sin);
  call->changes[CGR__TRANSFORM_K] = (scope->appends || in_place) && needs_transform(t->k_bias, t->k_norm, t->cos_sin);
  call->changes[CGR__TRANSFORM_V] = (scope->appends || in_place) && t->v_bias;
  return CGR_OK;
}

/* -------------------------------------------------------------------------------------------------------------- overlaps */

static cgr_status check_apart_from_parameters(const cgr_layer *l, const cgr__transform_call *call, const cgr__tensor *written) {
  const parameter_list list = parameters_of(l, &call->given);
  for (int i = 0; i < NUM_PARAMETERS; i++) {
    const parameter *p = &list.of[i];
    const cgr_view dense = { (void *)(uintptr_t)p->data, p->dtype, 0, p->inner, p->inner };
    const cgr__tensor read = { &dense, { p->name, "", p->dtype, p->outer, 1, p->inner, 1 } };
    CGR__TRY(cgr__tensor_check_apart(FUNCTION, written, &read, false));
  }
  return CGR_OK;
}

/* Attention must not write the arrays that the next step reads. */
static cgr_status check_results_apart(const cgr__step_recorder *rec, const cgr_attention *a, const cgr__transform_call *call) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  const int32_t tokens = rec->base.key.num_tokens;
  const cgr__tensor out = { &a->out, cgr__view_shape_of("out", l->out_dtype, tokens, l->num_q_heads, l->head_dim_v) };
  const cgr__tensor lse = { &a->lse, cgr__view_shape_of_lse("lse", tokens, l->num_q_heads) };
  if (a->flags & CGR_ATTENTION_APPEND_ONLY)
    return CGR_OK;
  CGR__TRY(check_apart_from_parameters(l, call, &out));
  return check_apart_from_parameters(l, call, &lse);
}

cgr_status cgr__transform_check_overlaps(const cgr__step_recorder *rec, const cgr_attention *a, const cgr__transform_call *call) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  const int32_t tokens = rec->base.key.num_tokens;
  const bool in_place = l->flags & CGR_LAYER_NO_CACHE;
  const cgr__tensor tensors[CGR__NUM_TRANSFORMED] = {
    { &a->q, cgr__view_shape_of("q", l->dtype, tokens, l->num_q_heads, l->head_dim) },
    { &a->k, cgr__view_shape_of("k", l->dtype, tokens, l->num_kv_heads, l->head_dim) },
    { &a->v, cgr__view_shape_of("v", l->dtype, tokens, l->num_kv_heads, l->head_dim_v) },
  };
  for (int i = 0; i < CGR__NUM_TRANSFORMED; i++) {
    if (!call->changes[i] || (i != CGR__TRANSFORM_Q && !in_place))
      continue;
    for (int other = 0; other < CGR__NUM_TRANSFORMED; other++)
      if (other != i && (other == CGR__TRANSFORM_Q || in_place || call->to_cache))
        CGR__TRY(cgr__tensor_check_apart(FUNCTION, &tensors[i], &tensors[other], false));
    CGR__TRY(check_apart_from_parameters(l, call, &tensors[i]));
  }
  return check_results_apart(rec, a, call);
}

cgr_status cgr__transform_hold(const cgr__step_recorder *rec, const cgr_layer *l, const cgr_qkv_transform *t) {
  const parameter_list list = parameters_of(l, t);
  for (int i = 0; rec->base.capture && i < NUM_PARAMETERS; i++)
    if (list.of[i].data)
      CGR__TRY(cgr__capture_hold_address(rec->base.capture, list.of[i].data));
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------------- arguments */

/* The arguments for q, k or v. `cache`: where it goes; NULL: it stays where it is. */
static cgr__transformed transformed(const cgr_view *from, const cgr_kv_view *cache, bool changes, int32_t heads, int32_t dim) {
  cgr__transformed t = { .from = *from, .num_heads = changes || cache ? heads : 0, .head_dim = dim };
  if (cache)
    t.to = *cache;
  return t;
}

cgr__transform_args cgr__transform_args_of(const cgr__step_recorder *rec, const cgr_attention *a,
                                           const cgr__transform_call *call) {
  const cgr_layer *l = &rec->runtime->setup.layers[a->layer];
  const cgr__step_args *step = &rec->runtime->lane.args;
  const cgr_qkv_transform *t = &call->given;
  const bool *changes = call->changes;
  cgr__transform_args args = { .cos_sin = t->cos_sin, .positions = step->buffers.positions, .counts = step->buffers.counts };
  cgr__transformed *q = &args.tensor[CGR__TRANSFORM_Q], *k = q + CGR__TRANSFORM_K, *v = q + CGR__TRANSFORM_V;
  *q = transformed(&a->q, NULL, changes[CGR__TRANSFORM_Q], l->num_q_heads, l->head_dim);
  *k = transformed(&a->k, call->to_cache ? &l->k : NULL, changes[CGR__TRANSFORM_K], l->num_kv_heads, l->head_dim);
  *v = transformed(&a->v, call->to_cache ? &l->v : NULL, changes[CGR__TRANSFORM_V], l->num_kv_heads, l->head_dim_v);
  q->bias = t->q_bias, k->bias = t->k_bias, v->bias = t->v_bias;
  q->norm = t->q_norm, k->norm = t->k_norm;
  q->rotary_dim = k->rotary_dim = t->cos_sin ? t->rotary_dim : 0;
  args.page_size = CGR__PAGE_SIZE_UNIT; /* there may be no group: nothing divides by 0 */
  if (call->to_cache) {
    args.slot_mapping = step->buffers.group[l->group].slot_mapping;
    args.num_pages = step->group[l->group].num_pages;
    args.page_size = step->group[l->group].page_size;
  }
  args.num_tokens = rec->base.key.num_tokens;
  args.num_positions = t->num_positions;
  args.interleaved = (t->flags & CGR_TRANSFORM_INTERLEAVED) != 0;
  args.epsilon = t->norm_epsilon == 0.0f ? CGR__TRANSFORM_EPSILON : t->norm_epsilon;
  args.norm_offset = t->flags & CGR_TRANSFORM_NORM_PLUS_ONE ? 1.0f : 0.0f;
  return args;
}
