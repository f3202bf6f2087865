#include "buffers/layout.h"

#include <string.h>

#include "base/status.h"

#define ARENA_ALIGNMENT 256
#define STEP_STATE_WORDS 16 /* i64; the kernels' cgr__step_state fits (checked where both are known) */
#define COUNT_WORDS 16

_Static_assert((int)CGR__BUFFER_INPUT_IDS == (int)CGR_BUFFER_INPUT_IDS, "the table begins with the public buffers");
_Static_assert((int)CGR__BUFFER_PLAN == (int)CGR_BUFFER_PLAN, "the table keeps the order of cgr_buffer");
_Static_assert((int)CGR__BUFFER_PLAN + 1 == (int)CGR_BUFFER_COUNT_, "the public buffers are the table's first");
_Static_assert(sizeof(cgr__slot_header) == 64 && sizeof(cgr__result_record) == 64, "records are one line");
_Static_assert(sizeof(cgr__completion) == 128, "the completion record is two lines");

enum shape {
  SHAPE_TOKENS,
  SHAPE_REQUESTS,
  SHAPE_REQUESTS_1,
  SHAPE_ROWS,
  SHAPE_ROW_PAGES,
  SHAPE_COUNTS,
  SHAPE_PLAN,
  SHAPE_STEP_STATE,
  SHAPE_PLAN_COUNTERS,
  SHAPE_PARTIAL_OUT,
  SHAPE_PARTIAL_MAX_SUM
};
enum copies { COPIES_ONE, COPIES_GROUP, COPIES_SET };

static const struct {
  const char *name;
  cgr_dtype dtype;
  enum shape shape;
  enum copies copies;
  int32_t padding;
} table[CGR__BUFFER_COUNT] = {
#define ENTRY(id, name, dtype, shape, copies, source, padding) \
  { name, CGR_DTYPE_##dtype, SHAPE_##shape, COPIES_##copies, padding },
  CGR__BUFFER_TABLE(ENTRY)
#undef ENTRY
};

cgr__buffer_shape cgr__layout_shape(const cgr__limits *limits, int id, int copy) {
  cgr__buffer_shape shape = { table[id].name, table[id].dtype, 0, 1, 1, table[id].padding };
  if (table[id].copies == COPIES_GROUP)
    shape.copies = limits->num_groups;
  if (table[id].copies == COPIES_SET)
    shape.copies = limits->num_sets;
  switch (table[id].shape) {
  case SHAPE_TOKENS:
    shape.rows = limits->max_tokens;
    break;
  case SHAPE_REQUESTS:
    shape.rows = limits->max_requests;
    break;
  case SHAPE_REQUESTS_1:
    shape.rows = limits->max_requests + 1;
    break;
  case SHAPE_ROWS:
    shape.rows = limits->max_rows;
    break;
  case SHAPE_ROW_PAGES:
    shape.rows = limits->max_rows;
    shape.columns = limits->pages_per_row[copy];
    break;
  case SHAPE_COUNTS:
    shape.rows = COUNT_WORDS;
    break;
  case SHAPE_PLAN:
    shape.rows = limits->plan_words;
    break;
  case SHAPE_STEP_STATE:
    shape.rows = STEP_STATE_WORDS;
    break;
  case SHAPE_PLAN_COUNTERS:
    shape.rows = limits->plan_counters;
    break;
  case SHAPE_PARTIAL_OUT:
    shape.rows = limits->partial_vectors;
    shape.columns = limits->partial_dim;
    break;
  case SHAPE_PARTIAL_MAX_SUM:
    shape.rows = limits->partial_vectors;
    shape.columns = 2;
    break;
  }
  return shape;
}

static int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

static void make_slot(const cgr__limits *limits, cgr__layout *layout) {
  int64_t batch_words = (int64_t)3 * limits->max_requests + 1;
  layout->slot.batch = (int64_t)sizeof(cgr__slot_header);
  layout->slot.tokens = layout->slot.batch + round_up(batch_words * 4, 64);
  layout->slot.changes = layout->slot.tokens + round_up((int64_t)limits->max_tokens * 4, 64);
  layout->slot.stride = layout->slot.changes + round_up((int64_t)limits->max_changes * (int64_t)sizeof(cgr__change), 64);
  layout->readback_stride = (int64_t)sizeof(cgr__result_record) + round_up((int64_t)limits->max_requests * 4, 64);
  int64_t per_step = layout->slot.stride + layout->readback_stride;
  layout->pinned_bytes = sizeof(cgr__completion) + (size_t)(per_step * limits->ring_depth);
}

/* FNV-1a. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *byte = data;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ byte[i]) * 1099511628211u;
  return hash;
}

static size_t place(size_t *cursor, int64_t elements, cgr_dtype dtype) {
  size_t at = *cursor;
  *cursor = (size_t)round_up((int64_t)(at + (size_t)elements * cgr_dtype_size(dtype)), ARENA_ALIGNMENT);
  return at;
}

cgr_status cgr__layout_make(const cgr__limits *limits, const cgr__declared *declared, int32_t num_declared, cgr__layout *layout) {
  const int64_t limit = (int64_t)1 << 46;
  memset(layout, 0, sizeof *layout);
  size_t cursor = 0;
  for (int id = 0; id < CGR__BUFFER_COUNT; id++) {
    int32_t copies = cgr__layout_shape(limits, id, 0).copies;
    for (int32_t copy = 0; copy < copies; copy++) {
      cgr__buffer_shape shape = cgr__layout_shape(limits, id, copy);
      if (shape.rows * shape.columns > limit / 8 || (int64_t)cursor > limit)
        return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: buffer %s would have %lld x %lld elements, expected less than 2^43",
                         shape.name, (long long)shape.rows, (long long)shape.columns);
      layout->offset[id][copy] = place(&cursor, shape.rows * shape.columns, shape.dtype);
    }
  }
  for (int32_t i = 0; i < num_declared; i++) {
    layout->declared[i] = declared[i];
    if (declared[i].width > limit / 8 / declared[i].rows || (int64_t)cursor > limit)
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: buffers[%d].width is %lld, expected less than 2^43 elements in all",
                       i, (long long)declared[i].width);
    layout->declared[i].offset = place(&cursor, declared[i].rows * declared[i].width, (cgr_dtype)declared[i].dtype);
  }
  layout->num_declared = num_declared;
  layout->bytes = cursor;
  make_slot(limits, layout);
  layout->hash = hash_bytes(1469598103934665603u, limits, sizeof *limits);
  layout->hash = hash_bytes(layout->hash, layout->offset, sizeof layout->offset);
  layout->hash = hash_bytes(layout->hash, &layout->slot, sizeof layout->slot);
  return CGR_OK;
}

static void put(cgr_dtype dtype, void *memory, int64_t i, int64_t value) {
  if (dtype == CGR_DTYPE_I64)
    ((int64_t *)memory)[i] = value;
  else if (dtype == CGR_DTYPE_I32)
    ((int32_t *)memory)[i] = (int32_t)value;
  else if (dtype == CGR_DTYPE_I8)
    ((int8_t *)memory)[i] = (int8_t)value;
  else if (dtype == CGR_DTYPE_FP32)
    ((float *)memory)[i] = (float)value;
}

void cgr__layout_fill_declared(const cgr__declared *declared, void *memory) {
  int64_t elements = declared->rows * declared->width;
  memset(memory, 0, (size_t)elements * cgr_dtype_size((cgr_dtype)declared->dtype));
  for (int64_t i = 0; declared->padding != 0 && i < elements; i++)
    put((cgr_dtype)declared->dtype, memory, i, declared->padding);
}

void cgr__layout_first_fill(const cgr__buffer_shape *shape, int32_t trash_page, void *memory) {
  int64_t elements = shape->rows * shape->columns;
  int32_t value = shape->padding == CGR__PAD_TRASH ? trash_page : shape->padding == CGR__PAD_REPEAT ? 0 : shape->padding;
  if (value == 0) {
    memset(memory, 0, (size_t)elements * cgr_dtype_size(shape->dtype));
    return;
  }
  for (int64_t i = 0; i < elements; i++)
    put(shape->dtype, memory, i, value);
}
