/* The persistent buffers and the engine's own, as views. */
#include <stdio.h>

#include "cgr/names.h"
#include "runtime/runtime.h"

static const char *buffer_name(int64_t buffer) { return cgr_buffer_name((cgr_buffer)buffer); }

static const cgr__choices buffers = { "cgr_buffer", false, 0, CGR_BUFFER_COUNT_ - 1, buffer_name };

static cgr_status view_declared(const cgr_runtime *rt, const char *function, int32_t index, cgr_buffer_view *full) {
  if (index < 0 || index >= rt->setup.config.num_buffers)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT,
                     "%s: index of declared is %d, expected that of one of cgr_config.buffers (num_buffers is %d)", function,
                     index, rt->setup.config.num_buffers);
  const cgr__declared *declared = &rt->layout.declared[index];
  full->dtype = declared->dtype;
  full->data = rt->arena + declared->offset;
  full->shape[0] = declared->rows;
  full->shape[1] = full->stride = declared->width;
  return CGR_OK;
}

static cgr_status view_own(const cgr_runtime *runtime, const char *function, int32_t program, cgr_buffer buffer, int32_t index,
                           cgr_buffer_view *full) {
  CGR__TRY(cgr__check_choice(function, "buffer", &buffers, (int32_t)buffer));
  cgr__buffer_shape shape = cgr__buffer_shape_of(&runtime->setup.limits, (int)buffer, 0);
  if (shape.copies == 0 && buffer >= CGR_BUFFER_NUM_DRAFTS && buffer <= CGR_BUFFER_ROW_DRAFT_TOKENS)
    return cgr__fail(CGR_ERROR_STATE, "%s: buffer is %s, expected another: there are no guesses (num_draft_tokens is 0)",
                     function, shape.name);
  if (shape.copies == 0 && shape.source != CGR__SOURCE_ON_DEMAND)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: buffer is %s, expected another: there is no group (num_groups is 0)",
                     function, shape.name);
  if (shape.copies == 0)
    return cgr__fail(CGR_ERROR_STATE,
                     "%s: buffer is %s, which was not asked for, expected its CGR_ON_DEMAND bit in cgr_config.on_demand, or in "
                     "that of a backend in use",
                     function, shape.name);
  if (index < 0 || index >= shape.copies)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "%s: index of %s is %d, expected 0 .. %d", function, shape.name, index,
                     shape.copies - 1);
  shape = cgr__buffer_shape_of(&runtime->setup.limits, (int)buffer, index);
  full->dtype = (int32_t)shape.dtype;
  full->data = runtime->arena + runtime->layout.offset[buffer][index];
  full->shape[0] = shape.rows;
  full->shape[1] = full->stride = shape.columns;
  if (buffer == CGR_BUFFER_ROW_COMPUTED) { /* those of one program after the other */
    full->shape[0] = (int64_t)runtime->setup.limits.max_rows + 1;
    full->data = (int32_t *)full->data + program * full->shape[0];
  }
  if (buffer == CGR_BUFFER_PAGE_TABLE) { /* the engine's own table where it keeps one */
    full->data = runtime->lane.args.buffers.group[index].page_table;
    full->stride = runtime->lane.args.group[index].page_table_stride;
  }
  return CGR_OK;
}

cgr_status cgr__buffer_get(cgr_runtime *runtime, const char *function, const cgr_where *where, cgr_buffer buffer, int32_t index,
                           cgr_buffer_view *view) {
  char field[40];
  cgr_buffer_view full = CGR_BUFFER_VIEW_INIT;
  CGR__TRY(cgr__runtime_check_where(runtime, function, where));
  snprintf(field, sizeof field, "%s: view", function);
  CGR__TRY(cgr__sized_check(field, "CGR_BUFFER_VIEW_INIT", view));
  if (buffer == CGR_BUFFER_DECLARED)
    CGR__TRY(view_declared(runtime, function, index, &full));
  else
    CGR__TRY(view_own(runtime, function, where ? where->program : 0, buffer, index, &full));
  cgr__sized_write(view, &full, sizeof full);
  return CGR_OK;
}

cgr_status cgr_buffer_get(cgr_runtime *runtime, const cgr_where *where, cgr_buffer buffer, int32_t index, cgr_buffer_view *view) {
  return cgr__buffer_get(runtime, "cgr_buffer_get", where, buffer, index, view);
}
