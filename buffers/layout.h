/* Where each persistent buffer is in the arena: arithmetic over the limits and the table. The arena is one block of device
 * memory that the runtime allocates or the engine supplies. */
#ifndef CGR_BUFFERS_LAYOUT_H
#define CGR_BUFFERS_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers/ring_slot.h"
#include "buffers/table.h"
#include "cgr/cgr.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything that sizes a buffer. Nothing live. */
typedef struct cgr__limits {
  int32_t max_requests, max_rows, max_tokens; /* R, M, T */
  int32_t num_groups, num_sets;
  int32_t max_lens[CGR__MAX_SETS];        /* tokens of a row in each length set */
  int32_t pages_per_row[CGR__MAX_GROUPS]; /* P */
  int32_t trash_page[CGR__MAX_GROUPS];    /* read-trash */
  int32_t pages_each[CGR__MAX_GROUPS];    /* n: pages of backends in one of a group's; 0: 1 */
  int32_t token_stride;                   /* 1 + k: tokens that a request can sample in one step */
  int32_t ring_depth, max_changes;
  int32_t num_programs; /* 0: 1 */
  int32_t reserved;
  int64_t stamp_stride;                 /* words of the timestamps of a step (kernels/stamp.h); 0: none are taken */
  int64_t plan_words, plan_counters;    /* as the plans ask */
  int64_t partial_vectors, partial_dim; /* fp32 partial outputs: vectors, and elements of each */
  int64_t value_words;                  /* of the flags of a request (kernels/values.h): 1; 0: values are not checked */
  uint64_t on_demand;                   /* buffers that were asked for: CGR__ON_DEMAND bits */
  int64_t stop_words;                   /* of a row's stops; 0: rows have none */
} cgr__limits;

/* A step: the dimension of what backends keep. Not a cgr_dimension, because engines cannot declare it. */
#define CGR__DIMENSION_STEP 4

/* A buffer that the engine declares, or one of a backend, which has no name. */
typedef struct cgr__declared {
  char name[32];
  int32_t dimension, dtype, source; /* cgr_dimension or CGR__DIMENSION_STEP, cgr_dtype, cgr_source */
  int64_t rows, width;
  int64_t padding; /* what every element holds at first, and where nothing was staged, as a value of the dtype */
  size_t offset;
  int64_t slot_offset; /* of its section in a ring slot; 0: it has none */
} cgr__declared;

/* Bytes of one token, request or row. */
static inline int64_t cgr__declared_bytes(const cgr__declared *d) {
  return d->width * (int64_t)cgr_dtype_size((cgr_dtype)d->dtype);
}
/* The padding value, repeated to fill eight bytes. */
uint64_t cgr__declared_pattern(const cgr__declared *d);

typedef struct cgr__layout {
  size_t offset[CGR__BUFFER_COUNT][CGR__MAX_GROUPS]; /* bytes into the arena; second index: group, length set or 0 */
  cgr__declared declared[CGR__MAX_DECLARED];
  int32_t num_declared;
  size_t bytes; /* of the arena */
  cgr__ring_slot_layout slot;
  cgr__readback_layout readback;
  size_t pinned_bytes; /* of the rings */
} cgr__layout;

/* A buffer's shape under given limits. */
typedef struct cgr__buffer_shape {
  const char *name;
  cgr_dtype dtype;
  enum cgr__shape shape;
  enum cgr__source source;
  int64_t rows, columns;
  int32_t copies;  /* 0: it was not asked for */
  int32_t padding; /* a number or CGR__PADDING_* */
  bool of_groups;  /* one for each group */
} cgr__buffer_shape;
/* Pages of a row for backends: P * n. */
int64_t cgr__limits_kernel_pages(const cgr__limits *limits, int32_t group);
cgr__buffer_shape cgr__buffer_shape_of(const cgr__limits *limits, int id, int32_t copy);

/* Lays everything out. CGR_ERROR_INVALID_ARGUMENT when a buffer exceeds 2^43 elements, or all buffers or the rings 2^46 bytes.
 * `declared` has been validated. */
cgr_status cgr__layout_make(const cgr__limits *limits, const cgr__declared *declared, int32_t num_declared, cgr__layout *layout);

/* The addresses of all buffers in an arena at `base`; NULL for those that were not asked for. */
void cgr__layout_view(const cgr__limits *limits, const cgr__layout *layout, unsigned char *base, cgr__buffers *view);

/* A range of the arena and its elements' initial value. */
typedef struct cgr__first_fill {
  size_t offset;
  size_t width; /* bytes of an element: 1, 2, 4 or 8 */
  size_t count;
  uint64_t value; /* bits of an element */
} cgr__first_fill;

/* What fills the arena before its first step: calls `fill` for each buffer whose elements do not begin as zeros. */
int cgr__layout_first_fills(const cgr__limits *limits, const cgr__layout *layout,
                            int (*fill)(void *context, const cgr__first_fill *fill), void *context);

#ifdef __cplusplus
}
#endif
#endif
