/* The scales that an attention call names: one for q, one for out, and those of the blocks of an out of 4 bits. */
#ifndef CGR_RUNTIME_RECORD_SCALES_H
#define CGR_RUNTIME_RECORD_SCALES_H

#include "runtime/record/view_check.h"

/* Whether each is given where the layer has values for it, and q_scale and out_scale can be read. */
cgr_status cgr__scales_check(const cgr__step_recorder *recorder, const cgr_attention *attention);

/* Block scales as a view: tiles are the rows of one head. */
typedef struct cgr__block_scales {
  cgr_view view;
  cgr__view_shape shape;
} cgr__block_scales;
cgr__block_scales cgr__block_scales_of(const cgr__step_recorder *recorder, const cgr_attention *attention);

/* Whether out's block scales have a place, if there are any: for calls that attend. */
cgr_status cgr__block_scales_check(const cgr__step_recorder *recorder, const cgr_attention *attention);

#endif
