/* Where each persistent buffer lies in the arena. Pure arithmetic over the limits; the arena itself is one block of device
 * memory that the runtime allocates or the engine supplies. */
#ifndef CGR_BUFFERS_LAYOUT_H
#define CGR_BUFFERS_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "buffers/slot.h"
#include "buffers/table.h"
#include "cgr/cgr.h"

#define CGR__LAYOUT_GROUPS 4
#define CGR__LAYOUT_SETS 4
#define CGR__LAYOUT_DECLARED 64

/* Everything that sizes a buffer. Nothing live. */
typedef struct cgr__limits {
  int32_t max_requests, max_rows, max_tokens, max_seq_len; /* R, M, T */
  int32_t num_groups, num_sets;
  int32_t pages_per_row[CGR__LAYOUT_GROUPS]; /* P */
  int32_t ring_depth, max_changes;
  int64_t plan_words, plan_counters;    /* what the planner of the attention asks for */
  int64_t partial_vectors, partial_dim; /* fp32 partial outputs: vectors, and elements of each */
} cgr__limits;

typedef struct cgr__declared {
  char name[32];
  int32_t dimension, dtype;
  int64_t width, rows;
  int64_t padding; /* what every element holds at first, as a value of the dtype */
  size_t offset;
} cgr__declared;

typedef struct cgr__layout {
  size_t offset[CGR__BUFFER_COUNT][CGR__LAYOUT_GROUPS]; /* bytes into the arena; second index: group or length set */
  cgr__declared declared[CGR__LAYOUT_DECLARED];
  int32_t num_declared;
  size_t bytes; /* of the arena */
  cgr__slot_layout slot;
  int64_t readback_stride;
  size_t pinned_bytes; /* rings and completion record */
  uint64_t hash;       /* of all of the above and the limits */
} cgr__layout;

/* Elements of a buffer: rows x columns, and how many copies there are. */
typedef struct cgr__buffer_shape {
  const char *name;
  cgr_dtype dtype;
  int64_t rows, columns;
  int32_t copies;
  int32_t padding;
} cgr__buffer_shape;
cgr__buffer_shape cgr__layout_shape(const cgr__limits *limits, int id, int copy);

/* Lays everything out. Fails with CGR_ERROR_INVALID_ARGUMENT when a size passes 2^46 bytes. `declared` [num_declared] has
 * been validated. */
cgr_status cgr__layout_make(const cgr__limits *limits, const cgr__declared *declared, int32_t num_declared, cgr__layout *layout);

/* Writes the first content of a buffer (its padding value in every element) to host memory of rows * columns elements. */
void cgr__layout_first_fill(const cgr__buffer_shape *shape, int32_t trash_page, void *memory);
void cgr__layout_fill_declared(const cgr__declared *declared, void *memory);

#endif
