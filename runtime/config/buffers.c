/* The buffers that a configuration asks for besides those of every runtime: the engine's own, the lengths of other sets, and
 * those on demand. */
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "base/status.h"
#include "cgr/names.h"
#include "runtime/config/config.h"

#define MAX_ROW_BYTES (1 << 20)

/* Whether a padding value is one of the dtype. */
static void check_padding(const cgr_buffer_decl *decl, const char *field, cgr__findings *f) {
  static const struct {
    int32_t dtype;
    int64_t low, high;
  } ranges[] = {
    { CGR_DTYPE_I8, INT8_MIN, INT8_MAX },    { CGR_DTYPE_U8, 0, UINT8_MAX },          { CGR_DTYPE_I32, INT32_MIN, INT32_MAX },
    { CGR_DTYPE_I64, INT64_MIN, INT64_MAX }, { CGR_DTYPE_FP32, -(1 << 24), 1 << 24 }, /* the integers that fp32 holds exactly */
  };
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
    if (ranges[i].dtype != decl->dtype)
      continue;
    cgr__in_range(f, field, decl->padding, ranges[i].low, ranges[i].high);
    return;
  }
  if (decl->padding != 0)
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, field, "is %lld, expected 0 for %s in this version", (long long)decl->padding,
                      cgr_dtype_name((cgr_dtype)decl->dtype));
}

/* A name that is no good is left out, so that no other can be the same. */
static void read_buffer_name(cgr__setup *setup, const char *name, int32_t i, cgr__findings *f) {
  cgr__field field = cgr__field_of("buffers", i, "name");
  cgr__declared *declared = setup->declared;
  if (!cgr__check_name(name, field.name, f))
    return;
  for (int32_t j = 0; j < i; j++)
    if (strcmp(name, declared[j].name) == 0)
      cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field.name, "is \"%s\", which buffers[%d] has already, expected another",
                        name, j);
  snprintf(declared[i].name, sizeof declared[i].name, "%s", name);
}

static int64_t rows_of(const cgr_config *c, int32_t dimension) {
  if (dimension == CGR_DIMENSION_TOKENS)
    return c->max_tokens;
  return dimension == CGR_DIMENSION_REQUESTS ? c->max_requests : (int64_t)c->max_rows + 1;
}

/* Whether the number of its elements is known. */
static bool check_decl(const cgr_buffer_decl *decl, int32_t i, cgr__findings *f) {
  bool counted = cgr__is_one(f, cgr__field_of("buffers", i, "dimension").name, decl->dimension, &cgr__dimensions);
  (void)cgr__is_one(f, cgr__field_of("buffers", i, "source").name, decl->source, &cgr__sources);
  bool wide = cgr__in_range(f, cgr__field_of("buffers", i, "width").name, decl->width, 1, (int64_t)1 << 40);
  if (cgr__is_whole(f, cgr__field_of("buffers", i, "dtype").name, decl->dtype))
    check_padding(decl, cgr__field_of("buffers", i, "padding").name, f);
  return counted && wide;
}

static bool check_size(const cgr__declared *d, int32_t i, cgr__findings *f) {
  if (d->rows <= CGR__MAX_ELEMENTS / d->width)
    return true;
  cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("buffers", i, "").name,
                    "would have %lld x %lld elements, expected at most 2^43", (long long)d->rows, (long long)d->width);
  return false;
}

/* Rows travel word by word, and the host keeps a copy of all. */
static void check_row_data(const cgr__declared *d, int32_t i, cgr__findings *f) {
  int64_t bytes = cgr__declared_bytes(d);
  if (d->source != CGR_SOURCE_STAGED || d->dimension != CGR_DIMENSION_ROWS)
    return;
  if (bytes % 4 != 0 || bytes > MAX_ROW_BYTES)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, cgr__field_of("buffers", i, "width").name,
                      "is %lld, which makes rows of %lld bytes, expected a multiple of 4 up to 2^20 for staged rows",
                      (long long)d->width, (long long)bytes);
}

static void read_decl(cgr__setup *setup, int32_t i, cgr__findings *f) {
  cgr_buffer_decl decl;
  cgr__declared *out = &setup->declared[i];
  if (!cgr__read_element("buffers", "CGR_BUFFER_DECL_INIT", setup->config.buffers, i, &decl, sizeof decl, f))
    return;
  if (decl.source == 0)
    decl.source = CGR_SOURCE_DEVICE;
  if (decl.width == 0)
    decl.width = 1;
  read_buffer_name(setup, decl.name, i, f);
  bool sized = check_decl(&decl, i, f);
  out->padding = decl.padding;
  out->dimension = decl.dimension;
  out->dtype = decl.dtype;
  out->source = decl.source;
  out->width = decl.width;
  out->rows = rows_of(&setup->config, decl.dimension);
  if (!sized || !check_size(out, i, f))
    out->width = 0; /* takes nothing */
  check_row_data(out, i, f);
}

void cgr__setup_buffers(cgr__setup *setup, cgr__findings *f) {
  cgr_config *c = &setup->config;
  if (!cgr__check_list(f, "num_buffers", "buffers", c->num_buffers, CGR__MAX_DECLARED, c->buffers))
    c->num_buffers = 0;
  for (int32_t i = 0; i < c->num_buffers; i++)
    read_decl(setup, i, f);
}

/* Data of the rows, as an engine may declare, that only the library sets. Returns the index of the buffer; -1: there is no room,
 * because of `field`. */
static int32_t declare_row_words(cgr__setup *setup, int64_t words, const char *field, int32_t value, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  if (setup->num_declared == CGR__MAX_DECLARED) {
    cgr__findings_add(f, CGR_ERROR_UNSUPPORTED, "num_buffers", "is %d, expected one less with %s %d", c->num_buffers, field,
                      value);
    return -1;
  }
  setup->declared[setup->num_declared] = (cgr__declared){ .dimension = CGR_DIMENSION_ROWS,
                                                          .dtype = CGR_DTYPE_I32,
                                                          .source = CGR_SOURCE_STAGED,
                                                          .rows = (int64_t)c->max_rows + 1,
                                                          .width = words };
  return setup->num_declared++;
}

/* Lengths in sets after 0, which cgr_request_set_other_length sets. */
void cgr__setup_lengths(cgr__setup *setup, cgr__findings *f) {
  const int32_t sets = setup->config.num_length_sets;
  setup->lengths = sets > 1 ? declare_row_words(setup, sets - 1, "num_length_sets", sets, f) : -1;
}

/* Stops, which cgr_request_set_stops sets. */
void cgr__setup_stops(cgr__setup *setup, cgr__findings *f) {
  const int32_t most = setup->config.max_stop_tokens;
  setup->stops = -1;
  if (most < 1 || most > CGR__MAX_STOP_TOKENS)
    return;
  setup->stops = declare_row_words(setup, CGR__STOPS_TOKENS + most, "max_stop_tokens", most, f);
  setup->limits.stop_words = setup->stops < 0 ? 0 : CGR__STOPS_TOKENS + most;
}

/* ------------------------------------------------------------------------------------------------------------- on demand */

/* Unknown bits become a finding; returns the others. All their names do not fit into one. */
static uint64_t known_bits(uint64_t asked, const char *field, cgr__findings *f) {
  if (asked & ~CGR__ALL_ON_DEMAND)
    cgr__findings_add(f, CGR_ERROR_INVALID_ENUM, field, "is 0x%llx, expected CGR_ON_DEMAND of buffers from %s to %s",
                      (unsigned long long)asked, cgr_buffer_name(CGR_BUFFER_KV_INDICES),
                      cgr_buffer_name((cgr_buffer)CGR__LAST_ON_DEMAND));
  return asked & CGR__ALL_ON_DEMAND;
}

static const char *first_name(uint64_t asked) {
  int id = CGR__BUFFER_KV_INDICES;
  while (!(asked & CGR__ON_DEMAND(id)))
    id++;
  return cgr_buffer_name((cgr_buffer)id);
}

/* What the prefills' buffers need: a batch that is split. */
static void check_split(uint64_t asked, bool split, const char *field, cgr__findings *f) {
  uint64_t prefills = asked & CGR__PREFILL_ON_DEMAND;
  if (prefills != 0 && !split)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "asks for %s, expected a backend in use whose reorder_threshold tells prefills from decodes",
                      first_name(prefills));
}

static void check_groups(uint64_t asked, int32_t num_groups, const char *field, cgr__findings *f) {
  uint64_t pages = asked & CGR__PAGE_ON_DEMAND;
  if (pages != 0 && num_groups == 0)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field, "asks for %s, expected a group that has pages", first_name(pages));
}

/* The length set whose rows may be longest; the first of equals. */
static int32_t longest_set(const cgr_config *c) {
  int32_t longest = 0;
  for (int32_t s = 1; s < c->num_length_sets; s++)
    longest = cgr__max_len(c, s) > cgr__max_len(c, longest) ? s : longest;
  return longest;
}

/* Running sums of tokens have 32 bits; they are of whatever set a step's tokens are. */
static void check_sums(const cgr_config *c, uint64_t asked, const char *field, cgr__findings *f) {
  uint64_t sums = asked & (CGR_ON_DEMAND(CGR_BUFFER_KV_START_LOC) | CGR_ON_DEMAND(CGR_BUFFER_CONTEXT_START_LOC) |
                           CGR_ON_DEMAND(CGR_BUFFER_PREFILL_KV_START_LOC));
  int32_t set = longest_set(c);
  if (sums != 0 && (int64_t)c->max_requests * cgr__max_len(c, set) > INT32_MAX)
    cgr__findings_add(f, CGR_ERROR_INVALID_ARGUMENT, field,
                      "asks for %s, a sum of up to %d x %d tokens, expected max_requests x %s below 2^31", first_name(sums),
                      c->max_requests, cgr__max_len(c, set), cgr__max_len_field(set).name);
}

void cgr__setup_on_demand(cgr__setup *setup, cgr__findings *f) {
  const cgr_config *c = &setup->config;
  uint64_t asked[1 + CGR__MAX_BACKENDS] = { known_bits(c->on_demand, "on_demand", f) };
  bool split = false;
  for (int32_t i = 1; i <= c->num_backends; i++) {
    const cgr_backend *b = &setup->backends[i];
    uint64_t bits = b->size == 0 ? 0 : known_bits(b->on_demand, cgr__field_of("backends", i - 1, "on_demand").name, f);
    bool used = b->size != 0 && cgr__setup_uses(setup, i);
    asked[i] = used ? bits : 0;
    split |= used && b->reorder_threshold > 0;
  }
  for (int32_t i = 0; i <= c->num_backends; i++) {
    cgr__field field = cgr__field_of("backends", i - 1, "on_demand");
    const char *name = i == 0 ? "on_demand" : field.name;
    check_split(asked[i], split, name, f);
    check_groups(asked[i], c->num_groups, name, f);
    check_sums(c, asked[i], name, f);
    setup->limits.on_demand |= asked[i];
  }
}
