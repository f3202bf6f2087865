#include "runtime/record/scales.h"

#include "cgr/names.h"
#include "runtime/record/record.h"

enum { TILE_TOKENS = 128, TILE_BLOCKS = 4 };

static const cgr_layer *layer_of(const cgr__step_recorder *rec, const cgr_attention *a) {
  return &rec->runtime->setup.layers[a->layer];
}

/* ------------------------------------------------------------------------------------------------------------ one number */

/* Of values of 8 bits, or of 4. */
static cgr_status check_scale(const cgr__step_recorder *rec, int32_t layer, const float *scale, const char *name, const char *of,
                              int32_t dtype) {
  if (!scale)
    return CGR_OK;
  if (cgr_dtype_bits((cgr_dtype)dtype) > 8)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: %s is given for layer %d, whose %s is %s, expected NULL: only values of 8 bits or "
                     "fewer have one",
                     name, layer, of, cgr_dtype_name((cgr_dtype)dtype));
  if ((uintptr_t)scale % sizeof *scale != 0)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "cgr_record_attention: %s is %p, expected a multiple of %zu bytes", name,
                     (const void *)scale, sizeof *scale);
  return cgr__memory_end_check(rec, "cgr_record_attention", name, scale, sizeof *scale);
}

/* ----------------------------------------------------------------------------------------------------------- block scales */

static bool are_tiled(const cgr_attention *a) { return a->flags & CGR_ATTENTION_TILED_SCALES; }

static cgr_status check_block_scales_given(const cgr_attention *a, const cgr_layer *l) {
  const bool given = a->out_block_scale.data;
  if (given && l->out_dtype != CGR_DTYPE_FP4_E2M1)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: out_block_scale is given for layer %d, whose out_dtype is %s, expected NULL: only "
                     "results of fp4_e2m1 have block scales",
                     a->layer, cgr_dtype_name((cgr_dtype)l->out_dtype));
  if (!given && are_tiled(a))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: flags has TILED_SCALES for layer %d, and out_block_scale.data is NULL, expected an "
                     "address with it",
                     a->layer);
  if (given || l->out_dtype != CGR_DTYPE_FP4_E2M1 || a->flags & CGR_ATTENTION_APPEND_ONLY)
    return CGR_OK;
  return cgr__fail(CGR_ERROR_NULL_POINTER,
                   "cgr_record_attention: out_block_scale.data is NULL, expected an address for layer %d, whose out_dtype is "
                   "fp4_e2m1",
                   a->layer);
}

cgr__block_scales cgr__block_scales_of(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr_layer *l = layer_of(rec, a);
  const int32_t tokens = rec->base.key.num_tokens, blocks = l->head_dim_v / CGR__BLOCK_SCALE_ELEMENTS;
  cgr__block_scales s = { .view = a->out_block_scale };
  s.shape = (cgr__view_shape){ "out_block_scale", "", CGR_DTYPE_FP8_E4M3, tokens, l->num_q_heads, blocks, 1 };
  if (!are_tiled(a))
    return s;
  s.shape.tokens = (tokens + TILE_TOKENS - 1) / TILE_TOKENS;
  s.shape.heads = 1;
  s.shape.dim = (l->num_q_heads * blocks + TILE_BLOCKS - 1) / TILE_BLOCKS * TILE_BLOCKS * TILE_TOKENS;
  s.shape.unit = 16;
  s.view.stride_token = s.view.stride_head = s.shape.dim;
  return s;
}

cgr_status cgr__block_scales_check(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr_view *given = &a->out_block_scale;
  if (!given->data)
    return CGR_OK;
  if (are_tiled(a) && (given->stride_token != 0 || given->stride_head != 0))
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "cgr_record_attention: out_block_scale has strides %lld, %lld, expected 0, 0 with TILED_SCALES",
                     (long long)given->stride_token, (long long)given->stride_head);
  const cgr__block_scales s = cgr__block_scales_of(rec, a);
  return cgr__view_check(rec, "cgr_record_attention", &s.view, &s.shape);
}

/* -------------------------------------------------------------------------------------------------------------------- all */

cgr_status cgr__scales_check(const cgr__step_recorder *rec, const cgr_attention *a) {
  const cgr_layer *l = layer_of(rec, a);
  if (a->q_scale && l->backend == 0)
    return cgr__fail(CGR_ERROR_UNSUPPORTED,
                     "cgr_record_attention: q_scale is given for layer %d, which the library's own kernels attend, expected NULL "
                     "in this version",
                     a->layer);
  CGR__TRY(check_scale(rec, a->layer, a->q_scale, "q_scale", "q_dtype", l->q_dtype));
  CGR__TRY(check_scale(rec, a->layer, a->out_scale, "out_scale", "out_dtype", l->out_dtype));
  return check_block_scales_given(a, l);
}
