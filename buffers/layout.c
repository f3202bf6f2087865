#include "buffers/layout.h"

#include <stdbool.h>
#include <string.h>

#include "base/status.h"
#include "cgr/names.h"

#define ARENA_ALIGNMENT 256
#define NUM_SCALARS 16
#define MAX_BYTES (8 * CGR__MAX_ELEMENTS) /* of the arena */

_Static_assert(sizeof(cgr__ring_slot_header) == 64 && sizeof(cgr__result_record) == 64, "records are one cache line");
_Static_assert(sizeof(cgr__change) == 16 && sizeof(cgr__edit) == 16, "the device reads each in one load");
_Static_assert(sizeof(cgr__completion) == 128, "the completion record is two cache lines");
_Static_assert(sizeof(cgr__limits) == (10 + CGR__MAX_SETS + 3 * CGR__MAX_GROUPS) * sizeof(int32_t) + 8 * sizeof(int64_t),
               "the hash reads every byte of the limits: none is between the fields");

static const struct {
  const char *name;
  cgr_dtype dtype;
  enum cgr__shape shape;
  enum cgr__copies copies;
  enum cgr__source source;
  int32_t padding;
} table[CGR__BUFFER_COUNT] = {
#define ENTRY(id, field, type, shape, copies, source, padding) \
  { #field, CGR_DTYPE_##type, CGR__SHAPE_##shape, CGR__COPIES_##copies, CGR__SOURCE_##source, padding },
  CGR__BUFFER_TABLE(ENTRY)
#undef ENTRY
};

/* cgr_buffer is the table's beginning. */
#define PUBLIC(id) _Static_assert((int)CGR__BUFFER_##id == (int)CGR_BUFFER_##id, "the table begins as cgr_buffer does")
PUBLIC(INPUT_IDS);
PUBLIC(SEQ_LENS);
PUBLIC(ROW_COMPUTED);
PUBLIC(PLAN);
PUBLIC(KV_INDICES);
PUBLIC(PREFILL_BLOCK_TABLE);
PUBLIC(ROW_DRAFT_TOKENS);
_Static_assert((int)CGR__BUFFER_REQUEST_FLAGS == (int)CGR_BUFFER_COUNT_, "the public buffers are the table's first");
_Static_assert(CGR__ON_DEMAND(CGR__BUFFER_CONTEXT_LENS) == CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_LENS), "one bit for each");

const char *cgr_buffer_name(cgr_buffer buffer) {
  if (buffer == CGR_BUFFER_DECLARED)
    return "declared";
  return (int)buffer >= 0 && buffer < CGR_BUFFER_COUNT_ ? table[buffer].name : "unknown";
}

/* ---------------------------------------------------------------------------------------------------------------- shapes */

static int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/* Where the sections of a slot are, except those of declared buffers, which come after them. */
static cgr__ring_slot_layout lay_out_slot(const cgr__limits *limits) {
  int64_t requests = limits->max_requests;
  cgr__ring_slot_layout slot;
  slot.batch = (int64_t)sizeof(cgr__ring_slot_header);
  slot.tokens = slot.batch + round_up((3 * requests + 1) * 4, 64);
  slot.changes = slot.tokens + round_up((int64_t)limits->max_tokens * 4, 64);
  slot.edits = slot.changes + round_up((int64_t)limits->max_changes * (int64_t)sizeof(cgr__change), 64);
  slot.stride = slot.edits + round_up(requests * (int64_t)sizeof(cgr__edit), 64);
  return slot;
}

/* Whether there is such a buffer. */
static bool is_asked_for(const cgr__limits *l, int id) {
  if (id == CGR__BUFFER_BLOCK_EXTENTS)
    id = CGR__BUFFER_BLOCK_TABLE; /* it is that one's */
  if (id == CGR__BUFFER_PREFILL_BLOCK_EXTENTS)
    id = CGR__BUFFER_PREFILL_BLOCK_TABLE;
  if (id == CGR__BUFFER_STAMPS)
    return l->stamp_stride > 0;
  if (id == CGR__BUFFER_VALUE_FLAGS)
    return l->value_words > 0;
  if (id >= CGR__BUFFER_NUM_DRAFTS && id <= CGR__BUFFER_ROW_DRAFT_TOKENS)
    return l->token_stride > 1;
  return table[id].source != CGR__SOURCE_ON_DEMAND || (l->on_demand & CGR__ON_DEMAND(id)) != 0;
}

static int32_t num_copies(const cgr__limits *l, int id) {
  const int32_t copies[] = { [CGR__COPIES_ONE] = 1, [CGR__COPIES_GROUP] = l->num_groups, [CGR__COPIES_SET] = l->num_sets };
  return is_asked_for(l, id) ? copies[table[id].copies] : 0;
}

static int64_t pages_each(const cgr__limits *l, int32_t copy) { return l->pages_each[copy] > 1 ? l->pages_each[copy] : 1; }

int64_t cgr__limits_kernel_pages(const cgr__limits *l, int32_t group) { return l->pages_per_row[group] * pages_each(l, group); }

cgr__buffer_shape cgr__buffer_shape_of(const cgr__limits *l, int id, int32_t copy) {
  const struct {
    int64_t rows, columns;
  } sizes[CGR__SHAPE_COUNT] = {
    [CGR__SHAPE_SCALARS] = { NUM_SCALARS, 1 },
    [CGR__SHAPE_TOKENS] = { l->max_tokens, 1 },
    [CGR__SHAPE_REQUESTS] = { l->max_requests, 1 },
    [CGR__SHAPE_REQUESTS_1] = { (int64_t)l->max_requests + 1, 1 },
    [CGR__SHAPE_REQUEST_TOKENS] = { l->max_requests, l->token_stride },
    [CGR__SHAPE_ROWS] = { (int64_t)l->max_rows + 1, 1 },
    [CGR__SHAPE_PROGRAM_ROWS] = { ((int64_t)l->max_rows + 1) * (l->num_programs > 1 ? l->num_programs : 1), 1 },
    [CGR__SHAPE_ROW_TOKENS] = { (int64_t)l->max_rows + 1, l->token_stride },
    [CGR__SHAPE_REQUEST_DRAFTS] = { l->max_requests, l->token_stride - 1 },
    [CGR__SHAPE_ROW_DRAFTS] = { (int64_t)l->max_rows + 1, l->token_stride - 1 },
    [CGR__SHAPE_ROW_PAGES] = { (int64_t)l->max_rows + 1, l->pages_per_row[copy] },
    [CGR__SHAPE_REQUEST_PAGES] = { l->max_requests, cgr__limits_kernel_pages(l, copy) },
    [CGR__SHAPE_BATCH_PAGES] = { l->max_requests * cgr__limits_kernel_pages(l, copy), 1 },
    [CGR__SHAPE_PLAN] = { l->plan_words, 1 },
    [CGR__SHAPE_PLAN_COUNTERS] = { l->plan_counters, 1 },
    [CGR__SHAPE_PARTIAL_OUT] = { l->partial_vectors, l->partial_dim },
    [CGR__SHAPE_PARTIAL_STATE] = { l->partial_vectors, 2 },
    [CGR__SHAPE_RING_SLOT] = { lay_out_slot(l).stride / 4, 1 },
    [CGR__SHAPE_STAMPS] = { (int64_t)l->ring_depth + 1, l->stamp_stride },
    [CGR__SHAPE_VALUES] = { l->max_requests, l->value_words },
  };
  cgr__buffer_shape shape = { .name = table[id].name, .dtype = table[id].dtype, .padding = table[id].padding };
  shape.shape = table[id].shape;
  shape.source = table[id].source;
  shape.rows = sizes[table[id].shape].rows;
  shape.columns = sizes[table[id].shape].columns;
  shape.copies = num_copies(l, id);
  shape.of_groups = table[id].copies == CGR__COPIES_GROUP;
  return shape;
}

/* ---------------------------------------------------------------------------------------------------------------- layout */

static bool is_too_large(int64_t rows, int64_t columns) { return columns > 0 && rows > CGR__MAX_ELEMENTS / columns; }

/* The sections of what is staged by tokens or by requests; rows travel as changes. */
static void place_sections(cgr__layout *layout) {
  for (int32_t i = 0; i < layout->num_declared; i++) {
    cgr__declared *d = &layout->declared[i];
    if (d->source != CGR_SOURCE_STAGED || d->dimension == CGR_DIMENSION_ROWS)
      continue;
    d->slot_offset = layout->slot.stride;
    layout->slot.stride += round_up(d->rows * cgr__declared_bytes(d), 64);
  }
}

static void make_rings(const cgr__limits *limits, cgr__layout *layout) {
  cgr__ring_slot_layout *slot = &layout->slot;
  cgr__readback_layout *readback = &layout->readback;
  int64_t requests = limits->max_requests;
  *slot = lay_out_slot(limits);
  place_sections(layout);
  readback->num_tokens = (int64_t)sizeof(cgr__result_record);
  readback->tokens = readback->num_tokens + (limits->stop_words > 0 ? 3 : 1) * round_up(requests * 4, 64);
  readback->values = readback->tokens + round_up(requests * limits->token_stride * 4, 64);
  readback->stride = readback->values + round_up(requests * limits->value_words * 4, 64);
  layout->pinned_bytes = sizeof(cgr__completion) + (size_t)((slot->stride + readback->stride) * limits->ring_depth);
}

static size_t place_section(size_t *cursor, int64_t elements, cgr_dtype dtype) {
  size_t at = *cursor;
  *cursor = (size_t)round_up((int64_t)(at + (size_t)elements * cgr_dtype_size(dtype)), ARENA_ALIGNMENT);
  return at;
}

cgr_status cgr__layout_make(const cgr__limits *limits, const cgr__declared *declared, int32_t num_declared, cgr__layout *layout) {
  size_t cursor = 0;
  memset(layout, 0, sizeof *layout);
  layout->num_declared = num_declared;
  if (num_declared > 0)
    memcpy(layout->declared, declared, (size_t)num_declared * sizeof *declared);
  for (int32_t i = 0; i < num_declared; i++)
    if (is_too_large(declared[i].rows, declared[i].width))
      return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: buffers[%d] would have %lld x %lld elements, expected at most 2^43",
                       i, (long long)declared[i].rows, (long long)declared[i].width);
  make_rings(limits, layout); /* first: their size is known also when the arena is too large */
  for (int id = 0; id < CGR__BUFFER_COUNT; id++) {
    for (int32_t copy = 0; copy < cgr__buffer_shape_of(limits, id, 0).copies; copy++) {
      cgr__buffer_shape shape = cgr__buffer_shape_of(limits, id, copy);
      if (is_too_large(shape.rows, shape.columns))
        return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: buffer %s would have %lld x %lld elements, expected at most 2^43",
                         shape.name, (long long)shape.rows, (long long)shape.columns);
      layout->offset[id][copy] = place_section(&cursor, shape.rows * shape.columns, shape.dtype);
    }
  }
  for (int32_t i = 0; i < num_declared; i++) {
    cgr__declared *d = &layout->declared[i];
    d->offset = place_section(&cursor, d->rows * d->width, (cgr_dtype)d->dtype);
  }
  if (cursor > (size_t)MAX_BYTES)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: the buffers would take %zu bytes, expected at most 2^46 bytes", cursor);
  if (layout->pinned_bytes > (size_t)MAX_BYTES)
    return cgr__fail(CGR_ERROR_INVALID_ARGUMENT, "config: the rings would take %zu bytes, expected at most 2^46 bytes",
                     layout->pinned_bytes);
  layout->bytes = cursor;
  return CGR_OK;
}

/* ------------------------------------------------------------------------------------------------------ view, first fill */

#define SET_ONE(view, type, field, i, address) (view)->field = (type *)(address);
#define SET_SET(view, type, field, i, address) (view)->field[i] = (type *)(address);
#define SET_GROUP(view, type, field, i, address) (view)->group[i].field = (type *)(address);

void cgr__layout_view(const cgr__limits *limits, const cgr__layout *layout, unsigned char *base, cgr__buffers *view) {
  memset(view, 0, sizeof *view);
#define SET(id, field, type, shape, copies, source, padding)         \
  for (int32_t i = 0; i < num_copies(limits, CGR__BUFFER_##id); i++) \
  SET_##copies(view, CGR__TYPE_##type, field, i, (void *)(base + layout->offset[CGR__BUFFER_##id][i]))
  CGR__BUFFER_TABLE(SET)
#undef SET
}

static uint64_t bits_of(cgr_dtype dtype, int64_t value) {
  float number = (float)value;
  uint32_t bits;
  if (dtype != CGR_DTYPE_FP32)
    return (uint64_t)value;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

uint64_t cgr__declared_pattern(const cgr__declared *d) {
  size_t bits = 8 * cgr_dtype_size((cgr_dtype)d->dtype);
  uint64_t pattern = bits_of((cgr_dtype)d->dtype, d->padding);
  if (bits < 64)
    pattern &= ((uint64_t)1 << bits) - 1;
  for (; bits < 64; bits *= 2)
    pattern |= pattern << bits;
  return pattern;
}

static int64_t first_value(const cgr__limits *limits, int32_t padding, int32_t copy) {
  switch (padding) {
  case CGR__PADDING_TRASH:
    return limits->trash_page[copy];
  case CGR__PADDING_KERNEL_TRASH:
    return limits->trash_page[copy] * pages_each(limits, copy);
  case CGR__PADDING_ROW:
    return limits->max_rows;
  case CGR__PADDING_REPEAT:
  case CGR__PADDING_NONE:
    return 0;
  default:
    return padding;
  }
}

int cgr__layout_first_fills(const cgr__limits *limits, const cgr__layout *layout,
                            int (*fill)(void *context, const cgr__first_fill *fill), void *context) {
  int error = 0;
  for (int id = 0; id < CGR__BUFFER_COUNT; id++) {
    for (int32_t copy = 0; copy < cgr__buffer_shape_of(limits, id, 0).copies && !error; copy++) {
      cgr__buffer_shape shape = cgr__buffer_shape_of(limits, id, copy);
      int64_t value = first_value(limits, shape.padding, copy);
      cgr__first_fill first = { layout->offset[id][copy], cgr_dtype_size(shape.dtype), (size_t)(shape.rows * shape.columns),
                                bits_of(shape.dtype, value) };
      if (value != 0 && first.count != 0)
        error = fill(context, &first);
    }
  }
  for (int32_t i = 0; i < layout->num_declared && !error; i++) {
    const cgr__declared *d = &layout->declared[i];
    cgr__first_fill first = { d->offset, cgr_dtype_size((cgr_dtype)d->dtype), (size_t)(d->rows * d->width),
                              bits_of((cgr_dtype)d->dtype, d->padding) };
    if (d->padding != 0)
      error = fill(context, &first);
  }
  return error;
}
